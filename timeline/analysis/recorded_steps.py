"""What a recording holds of each step: its device records, and whether it was recorded whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from timeline.analysis.step_membership import Membership
from timeline.columns.columns import Bool, ColumnTable, Int64, Rows, column
from timeline.columns.distinct import rows_by_value
from timeline.records.tables import Steps

__all__ = ["RecordedSteps", "recorded_steps"]

WHOLE = 0.95
"""The last step of a graph was cut when it has a smaller share of the device records that steps
before it have: tasks of one graph vary less than what is missing where a recording ends."""


class RecordedSteps(ColumnTable):
    """One row per step.

    tasks, ops: how many device tasks and communication ops it has. first: whether it is the first
    of its graph with device records in the whole recording, selected or not. cut: whether the end
    of the recording, or a window, leaves out a part of its device records.
    """

    tasks: Int64 = column(np.int64)
    ops: Int64 = column(np.int64)
    first: Bool = column(np.bool_)
    cut: Bool = column(np.bool_)

    def within(self, rows: Rows | Bool, membership: Membership, count: int) -> RecordedSteps:
        """Some of the steps, `count`, of which a window leaves the records of `membership`."""
        kept, (tasks, ops) = self.take(rows), _counted(membership, count)
        less = (tasks < kept.tasks) | (ops < kept.ops)
        return replace(kept, tasks=tasks, ops=ops, cut=kept.cut | less)


def recorded_steps(steps: Steps, membership: Membership) -> RecordedSteps:
    """What the whole recording of a rank holds of its steps, which are in order of their start."""
    tasks, ops = _counted(membership, len(steps))
    first, cut = np.zeros((2, len(steps)), np.bool_)
    is_there = tasks > 0 if tasks.any() else ops > 0
    there = np.flatnonzero(is_there)
    for _, at in rows_by_value(steps.graph[there]):
        rows = there[at]
        first[rows[0]] = True
        cut[rows[-1]] = any(_lacks_records(counts[rows]) for counts in (tasks, ops))
    return RecordedSteps(tasks, ops, first, cut)


def _counted(membership: Membership, count: int) -> tuple[Int64, Int64]:
    """The device tasks and the communication ops of each step."""
    tasks, ops = (
        np.bincount(step[step >= 0], minlength=count).astype(np.int64)
        for step in (membership.tasks, membership.ops)
    )
    return tasks, ops


def _lacks_records(counts: Int64) -> bool:
    """Whether the last of these steps has fewer records than those between the first and it."""
    between = counts[1:-1]
    return len(between) > 0 and bool(counts[-1] < WHOLE * np.median(between))
