"""Proves that real captures say the same through each layout that they hold, taken alone.

The captures lie beside the project; without them these tests are skipped. Databases, tables and
parsed data agree to the nanosecond. Traces hold starts that were cut down beside lengths that were
not, so each of their intervals may be off by one; raw data is off by one where msprof's own
arithmetic falls on the other side of a whole nanosecond.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.support.places import DATA
from timeline.analysis.sound_records import drop_invalid_rows
from timeline.records.tables import FlowEnd, Records
from timeline.selection import DETAIL_LAYERS
from timeline.sources.finding.discovery import discover
from timeline.sources.source import ReadRequest

CAPTURES = DATA / "msprof-single"
BESIDE = ("*/info.json*", "*/start_info*", "*/host_start.log*", "*/dev_start.log*")
LAYOUTS = {
    "database": ("msprof_*.db",),
    "exports": ("mindstudio_profiler_output",),
    "tables": ("mindstudio_profiler_output/*.csv",),
    "sqlite": ("*/sqlite", *BESIDE),
    "raw": ("*/data", *BESIDE),
}
EXACT = ("database", "tables", "sqlite")
AI_CPU = "AI CPU"

pytestmark = pytest.mark.skipif(
    not CAPTURES.is_dir(), reason=f"the real captures are not beside the project, in {CAPTURES}"
)


@dataclass(frozen=True)
class Alone:
    """A capture read from one of its layouts."""

    records: Records

    @property
    def computing(self) -> list[int]:
        """The length of each task that computes, in order of start."""
        tasks = self.records.tasks.take(self.records.tasks.compute)
        order = np.lexsort((tasks.end_ns, tasks.start_ns))
        return list(map(int, (tasks.end_ns - tasks.start_ns)[order]))

    @property
    def launches(self) -> set[int]:
        """The tasks that an arrow of a call points to."""
        flows = self.records.flows
        return set(flows.target_row[flows.target_kind == FlowEnd.TASK].tolist())

    def tells(self) -> bool:
        """Whether it knows what AI CPUs ran."""
        return not any(AI_CPU in text for text in self.records.warnings)


def captures() -> Iterator[Path]:
    yield from sorted(CAPTURES.glob("*/PROF_*"))


@pytest.fixture(params=captures(), ids=lambda path: f"{path.parent.name}-{path.name[21:29]}")
def layouts(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Alone]:
    """Each layout of a capture, copied to a place of its own."""
    capture: Path = request.param
    found = {}
    for name, patterns in LAYOUTS.items():
        if not any(capture.glob(patterns[0])):
            continue
        target = tmp_path / name / capture.name
        for path in (one for pattern in patterns for one in capture.glob(pattern)):
            place = target / path.relative_to(capture)
            place.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if path.is_dir() else shutil.copy2)(path, place)
        (source,) = discover(target).sources
        found[name] = Alone(drop_invalid_rows(source.read(ReadRequest(DETAIL_LAYERS))))
    return found


def test_each_layout_has_the_same_tasks(layouts: dict[str, Alone]) -> None:
    """No task twice and none left out; the whole of an FFTS+ task is none."""
    counts = {name: len(alone.records.tasks) for name, alone in layouts.items()}
    assert len(set(counts.values())) == 1, counts


def test_each_layout_computes_the_same(layouts: dict[str, Alone]) -> None:
    """As far as it knows what AI CPUs ran."""
    told = {name: alone.computing for name, alone in layouts.items() if alone.tells()}
    exact = [told[name] for name in EXACT if name in told and "database" in told]
    assert all(one == exact[0] for one in exact)
    for name, found in told.items():
        assert len(found) == len(told["exports"]), name
        assert np.abs(np.subtract(found, told["exports"])).max() <= 1, name


def test_each_layout_has_the_same_arrows(layouts: dict[str, Alone]) -> None:
    """Those that hold calls: the database, the trace and the parsed host."""
    counts = {
        name: len(alone.launches)
        for name, alone in layouts.items()
        if len(alone.records.host) and len(alone.records.flows)
    }
    assert len(set(counts.values())) <= 1, counts
