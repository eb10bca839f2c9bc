"""Events of traces as JSON, and what the reader makes of them in a form that compares."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
import pytest

from timeline.columns.columns import Codes, ColumnTable
from timeline.columns.strings import StringPool
from timeline.layers import Layer
from timeline.records.tables import FlowEnd, Omission, Records
from timeline.sources.ascend_trace.reader import TraceFiles, read_trace
from timeline.sources.ascend_trace.tables import AscendArgs
from timeline.sources.decoders import json_events
from timeline.sources.source import ReadRequest

EventObject = dict[str, Any]
Row = tuple[object, ...]
"""A row of a table, its codes spelled out, in the order of the columns."""
SeriesName = tuple[str, str, str]
"""Group, name and unit."""

ALL_LAYERS = frozenset(Layer)
HELD_COUNTS = (1, 7, 50, json_events.HELD_EVENTS)
TINY_BLOCK = 64
"""Bytes that hold less than an event, so that every event arrives in a block of its own."""
DEVICE, GRAPH, RANK = 3, 77, 5
SPELLED = {field.encode_name: field.name for field in msgspec.structs.fields(AscendArgs)}
TABLES = ("tasks", "planes", "ops", "steps", "parts", "host")


class Writer(Protocol):
    """Writes events to a file and tells where it is."""

    def __call__(self, events: Sequence[EventObject], name: str = "trace.json") -> Path: ...


@contextmanager
def pieces(held_events: int, block_bytes: int = TINY_BLOCK) -> Iterator[None]:
    """Read in blocks of a size; as many events are held, and as many rows in small parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_events, "HELD_EVENTS", held_events)
        patch.setattr(json_events, "BLOCK_BYTES", block_bytes)
        patch.setattr("timeline.columns.columns.JOINED_ROWS", held_events)
        yield


def read(*paths: Path, layers: frozenset[Layer] = ALL_LAYERS, every_arg: bool = True) -> Records:
    files, wanted = TraceFiles(paths, DEVICE, GRAPH), ReadRequest(layers, every_arg)
    return read_trace(files, RANK, StringPool(), wanted)


@dataclass(frozen=True)
class Content:
    """What records hold, without the order of rows and the numbers of strings and series."""

    tables: dict[str, list[Row]]
    flows: list[Row]
    counters: dict[SeriesName, list[tuple[int, float]]]
    omissions: tuple[Omission, ...]


def content(records: Records) -> Content:
    return Content(
        {name: in_order(rows_of(getattr(records, name), records.strings)) for name in TABLES},
        in_order(arrows_of(records, rows_of)),
        samples_of(records),
        records.omissions,
    )


def in_order(rows: Sequence[Row]) -> list[Row]:
    """Rows sorted by their spelling, because absent values do not compare."""
    return sorted(rows, key=repr)


def rows_of(table: ColumnTable, strings: StringPool) -> list[Row]:
    return list(zip(*columns_of(table, strings).values(), strict=True))


def columns_of(table: ColumnTable, strings: StringPool) -> dict[str, list[object]]:
    """The values of each column; only columns of codes are 32 bits wide."""
    columns: dict[str, list[object]] = {}
    for field in dataclasses.fields(table):
        values = getattr(table, field.name)
        held = values.tolist()
        if values.dtype == np.int32:
            held = [strings[code] for code in held]
        columns[field.name] = ["nan" if value != value else value for value in held]
    return columns


def names_of(table: ColumnTable, strings: StringPool) -> list[Row]:
    """The name of each row."""
    codes: Codes = getattr(table, "name")  # noqa: B009 - only some tables have names
    return [(strings[code],) for code in codes.tolist()]


def arrows_of(
    records: Records, ends_of: Callable[[ColumnTable, StringPool], list[Row]]
) -> list[tuple[str, Row, Row]]:
    """Category, source and target of each arrow, its ends spelled by a function."""
    tables = {
        FlowEnd.HOST: records.host,
        FlowEnd.TASK: records.tasks,
        FlowEnd.OP: records.ops,
        FlowEnd.PLANE: records.planes,
    }
    spelled = {kind: ends_of(table, records.strings) for kind, table in tables.items()}
    return [
        (
            records.strings[category],
            spelled[FlowEnd(source_kind)][source],
            spelled[FlowEnd(target_kind)][target],
        )
        for category, source_kind, source, target_kind, target in zip(
            records.flows.category.tolist(),
            records.flows.source_kind.tolist(),
            records.flows.source_row.tolist(),
            records.flows.target_kind.tolist(),
            records.flows.target_row.tolist(),
            strict=True,
        )
    ]


