"""Tasks whose type leaves open whether they compute: what tells, and a remark if nothing does."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from timeline.columns.columns import Bool
from timeline.columns.intervals import IntervalSet, subtract, union
from timeline.columns.strings import StringPool
from timeline.records.tables import Tasks
from timeline.records.task_kinds import may_compute, run_on_ai_cpu
from timeline.records.vendor import Measure
from timeline.units import spell_count, spell_duration

if TYPE_CHECKING:
    from timeline.sources.common.overlap_analysis import VendorOverlap

EDGE_NS = 2
"""Segments are cut down to whole nanoseconds at both ends, tasks are rounded."""


def mark_compute_by_overlap(tasks: Tasks, overlap: VendorOverlap, strings: StringPool) -> Tasks:
    """Take tasks whose type does not tell for operators if they lie in computing segments.

    A task that is called by its type ran no operator wherever it lies.
    """
    computing = _computing(overlap)
    if not len(computing):
        return tasks
    asked = may_compute(tasks.task_type, strings) & (tasks.name != tasks.task_type)
    if not asked.any():
        return tasks
    compute = tasks.compute.copy()
    compute[asked] = _within(tasks.take(asked), computing)
    return replace(tasks, compute=compute)


def mark_unlisted_kernels(described: Tasks, unlisted: Bool, overlap: VendorOverlap) -> Tasks:
    """Let kernels that a table lacks compute too where the exporter computed more than it lists.

    Where its computing segments reach beyond the tasks that have rows, the table is not all that
    ran, and what lies in the segments is what it lacks.

    Args:
        described: tasks of which those compute that have a row.
        unlisted: (n,) which tasks have none and compute by their type and name.
    """
    computing, listed = _computing(overlap), described.compute
    missing = subtract(computing, union(described.start_ns[listed], described.end_ns[listed]))
    if not (listed.any() and (missing.end_ns - missing.start_ns > 2 * EDGE_NS).any()):
        return described
    return replace(described, compute=listed | (unlisted & _within(described, computing)))


def _computing(overlap: VendorOverlap) -> IntervalSet:
    computing = overlap.take(overlap.measure == Measure.COMPUTING)
    return union(computing.start_ns, computing.end_ns)


def _within(tasks: Tasks, spans: IntervalSet) -> Bool:
    """Whether each task lies in one span."""
    at = np.searchsorted(spans.start_ns, tasks.start_ns + EDGE_NS, side="right") - 1
    reach_ns = spans.end_ns[np.maximum(at, 0)]
    found: Bool = (at >= 0) & (tasks.end_ns <= reach_ns + EDGE_NS)
    return found


def remark_on_ai_cpu_tasks(tasks: Tasks, strings: StringPool, knower: str) -> str | None:
    """A remark on AI CPU tasks that do not count as computing, None where there are none.

    Args:
        knower: what would tell which of them ran an operator, and is not there.
    """
    rows = run_on_ai_cpu(tasks.task_type, strings) & ~tasks.compute
    count = int(np.count_nonzero(rows))
    if not count:
        return None
    length_ns = int((tasks.end_ns[rows] - tasks.start_ns[rows]).sum())
    counts = "does not count" if count == 1 else "do not count"
    return (
        f"{spell_count(count, 'AI CPU task')} ({spell_duration(length_ns)}) {counts} as "
        f"computing: only {knower} would tell which of them ran operators."
    )
