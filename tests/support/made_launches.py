"""Makes records of a rank from plain rows: calls by thread, tasks, ops, and the arrows between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tests.support.made_tables import table_of
from timeline.columns.strings import StringPool
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import (
    CommunicationOps,
    FlowEnd,
    Flows,
    HostEvents,
    Records,
    Steps,
    Tasks,
)


class Call(NamedTuple):
    """A call on the host."""

    start_ns: int
    end_ns: int
    name: str = "call"
    layer: str = "CANN"
    thread: int = 1
    connection: int = NO_ID


class Task(NamedTuple):
    """A task of the device."""

    start_ns: int
    end_ns: int
    connection: int = NO_ID
    launch_ns: int = NO_TIME
    does: str = "computes"
    iteration: int = NO_ID


class Op(NamedTuple):
    """A communication op."""

    start_ns: int
    end_ns: int
    connection: int = NO_ID
    launch_ns: int = NO_TIME
    iteration: int = NO_ID


class Step(NamedTuple):
    """A step."""

    start_ns: int
    end_ns: int
    iteration: int
    host: bool = False
    fp_start_ns: int = NO_TIME


class Arrow(NamedTuple):
    """An arrow between two rows."""

    category: str
    source: tuple[FlowEnd, int]
    target: tuple[FlowEnd, int]


def made_records(
    *,
    calls: Sequence[Call] = (),
    tasks: Sequence[Task] = (),
    ops: Sequence[Op] = (),
    arrows: Sequence[Arrow] = (),
    steps: Sequence[Step] = (),
    rank: int = 0,
) -> Records:
    """The records of a rank that has these rows."""
    strings = StringPool()
    device = [
        task._asdict()
        | {
            "name": f"task {at}",
            "compute": task.does == "computes",
            "copy": task.does == "copies",
        }
        for at, task in enumerate(tasks)
    ]
    ends = [
        {
            "category": arrow.category,
            "source_kind": arrow.source[0],
            "source_row": arrow.source[1],
            "target_kind": arrow.target[0],
            "target_row": arrow.target[1],
        }
        for arrow in arrows
    ]
    return Records(
        rank,
        strings,
        tasks=table_of(Tasks, device, strings, stream=7),
        ops=table_of(
            CommunicationOps,
            [op._asdict() | {"name": f"op {at}"} for at, op in enumerate(ops)],
            strings,
            group="group",
        ),
        steps=table_of(Steps, steps, graph=1),
        host=table_of(HostEvents, calls, strings),
        flows=table_of(Flows, ends, strings),
    )
