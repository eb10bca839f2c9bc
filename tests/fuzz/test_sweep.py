"""Proves that extremes in columns of profiles break none of the promises of exports."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.layouts import LAYOUTS
from tests.fuzz.extremes import EXTREMES, Extreme
from tests.fuzz.file_columns import Column, columns_of, unnumbered_name
from tests.fuzz.small_profiles import SmallProfile
from tests.fuzz.whole_program import WholeProgram
from timeline.errors import TimelineError

pytestmark = pytest.mark.sweep

PAIR_IN = 4
"""Inputs of which one changes two columns at once."""


@dataclass(frozen=True)
class Change:
    """One column of a file that is set to an extreme, in one row or in all."""

    path: Path
    column: Column
    extreme: Extreme
    one: bool

    @property
    def name(self) -> str:
        """What is changed, whatever the numbers in the name of the file."""
        rows = "one row" if self.one else "all rows"
        return f"{unnumbered_name(self.path)}: {self.column.name} = {self.extreme.name} in {rows}"


class SweptProfile:
    """A small profile whose columns are set to extremes, and the program that draws it."""

    def __init__(self, layout: str, root: Path) -> None:
        self._profile = SmallProfile(layout, root)
        self._program = WholeProgram(self._profile.capture, root)
        columns: dict[str, tuple[Path, Column]] = {}
        for path in self._profile.files:
            for column in columns_of(path):
                columns.setdefault(f"{unnumbered_name(path)}: {column.name}", (path, column))
        self._columns = list(columns.values())

    def every_change(self) -> Iterator[Change]:
        """Iterate over all changes of one column."""
        for path, column in self._columns:
            for extreme in EXTREMES:
                for one in (False, True):
                    yield Change(path, column, extreme, one)

    def draw_unchanged(self) -> bool:
        """Draw it as it is, check everything, and return if it has slices."""
        return self._program.run(Random(0), everything=True)

    def draw_at_random(self, random: Random) -> list[Change]:
        """Set one column to an extreme, or two, and return what is changed."""
        changes = [
            Change(*random.choice(self._columns), random.choice(EXTREMES), random.random() < 0.5)
            for _ in range(1 + (random.randrange(PAIR_IN) == 0))
        ]
        self.draw(changes, random)
        return changes

    def draw(self, changes: list[Change], random: Random) -> None:
        """Draw it changed, or have it refused; what cannot be changed is left as it is."""
        changed: dict[Path, bytes] = {}
        for change in changes:
            before = changed.get(change.path) or self._profile.files[change.path]
            try:
                after = change.column.change(before, change.extreme, change.one)
            except (ValueError, IndexError, KeyError):  # the first change took away the second's
                continue
            if after is not None and after != before:
                changed[change.path] = after
        if changed:
            with self._profile.holding(changed), contextlib.suppress(TimelineError):
                self._program.run(random)


@functools.cache
def swept(layout: str, root: Path) -> SweptProfile:
    """Write the profile of a layout once."""
    return SweptProfile(layout, root)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for all profiles."""
    return tmp_path_factory.mktemp("swept")


@pytest.mark.parametrize("layout", LAYOUTS)
@given(number=st.integers(0, (1 << 32) - 1))
@settings(max_examples=max(1, settings().max_examples // 10))
def test_extremes_keep_what_exports_promise(layout: str, root: Path, number: int) -> None:
    """Whole runs of changed profiles, loaded and checked; the number decides what is changed."""
    swept(layout, root).draw_at_random(Random(number))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_unchanged_profiles_are_drawn_alike(layout: str, root: Path) -> None:
    """In every way of reading them, and compared with themselves."""
    assert swept(layout, root).draw_unchanged()


FOUND = (
    (
        "kineto-2.2",
        "host_#.#.pt.trace.json: /traceEvents[]X:cuda_runtime/ph = long in all rows",
    ),
    ("mindspore-2.1", "msprof_#_#_#.json: []X:Iteration Refresh/pid = long in one row"),
    (
        "torch-db-no-operators",
        "ascend_pytorch_profiler_#.db: AICORE_FREQ.freq = 1e308 in all rows",
    ),
    ("torch-text", "trace_view.json: []C:/args/Hit Rate(%) = 1e308 in one row"),
    ("msprof-sqlite-cann-9", "llc.db: LLCMetrics.hitrate = 1e308 in all rows"),
    ("mindstudio", "msprof_#.json: []X:/args/model id = NaN in one row"),
    (
        "kineto-announced",
        "host_#.#.pt.trace.json: /traceEvents[]X:kernel/args/block[] = NaN in all rows and "
        "host_#.#.pt.trace.json: /traceEvents[]X:kernel/args/grid[] = long in one row",
    ),
)
"""Cases that showed a fault.

What is left out was told, strings were numbered, and rows were ordered, in the order in which parts
were read. Means of frequencies that no core has, and percentages of such fractions, were too large
for a number.
"""


@pytest.mark.parametrize(("layout", "case"), FOUND)
def test_faults_of_the_past_stay_mended(layout: str, case: str, root: Path) -> None:
    """Each is drawn with everything that is checked of it."""
    profile, names = swept(layout, root), case.split(" and ")
    changes = [change for change in profile.every_change() if change.name in names]
    assert len(changes) == len(names), "there is no such column any more"
    profile.draw(changes, Random(0))
