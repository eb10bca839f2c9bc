"""Proves that allocations are read, drawn and checked."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import numpy as np
import pytest

from tests.support.profile_shelf import Copier, Profile
from timeline.layers import Layer
from timeline.records.not_given import NO_TIME
from timeline.records.tables import Records
from timeline.selection import SUMMARY_LAYERS
from timeline.sources.companions.counters import are_sound
from timeline.sources.finding.discovery import discover
from timeline.sources.source import ReadRequest

HEADER = "Name,Size(KB),Allocation Time(us),Release Time(us),Device Type"
ROWS = ("aten::empty,2,100.500,101.250,NPU:0", "cann::Conv2D,0.5,102.000,,NPU:0")
FOUND = [("aten::empty", 100_500, 101_250, 2048), ("cann::Conv2D", 102_000, NO_TIME, 512)]


def told(records: Records) -> list[tuple[str, int, int, int]]:
    found, strings = records.allocations, records.strings
    return [
        (strings[name], start, end, size)
        for name, start, end, size in zip(
            found.name.tolist(),
            found.start_ns.tolist(),
            found.end_ns.tolist(),
            found.size_bytes.tolist(),
            strict=True,
        )
    ]


def read(profile: Profile, *layers: Layer, operators: bool = True) -> Records:
    source = discover(profile.path).sources[0]
    wanted = ReadRequest(SUMMARY_LAYERS | {*layers}, every_arg=False, operators=operators)
    return source.read(wanted)


def write_table(profile: Profile, *lines: str) -> None:
    path = profile.captures[0] / "ASCEND_PROFILER_OUTPUT" / "operator_memory.csv"
    path.write_text("".join(f"{line}\r\n" for line in lines))


def test_allocations_beside_a_trace_are_read(copied: Copier) -> None:
    """With what allocated them, and when they were released, if that is told."""
    profile = copied("torch-text")
    write_table(profile, HEADER, *ROWS)
    assert told(read(profile)) == FOUND
    assert told(read(profile, operators=False)) == []


def test_a_release_may_be_told_by_the_duration(copied: Copier) -> None:
    """Older exports say how long memory was held."""
    profile = copied("torch-text")
    header = "Name,Size(KB),Allocation Time(us),Duration(us),Device Type"
    write_table(profile, header, "aten::empty,2,100.500,0.750,NPU:0")
    assert told(read(profile)) == FOUND[:1]


@pytest.mark.parametrize(("layers", "losses"), [((), 2), ((Layer.COUNTERS,), 2)])
def test_damaged_rows_are_counted_once(
    copied: Copier, layers: tuple[Layer, ...], losses: int
) -> None:
    """Whether or not a counter is made of the same table."""
    profile = copied("torch-text")
    write_table(profile, HEADER, ROWS[0], "lost,1,,,NPU:0", "backwards,1,9,8,NPU:0")
    records = read(profile, *layers)
    assert told(records) == FOUND[:1]
    reasons = [one for one in records.omissions if "operator_memory" in one.reason]
    assert sum(one.rows for one in reasons) == losses


def test_a_table_that_is_none_is_counted(copied: Copier) -> None:
    """The capture itself is read."""
    profile = copied("torch-text")
    write_table(profile, "Name,Allocation Time(us)", "aten::empty,1")
    records = read(profile)
    assert told(records) == []
    assert len(records.tasks)
    assert any("no column Size" in one.reason for one in records.omissions)


def test_allocations_in_a_database_are_read(copied: Copier) -> None:
    """A row without a time or a size is counted."""
    profile = copied("torch-db")
    (path,) = profile.captures[0].glob("ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_*.db")
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DROP TABLE IF EXISTS OP_MEMORY")
        database.execute(
            "CREATE TABLE OP_MEMORY (name INTEGER, size INTEGER, allocationTime INTEGER, "
            "releaseTime INTEGER, deviceId INTEGER)"
        )
        ((last,),) = database.execute("SELECT MAX(id) FROM STRING_IDS")
        for at, (name, start_ns, end_ns, size) in enumerate(FOUND):
            code = last + 1 + at
            database.execute("INSERT INTO STRING_IDS VALUES (?, ?)", (code, name))
            released = None if end_ns == NO_TIME else end_ns
            database.execute(
                "INSERT INTO OP_MEMORY VALUES (?, ?, ?, ?, 0)", (code, size, start_ns, released)
            )
        database.execute("INSERT INTO OP_MEMORY VALUES (?, NULL, 5, 6, 0)", (last + 1,))
    records = read(profile)
    assert told(records) == FOUND
    reason = "rows of OP_MEMORY without a valid time or size of the allocation"
    assert [one.rows for one in records.omissions if one.reason == reason] == [1]


def test_no_memory_holds_more_than_a_number_tells_exactly() -> None:
    sizes = np.array([512.0, -512.0, float(1 << 53), float(1 << 64), np.inf, np.nan])
    times_ns = np.arange(len(sizes))
    assert are_sound(sizes, times_ns, times_ns + 1).tolist() == [True, True] + [False] * 4
