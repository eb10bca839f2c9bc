"""Turns compute tasks and communication ops into Computing, Communication, Not Overlapped, Free."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timeline.analysis.intervals import Intervals, subtract, union
from timeline.records.columns import Bool, Int64
from timeline.records.tables import CommunicationOps, Tasks

__all__ = ["Overlap", "join_overlaps", "overlap_of"]


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


def overlap_of(
    tasks: Tasks,
    ops: CommunicationOps,
    *,
    task_rows: Bool | None = None,
    op_rows: Bool | None = None,
) -> Overlap:
    """Overlap of the compute tasks and communication ops chosen by the masks (default: all)."""
    computes = tasks.compute if task_rows is None else tasks.compute & task_rows
    computing = union(tasks.start_ns[computes], tasks.end_ns[computes])
    if op_rows is None:
        communication = union(ops.start_ns, ops.end_ns)
    else:
        communication = union(ops.start_ns[op_rows], ops.end_ns[op_rows])
    return _overlap(computing, communication)


def join_overlaps(parts: list[Overlap]) -> Overlap:
    """Several stretches of device time taken together; time between them counts for none.

    Stretches of neighbouring steps may overlap each other, so everything is merged anew and only
    the gaps between the stretches stay out of free.
    """
    computing = _merge([part.computing for part in parts])
    communication = _merge([part.communication for part in parts])
    busy = _merge([computing, communication])
    stretches = _merge([part_span for part in parts if (part_span := _span(part)) is not None])
    return Overlap(
        computing,
        communication,
        subtract(communication, computing),
        subtract(stretches, busy),
        stretches.total_ns,
    )


def _overlap(computing: Intervals, communication: Intervals) -> Overlap:
    busy = _merge([computing, communication])
    span = busy.span_ns
    if span is None:
        return Overlap(computing, communication, communication, busy, 0)
    free = Intervals(busy.end_ns[:-1], busy.start_ns[1:])
    not_overlapped = subtract(communication, computing)
    return Overlap(computing, communication, not_overlapped, free, span[1] - span[0])


def _merge(parts: list[Intervals]) -> Intervals:
    nothing: Int64 = np.empty(0, np.int64)
    start_ns = np.concatenate([nothing, *(part.start_ns for part in parts)])
    end_ns = np.concatenate([nothing, *(part.end_ns for part in parts)])
    return union(start_ns, end_ns)


def _span(part: Overlap) -> Intervals | None:
    span = _merge([part.computing, part.communication]).span_ns
    if span is None:
        return None
    return Intervals(np.array([span[0]]), np.array([span[1]]))
