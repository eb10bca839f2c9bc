"""Use of device time: computing, communicating, both, copying, or free; and the waits of steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from timeline.analysis.steps import NO_STEP, Membership, RecordedSteps, assign_steps
from timeline.columns.columns import Bool, ColumnTable, Int64, Rows, column
from timeline.columns.distinct import distinct, distinct_values
from timeline.columns.group_by import sum_by
from timeline.columns.intervals import (
    IntervalSet,
    covered_between,
    intersect,
    subtract,
    union,
    union_of_sets,
)
from timeline.records.clock import INNER, CommunicationRule, FreeRule
from timeline.records.not_given import NO_TIME
from timeline.records.tables import Records, Spans, Tasks
from timeline.records.task_kinds import collective_kind


@dataclass(frozen=True)
class Overlap:
    """Use of one interval of device time.

    computing is the union of compute tasks, communication that of communication ops (or of their
    HCCL tasks), and not_overlapped is communication without computing. free is the time that
    neither covers between the first start and the last end of both; by the outer rule of msprof
    also the time between those and the capture's other tasks, before_ns and after_ns (None if the
    rule is unknown). It equals msprof's Overlap Analysis, step_trace_time.csv and StepTraceTime.
    copies is the part of the gaps in which memory is copied or filled, and idle the rest of the
    gaps.

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
        """Return the overlap of intervals that begin and end with computing or communication.

        copies: when memory is copied or filled, whatever else runs then. gaps: time within the
        intervals without computing and communication.
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
        """Return the free time before the first and after the last work, None if unknown."""
        if self.before_ns is None or self.after_ns is None:
            return None
        return self.before_ns + self.after_ns

    def totals_ns(self) -> dict[str, int]:
        """Return the total lengths, which add up to the span, under the names of the report."""
        return {
            "computing_ns": self.computing.total_ns,
            "communication_ns": self.communication.total_ns,
            "not_overlapped_ns": self.not_overlapped.total_ns,
            "free_ns": self.free.total_ns,
        }

    def free_parts(self, *, has_copies: bool = True) -> FreeParts:
        """Return the total lengths that add up to free; copies count as idle if not recorded.

        has_copies: whether copies are among the tasks.
        """
        return FreeParts(
            self.copies.total_ns if has_copies else None,
            self.outside_ns,
            self.idle.total_ns,
            self.before_ns,
        )


@dataclass(frozen=True, slots=True)
class FreeParts:
    """Parts of free time; before_ns is the part of outside_ns before the device's first work.

    Those two are None if it is unknown whether the profiler counts time outside, and copies_ns if
    copies are not among the tasks, so that idle_ns includes them.
    """

    copies_ns: int | None
    outside_ns: int | None
    idle_ns: int
    before_ns: int | None


class OverlapTotals(ColumnTable):
    """Use of the device in the period of each step, one row per step.

    known: whether the device computes or communicates in it at all. start_ns: first such work,
    NO_TIME for none; span_ns: from then to the last such work; period_ns: length of the period. The
    other columns are parts of the span: computing_ns + not_overlapped_ns + free_ns == span_ns, and
    free_ns == copies_ns + idle_ns.
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
    """Return the rows that count as communication by the writer's rule, and the step of each."""
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

    unrecorded: when the device did work that is not recorded; this does not count as free.
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


def overlap_within(overlap: Overlap, tasks: Tasks, periods: IntervalSet, *, edges: bool) -> Overlap:
    """Return the part of an overlap that lies in some periods.

    Time between them is not counted.

    tasks: copies among them may lie before the first work of the overlap and after the last.
    edges: whether free time before and after the work in a period counts too.
    """
    computing, communication = (
        intersect(part, periods) for part in (overlap.computing, overlap.communication)
    )
    busy = union_of_sets(computing, communication)
    if not edges:
        periods = union(*reach(busy, periods.start_ns, periods.end_ns))
    copies = union(tasks.start_ns[tasks.copy], tasks.end_ns[tasks.copy])
    return Overlap.of(computing, communication, copies, periods, subtract(periods, busy), INNER)


