"""Makes records of a rank from plain rows: calls by thread, tasks, ops, and the arrows between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

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
    return Records(
        rank,
        strings,
        tasks=Tasks.of(
            len(tasks),
            {
                "start_ns": [task.start_ns for task in tasks],
                "end_ns": [task.end_ns for task in tasks],
                "connection": [task.connection for task in tasks],
                "launch_ns": [task.launch_ns for task in tasks],
                "iteration": [task.iteration for task in tasks],
                "stream": np.full(len(tasks), 7),
                "name": strings.codes(f"task {at}" for at in range(len(tasks))),
                "compute": [task.does == "computes" for task in tasks],
                "copy": [task.does == "copies" for task in tasks],
            },
        ),
        ops=CommunicationOps.of(
            len(ops),
            {
                "start_ns": [op.start_ns for op in ops],
                "end_ns": [op.end_ns for op in ops],
                "connection": [op.connection for op in ops],
                "launch_ns": [op.launch_ns for op in ops],
                "iteration": [op.iteration for op in ops],
                "group": strings.codes("group" for _ in ops),
                "name": strings.codes(f"op {at}" for at in range(len(ops))),
            },
        ),
        steps=Steps.of(
            len(steps),
            {
                "start_ns": [step.start_ns for step in steps],
                "end_ns": [step.end_ns for step in steps],
                "graph": np.full(len(steps), 1),
                "iteration": [step.iteration for step in steps],
                "fp_start_ns": [step.fp_start_ns for step in steps],
                "host": [step.host for step in steps],
            },
        ),
        host=HostEvents.of(
            len(calls),
            {
                "start_ns": [call.start_ns for call in calls],
                "end_ns": [call.end_ns for call in calls],
                "layer": strings.codes(call.layer for call in calls),
                "thread": [call.thread for call in calls],
                "name": strings.codes(call.name for call in calls),
                "connection": [call.connection for call in calls],
            },
        ),
        flows=Flows.of(
            len(arrows),
            {
                "category": strings.codes(arrow.category for arrow in arrows),
                "source_kind": [arrow.source[0] for arrow in arrows],
                "source_row": [arrow.source[1] for arrow in arrows],
                "target_kind": [arrow.target[0] for arrow in arrows],
                "target_row": [arrow.target[1] for arrow in arrows],
            },
        ),
    )
