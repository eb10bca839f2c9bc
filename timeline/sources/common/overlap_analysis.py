"""Overlap Analysis in exports, and communication ops that the framework marked with mstx."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from timeline.columns.columns import Bool, Codes, Int64, column
from timeline.columns.distinct import distinct
from timeline.columns.intervals import IntervalSet, subtract, union
from timeline.columns.strings import StringPool
from timeline.records.clock import FreeRule
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.profiler_tables import Measure, VendorFigures
from timeline.records.tables import CommunicationOps, Spans, Tasks
from timeline.records.task_kinds import collective_kind, may_compute, run_on_ai_cpu
from timeline.sources.common.decimals import whole_number
from timeline.units import format_count, format_duration

if TYPE_CHECKING:
    from timeline.sources.decoders.event_columns import EventRows
    from timeline.sources.decoders.sqlite import Database

MEASURES = {
    "Computing": Measure.COMPUTING,
    "Communication": Measure.COMMUNICATION,
    "Communication(Not Overlapped)": Measure.NOT_OVERLAPPED,
    "Free": Measure.FREE,
}
"""Parts of device time by their names in trace events and in step_trace_time.csv."""
OVERLAP_PROCESS = "Overlap Analysis"
"""The process in traces that holds these events."""
OVERLAP_TABLE = "OVERLAP_ANALYSIS"
"""The table in databases; its types are indices of `MEASURES`."""
SEGMENT_NS = 1
"""The rounding error of the length of a segment."""


class VendorOverlap(Spans):
    """Segments of a profile's Overlap Analysis: intervals with their `Measure`."""

    measure: Int64 = column(np.int64)


def collect_overlap_events(events: EventRows) -> VendorOverlap:
    """Return the events of the Overlap Analysis process that are named as a measure."""
    names = events.names()
    measure = np.full(len(names), -1, np.int64)
    for name, number in MEASURES.items():
        measure[names == events.strings.code(name)] = number
    rows = np.flatnonzero(measure >= 0)
    return VendorOverlap.of(len(rows), events.spans(rows) | {"measure": measure[rows]})


def read_overlap_table(database: Database, device: int | None) -> VendorOverlap:
    """Read OVERLAP_ANALYSIS, which msprof and Insight write, for one device or, if None, all."""
    columns = {"startNs": NO_TIME, "endNs": NO_TIME, "type": NO_ID}
    if not database.has(OVERLAP_TABLE, *columns):
        return VendorOverlap.empty()
    where = database.where(OVERLAP_TABLE, "deviceId", device)
    rows = database.integers(OVERLAP_TABLE, columns, where)
    start_ns, end_ns, kind = rows["startNs"], rows["endNs"], rows["type"]
    valid = (start_ns != NO_TIME) & (end_ns != NO_TIME) & (kind >= 0) & (kind < len(MEASURES))
    measure = np.array(list(MEASURES.values()), np.int64)[kind[valid]]
    spans = {"start_ns": start_ns[valid], "end_ns": end_ns[valid]}
    return VendorOverlap.of(len(measure), spans | {"measure": measure})


def infer_free_rule(overlap: VendorOverlap, evidence: str) -> FreeRule:
    """Infer whether the profiler counts time before or after all busy segments as free.

    Without busy segments nothing is inferred. evidence: the name of the segments, for people.
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


def sum_overlap(overlap: VendorOverlap, file: str, step: int, strings: StringPool) -> VendorFigures:
    """Sum the lengths of Overlap Analysis segments by measure.

    file: the name of their source, for people. step: negative for the whole capture.
    """
    lengths_ns = overlap.end_ns - overlap.start_ns
    parts = {measure: lengths_ns[overlap.measure == measure] for measure in MEASURES.values()}
    return sum_segments(parts, file, step, strings)


def sum_segments(
    parts: dict[Measure, Int64], file: str, step: int, strings: StringPool
) -> VendorFigures:
    """Sum the segments of each part of device time that has any.

    Args:
        parts: the lengths of segments in ns.
        file: the name of their source, for people.
        step: their step; negative for the whole capture.
    """
    lengths = {measure: lengths_ns for measure, lengths_ns in parts.items() if len(lengths_ns)}
    return VendorFigures.of(
        len(lengths),
        measure=list(lengths),
        file=strings.code(file),
        step=NO_ID if step < 0 else step,
        value_ns=[int(lengths_ns.sum()) for lengths_ns in lengths.values()],
        tolerance_ns=[SEGMENT_NS * len(lengths_ns) for lengths_ns in lengths.values()],
    )


EDGE_NS = 2
"""Tolerance at either end: those of segments are truncated to whole ns, those of tasks rounded."""


def mark_compute_by_overlap(tasks: Tasks, overlap: VendorOverlap, strings: StringPool) -> Tasks:
    """Mark tasks of unclear type as computing if a computing segment covers them.

    A task whose name is its type never ran an operator.
    """
    computing = _computing(overlap)
    if not len(computing):
        return tasks
    unclear = may_compute(tasks.task_type, strings) & (tasks.name != tasks.task_type)
    if not unclear.any():
        return tasks
    compute = tasks.compute.copy()
    compute[unclear] = _within(tasks.take(unclear), computing)
    return replace(tasks, compute=compute)


def mark_unlisted_kernels(described: Tasks, unlisted: Bool, overlap: VendorOverlap) -> Tasks:
    """Mark kernels without a row in the kernel table as computing if the table is incomplete.

    It is if the computing segments of the exporter extend beyond the tasks with rows. Then the
    unlisted kernels within segments are those that the table lacks.

    Args:
        described: tasks; those with a row in the table are marked as computing.
        unlisted: (n,) which tasks have no row but compute, by their type and name.
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
    """Return a mask of the tasks that one of the spans covers, within `EDGE_NS`."""
    at = np.searchsorted(spans.start_ns, tasks.start_ns + EDGE_NS, side="right") - 1
    reach_ns = spans.end_ns[np.maximum(at, 0)]
    covered: Bool = (at >= 0) & (tasks.end_ns <= reach_ns + EDGE_NS)
    return covered