def totals_by_period(overlap: Overlap, start_ns: Int64, end_ns: Int64) -> OverlapTotals:
    """Return the use of the device in each of some disjoint periods (n,)."""
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
    """Return the first start and the last end of busy time in each period (n,).

    Busy time is cut off at the edges of a period. Without any, both are the start of the period.
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
    """Return the totals of each of `count` steps by the rule of msprof and torch_npu.

    They assign work to the step in which it was launched, from the first start to the last end, so
    time in which two steps overlap on the device counts twice.

    Args:
        task_step, op_step: the step of each row below `count`, negative for none.
    """
    computing = np.flatnonzero((task_step >= 0) & (task_step < count) & tasks.compute)
    communicating = np.flatnonzero((op_step >= 0) & (op_step < count))
    columns = [
        *(tasks.start_ns[computing], tasks.end_ns[computing]),
        *(communication.start_ns[communicating], communication.end_ns[communicating]),
    ]
    times_ns, place = distinct_values(np.concatenate(columns))
    steps = [task_step[computing]] * 2 + [op_step[communicating]] * 2
    # Edges that are numbered by step, then time, belong to steps that do not overlap.
    edges = place + np.concatenate(steps).astype(np.int64) * len(times_ns)
    start, end, op_start, op_end = np.split(edges, np.cumsum([len(one) for one in steps[:3]]))

    def sums_ns(from_edge: Int64, until_edge: Int64) -> Int64:
        step, first = np.divmod(from_edge, len(times_ns))
        return sum_by(step, times_ns[until_edge % len(times_ns)] - times_ns[first], count)

    computes, communicates = union(start, end), union(op_start, op_end)
    busy = union_of_sets(computes, communicates)
    inside = busy.end_ns[:-1] // len(times_ns) == busy.start_ns[1:] // len(times_ns)
    computing_ns = sums_ns(computes.start_ns, computes.end_ns)
    parts_ns = {
        "computing_ns": computing_ns,
        "communication_ns": sums_ns(communicates.start_ns, communicates.end_ns),
        "not_overlapped_ns": sums_ns(busy.start_ns, busy.end_ns) - computing_ns,
        "free_ns": sums_ns(busy.end_ns[:-1][inside], busy.start_ns[1:][inside]),
    }
    rows = zip(*(column.tolist() for column in parts_ns.values()), strict=True)
    return [dict(zip(parts_ns, row, strict=True)) for row in rows]


def _outside(stretches: IntervalSet, rule: FreeRule) -> tuple[IntervalSet, IntervalSet]:
    span = stretches.span_ns
    start_ns, end_ns = span or (0, 0)
    before_ns = start_ns if span is None or rule.start_ns is None else rule.start_ns
    after_ns = end_ns if span is None or rule.end_ns is None else rule.end_ns
    return _interval(before_ns, start_ns), _interval(end_ns, after_ns)


def _interval(start_ns: int, end_ns: int) -> IntervalSet:
    """Return one interval, or none if it ends before it starts."""
    return union(np.array([start_ns], np.int64), np.array([end_ns], np.int64))


def with_communication_rule(records: Records) -> Records:
    """Return the records with the rule that is closest to the writer's times of steps.

    Ops are used if both rules are equally close.
    """
    rule = records.communication_rule
    if not rule.vendor_ns:
        return records
    candidates = [CommunicationRule(of_tasks, rule.evidence) for of_tasks in (False, True)]
    choices = [replace(records, communication_rule=candidate) for candidate in candidates]
    return min(choices, key=lambda counted: _distance_ns(counted, rule.vendor_ns))


def _distance_ns(records: Records, wanted_ns: Mapping[int, int]) -> int:
    """Return the distance of communication from the writer's times of steps.

    Without common steps, the sums are compared.
    """
    member = assign_steps(records)
    spans, span_step = communication_spans(records, member)
    steps = records.steps
    totals = overlap_by_launch(records.tasks, member.tasks, spans, span_step, len(steps))
    sums_ns: dict[int, int] = {}
    for number, parts in zip(steps.iteration.tolist(), totals, strict=True):
        sums_ns[number] = sums_ns.get(number, 0) + parts["communication_ns"]
    known = wanted_ns.keys() & sums_ns.keys()
    if not known:
        whole_ns = measure_overlap(records.tasks, spans).communication.total_ns
        return abs(whole_ns - sum(wanted_ns.values()))
    return sum(abs(sums_ns[step] - wanted_ns[step]) for step in known)


_RECEIVE = "Receive"


class StepWaits(ColumnTable):
    """Waits of steps, one row per step.

    receive_ns: total length of its receive ops, in which a pipeline stage waits for the previous
    one ("Bubble"). preparing_ns: from its start on the host to its first compute task or
    communication op, on the clocks as recorded, as the profiler counts it; NO_TIME for a step that
    is not marked on the host, or has neither. before_ns: from its start on the host, or the
    end of the previous step if that is later, to the first computing or communication in its
    period.
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
    receive_ns = sum_by(membership.ops[received], (ops.end_ns - ops.start_ns)[received], count)
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
