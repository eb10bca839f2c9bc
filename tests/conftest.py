"""Fixtures that tests of several folders use."""

from __future__ import annotations

import gc
import importlib.util
import os
import signal
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.support.deadline import deadline
from tests.support.layout_table import ReadLayout, read_layout
from tests.support.perfetto_sql import TraceProcessor
from tests.support.profile_shelf import COMPARABLE, VARIANTS, Copier, Profile, ProfileShelf
from tests.support.run_command import OPERATOR_VARIABLES, Command
from timeline.ranks.executors import Processes

if TYPE_CHECKING:
    from tests.support.perfetto_ui import PerfettoUi

os.environ["LC_ALL"] = "C.UTF-8"  # tests read English, whatever the locale
IN_CI = bool(os.environ.get("CI"))
EXAMPLES = 20 if IN_CI else 100
"""A CI, which may be half as fast, has to end in time; it tries fewer, not all of them the same."""
settings.register_profile(
    "tlexport",
    deadline=None,
    derandomize=True,  # the same examples on every machine: a failure is a change
    max_examples=int(os.environ.get("TLEXPORT_EXAMPLES", EXAMPLES)),
    # Who mends a defect wants a small example, which takes minutes to find; a CI says there is one.
    phases=[Phase.explicit, Phase.generate] if IN_CI else list(Phase),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tlexport")

MOST_SECONDS = 600.0
"""The slowest test takes one of them; a test that waits for what never comes takes more."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in its background so, and all that the tests start would be deaf too.
    signal.signal(signal.SIGINT, signal.default_int_handler)


SWEEP_STEP = int(os.environ.get("TLEXPORT_SWEEP_STEP", "4"))
"""A CI tries the first of so many cases of a sweep: it has to end within twenty minutes."""
LONGEST = ("test_compiled.py", "test_viewer.py")
"""Files of few tests that take minutes: each of the two processes begins with one."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with what takes longest, so that no process waits for another one in the end.

    In a CI most cases of sweeps are left out, the same ones each time.
    """
    items.sort(key=lambda item: item.path.name not in LONGEST)
    if not IN_CI:
        return
    cases: Counter[str] = Counter()
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        test = item.nodeid.partition("[")[0]
        is_tried = item.get_closest_marker("sweep") is None or cases[test] % SWEEP_STEP == 0
        (kept if is_tried else left).append(item)
        cases[test] += 1
    config.hook.pytest_deselected(items=left)
    items[:] = kept


def pytest_collection_finish() -> None:
    """Keep what all tests are from being looked at again with each collection of garbage."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, None, None]:
    """Fail a test whose fixtures hang."""
    with deadline(MOST_SECONDS):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """Fail a test that hangs."""
    with deadline(MOST_SECONDS):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, None, None]:
    """Fail a test whose fixtures never end."""
    with deadline(MOST_SECONDS):
        return (yield)


@pytest.fixture
def trace_processor() -> Callable[[bytes], TraceProcessor]:
    """Load trace bytes into a new trace processor."""
    return TraceProcessor.load


@pytest.fixture
def executor() -> Iterator[Processes]:
    """Two processes, as ranks are read by."""
    with Processes(2) as made:
        yield made


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProfileShelf]:
    """Share tiny profiles of every layout between all tests, and see that none changes them."""
    shelf = ProfileShelf(tmp_path_factory.mktemp("profiles"))
    yield shelf
    assert shelf.changed() == []


@pytest.fixture
def copied(shelf: ProfileShelf, tmp_path: Path) -> Copier:
    """Copy the profile of a layout for a test that changes it."""
    return lambda layout, **run: shelf.copy(layout, tmp_path / "run", **run)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of the test alone, which it runs in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    """The command, in a directory of its own, which it is run in."""
    directory = tmp_path / "here"
    directory.mkdir()
    monkeypatch.chdir(directory)
    for variable in OPERATOR_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    return Command(directory, capsys)


@pytest.fixture
def profile(shelf: ProfileShelf) -> Profile:
    """Two ranks, three steps of two graphs, with markers, counters, host calls and arrows."""
    return shelf.get("mindstudio", graphs=(1, 3))


@pytest.fixture(scope="session")
def layouts(shelf: ProfileShelf) -> dict[str, ReadLayout]:
    """The same run read through every layout, with tasks of each kind in it."""
    run = {"ops_per_step": 24, "planes": 4}
    return {name: read_layout(shelf.get(name, **run)) for name in COMPARABLE}


@pytest.fixture(scope="session")
def variants(shelf: ProfileShelf) -> dict[str, ReadLayout]:
    """The same run as other versions write it."""
    run = {"ops_per_step": 24, "planes": 4}
    return {name: read_layout(shelf.get(name, **run)) for name in VARIANTS}


@pytest.fixture(scope="session")
def ui() -> Iterator[PerfettoUi]:
    """Share one Perfetto UI between the tests that drop files on it."""
    if importlib.util.find_spec("playwright") is None:
        _do_without_browser("playwright is not installed")
    from tests.support.perfetto_ui import browser_path, perfetto_ui

    if browser_path() is None:
        _do_without_browser("there is no Chromium on the PATH")
    with perfetto_ui() as page:
        yield page


def _do_without_browser(reason: str) -> NoReturn:
    """Skip the test, or fail it where TLEXPORT_REQUIRE_BROWSER=1 promises a browser."""
    if os.environ.get("TLEXPORT_REQUIRE_BROWSER") == "1":
        pytest.fail(f"TLEXPORT_REQUIRE_BROWSER=1, but {reason}")
    pytest.skip(reason)
