"""Overlap Analysis of exports, and communication that the framework marked with mstx."""

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
"""How the profiler names the parts of device time, in its events and in step_trace_time.csv."""
OVERLAP_PROCESS = "Overlap Analysis"
"""What traces call the process that has it."""
OVERLAP_TABLE = "OVERLAP_ANALYSIS"
"""Where databases have it; its types are numbers, in the order of the names above."""
SEGMENT_NS = 1
"""How far either writer rounds a segment."""


class VendorOverlap(Spans):
    """The segments of a profile's Overlap Analysis, each of one `Measure`."""

    measure: Int64 = column(np.int64)


def collect_overlap_events(events: EventRows) -> VendorOverlap:
    """Return events of the process `OVERLAP_PROCESS`, except those that are not measures."""
    names = events.names()
    measure = np.full(len(names), -1, np.int64)
    for name, number in MEASURES.items():
        measure[names == events.strings.code(name)] = number
    rows = np.flatnonzero(measure >= 0)
    return VendorOverlap.of(len(rows), events.spans(rows) | {"measure": measure[rows]})


def read_overlap_table(database: Database, device: int | None) -> VendorOverlap:
    """Read OVERLAP_ANALYSIS, which msprof and Insight write; of one device, None for all."""
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
    """Return the outer rule if free time lies before or after all else, else the inner one.

    evidence: what the segments are called; without any that are busy they say nothing.
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
    """Return the summed length of the segments of Overlap Analysis, by measure.

    file: what they are called to people.
    """
    lengths_ns = overlap.end_ns - overlap.start_ns
    parts = {measure: lengths_ns[overlap.measure == measure] for measure in MEASURES.values()}
    return sum_segments(parts, file, step, strings)


def sum_segments(
    parts: dict[Measure, Int64], file: str, step: int, strings: StringPool
) -> VendorFigures:
    """Return the sum of each part of device time that has segments.

    Args:
        parts: the lengths of segments in ns.
        file: what the segments are called to people.
        step: the step that they are of; a negative one is the whole capture.
    """
    known = {measure: lengths_ns for measure, lengths_ns in parts.items() if len(lengths_ns)}
    return VendorFigures.of(
        len(known),
        measure=list(known),
        file=strings.code(file),
        step=NO_ID if step < 0 else step,
        value_ns=[int(lengths_ns.sum()) for lengths_ns in known.values()],
        tolerance_ns=[SEGMENT_NS * len(lengths_ns) for lengths_ns in known.values()],
    )


EDGE_NS = 2
"""Segments are cut down to whole nanoseconds at both ends, tasks are rounded."""


def mark_compute_by_overlap(tasks: Tasks, overlap: VendorOverlap, strings: StringPool) -> Tasks:
    """Take tasks of unclear type for operators if they lie in computing segments.

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
    at = np.searchsorted(spans.start_ns, tasks.start_ns + EDGE_NS, side="right") - 1
    reach_ns = spans.end_ns[np.maximum(at, 0)]
    found: Bool = (at >= 0) & (tasks.end_ns <= reach_ns + EDGE_NS)
    return found


def remark_on_ai_cpu_tasks(tasks: Tasks, strings: StringPool, source: str) -> str | None:
    """Return a remark on AI CPU tasks that do not count as computing, None without any.

    Args:
        source: what would say which of them ran an operator, and is not there.
    """
    rows = run_on_ai_cpu(tasks.task_type, strings) & ~tasks.compute
    count = int(np.count_nonzero(rows))
    if not count:
        return None
    length_ns = int((tasks.end_ns[rows] - tasks.start_ns[rows]).sum())
    counts = "does not count" if count == 1 else "do not count"
    return (
        f"{format_count(count, 'AI CPU task')} ({format_duration(length_ns)}) {counts} as "
        f"computing: only {source} would tell which of them ran operators."
    )


# -- marks -----------------------------------------------------------------------------------------


_FIELD = re.compile(r'\\*"(\w+)\\*"\s*:\s*\\*"?([^\\",{}]*)')
_OLDER = re.compile(r"comm:([^,]+),([^,]+),([^,]*),([^,]*)")
"""How older messages write the op, its group, data type and count."""


@dataclass(frozen=True)
class CommunicationMark:
    """The content of a mark's message about the op that it encloses."""

    op: str = ""
    group: str = ""
    data_type: str = ""
    count: int = NO_ID


def parse_mark(message: str) -> CommunicationMark:
    r"""Return what a message says of a communication op, nothing where it lacks op or group.

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
        given = dict(_FIELD.findall(message)) if message.startswith("{") else {}
        names = ("opName", "groupName", "dataType", "count")
        op, group, data_type, count = (given.get(name, "") for name in names)
    if not op or not group:
        return CommunicationMark()
    number = whole_number(count)
    return CommunicationMark(op, group, data_type.upper(), NO_ID if number is None else number)


def find_marked_ops(
    tasks: Tasks, message: Codes, listed: CommunicationOps, strings: StringPool
) -> CommunicationOps:
    """Return an op for each task that a mark put around communication, unless it is listed.

    Args:
        tasks: the device tasks that may be marks.
        message: (n,) what the mark of each says.
        listed: the ops that the profile lists as such.
    """
    said = ((code, parse_mark(strings[code])) for code in distinct(message).tolist())
    found = {code: mark for code, mark in said if mark.op}  # few of many names, in their order
    if not found:
        return CommunicationOps.empty()
    marks, codes = [*found.values()], np.array([*found])
    rows = np.flatnonzero(np.isin(message, codes))
    tasks, which = tasks.take(rows), np.searchsorted(codes, message[rows])
    made = CommunicationOps.of(
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
    return made.take(~_are_listed(made, listed, strings))


def _are_listed(made: CommunicationOps, listed: CommunicationOps, strings: StringPool) -> Bool:
    """Return which ops are listed too: with the same connection, or of the same kind meanwhile.

    msMonitor numbers the connections of marks and of ops apart.
    """
    same: Bool = np.isin(made.connection, listed.connection) & (made.connection != NO_ID)
    kinds, others = (
        np.array([collective_kind(name) for name in strings.texts(ops.name)], str)
        for ops in (made, listed)
    )
    for kind in {*kinds.tolist()} & {*others.tolist()}:
        rows, its = np.flatnonzero(kinds == kind), listed.take(others == kind)
        its = its.take(np.argsort(its.start_ns, kind="stable"))
        begun = np.searchsorted(its.start_ns, made.end_ns[rows])
        latest_ns = np.maximum.accumulate(its.end_ns)[begun - 1]
        same[rows] |= (begun > 0) & (latest_ns > made.start_ns[rows])
    return same
