"""How device time was spent: computing, communicating, both, copying, or free."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from timeline.analysis.step_membership import Membership
from timeline.columns.columns import Bool, Columnar, ColumnTable, Int64, Rows, column
from timeline.columns.intervals import IntervalSet, subtract, union, union_of_sets
from timeline.frozen import dataclass
from timeline.records.counting_rules import INNER, FreeRule
from timeline.records.tables import Records, Spans, Tasks

__all__ = [
    "FreeParts",
    "Overlap",
    "OverlapTotals",
    "StepsApart",
    "communication_spans",
    "measure_overlap",
    "measure_overlap_of_stretches",
    "totals_by_step",
]


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
    """The overlap of each step in numbers; `known` is false for a step without device records.

    Steps have no time outside: other tasks around them are those of other steps.
    """

    known: Bool = column(np.bool_)
    computing_ns: Int64 = column(np.int64)
    communication_ns: Int64 = column(np.int64)
    not_overlapped_ns: Int64 = column(np.int64)
    free_ns: Int64 = column(np.int64)
    copies_ns: Int64 = column(np.int64)
    idle_ns: Int64 = column(np.int64)
    span_ns: Int64 = column(np.int64)


def communication_spans(records: Records, membership: Membership) -> tuple[Spans, Rows]:
    """What counts as communication by the rule of the capture's writer, and the step of each."""
    if records.communication_rule.of_tasks:
        return records.planes, membership.planes
    return records.ops, membership.ops


def measure_overlap(tasks: Tasks, communication: Spans, rule: FreeRule = INNER) -> Overlap:
    """Overlap of all tasks and communication ops."""
    computing = union(tasks.start_ns[tasks.compute], tasks.end_ns[tasks.compute])
    communicating = union(communication.start_ns, communication.end_ns)
    busy = union_of_sets(computing, communicating)
    return Overlap.of(
        computing,
        communicating,
        union(tasks.start_ns[tasks.copy], tasks.end_ns[tasks.copy]),
        IntervalSet(busy.start_ns[:1], busy.end_ns[-1:]),
        IntervalSet(busy.end_ns[:-1], busy.start_ns[1:]),
        rule,
    )


def measure_overlap_of_stretches(
    tasks: Tasks, communication: Spans, task_stretch: Rows, op_stretch: Rows, count: int
) -> Overlap:
    """Overlap of several stretches of device time; time between them counts for none.

    Neighbouring stretches may overlap each other, so everything is merged as one and only the
    gaps between the stretches stay out of free.

    Args:
        task_stretch, op_stretch: the stretch of each record below `count`, negative for none.
    """
    records = _Members.of(tasks, communication, task_stretch, op_stretch)
    spans = _spans_of(records, count)
    computing, communicating = records.computing(), records.communication()
    stretches = union(spans.start_ns, spans.end_ns)
    copying = tasks.copy & (task_stretch >= 0)
    return Overlap.of(
        computing,
        communicating,
        union(tasks.start_ns[copying], tasks.end_ns[copying]),
        stretches,
        subtract(stretches, union_of_sets(computing, communicating)),
        INNER,
    )


def totals_by_step(
    tasks: Tasks, communication: Spans, task_step: Rows, op_step: Rows, count: int
) -> OverlapTotals:
    """The overlap of each of `count` steps by itself, see `StepsApart`."""
    return StepsApart.of(tasks, communication, task_step, op_step, count).totals()


