"""Tells from a trace's own Overlap Analysis what computes, where its tasks do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from timeline.records.columns import Bool
from timeline.records.strings import StringPool
from timeline.records.tables import Spans, Tasks
from timeline.sources.common.task_kinds import may_compute
from timeline.sources.lane_events import LaneEvents

__all__ = ["computing_spans", "settle_by_computing"]

COMPUTING = "Computing"
"""What exporters call the spans in which the device computes."""
EDGE_NS = 2
"""Spans are cut down to whole nanoseconds at both ends, tasks are rounded."""


def computing_spans(lanes: LaneEvents) -> Spans:
    """The spans of the Overlap Analysis in which the device computes."""
    rows = np.flatnonzero(lanes.names() == lanes.strings.code(COMPUTING))
    return Spans.of(len(rows), lanes.spans(rows))


def settle_by_computing(tasks: Tasks, computing: Spans, strings: StringPool) -> Tasks:
    """Take tasks whose type does not tell for operators if they lie in the exporter's spans.

    A task that is called by its type ran no operator wherever it lies.
    """
    if not len(computing):
        return tasks
    asked = may_compute(tasks.task_type, strings) & (tasks.name != tasks.task_type)
    if not asked.any():
        return tasks
    compute = tasks.compute.copy()
    compute[asked] = _within(tasks.take(asked), computing)
    return replace(tasks, compute=compute)


def _within(tasks: Tasks, spans: Spans) -> Bool:
    """Whether each task lies in one span, of which none overlaps another."""
    order = np.argsort(spans.start_ns, kind="stable")
    at = np.searchsorted(spans.start_ns[order], tasks.start_ns + EDGE_NS, side="right") - 1
    reach_ns = spans.end_ns[order][np.maximum(at, 0)]
    found: Bool = (at >= 0) & (tasks.end_ns <= reach_ns + EDGE_NS)
    return found
