"""DeviceItems: work of the device, with the launch and the request of each item."""

from __future__ import annotations

import numpy as np

from timeline.columns.columns import Bool, Codes, Int64, Rows, column
from timeline.columns.distinct import distinct, rows_by_value
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import (
    RUNTIME_LAYERS,
    CommunicationOps,
    FlowEnd,
    HostEvents,
    Records,
    Spans,
    Tasks,
)

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
    launch_start_ns: Int64 = column(np.int64)
    launch_end_ns: Int64 = column(np.int64)
    asked: Int64 = column(np.int64)
    asked_ns: Int64 = column(np.int64)


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
    # NO_ID, which is -1, picks the value at the end.
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
    # The last of several assignments stays.
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
    launched = np.flatnonzero(launch != NO_ID)
    threads = host.thread[launch[launched]]
    taken_threads = host.thread[taken]
    some = distinct(taken_threads)
    launched_on = dict(rows_by_value(threads, some))
    for thread, rows in rows_by_value(taken_threads, some):
        of_thread = rows[np.argsort(host.start_ns[taken[rows]], kind="stable")]
        asked = launched[launched_on[thread]]
        moments_ns = host.start_ns[launch[asked]]
        start_ns, end_ns = host.start_ns[taken[of_thread]], host.end_ns[taken[of_thread]]
        at = np.searchsorted(start_ns, moments_ns, side="right") - 1
        inside = (at >= 0) & (end_ns[np.maximum(at, 0)] >= moments_ns)
        queued[asked[inside]] = put[of_thread[at[inside]]]
    return queued
