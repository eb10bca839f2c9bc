"""Launches: the host calls behind the work of a device, and launches without any kernel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from timeline.analysis.idle.host_calls import capture_edges, launching_names
from timeline.columns.columns import Bool, Codes, Int64, Rows, column
from timeline.columns.distinct import distinct, distinct_values, rows_by_value
from timeline.columns.intervals import IntervalSet, open_at_by_key, subtract, union, union_of_sets
from timeline.columns.strings import NO_NAME
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import (
    GPU,
    RUNTIME,
    RUNTIME_LAYERS,
    CommunicationOps,
    FlowEnd,
    HostEvents,
    Records,
    Spans,
    Tasks,
)
from timeline.units import format_number, format_short

MOST_HOST_OFFSET_NS = 1_000_000
"""An item that starts earlier than this before a call, as recorded, was not launched by it."""
TASK_QUEUE = "async_task_queue"
"""Category of torch_npu's arrows from Enqueue to Dequeue."""


class DeviceItems(Spans):
    """Compute tasks and communication ops: one row each, in order of start.

    is_op: True for a row of the ops, False for one of the tasks; stream: of a task. launch: row in
    HostEvents of the call of CANN or the GPU's runtime that launched it, NO_ID if not recorded;
    launch_start_ns and launch_end_ns: interval of that call, else NO_TIME; the item starts no
    earlier than the call. asked: row in HostEvents in which the framework asked for it: the call
    that put it into a queue if there is one, else the launch, else the source of the framework's
    own arrow. asked_ns: time of that, which may be known without the row.
    """

    is_op: Bool = column(np.bool_)
    row: Int64 = column(np.int64)
    stream: Int64 = column(np.int64)
    name: Codes = column(np.int32)
    launch: Int64 = column(np.int64)
    launch_start_ns: Int64 = column(np.int64, moment=True)
    launch_end_ns: Int64 = column(np.int64, moment=True)
    asked: Int64 = column(np.int64)
    asked_ns: Int64 = column(np.int64, moment=True)


def device_items(records: Records, also: Bool | None = None) -> DeviceItems:
    """Return the compute tasks and communication ops of a rank, with the host calls behind them.

    A launch is identified by an arrow or a connection. Of several calls the latest counts, as for
    launch times. An item that starts more than MOST_HOST_OFFSET_NS before a call, on the clocks as
    recorded, was not launched by it.

    also: mask of additional tasks.
    """
    tasks, ops, host = records.tasks, records.ops, records.host
    computing = np.flatnonzero(tasks.compute if also is None else tasks.compute | also)
    codes = [code for layer in RUNTIME_LAYERS if (code := records.strings.find(layer)) is not None]
    is_runtime = np.isin(host.layer, codes)
    launches, askers, launch_ns = [], [], []
    for kind, table, rows in (
        (FlowEnd.TASK, tasks, computing),
        (FlowEnd.OP, ops, np.arange(len(ops))),
    ):
        launch, asker = _launches(records, kind, table, rows, is_runtime)
        launches.append(launch)
        askers.append(asker)
        launch_ns.append(table.launch_ns[rows])
    count = len(computing)
    start_ns = np.concatenate([tasks.start_ns[computing], ops.start_ns])
    order = np.argsort(start_ns, kind="stable")
    launch, asker = np.concatenate(launches)[order], np.concatenate(askers)[order]
    recorded_ns = np.concatenate(launch_ns)[order]
    queued = _queued(records, launch)
    asked = np.where(queued != NO_ID, queued, np.where(launch != NO_ID, launch, asker))
    launch_start_ns = np.minimum(values_at(host.start_ns, launch), start_ns[order])
    asked_ns = np.where(
        launch != NO_ID,
        np.where(queued != NO_ID, values_at(host.start_ns, queued), launch_start_ns),
        np.where(recorded_ns != NO_TIME, recorded_ns, values_at(host.start_ns, asked)),
    )
    return DeviceItems(
        start_ns[order],
        np.concatenate([tasks.end_ns[computing], ops.end_ns])[order],
        order >= count,
        np.concatenate([computing, np.arange(len(ops))])[order].astype(np.int64),
        np.concatenate([tasks.stream[computing], np.full(len(ops), NO_ID)])[order],
        np.concatenate([tasks.name[computing], ops.name])[order],
        launch,
        launch_start_ns,
        values_at(host.end_ns, launch),
        asked,
        asked_ns,
    )


def values_at(values: Int64, rows: Int64, absent: int = NO_TIME) -> Int64:
    """Return the values of some rows, `absent` for NO_ID."""
    # NO_ID is -1, so it selects the appended value.
    return np.append(values, absent)[rows]


