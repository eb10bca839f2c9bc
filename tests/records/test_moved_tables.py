"""Proves that another clock moves points in time, and no length of time."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import timeline
from simulator.faulty_recording import FaultyRecording
from tests.support.places import real_capture
from tests.support.profile_shelf import WRITERS, tiny_run
from timeline.records.tables import Spans

LENGTHS = {
    "AicpuTasks": {"total_ns", "dispatch_ns", "run_ns"},
    "LongestGaps": {"length_ns", "idle_ns", "cause_ns"},
    "PathItems": {"call_ns", "line_ns"},
    "Segments": {"call_ns", "line_ns"},
    "_Drawn": {"call_ns"},
}
"""The lengths of time in tables of intervals; all other columns in ns are points in time."""
SECOND_NS = 1_000_000_000


def tables_of_intervals(base: type[Spans] = Spans) -> Iterator[type[Spans]]:
    """All tables that inherit `moved`, wherever they are declared."""
    yield base
    for table in base.__subclasses__():
        yield from tables_of_intervals(table)


def test_every_column_of_intervals_is_a_point_in_time_or_a_length() -> None:
    """A new column in ns is declared as a moment, or named among the lengths here."""
    for module in pkgutil.walk_packages(timeline.__path__, "timeline."):
        if module.name != "timeline._build":  # it runs only while the package is built
            importlib.import_module(module.name)
    for table in tables_of_intervals():
        if table.__module__.startswith("timeline."):
            in_ns = {one.name for one in fields(table) if one.name.endswith("_ns")}
            moments = {one.name for one in fields(table) if one.metadata["moment"]}
            assert in_ns - moments == LENGTHS.get(table.__name__, set()), table


def lengths(path: Path, **options: Any) -> list[tuple[Any, ...]]:
    """Rank, length, idle time and time of the cause of each of the longest idle gaps."""
    rows = timeline.open_profile(path, **options).idle_gaps().to_dicts()
    return [(row["rank"], row["duration_ns"], row["idle_ns"], row["cause_ns"]) for row in rows]


@pytest.mark.filterwarnings("ignore::timeline.errors.TimelineWarning")
@pytest.mark.parametrize("layout", ["torch-text", "mindspore-raw"])
def test_gaps_of_idle_time_are_as_long_on_any_clock(layout: str, tmp_path: Path) -> None:
    """Offsets, clocks that count from the start of a host, and alignment change none of them."""
    path = tmp_path / "run"
    path.mkdir()
    WRITERS[layout](tiny_run(recording=FaultyRecording({1: 300_000})), path)
    own = lengths(path, align="none")
    assert {rank for rank, *_ in own} == {0, 1}
    assert all(0 < cause_ns <= idle_ns <= length_ns for _, length_ns, idle_ns, cause_ns in own)
    assert lengths(path) == lengths(path, align="recorded") == own
    assert lengths(path, offset={1: -3 * SECOND_NS}) == own


def test_gaps_of_a_real_run_are_as_long_as_recorded() -> None:
    """A rank that collectives move by microseconds keeps the gap that its kernel table shows."""
    path = real_capture("torch-npu-text")
    assert lengths(path) == lengths(path, offset={1: 0})
    assert next(row[1] for row in lengths(path) if row[0] == 1) == 1_348_567