def samples_of(records: Records) -> dict[SeriesName, list[tuple[int, float]]]:
    """The samples of each series, sorted."""
    names: list[Any] = rows_of(records.series, records.strings)
    held: dict[SeriesName, list[tuple[int, float]]] = {name: [] for name in names}
    assert len(held) == len(names), "two series of the same name"
    for time_ns, series, value in zip(
        records.samples.time_ns.tolist(),
        records.samples.series.tolist(),
        records.samples.value.tolist(),
        strict=True,
    ):
        held[names[series]].append((time_ns, value))
    return {name: sorted(samples) for name, samples in held.items()}


def process(pid: object, name: object) -> EventObject:
    return {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}


def thread(pid: object, tid: object, name: object) -> EventObject:
    return {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}


def is_metadata(event: EventObject) -> bool:
    return bool(event["ph"] == "M")


@dataclass(frozen=True)
class Lane:
    """A thread of a trace, and the names it has in the end."""

    pid: object
    tid: object
    process: str | None = None
    thread: str | None = None

    def names(self) -> list[EventObject]:
        named = [] if self.process is None else [process(self.pid, self.process)]
        return named + ([] if self.thread is None else [thread(self.pid, self.tid, self.thread)])


STREAM = Lane(1, 2, "Ascend Hardware", "Stream 2")

LAUNCHING = ("HostToDevice", "async_npu")
"""Categories of flows that tell when a task was launched."""
CATEGORIES = (*LAUNCHING, "fwdbwd", "Data_aug Bound")
"""The last one draws a number of the step trace: no flow at all."""
BIG_IDS = (2**63, 2**64, 2**64 + 1, -(2**64))


def run_on(pid: object, tid: object, count: int = 3) -> list[EventObject]:
    """Slices on one lane, one after the other."""
    return [
        {"ph": "X", "pid": pid, "tid": tid, "name": f"op {place}", "ts": place, "dur": 1}
        for place in range(count)
    ]


LATE_NAMES: dict[str, list[EventObject]] = {
    "a host process turns out to be the hardware": [
        process(1, "CANN"),
        thread(1, 2, "Stream 2"),
        *run_on(1, 2),
        process(1, "Ascend Hardware"),
        *run_on(1, 2),
    ],
    "the hardware turns out to be a host process": [
        process(1, "Ascend Hardware"),
        thread(1, 2, "Stream 2"),
        *run_on(1, 2),
        process(1, "Python"),
        *run_on(1, 2),
    ],
    "the thread of a host process is named late": [
        process(1, "CANN"),
        *run_on(1, 2),
        thread(1, 2, "Thread 2"),
        *run_on(1, 2),
    ],
    "a process and then its thread are named late": [
        *run_on(1, 2),
        process(1, "CANN"),
        *run_on(1, 2),
        process(1, "Ascend Hardware"),
        *run_on(1, 2),
        thread(1, 2, "Stream 2"),
    ],
    "a stream gets another number": [
        process(1, "Ascend Hardware"),
        thread(1, 2, "Stream 2"),
        *run_on(1, 2),
        thread(1, 2, "Stream 3"),
        *run_on(1, 2),
    ],
    "a stream turns out to be a step trace": [
        process(1, "Ascend Hardware"),
        thread(1, 2, "Stream 2"),
        *run_on(1, 2),
        thread(1, 2, "Step Trace(Model ID:1)"),
        {**run_on(1, 2)[0], "name": "Iteration 1"},
    ],
    "the group of a plane is named after the plane": [
        process(1, "HCCL"),
        thread(1, 5, "Plane 0"),
        *run_on(1, 5),
        thread(1, 1, "Group 7 Communication"),
        *run_on(1, 5),
    ],
    "a plane is of a named group only for a while": [
        process(1, "HCCL"),
        thread(1, 5, "Plane 0"),
        *run_on(1, 5),
        thread(1, 1, "Group 7 Communication"),
        *run_on(1, 5),
        thread(1, 3, "Communication Kernel"),
        *run_on(1, 5),
    ],
    "a process is called something else for a while": [
        process(1, "CANN"),
        thread(1, 2, "Stream 2"),
        *run_on(1, 2),
        process(1, "Ascend Hardware"),
        *run_on(1, 2),
        process(1, "CANN"),
        *run_on(1, 2),
    ],
}

GROUP = "Group 17 Communication"
CALLS = (Lane(5, 100, "CANN", "Thread 100"), Lane(9, 200, "Python", "main"))
DEVICE_LANES = (
    STREAM,
    Lane(1, 3, "Ascend Hardware", "Stream 3"),
    Lane(2, 0, "HCCL", GROUP),
    Lane(2, 1, "HCCL", "Plane 0"),
)
