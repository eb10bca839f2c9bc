"""A trace to write events to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.kineto_traces import Write
from tests.support.profile_shelf import Event


@pytest.fixture(scope="module")
def write(tmp_path_factory: pytest.TempPathFactory) -> Write:
    """Write events as a trace of rank 0, the same file each time."""
    path = tmp_path_factory.mktemp("traces") / "rank0.pt.trace.json"

    def written(events: Sequence[Event], **head: Any) -> Path:
        document = {"schemaVersion": 1, **head, "traceEvents": list(events)}
        path.write_text(json.dumps(document), encoding="utf-8")
        return path

    return written
