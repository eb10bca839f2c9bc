"""Single device tasks and host calls of one rank, as requested."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from timeline.analysis.cut import Cut
from timeline.analysis.idle.launches import device_items
from timeline.analysis.questions import Questions
from timeline.analysis.work.operators import TaskTypes
from timeline.analysis.work.task_sums import are_hccl_tasks
from timeline.columns.columns import Codes, Int64, column
from timeline.columns.intervals import open_at
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.clock import ClockMove
from timeline.records.not_given import NO_GRAPH, NO_ID, NO_TIME
from timeline.records.tables import HostEvents, Records, Spans, Steps


class TaskRole(enum.IntEnum):
    """Role of a device task in the sums of its rank."""

    OTHER = 0
    """None of the following, such as waiting for an event."""
    COMPUTING = 1
    COPY = 2
    """Moves or fills memory outside of communication."""
    COMMUNICATION = 3
    """Part of a communication op."""


class SingleTasks(Spans):
    """Device tasks, one row each, in order of start; missing values are as in Tasks.

    role: a TaskRole. step: NO_ID outside all. type: for computing tasks as in OperatorTimes, for
    others as recorded. call: row of the rank's single calls that launched it, NO_ID if unknown.
    """

    role: npt.NDArray[np.int8] = column(np.int8)
    graph: Int64 = column(np.int64, NO_GRAPH)
    step: Int64 = column(np.int64, NO_ID)
    device: Int64 = column(np.int64, NO_ID)
    stream: Int64 = column(np.int64, NO_ID)
    task: Int64 = column(np.int64, NO_ID)
    name: Codes = column(np.int32, NO_NAME)
    type: Codes = column(np.int32, NO_NAME)
    core: Codes = column(np.int32, NO_NAME)
    shapes: Codes = column(np.int32, NO_NAME)
    size_bytes: Int64 = column(np.int64, NO_ID)
    launch_ns: Int64 = column(np.int64, NO_TIME, moment=True)
    call: Int64 = column(np.int64, NO_ID)
    launched_by: Codes = column(np.int32, NO_NAME)
    operator: Codes = column(np.int32, NO_NAME)
    module: Codes = column(np.int32, NO_NAME)
    phase: Int64 = column(np.int64, 0)


class SingleCalls(Spans):
    """Host calls, one row each, in order of start; missing values are as in HostEvents.

    step: as recorded, else the step of the host in which it began; NO_ID outside all.
    """

    graph: Int64 = column(np.int64, NO_GRAPH)
    step: Int64 = column(np.int64, NO_ID)
    layer: Codes = column(np.int32)
    process: Int64 = column(np.int64, NO_ID)
    thread: Int64 = column(np.int64)
    name: Codes = column(np.int32)
    level: Codes = column(np.int32, NO_NAME)


@dataclass(frozen=True, slots=True)
class SingleRecords:
    """Requested tasks and calls of one rank; codes are positions in `strings`."""

    strings: tuple[str, ...] = ("",)
    tasks: SingleTasks = field(default_factory=SingleTasks.empty)
    calls: SingleCalls = field(default_factory=SingleCalls.empty)

    def moved(self, move: ClockMove) -> SingleRecords:
        """Return the records on another clock."""
        return replace(self, tasks=self.tasks.moved(move), calls=self.calls.moved(move))


def single_records(part: Cut, questions: Questions) -> SingleRecords:
    """Return the tasks and calls of a part of a rank, with known launchers."""
    strings = StringPool()
    # Calls are numbered in the order in which they are listed.
    order = np.argsort(part.records.host.start_ns, kind="stable")
    tasks, calls = SingleTasks.empty(), SingleCalls.empty()
    if questions.every_task:
        number = np.empty(len(order) + 1, np.int64)
        number[order], number[-1] = np.arange(len(order)), NO_ID
        tasks = _tasks(part, strings, number)
    if questions.every_call:
        calls = _calls(part.records, part.records.host.take(order), strings)
    return SingleRecords(tuple(strings), tasks, calls)


def _tasks(part: Cut, strings: StringPool, call_numbers: Int64) -> SingleTasks:
    """Return the tasks of a part; call_numbers: by row of the host events, and NO_ID at the end."""
    records = part.records
    order = np.argsort(records.tasks.start_ns, kind="stable")
    tasks, pool = records.tasks.take(order), records.strings
    role = np.full(len(tasks), TaskRole.OTHER, np.int8)
    role[tasks.copy] = TaskRole.COPY
    role[are_hccl_tasks(tasks, records.planes)] = TaskRole.COMMUNICATION
    role[tasks.compute] = TaskRole.COMPUTING
    types = strings.translate(tasks.op_type, pool)
    computing = np.flatnonzero(tasks.compute)
    types[computing], _ = TaskTypes.of(records, strings).at(tasks, computing)
    items = device_items(records, np.ones(len(tasks), np.bool_))
    of_tasks = ~items.is_op
    call = np.full(len(tasks), NO_ID, np.int64)
    call[items.row[of_tasks]] = call_numbers[items.launch[of_tasks]]
    return SingleTasks(
        tasks.start_ns,
        tasks.end_ns,
        role,
        tasks.graph,
        np.append(records.steps.iteration, NO_ID)[part.membership.tasks][order],
        tasks.device,
        tasks.stream,
        tasks.task,
        strings.translate(tasks.name, pool),
        types,
        strings.translate(tasks.task_type, pool),
        strings.translate(tasks.input_shapes, pool),
        tasks.size_bytes,
        tasks.launch_ns,
        call[order],
        strings.translate(tasks.launched_by, pool),
        strings.translate(tasks.operator, pool),
        strings.translate(tasks.module, pool),
        tasks.phase,
    )


def _calls(records: Records, host: HostEvents, strings: StringPool) -> SingleCalls:
    pool = records.strings
    return SingleCalls(
        host.start_ns,
        host.end_ns,
        host.graph,
        _steps_of(host, records.steps),
        strings.translate(host.layer, pool),
        host.process,
        host.thread,
        strings.translate(host.name, pool),
        strings.translate(host.level, pool),
    )


def _steps_of(host: HostEvents, steps: Steps) -> Int64:
    """Return the step of each call: as recorded, else the step of the host in which it began."""
    rows = np.flatnonzero(steps.host)
    at = open_at(host.start_ns, steps.start_ns[rows], steps.end_ns[rows])
    began = np.append(steps.iteration[rows], NO_ID)[at]
    return np.where(host.iteration == NO_ID, began, host.iteration)