def _launches(
    records: Records, kind: FlowEnd, table: Tasks | CommunicationOps, rows: Rows, is_runtime: Bool
) -> tuple[Int64, Int64]:
    """Return the call that launched each row of a table, and the latest other arrow source."""
    host, flows = records.host, records.flows
    ending = np.flatnonzero((flows.target_kind == kind) & (flows.source_kind == FlowEnd.HOST))
    source, target = flows.source_row[ending], flows.target_row[ending]
    launching = is_runtime[source]
    latest_ns = table.start_ns + (MOST_HOST_OFFSET_NS + records.host_offset_ns)
    launching_rows = _latest(host, source[launching], target[launching], latest_ns)[rows]
    lacking = np.flatnonzero((launching_rows == NO_ID) & (table.connection[rows] != NO_ID))
    if len(lacking):
        some = rows[lacking]
        calls = np.flatnonzero((host.connection != NO_ID) & is_runtime)
        launching_rows[lacking] = _latest_connected(
            host, calls, table.connection[some], latest_ns[some]
        )
    other_rows = _latest(host, source[~launching], target[~launching], latest_ns)[rows]
    return launching_rows, other_rows


def _latest(host: HostEvents, source: Rows, target: Rows, latest_ns: Int64) -> Int64:
    """Return the host row that starts last among the sources of each target, NO_ID for none.

    latest_ns: latest start of a call to count, for each target.
    """
    latest = np.full(len(latest_ns), NO_ID)
    start_ns = host.start_ns[source]
    possible = np.flatnonzero(start_ns <= latest_ns[target])
    order = possible[np.argsort(start_ns[possible], kind="stable")]
    # If several rows are assigned to one target, the last one stays.
    latest[target[order]] = source[order]
    return latest


def _latest_connected(host: HostEvents, calls: Rows, connection: Int64, latest_ns: Int64) -> Int64:
    """Return the call that starts last among those with each connection, NO_ID for none.

    connection, latest_ns: (k,) requested connections, and the latest start of a call to count.
    """
    count = len(calls)
    ids = np.concatenate([host.connection[calls], connection])
    # Sort calls and requests together: the call before each request, if it is connected.
    order = np.lexsort((np.concatenate([host.start_ns[calls], latest_ns]), ids))
    last = np.maximum.accumulate(np.where(order < count, np.arange(len(order)), 0))
    call, wanted = order[last], order >= count
    is_known = wanted & (call < count) & (ids[call] == ids[order])
    latest = np.full(len(connection), NO_ID)
    latest[order[is_known] - count] = calls[call[is_known]]
    return latest


def _queued(records: Records, launch: Int64) -> Int64:
    """Return the call that enqueued the work of each launch, NO_ID for none.

    Its arrow ends at the dequeuing call around the launch on the same thread.
    """
    queued = np.full(len(launch), NO_ID)
    host = records.host
    put, taken = records.arrows(TASK_QUEUE, FlowEnd.HOST)
    known = np.flatnonzero(launch != NO_ID)
    calls = launch[known]
    at = open_at_by_key(
        host.thread[calls],
        host.start_ns[calls],
        host.thread[taken],
        host.start_ns[taken],
        host.end_ns[taken] + 1,
    )
    queued[known] = np.append(put, NO_ID)[at]
    return queued


LONG_NS = 10_000_000
"""Minimum delay after its launch for the first kernel of a stream to have waited for other work."""


def with_lost_kernels(records: Records) -> Records:
    """Add the times in which unrecorded kernels of a GPU may have run, and warn of lost kernels.

    The recording may begin in the middle of the work of a stream, see `cut_off_before`. A launch
    lost its kernels if no device task has its connection although a later launch has run. A stream
    runs kernels in the order of their launches, so they ran between the launches before and after,
    on the busier of the streams of these two. The last launches may not have run when the recording
    ended.
    """
    host, tasks = records.host, records.tasks
    cut_off = cut_off_before(records)
    if len(cut_off):
        warning = (
            f"rank {records.rank}: the recording begins in the middle of the work of a stream; "
            f"{format_short(cut_off.total_ns)} before its first kernel count for nothing."
        )
        records = replace(
            records,
            unrecorded=Spans(cut_off.start_ns, cut_off.end_ns),
            warnings=(*records.warnings, warning),
        )
    lost = _launches_without_tasks(records)
    if not len(lost):
        return records
    launched = np.flatnonzero((tasks.launch_ns != NO_TIME) & ~tasks.copy)
    if not len(launched) and not tasks.compute.any():
        return _with_warning(records, lost, ", and no kernel")
    launched = launched[np.argsort(tasks.launch_ns[launched], kind="stable")]
    after = np.searchsorted(tasks.launch_ns[launched], host.start_ns[lost], side="right")
    lost, after = lost[after < len(launched)], after[after < len(launched)]
    first, last = _around(tasks.stream[launched], tasks.compute[launched], after)
    ended_ns = np.append(tasks.end_ns[launched], NO_TIME)[first]
    start_ns = np.maximum(host.start_ns[lost], ended_ns)
    end_ns = tasks.start_ns[launched[last]]
    some = start_ns < end_ns
    times = union_of_sets(union(start_ns[some], end_ns[some]), cut_off)
    records = replace(records, unrecorded=Spans(times.start_ns, times.end_ns))
    description = " without a kernel, though later ones have theirs"
    return _with_warning(records, lost, description) if len(lost) else records


