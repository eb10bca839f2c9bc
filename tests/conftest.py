"""Turns the Perfetto test support into pytest fixtures."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NoReturn

import pytest
from perfetto_sql import TraceProcessor

if TYPE_CHECKING:
    from perfetto_ui import PerfettoUi


@pytest.fixture
def trace_processor() -> Callable[[bytes], TraceProcessor]:
    """Load trace bytes into a new trace processor."""
    return TraceProcessor.load


@pytest.fixture(scope="session")
def ui() -> Iterator[PerfettoUi]:
    """Share one Perfetto UI between the tests that drop files on it."""
    if importlib.util.find_spec("playwright") is None:
        _do_without_browser("playwright is not installed")
    from perfetto_ui import browser_path, perfetto_ui

    if browser_path() is None:
        _do_without_browser("there is no Chromium on the PATH")
    with perfetto_ui() as page:
        yield page


def _do_without_browser(reason: str) -> NoReturn:
    """Skip the test, or fail it where TLEXPORT_REQUIRE_BROWSER=1 promises a browser."""
    if os.environ.get("TLEXPORT_REQUIRE_BROWSER") == "1":
        pytest.fail(f"TLEXPORT_REQUIRE_BROWSER=1, but {reason}")
    pytest.skip(reason)