@dataclass(frozen=True)
class StepsApart(Columnar):
    """Steps that are laid out one behind the other on a time axis of its own.

    So one pass over all records does for all of them, also where they run at once on the device.
    moved_ns: (k,) how far each step is moved; bounds: (k + 1,) where each begins on that axis, and
    the end. span_ns: (k,); known: (k,) whether a step has records. The sets lie on that axis, gaps
    between the computing and communication of a step, and idle is what copies leave of them.
    """

    bounds: Int64
    moved_ns: Int64
    span_ns: Int64
    known: Bool
    computing: IntervalSet
    communication: IntervalSet
    gaps: IntervalSet
    idle: IntervalSet

    @classmethod
    def of(
        cls, tasks: Tasks, communication: Spans, task_step: Rows, op_step: Rows, count: int
    ) -> StepsApart:
        """Lay out `count` steps.

        Args:
            task_step, op_step: the step of each record below `count`, negative for none.
        """
        records = _Members.of(tasks, communication, task_step, op_step)
        spans = _spans_of(records, count)
        # Two steps never touch on that axis.
        bounds = np.concatenate([[0], np.cumsum(spans.end_ns - spans.start_ns + 1)])
        moved_ns = bounds[:-1] - spans.start_ns
        apart = records.shifted(moved_ns)
        computing, communicating = apart.computing(), apart.communication()
        span_ns = spans.end_ns - spans.start_ns
        stretches = union(bounds[:-1], bounds[:-1] + span_ns)
        gaps = subtract(stretches, union_of_sets(computing, communicating))
        copies = _copies_within(tasks, task_step, spans).shifted(moved_ns)
        known = np.zeros(count, np.bool_)
        known[task_step[task_step >= 0]] = True
        known[op_step[op_step >= 0]] = True
        return cls(
            bounds,
            moved_ns,
            span_ns,
            known,
            computing,
            communicating,
            gaps,
            subtract(gaps, union(copies.start_ns, copies.end_ns)),
        )

    def totals(self) -> OverlapTotals:
        """The overlap of each step."""
        free_ns = _lengths_between(self.gaps, self.bounds)
        idle_ns = _lengths_between(self.idle, self.bounds)
        return OverlapTotals(
            self.known,
            _lengths_between(self.computing, self.bounds),
            _lengths_between(self.communication, self.bounds),
            _lengths_between(subtract(self.communication, self.computing), self.bounds),
            free_ns,
            free_ns - idle_ns,
            idle_ns,
            self.span_ns,
        )


@dataclass(frozen=True)
class _Members:
    """The intervals that count for overlap, and the group of each."""

    start_ns: Int64
    end_ns: Int64
    group: Rows
    is_op: Bool

    @classmethod
    def of(cls, tasks: Tasks, ops: Spans, task_group: Rows, op_group: Rows) -> _Members:
        task = np.flatnonzero((task_group >= 0) & tasks.compute & (tasks.end_ns > tasks.start_ns))
        op = np.flatnonzero((op_group >= 0) & (ops.end_ns > ops.start_ns))
        return cls(
            np.concatenate([tasks.start_ns[task], ops.start_ns[op]]),
            np.concatenate([tasks.end_ns[task], ops.end_ns[op]]),
            np.concatenate([task_group[task], op_group[op]]),
            np.repeat(np.array([False, True]), [len(task), len(op)]),
        )

    def computing(self) -> IntervalSet:
        return union(self.start_ns[~self.is_op], self.end_ns[~self.is_op])

    def communication(self) -> IntervalSet:
        return union(self.start_ns[self.is_op], self.end_ns[self.is_op])

    def shifted(self, by_ns: Int64) -> _Members:
        """Each group moved in time by its own amount."""
        move_ns = by_ns[self.group]
        return replace(self, start_ns=self.start_ns + move_ns, end_ns=self.end_ns + move_ns)


def _copies_within(tasks: Tasks, task_step: Rows, spans: IntervalSet) -> _Members:
    """What copies or fills in the span of its step; what lies outside is cut off."""
    at = np.flatnonzero((task_step >= 0) & tasks.copy)
    step = task_step[at]
    start_ns = np.maximum(tasks.start_ns[at], spans.start_ns[step])
    end_ns = np.minimum(tasks.end_ns[at], spans.end_ns[step])
    inside = end_ns > start_ns
    step = step[inside]
    return _Members(start_ns[inside], end_ns[inside], step, np.zeros(len(step), np.bool_))


def _spans_of(records: _Members, count: int) -> IntervalSet:
    """First start and last end of each group; 0 and 0 of one without records."""
    never, latest = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    start_ns, end_ns = np.full(count, never), np.full(count, latest)
    np.minimum.at(start_ns, records.group, records.start_ns)
    np.maximum.at(end_ns, records.group, records.end_ns)
    empty = start_ns == never
    start_ns[empty], end_ns[empty] = 0, 0
    return IntervalSet(start_ns, end_ns)


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


def _lengths_between(intervals: IntervalSet, bounds: Int64) -> Int64:
    """The summed length of the intervals between each two bounds; none crosses a bound."""
    upto = np.concatenate([[0], np.cumsum(intervals.end_ns - intervals.start_ns)])
    made: Int64 = np.diff(upto[np.searchsorted(intervals.start_ns, bounds)])
    return made
