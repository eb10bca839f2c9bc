"""The Overlap Analysis that a profile holds of itself, and what it tells of the tasks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from timeline.columns.columns import Bool, Int64, column
from timeline.columns.strings import StringPool
from timeline.records.counting import FreeRule
from timeline.records.tables import NO_ID, NO_TIME, Spans, Tasks
from timeline.records.task_kinds import may_compute
from timeline.records.vendor import Measure
from timeline.sources.decoders.sqlite import Database

if TYPE_CHECKING:
    from timeline.sources.trace_json.lanes import LaneEvents  # a database needs no JSON decoder

__all__ = [
    "MEASURES",
    "TABLE",
    "VendorOverlap",
    "free_rule_of",
    "overlap_of_lanes",
    "overlap_of_table",
    "settle_by_overlap",
]

MEASURES = {
    "Computing": Measure.COMPUTING,
    "Communication": Measure.COMMUNICATION,
    "Communication(Not Overlapped)": Measure.NOT_OVERLAPPED,
    "Free": Measure.FREE,
}
"""How the profiler names the parts of device time, in its events and in step_trace_time.csv."""
TABLE = "OVERLAP_ANALYSIS"
"""Where databases have it; its types are numbers, in the order of the names above."""
EDGE_NS = 2
"""Segments are cut down to whole nanoseconds at both ends, tasks are rounded."""


@dataclass(frozen=True)
class VendorOverlap(Spans):
    """The segments of a profile's Overlap Analysis, each of one `Measure`."""

    measure: Int64 = column(np.int64)


def overlap_of_lanes(lanes: LaneEvents) -> VendorOverlap:
    """The events of overlap lanes; those of other names are left out."""
    names = lanes.names()
    measure = np.full(len(names), -1, np.int64)
    for name, number in MEASURES.items():
        measure[names == lanes.strings.code(name)] = number
    rows = np.flatnonzero(measure >= 0)
    return VendorOverlap.of(len(rows), lanes.spans(rows) | {"measure": measure[rows]})


def overlap_of_table(database: Database, device: int | None) -> VendorOverlap:
    """The rows of OVERLAP_ANALYSIS, which msprof and Insight write; of one device, None for all."""
    columns = {"startNs": NO_TIME, "endNs": NO_TIME, "type": NO_ID}
    if not database.has(TABLE, *columns):
        return VendorOverlap.empty()
    only = device is not None and database.has(TABLE, "deviceId")
    rows = database.integers(TABLE, columns, f'WHERE "deviceId" = {device}' if only else "")
    start_ns, end_ns, kind = rows["startNs"], rows["endNs"], rows["type"]
    told = (start_ns != NO_TIME) & (end_ns != NO_TIME) & (kind >= 0) & (kind < len(MEASURES))
    measure = np.array(list(MEASURES.values()), np.int64)[kind[told]]
    spans = {"start_ns": start_ns[told], "end_ns": end_ns[told]}
    return VendorOverlap.of(len(measure), spans | {"measure": measure})


def free_rule_of(overlap: VendorOverlap, evidence: str) -> FreeRule:
    """The outer rule where free time lies before or after all else, and else the inner one.

    evidence: what the segments are called; without any that are busy they tell nothing.
    """
    timed = (overlap.start_ns != NO_TIME) & (overlap.end_ns >= overlap.start_ns)
    busy = np.isin(overlap.measure, [Measure.COMPUTING, Measure.COMMUNICATION]) & timed
    if not busy.any():
        return FreeRule()
    free = (overlap.measure == Measure.FREE) & timed
    first_ns, last_ns = int(overlap.start_ns[busy].min()), int(overlap.end_ns[busy].max())
    before_ns = int(overlap.start_ns[free].min(initial=first_ns))
    after_ns = int(overlap.end_ns[free].max(initial=last_ns))
    return FreeRule(
        evidence,
        before_ns < first_ns or after_ns > last_ns,
        before_ns if before_ns < first_ns else None,
        after_ns if after_ns > last_ns else None,
    )


def settle_by_overlap(tasks: Tasks, overlap: VendorOverlap, strings: StringPool) -> Tasks:
    """Take tasks whose type does not tell for operators if they lie in computing segments.

    A task that is called by its type ran no operator wherever it lies.
    """
    computing = overlap.take(overlap.measure == Measure.COMPUTING)
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