def cut_off_before(records: Records) -> IntervalSet:
    """Return when streams of a GPU worked on launches from before the recording.

    That is the time from the launch of the first kernel of a stream to its start, if it is long and
    no recorded task runs.
    """
    tasks = records.tasks
    kernels = np.flatnonzero(tasks.compute & (tasks.launch_ns != NO_TIME))
    if records.hardware != GPU or not len(kernels):
        return union(tasks.start_ns[:0], tasks.end_ns[:0])
    kernels = kernels[np.argsort(tasks.start_ns[kernels], kind="stable")]
    _, first = np.unique(tasks.stream[kernels], return_index=True)
    launch_ns, start_ns = tasks.launch_ns[kernels[first]], tasks.start_ns[kernels[first]]
    late = start_ns - launch_ns > LONG_NS
    first_ns = tasks.start_ns.min()
    before = union(np.maximum(launch_ns[late], first_ns), start_ns[late])
    before = subtract(before, union(tasks.start_ns, tasks.end_ns))
    lasts = before.end_ns - before.start_ns > LONG_NS
    return IntervalSet(before.start_ns[lasts], before.end_ns[lasts])


def _with_warning(records: Records, lost: Rows, description: str) -> Records:
    noun = "launch" if len(lost) == 1 else "launches"
    lost_by = "the profiler lost what they launched" if len(lost) > 1 else "the profiler lost it"
    warning = f"rank {records.rank}: {format_number(len(lost))} {noun}{description}: {lost_by}."
    return replace(records, warnings=(*records.warnings, warning))


def _around(stream: Rows, compute: Bool, after: Rows) -> tuple[Rows, Rows]:
    """Return the launches before and after lost kernels on their stream, -1 if none is before.

    Args:
        stream, compute: (n,) of the launched tasks, in order of launch.
        after: (k,) the next of these after each lost kernel.
    """
    _, which = distinct_values(stream)
    busy = np.bincount(which, compute)
    before = after - 1
    is_before = (before >= 0) & (busy[which[before]] >= busy[which[after]])
    own, count = np.where(is_before, which[before], which[after]), len(which)
    order = np.argsort(which, kind="stable")
    at = np.searchsorted(which[order] * count + order, own * count + after)
    last, following = order[at - 1], order[np.minimum(at, count - 1)]
    return (
        np.where((at > 0) & (which[last] == own), last, before),
        np.where(which[following] == own, following, after),
    )


def _launches_without_tasks(records: Records) -> Rows:
    """Return the host rows of launches outside captures that have no device task."""
    host, strings = records.host, records.strings
    layer, launching = strings.find(RUNTIME), launching_names(strings)
    rows = np.flatnonzero(
        (host.layer == (NO_NAME if layer is None else layer))
        & (host.connection != NO_ID)
        & np.isin(host.name, launching)
    )
    rows = rows[~np.isin(host.connection[rows], distinct(records.tasks.connection))]
    rows = rows[~_are_captured(records, rows)] if len(rows) else rows
    return rows[np.unique(host.connection[rows], return_index=True)[1]]


def _are_captured(records: Records, rows: Rows) -> Bool:
    """Return a mask of calls that a stream captured.

    They lie between calls of their thread that begin and end a capture.
    """
    host = records.host
    begins, ends = (np.isin(host.name, codes) for codes in capture_edges(records.strings))
    edges = np.flatnonzero(begins | ends)
    captured = np.zeros(len(rows), np.bool_)
    if not len(edges):
        return captured
    edges = edges[np.argsort(host.start_ns[edges], kind="stable")]
    for thread, of_thread in rows_by_value(host.thread[edges]):
        thread_edges = edges[of_thread]
        some = np.flatnonzero(host.thread[rows] == thread)
        at = np.searchsorted(host.start_ns[thread_edges], host.start_ns[rows[some]])
        # Before the first edge, a capture is open if that edge ends one.
        captured[some] = np.append(ends[thread_edges[0]], begins[thread_edges])[at]
    return captured
