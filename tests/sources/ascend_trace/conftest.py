"""Both ways to read events, and a file to write them to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.trace_json_reading import EventObject, Writer
from timeline.sources.decoders import json_events


@pytest.fixture(autouse=True, params=["scanned", "decoded"], scope="module")
def _reader(request: pytest.FixtureRequest) -> Iterator[None]:
    """Everything holds for both ways to read events."""
    if request.param == "scanned" and json_events.Scanner is None:
        pytest.skip("the package was built without a compiler")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "decoded":
            patch.setattr(json_events, "Scanner", None)
        yield


@pytest.fixture(scope="module")
def write(tmp_path_factory: pytest.TempPathFactory) -> Writer:
    """Write events to a file, the same one each time."""
    directory = tmp_path_factory.mktemp("traces")

    def written(events: Sequence[EventObject], name: str = "trace.json") -> Path:
        path = directory / name
        path.write_text(json.dumps(events), encoding="utf-8")
        return path

    return written
