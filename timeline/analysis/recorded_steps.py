"""Recorded steps: their periods, their device records, and whether all are present."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from timeline.analysis.step_membership import Membership
from timeline.columns.columns import Bool, ColumnTable, Int64, Rows, column
from timeline.columns.distinct import rows_by_value
from timeline.records.clock import ClockMove
from timeline.records.not_given import NO_TIME
from timeline.records.tables import Steps

WHOLE = 0.95
"""Minimum share of device records, relative to previous steps, for the last step of a graph to be
complete; tasks of one graph vary less than the loss at the end of a recording.
"""


class RecordedSteps(ColumnTable):
    """Extent of the recording of steps, one row per step.

    begin_ns, end_ns: its period, see `step_periods`. tasks, ops: number of device tasks and
    communication ops. first: whether it is the first of its graph with device records in the whole
    recording, selected or not. cut: whether the end of the recording, or a window, leaves out a
    part of its device records.
    """

    begin_ns: Int64 = column(np.int64)
    end_ns: Int64 = column(np.int64)
    tasks: Int64 = column(np.int64)
    ops: Int64 = column(np.int64)
    first: Bool = column(np.bool_)
    cut: Bool = column(np.bool_)

    def on_device(self, membership: Membership) -> tuple[Int64, Int64]:
        """Return when the device works on the launches of each step, within its period.

        NO_TIME for a step without device work.
        """
        start_ns, end_ns = membership.device_start_ns, membership.device_end_ns
        known = start_ns != NO_TIME
        start_ns, end_ns = (
            np.clip(at_ns, self.begin_ns, self.end_ns) for at_ns in (start_ns, end_ns)
        )
        return np.where(known, start_ns, NO_TIME), np.where(known, end_ns, NO_TIME)

    def within(
        self, rows: Rows | Bool, membership: Membership, start_ns: int, end_ns: int
    ) -> RecordedSteps:
        """Return some steps within a window [start_ns, end_ns), given what remains of them."""
        kept = self.take(rows)
        tasks, ops = _counted(membership, len(kept))
        less = (tasks < kept.tasks) | (ops < kept.ops)
        begin_ns, stop_ns = (
            np.clip(times_ns, start_ns, end_ns) for times_ns in (kept.begin_ns, kept.end_ns)
        )
        return RecordedSteps(begin_ns, stop_ns, tasks, ops, kept.first, kept.cut | less)

    def moved(self, move: ClockMove) -> RecordedSteps:
        """Return the steps on another clock."""
        return replace(self, begin_ns=move.of(self.begin_ns), end_ns=move.of(self.end_ns))


def recorded_steps(steps: Steps, membership: Membership) -> RecordedSteps:
    """Return the extent of each step in the whole recording of a rank, in order of start."""
    tasks, ops = _counted(membership, len(steps))
    first, cut = np.zeros((2, len(steps)), np.bool_)
    is_there = tasks > 0 if tasks.any() else ops > 0
    there = np.flatnonzero(is_there)
    for _, at in rows_by_value(steps.graph[there]):
        rows = there[at]
        first[rows[0]] = True
        cut[rows[-1]] = any(_lacks_records(counts[rows]) for counts in (tasks, ops))
    return RecordedSteps(*step_periods(steps, membership), tasks, ops, first, cut)


def step_periods(steps: Steps, membership: Membership) -> tuple[Int64, Int64]:
    """Return begin and end of the period of each step: together they cover the recording.

    A step ends with its mark, or with the last device work launched in it if that is later, and
    begins where the previous step ended; the first one begins with its mark or its device work. So
    a stall before a step is part of it, and steps that overlap on the device share no time: b(k) =
    max(b(k-1), end of mark k, end of the device work of step k).
    """
    start_ns, end_ns = steps.start_ns, steps.end_ns
    known = membership.device_start_ns != NO_TIME
    first_ns = np.where(known, np.minimum(membership.device_start_ns, start_ns), start_ns)
    last_ns = np.where(known, np.maximum(membership.device_end_ns, end_ns), end_ns)
    order = np.lexsort((last_ns, end_ns))
    upto_ns = np.maximum.accumulate(last_ns[order])
    begin_ns, stop_ns = np.empty((2, len(order)), np.int64)
    begin_ns[order[:1]] = first_ns.min(initial=np.iinfo(np.int64).max)
    begin_ns[order[1:]], stop_ns[order] = upto_ns[:-1], upto_ns
    return begin_ns, stop_ns


def _counted(membership: Membership, count: int) -> tuple[Int64, Int64]:
    """Return the number of device tasks and communication ops of each step."""
    tasks, ops = (
        np.bincount(step[step >= 0], minlength=count).astype(np.int64)
        for step in (membership.tasks, membership.ops)
    )
    return tasks, ops


def _lacks_records(counts: Int64) -> bool:
    """Return whether the last step has fewer records than those between the first and it."""
    between = counts[1:-1]
    return len(between) > 0 and bool(counts[-1] < WHOLE * np.median(between))