def remark_on_ai_cpu_tasks(tasks: Tasks, strings: StringPool, source: str) -> str | None:
    """Return a remark on AI CPU tasks that do not count as computing, None if there are none.

    source: the missing file or table that would list those that ran an operator.
    """
    rows = run_on_ai_cpu(tasks.task_type, strings) & ~tasks.compute
    count = int(np.count_nonzero(rows))
    if not count:
        return None
    length_ns = int((tasks.end_ns[rows] - tasks.start_ns[rows]).sum())
    counts = "does not count" if count == 1 else "do not count"
    return (
        f"{format_count(count, 'AI CPU task')} ({format_duration(length_ns)}) {counts} as "
        f"computing: only {source} would list those that ran operators."
    )


# -- marks -----------------------------------------------------------------------------------------


_FIELD = re.compile(r'\\*"(\w+)\\*"\s*:\s*\\*"?([^\\",{}]*)')
_OLDER = re.compile(r"comm:([^,]+),([^,]+),([^,]*),([^,]*)")
"""The message of older marks: op, group, data type and count."""


@dataclass(frozen=True)
class CommunicationMark:
    """The communication op that a mark encloses, as its message describes it."""

    op: str = ""
    group: str = ""
    data_type: str = ""
    count: int = NO_ID


def parse_mark(message: str) -> CommunicationMark:
    r"""Parse the message of a mark; return an empty mark if it lacks the op or the group.

    Messages are cut at 156 bytes, and some versions escape their quotes.

    >>> parse_mark('{"count": "8", "dataType": "fp32", "groupName": "g1", "opName": "HcclSend"}')
    CommunicationMark(op='HcclSend', group='g1', data_type='FP32', count=8)
    >>> parse_mark(r'{\"groupName\":\"g1\",\"opName\":\"HcclSend\"}').group
    'g1'
    >>> parse_mark("comm:HcclBroadcast,g1,int64,2").count
    2
    """
    if older := _OLDER.fullmatch(message):
        op, group, data_type, count = older.groups()
    else:
        fields = dict(_FIELD.findall(message)) if message.startswith("{") else {}
        names = ("opName", "groupName", "dataType", "count")
        op, group, data_type, count = (fields.get(name, "") for name in names)
    if not op or not group:
        return CommunicationMark()
    number = whole_number(count)
    return CommunicationMark(op, group, data_type.upper(), NO_ID if number is None else number)


def find_marked_ops(
    tasks: Tasks, message: Codes, listed: CommunicationOps, strings: StringPool
) -> CommunicationOps:
    """Return an op for each mark around communication that the profile does not list as an op.

    Args:
        tasks: the device tasks that may be marks.
        message: (n,) the message of each.
        listed: the ops that the profile lists.
    """
    parsed = ((code, parse_mark(strings[code])) for code in distinct(message).tolist())
    mark_of = {code: mark for code, mark in parsed if mark.op}  # ascending by code
    if not mark_of:
        return CommunicationOps.empty()
    marks, codes = [*mark_of.values()], np.array([*mark_of])
    rows = np.flatnonzero(np.isin(message, codes))
    tasks, which = tasks.take(rows), np.searchsorted(codes, message[rows])
    ops = CommunicationOps.of(
        len(rows),
        start_ns=tasks.start_ns,
        end_ns=tasks.end_ns,
        group=strings.codes(f"Group {mark.group}" for mark in marks)[which],
        group_name=strings.codes(mark.group for mark in marks)[which],
        name=strings.codes(mark.op for mark in marks)[which],
        graph=tasks.graph,
        connection=tasks.connection,
        launch_ns=tasks.launch_ns,
        count=np.array([mark.count for mark in marks], np.int64)[which],
        data_type=strings.codes(mark.data_type for mark in marks)[which],
    )
    return ops.take(~_are_listed(ops, listed, strings))


def _are_listed(marked: CommunicationOps, listed: CommunicationOps, strings: StringPool) -> Bool:
    """Return a mask of marked ops with a listed op of the same connection, or same kind and time.

    The time matters because msMonitor numbers the connections of marks and of ops separately.
    """
    same: Bool = np.isin(marked.connection, listed.connection) & (marked.connection != NO_ID)
    kinds, others = (
        np.array([collective_kind(name) for name in strings.texts(ops.name)], str)
        for ops in (marked, listed)
    )
    for kind in {*kinds.tolist()} & {*others.tolist()}:
        rows, of_kind = np.flatnonzero(kinds == kind), listed.take(others == kind)
        of_kind = of_kind.take(np.argsort(of_kind.start_ns, kind="stable"))
        begun = np.searchsorted(of_kind.start_ns, marked.end_ns[rows])
        latest_ns = np.maximum.accumulate(of_kind.end_ns)[begun - 1]
        same[rows] |= (begun > 0) & (latest_ns > marked.start_ns[rows])
    return same
