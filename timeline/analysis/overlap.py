"""How device time was spent: computing, communicating, both, copying, or free."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timeline.analysis.step_membership import Membership
from timeline.columns.columns import Bool, ColumnTable, Int64, Rows, column
from timeline.columns.distinct import NO_ROWS, rows_by_value
from timeline.columns.intervals import (
    IntervalSet,
    covered_between,
    intersect,
    subtract,
    union,
    union_of_sets,
)
from timeline.records.clock import INNER, FreeRule
from timeline.records.not_given import NO_TIME
from timeline.records.tables import Records, Spans, Tasks


@dataclass(frozen=True)
class Overlap:
    """How one stretch of device time was spent.

    computing is the union of compute tasks, communication that of communication ops (or of their
    HCCL tasks), and not_overlapped is communication without computing. free is what neither covers
    between the first start and the last end of both; by the outer rule of msprof also what lies
    between those and the capture's other tasks, before_ns and after_ns (None where the rule is not
    told). It equals msprof's Overlap Analysis, step_trace_time.csv and StepTraceTime. copies is
    the part of the gaps in which memory is copied or filled, and idle the rest of the gaps.

    computing + not_overlapped + free == span, and free == copies + idle + before + after, always.
    """

    computing: IntervalSet
    communication: IntervalSet
    not_overlapped: IntervalSet
    free: IntervalSet
    copies: IntervalSet
    idle: IntervalSet
    span_ns: int
    before_ns: int | None
    after_ns: int | None

    @classmethod
    def of(
        cls,
        computing: IntervalSet,
        communication: IntervalSet,
        copies: IntervalSet,
        stretches: IntervalSet,
        gaps: IntervalSet,
        rule: FreeRule,
    ) -> Overlap:
        """The overlap of stretches of time that computing or communication begin and end.

        copies: when memory is copied or filled, whatever else runs then. gaps: what neither
        computing nor communication covers of the stretches.
        """
        idle = subtract(gaps, copies)
        before, after = _outside(stretches, rule)
        free = union_of_sets(before, gaps, after)
        known = bool(rule.evidence)
        return cls(
            computing,
            communication,
            subtract(communication, computing),
            free,
            subtract(gaps, idle) if len(copies) else copies,
            idle,
            stretches.total_ns + before.total_ns + after.total_ns,
            before.total_ns if known else None,
            after.total_ns if known else None,
        )

    @property
    def outside_ns(self) -> int | None:
        """What is free before the first and after the last of computing and communication."""
        if self.before_ns is None or self.after_ns is None:
            return None
        return self.before_ns + self.after_ns

    def totals_ns(self) -> dict[str, int]:
        """The summed lengths that add up to the span, under the names of the report."""
        return {
            "computing_ns": self.computing.total_ns,
            "communication_ns": self.communication.total_ns,
            "not_overlapped_ns": self.not_overlapped.total_ns,
            "free_ns": self.free.total_ns,
        }

    def free_parts(self, *, tells_copies: bool = True) -> FreeParts:
        """The summed lengths that add up to free; copies that are not told count as idle."""
        return FreeParts(
            self.copies.total_ns if tells_copies else None,
            self.outside_ns,
            self.idle.total_ns,
            self.before_ns,
        )


@dataclass(frozen=True, slots=True)
class FreeParts:
    """What free time consists of; before_ns is the part of outside_ns before the first kernel.

    Those are None where nothing tells whether the profiler counts any time outside, and copies_ns
    where copies are not among the tasks, so that idle_ns holds them.
    """

    copies_ns: int | None
    outside_ns: int | None
    idle_ns: int
    before_ns: int | None


class OverlapTotals(ColumnTable):
    """One row per step: how the device spent the period of the step.

    known: whether the device computes or communicates in it at all. start_ns: when it begins to,
    NO_TIME where it never does; span_ns: from then until it last does so; period_ns: of all of the
    step. The other columns are parts of the span: computing_ns + not_overlapped_ns + free_ns ==
    span_ns, and free_ns == copies_ns + idle_ns.
    """

    known: Bool = column(np.bool_)
    computing_ns: Int64 = column(np.int64)
    communication_ns: Int64 = column(np.int64)
    not_overlapped_ns: Int64 = column(np.int64)
    free_ns: Int64 = column(np.int64)
    copies_ns: Int64 = column(np.int64)
    idle_ns: Int64 = column(np.int64)
    span_ns: Int64 = column(np.int64)
    period_ns: Int64 = column(np.int64)
    start_ns: Int64 = column(np.int64, NO_TIME)


def communication_spans(records: Records, membership: Membership) -> tuple[Spans, Rows]:
    """Return what counts as communication by the rule of the writer, and the step of each row."""
    if records.communication_rule.of_tasks:
        return records.planes, membership.planes
    return records.ops, membership.ops


def measure_overlap(
    tasks: Tasks,
    communication: Spans,
    rule: FreeRule = INNER,
    unrecorded: IntervalSet | None = None,
) -> Overlap:
    """Return the overlap of all tasks and communication ops.

    unrecorded: when the device did what is not recorded, which is free for nothing that is.
    """
    computing = union(tasks.start_ns[tasks.compute], tasks.end_ns[tasks.compute])
    communicating = union(communication.start_ns, communication.end_ns)
    busy = union_of_sets(computing, communicating)
    stretches = IntervalSet(busy.start_ns[:1], busy.end_ns[-1:])
    gaps = IntervalSet(busy.end_ns[:-1], busy.start_ns[1:])
    if unrecorded is not None and len(unrecorded):
        gaps = subtract(gaps, unrecorded)
        stretches = union_of_sets(busy, gaps)
    return Overlap.of(
        computing,
        communicating,
        union(tasks.start_ns[tasks.copy], tasks.end_ns[tasks.copy]),
        stretches,
        gaps,
        rule,
    )


def overlap_within(overlap: Overlap, periods: IntervalSet, *, edges: bool) -> Overlap:
    """Return the part of an overlap that lies in some periods.

    Time between them counts for nothing.

    edges: whether what is free before and after the work in a period counts too.
    """
    computing, communication = (
        intersect(part, periods) for part in (overlap.computing, overlap.communication)
    )
    busy = union_of_sets(computing, communication)
    if not edges:
        periods = union(*reach(busy, periods.start_ns, periods.end_ns))
    return Overlap.of(
        computing, communication, overlap.copies, periods, subtract(periods, busy), INNER
    )


def totals_by_period(overlap: Overlap, start_ns: Int64, end_ns: Int64) -> OverlapTotals:
    """Return how the device spent each of some periods (n,), which share no time."""
    busy = union_of_sets(overlap.computing, overlap.communication)
    from_ns, until_ns = reach(busy, start_ns, end_ns)
    computing_ns, communication_ns, not_overlapped_ns, copies_ns = (
        covered_between(part, from_ns, until_ns)
        for part in (
            overlap.computing,
            overlap.communication,
            overlap.not_overlapped,
            overlap.copies,
        )
    )
    known, span_ns = until_ns > from_ns, until_ns - from_ns
    free_ns = span_ns - computing_ns - not_overlapped_ns
    return OverlapTotals(
        known,
        computing_ns,
        communication_ns,
        not_overlapped_ns,
        free_ns,
        copies_ns,
        free_ns - copies_ns,
        span_ns,
        end_ns - start_ns,
        np.where(known, from_ns, NO_TIME),
    )


def reach(busy: IntervalSet, start_ns: Int64, end_ns: Int64) -> tuple[Int64, Int64]:
    """Return from when until when the device is busy in each period (n,); its start twice if never.

    What is busy before a period, or after it, is cut off at its edge.
    """
    if not len(busy):
        return start_ns, start_ns
    first = np.searchsorted(busy.end_ns, start_ns, side="right")
    last = np.searchsorted(busy.start_ns, end_ns, side="left") - 1
    never = (first > last) | (end_ns <= start_ns)
    from_ns = np.maximum(np.append(busy.start_ns, 0)[first], start_ns)
    until_ns = np.minimum(busy.end_ns[last], end_ns)
    return np.where(never, start_ns, from_ns), np.where(never, start_ns, until_ns)


def overlap_by_launch(
    tasks: Tasks, task_step: Rows, communication: Spans, op_step: Rows, count: int
) -> list[dict[str, int]]:
    """Return the totals of the work of each of `count` steps, by the rule of msprof and torch_npu.

    They count for a step what was launched in it, from the first start to the last end, so that
    time in which two steps overlap on the device counts twice.

    Args:
        task_step, op_step: the step of each row below `count`, negative for none.
    """
    tasks_of, ops_of = dict(rows_by_value(task_step)), dict(rows_by_value(op_step))
    return [
        measure_overlap(
            tasks.take(tasks_of.get(step, NO_ROWS)), communication.take(ops_of.get(step, NO_ROWS))
        ).totals_ns()
        for step in range(count)
    ]


def _outside(stretches: IntervalSet, rule: FreeRule) -> tuple[IntervalSet, IntervalSet]:
    """What the rule adds before and after."""
    span = stretches.span_ns
    start_ns, end_ns = span or (0, 0)
    before_ns = start_ns if span is None or rule.start_ns is None else rule.start_ns
    after_ns = end_ns if span is None or rule.end_ns is None else rule.end_ns
    return _interval(before_ns, start_ns), _interval(end_ns, after_ns)


def _interval(start_ns: int, end_ns: int) -> IntervalSet:
    """One interval, or none where it ends before it starts."""
    return union(np.array([start_ns], np.int64), np.array([end_ns], np.int64))
