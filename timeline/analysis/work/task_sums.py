"""What HCCL tasks within collectives, and copies, take together, by what they do."""

from __future__ import annotations

from dataclasses import field

import numpy as np

from timeline.columns.columns import Bool, Codes, ColumnTable, Int64, column
from timeline.columns.distinct import NO_ROWS, rows_by_value
from timeline.columns.group_by import group_by, group_numbers
from timeline.columns.intervals import open_at
from timeline.columns.strings import NO_NAME, StringPool
from timeline.frozen import dataclass
from timeline.records.collective_kinds import collective_kind
from timeline.records.not_given import NO_ID
from timeline.records.tables import PlaneTasks, Records, Tasks

__all__ = ["TaskSums", "TaskTimes", "are_hccl_tasks", "sum_tasks"]


class TaskTimes(ColumnTable):
    """One row per kind of device task that moves, reduces or notifies.

    hccl: whether it is an HCCL task, or else a copy or fill of memory. collective: the kind of
    collective that an HCCL task belongs to, not given where nothing tells. task: what it does, such
    as Notify_Wait. size_bytes: what those that tell it moved.
    """

    hccl: Bool = column(np.bool_)
    collective: Codes = column(np.int32, NO_NAME)
    task: Codes = column(np.int32)
    count: Int64 = column(np.int64)
    total_ns: Int64 = column(np.int64)
    size_bytes: Int64 = column(np.int64)


@dataclass(frozen=True)
class TaskSums:
    """The HCCL tasks and copies of one rank; codes are positions in `strings`."""

    strings: tuple[str, ...] = ("",)
    times: TaskTimes = field(default_factory=TaskTimes.empty)


def sum_tasks(records: Records) -> TaskSums:
    """Sum up HCCL tasks by kind of collective and name, and copies by name."""
    strings = StringPool()
    times = TaskTimes.concat([_hccl_times(records, strings), _copy_times(records, strings)])
    return TaskSums(tuple(strings), times)


def _hccl_times(records: Records, strings: StringPool) -> TaskTimes:
    planes = records.planes
    return _summed(
        strings.translate(_op_names(records), records.strings, collective_kind),
        strings.translate(planes.name, records.strings),
        planes.end_ns - planes.start_ns,
        planes.size_bytes,
        hccl=True,
    )


def _copy_times(records: Records, strings: StringPool) -> TaskTimes:
    copies = records.tasks.take(records.tasks.copy)
    copies = copies.take(~are_hccl_tasks(copies, records.planes))
    named = np.where(copies.name == NO_NAME, copies.task_type, copies.name)
    return _summed(
        np.full(len(copies), NO_NAME, np.int32),
        strings.translate(named, records.strings),
        copies.end_ns - copies.start_ns,
        copies.size_bytes,
        hccl=False,
    )


def are_hccl_tasks(tasks: Tasks, planes: PlaneTasks) -> Bool:
    """Which tasks are twins of HCCL tasks: of the same interval."""
    start_ns = np.concatenate([planes.start_ns, tasks.start_ns])
    end_ns = np.concatenate([planes.end_ns, tasks.end_ns])
    interval = group_numbers(len(start_ns), [start_ns, end_ns])
    found: Bool = np.isin(interval[len(planes) :], interval[: len(planes)])
    return found


def _summed(
    collective: Codes, task: Codes, lengths_ns: Int64, size_bytes: Int64, *, hccl: bool
) -> TaskTimes:
    groups = group_by(len(task), [collective, task])
    return TaskTimes.of(
        len(groups.first),
        {
            "hccl": np.full(len(groups.first), hccl),
            "collective": collective[groups.first],
            "task": task[groups.first],
            "count": groups.count(),
            "total_ns": groups.sum(lengths_ns),
            "size_bytes": groups.sum(np.where(size_bytes == NO_ID, 0, size_bytes)),
        },
    )


def _op_names(records: Records) -> Codes:
    """The name of the op of each HCCL task: as told, else that of its group that runs meanwhile."""
    planes, ops = records.planes, records.ops
    names = planes.op.copy()
    ops_of = dict(rows_by_value(ops.group))
    without = np.flatnonzero(names == NO_NAME)
    for group, at_rows in rows_by_value(planes.group[without]):
        rows, of_group = without[at_rows], ops_of.get(group, NO_ROWS)
        if len(of_group):
            # A task may begin in the nanosecond in which its op ends.
            at = open_at(planes.start_ns[rows], ops.start_ns[of_group], ops.end_ns[of_group] + 1)
            names[rows[at >= 0]] = ops.name[of_group[at[at >= 0]]]
    return names
