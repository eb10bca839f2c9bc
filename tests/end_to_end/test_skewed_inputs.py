"""Proves that work grows with the input whether ids are equal, differ, or one has all rows.

So it does where one event holds everything, or objects are nested in each other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.grown_records import Shape, grown_records
from tests.support.growth import check_growth, most_megabytes, processor_seconds
from tests.support.kineto_traces import CALL, KERNEL, read
from tests.support.profile_shelf import Event
from timeline.analysis.questions import Questions
from timeline.analysis.selected_rank import DrawOptions
from timeline.columns.columns import Int64
from timeline.ranks.rank_work import RankRequest, draw_rank_from_records
from timeline.records.tables import Records
from timeline.selection import DETAIL_LAYERS, Selection

SIZES = (1_000, 2_000, 4_000)
NOISE_MEGABYTES = 2.0
"""Pairs of 4,000 rows take 128 MB, and the rows 10."""
REQUEST = RankRequest(
    Selection(layers=DETAIL_LAYERS),
    options=DrawOptions(DETAIL_LAYERS),
    questions=Questions(causes=True, most_lengths=100),
    read_ranks=frozenset({0}),
)
SHAPES: Mapping[str, Callable[[int], tuple[Int64, Int64]]] = {
    "all equal": lambda n: (np.full(n, 7), np.full(n, 7)),
    "all differ": lambda n: (np.arange(n), np.arange(n)),
    "one has all": lambda n: (np.arange(n), np.full(n, n // 2)),
}
"""Ids of n rows of a first table, which refers to others, and of a second one."""
COLUMNS: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "of calls and tasks": (
        ("host.connection", "host.sequence", "host.iteration"),
        ("tasks.connection", "tasks.task", "tasks.iteration", "ops.connection", "ops.iteration"),
    ),
    "of tasks and calls": (
        ("tasks.connection", "tasks.task", "ops.connection", "ops.sequence", "planes.task"),
        ("host.connection", "host.sequence", "tasks.context", "planes.context"),
    ),
}
"""Columns of ids: those of a first table, and others that refer to them."""


def with_ids(records: Records, column: str, ids: Int64) -> Records:
    table, _, name = column.partition(".")
    before: Any = getattr(records, table)
    changed: Any = {table: replace(before, **{name: ids[: len(before)]})}
    return replace(records, **changed)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("columns", COLUMNS)
def test_ids_of_records(columns: str, shape: str) -> None:
    """What is found out and drawn of one rank."""

    def megabytes(size: int) -> float:
        of_all = Shape(tasks=size, calls=size, ops=size, plane_tasks=size, layers=2)
        records = grown_records(0, of_all)
        for names, ids in zip(COLUMNS[columns], SHAPES[shape](size), strict=True):
            for name in names:
                records = with_ids(records, name, ids)
        return most_megabytes(lambda: draw_rank_from_records(records, REQUEST))

    check_growth(megabytes, SIZES, NOISE_MEGABYTES)


def launches(keys: Sequence[str], ids: tuple[Int64, Int64]) -> list[Event]:
    """Calls and the kernels that they launched, one after the other, joined by arrows."""
    events: list[Event] = []
    for at, numbers in enumerate(zip(*(one.tolist() for one in ids), strict=True)):
        for event, phase, number in zip((CALL, KERNEL), "sf", numbers, strict=True):
            named = {"correlation": at, "External id": at, "id": at} | dict.fromkeys(keys, number)
            id_of_arrow = named.pop("id")
            drawn = event | {"ts": 20 * at + 5 * (phase == "f"), "args": event["args"] | named}
            place = {name: drawn[name] for name in ("pid", "tid", "ts")}
            arrow = {"ph": phase, "cat": "ac2g", "name": "ac2g", "bp": "e", "id": id_of_arrow}
            events += [drawn, arrow | place]
    return events


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("keys", [("correlation",), ("External id", "id")], ids=", ".join)
def test_ids_of_traces(keys: Sequence[str], shape: str, tmp_path: Path) -> None:
    """Ids with which calls, kernels and arrows name each other."""

    def megabytes(size: int) -> float:
        path = tmp_path / f"rank0.{size}.pt.trace.json"
        path.write_text(json.dumps(launches(keys, SHAPES[shape](size))), encoding="utf-8")
        return most_megabytes(lambda: draw_rank_from_records(read(path), REQUEST))

    check_growth(megabytes, SIZES, NOISE_MEGABYTES)


def nested(depth: int) -> str:
    """Damaged events, each of which holds objects in each other."""
    inside = '{"a":' * depth + "1" + "}" * depth
    damaged = f'{{"ph":\'x\',"name":"a","args":{inside}}}'
    return ",".join([json.dumps(KERNEL), *[damaged] * 20, json.dumps(KERNEL)])


def wide(count: int) -> str:
    """A counter event of many counters."""
    args = {f"counter {number}": number for number in range(count)}
    return json.dumps({"ph": "C", "name": "c", "pid": 0, "tid": 0, "ts": 5, "args": args})


@pytest.mark.parametrize(
    ("write", "sizes"),
    [(nested, (100, 200, 400, 800)), (wide, (1_000, 2_000, 4_000, 8_000))],
    ids=["nested", "wide"],
)
def test_large_events(write: Callable[[int], str], sizes: tuple[int, ...], tmp_path: Path) -> None:
    """Whether they are damaged or not, what is around them is read."""

    def seconds(size: int) -> float:
        path = tmp_path / f"rank0.{size}.pt.trace.json"
        path.write_text(f"[{json.dumps(KERNEL)},{write(size)}]", encoding="utf-8")
        records = []
        took = processor_seconds(lambda: records.append(read(path)))
        assert len(records[0].tasks) == (3 if write is nested else 1)
        assert len(records[0].series) == (0 if write is nested else size)
        return took

    check_growth(seconds, sizes)
