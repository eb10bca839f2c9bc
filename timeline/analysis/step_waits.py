"""Waits of each step: for receives, and for the host that prepares it."""

from __future__ import annotations

import numpy as np

from timeline.analysis.overlap import OverlapTotals
from timeline.analysis.recorded_steps import RecordedSteps
from timeline.analysis.step_membership import NO_STEP, Membership
from timeline.columns.columns import ColumnTable, Int64, column
from timeline.columns.distinct import distinct
from timeline.records.not_given import NO_TIME
from timeline.records.tables import Records
from timeline.records.task_kinds import collective_kind

_RECEIVE = "Receive"


class StepWaits(ColumnTable):
    """Waits of steps, one row per step.

    receive_ns: total length of its receive ops, in which a pipeline stage waits for the previous
    one ("Bubble"). preparing_ns: from its start on the host to its first compute task or
    communication op, on the clocks as recorded, as the profiler counts it; NO_TIME for a step that
    is not marked on the host, or has neither. before_ns: the part of its period before its first
    kernel: after it began on the host, and after the previous step ended.
    """

    receive_ns: Int64 = column(np.int64)
    preparing_ns: Int64 = column(np.int64, NO_TIME)
    before_ns: Int64 = column(np.int64, 0)


def step_waits(
    records: Records, membership: Membership, recorded: RecordedSteps, totals: OverlapTotals
) -> StepWaits:
    """Return the waits of all steps."""
    steps, tasks, ops = records.steps, records.tasks, records.ops
    count, strings = len(steps), records.strings
    receives = np.zeros(len(strings), np.bool_)
    names = distinct(ops.name)
    receives[names] = [collective_kind(name) == _RECEIVE for name in strings.texts(names)]
    received = receives[ops.name] & (membership.ops != NO_STEP)
    receive_ns = np.zeros(count, np.int64)
    lengths_ns = ops.end_ns - ops.start_ns
    np.add.at(receive_ns, membership.ops[received], lengths_ns[received])
    never = np.iinfo(np.int64).max
    first_ns = np.full(count, never)
    computing = tasks.compute & (membership.tasks != NO_STEP)
    np.minimum.at(first_ns, membership.tasks[computing], tasks.start_ns[computing])
    in_step = membership.ops != NO_STEP
    np.minimum.at(first_ns, membership.ops[in_step], ops.start_ns[in_step])
    given = steps.host & (first_ns != never)
    preparing_ns = first_ns - (steps.start_ns - records.host_offset_ns)
    before_ns = np.maximum(totals.start_ns - np.maximum(steps.start_ns, recorded.begin_ns), 0)
    return StepWaits(
        receive_ns,
        np.where(given, preparing_ns, NO_TIME),
        np.where(steps.host & totals.known, before_ns, 0),
    )
