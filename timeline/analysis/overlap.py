"""Turns compute tasks and communication ops into Computing, Communication, Not Overlapped, Free."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from timeline.analysis.intervals import Intervals, subtract, union
from timeline.records.columns import Bool, Columns, Int64, Rows, column
from timeline.records.tables import CommunicationOps, Tasks

__all__ = ["Overlap", "OverlapTotals", "overlap_of", "overlap_of_stretches", "totals_by_step"]


@dataclass(frozen=True)
class Overlap:
    """How one stretch of device time was spent.

    computing is the union of compute tasks, communication the union of communication ops,
    not_overlapped is communication without computing, and free is what neither covers between
    the first start and the last end of both. This is the rule of CANN 6 and 8 ("inner rule"):
    it equals msprof's Overlap Analysis, step_trace_time.csv and StepTraceTime.

    computing + not_overlapped + free == span always holds.
    """

    computing: Intervals
    communication: Intervals
    not_overlapped: Intervals
    free: Intervals
    span_ns: int

    def totals_ns(self) -> dict[str, int]:
        """The summed lengths under the names of the report."""
        return {
            "computing_ns": self.computing.total_ns,
            "communication_ns": self.communication.total_ns,
            "not_overlapped_ns": self.not_overlapped.total_ns,
            "free_ns": self.free.total_ns,
        }


@dataclass(frozen=True)
class OverlapTotals(Columns):
    """The overlap of each step in numbers; `known` is false for a step without device records."""

    known: Bool = column(np.bool_)
    computing_ns: Int64 = column(np.int64)
    communication_ns: Int64 = column(np.int64)
    not_overlapped_ns: Int64 = column(np.int64)
    free_ns: Int64 = column(np.int64)
    span_ns: Int64 = column(np.int64)


def overlap_of(tasks: Tasks, ops: CommunicationOps) -> Overlap:
    """Overlap of all compute tasks and communication ops."""
    computing = union(tasks.start_ns[tasks.compute], tasks.end_ns[tasks.compute])
    communication = union(ops.start_ns, ops.end_ns)
    busy = _merge([computing, communication])
    span = busy.span_ns
    if span is None:
        return Overlap(computing, communication, communication, busy, 0)
    free = Intervals(busy.end_ns[:-1], busy.start_ns[1:])
    not_overlapped = subtract(communication, computing)
    return Overlap(computing, communication, not_overlapped, free, span[1] - span[0])


def overlap_of_stretches(
    tasks: Tasks, ops: CommunicationOps, task_stretch: Rows, op_stretch: Rows, count: int
) -> Overlap:
    """Overlap of several stretches of device time; time between them counts for none.

    Neighbouring stretches may overlap each other, so everything is merged as one and only the
    gaps between the stretches stay out of free.

    Args:
        task_stretch, op_stretch: the stretch of each record below `count`, negative for none.
    """
    records = _Members.of(tasks, ops, task_stretch, op_stretch)
    computing, communication = records.computing(), records.communication()
    spans = _spans_of(records, count)
    stretches = union(spans.start_ns, spans.end_ns)
    return Overlap(
        computing,
        communication,
        subtract(communication, computing),
        subtract(stretches, _merge([computing, communication])),
        stretches.total_ns,
    )


def totals_by_step(
    tasks: Tasks, ops: CommunicationOps, task_step: Rows, op_step: Rows, count: int
) -> OverlapTotals:
    """The overlap of each of `count` steps by itself.

    The steps are laid out one behind the other on a time axis of its own, so that one pass over
    all records does for all of them.

    Args:
        task_step, op_step: the step of each record below `count`, negative for none.
    """
    records = _Members.of(tasks, ops, task_step, op_step)
    spans = _spans_of(records, count)
    # Two steps never touch on that axis.
    bounds = np.concatenate([[0], np.cumsum(spans.end_ns - spans.start_ns + 1)])
    apart = records.shifted(bounds[:-1] - spans.start_ns)
    computing, communication = apart.computing(), apart.communication()
    busy = _merge([computing, communication])
    known = np.zeros(count, np.bool_)
    known[task_step[task_step >= 0]] = True
    known[op_step[op_step >= 0]] = True
    span_ns = spans.end_ns - spans.start_ns
    return OverlapTotals(
        known,
        _lengths_between(computing, bounds),
        _lengths_between(communication, bounds),
        _lengths_between(subtract(communication, computing), bounds),
        span_ns - _lengths_between(busy, bounds),
        span_ns,
    )


@dataclass(frozen=True)
class _Members:
    """The intervals that count for overlap, and the group of each."""

    start_ns: Int64
    end_ns: Int64
    group: Rows
    is_op: Bool

    @classmethod
    def of(cls, tasks: Tasks, ops: CommunicationOps, task_group: Rows, op_group: Rows) -> _Members:
        task = np.flatnonzero((task_group >= 0) & tasks.compute & (tasks.end_ns > tasks.start_ns))
        op = np.flatnonzero((op_group >= 0) & (ops.end_ns > ops.start_ns))
        return cls(
            np.concatenate([tasks.start_ns[task], ops.start_ns[op]]),
            np.concatenate([tasks.end_ns[task], ops.end_ns[op]]),
            np.concatenate([task_group[task], op_group[op]]),
            np.repeat(np.array([False, True]), [len(task), len(op)]),
        )

    def computing(self) -> Intervals:
        return union(self.start_ns[~self.is_op], self.end_ns[~self.is_op])

    def communication(self) -> Intervals:
        return union(self.start_ns[self.is_op], self.end_ns[self.is_op])

    def shifted(self, by_ns: Int64) -> _Members:
        """Each group moved in time by its own amount."""
        own = by_ns[self.group]
        return replace(self, start_ns=self.start_ns + own, end_ns=self.end_ns + own)


def _spans_of(records: _Members, count: int) -> Intervals:
    """First start and last end of each group; 0 and 0 of one without records."""
    never, latest = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    start_ns, end_ns = np.full(count, never), np.full(count, latest)
    np.minimum.at(start_ns, records.group, records.start_ns)
    np.maximum.at(end_ns, records.group, records.end_ns)
    empty = start_ns == never
    start_ns[empty], end_ns[empty] = 0, 0
    return Intervals(start_ns, end_ns)


def _lengths_between(intervals: Intervals, bounds: Int64) -> Int64:
    """The summed length of the intervals between each two bounds; none crosses a bound."""
    upto = np.concatenate([[0], np.cumsum(intervals.end_ns - intervals.start_ns)])
    made: Int64 = np.diff(upto[np.searchsorted(intervals.start_ns, bounds)])
    return made


def _merge(parts: list[Intervals]) -> Intervals:
    nothing: Int64 = np.empty(0, np.int64)
    start_ns = np.concatenate([nothing, *(part.start_ns for part in parts)])
    end_ns = np.concatenate([nothing, *(part.end_ns for part in parts)])
    return union(start_ns, end_ns)
