"""DeviceItems: what the device ran, with the call that launched each and when it was asked for."""

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
"""What starts so much before a call, as recorded, was not launched by it."""
TASK_QUEUE = "async_task_queue"
"""Category of the arrows of torch_npu from Enqueue to Dequeue."""


class DeviceItems(Spans):
    """Compute tasks and communication ops: one row each, in order of start.

    is_op: whether it is a row of the ops, and not of the tasks; stream: that of a task. launch: the
    row of HostEvents of the call of CANN or the GPU's runtime that launched it, NO_ID where that is
    not recorded; launch_start_ns and launch_end_ns: when that ran, else NO_TIME; the item starts no
    earlier than the call. asked: the row of
    HostEvents in which the framework asked for it: where a queue lies between, the call that put it
    there, else the launch, else what the framework's own arrow comes from; asked_ns: when, which a
    source may tell without the row.
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
    """The compute tasks and communication ops of a rank, and the host calls that led to each.

    A launch is what an arrow or a connection tells. Of several calls the latest counts, as for
    launch times. What starts more than MOST_HOST_OFFSET_NS before a call, on the clocks as
    recorded, was not launched by it.

    also: other tasks that are wanted too, a mask.
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
    told_ns = np.concatenate(launch_ns)[order]
    queued = _queued(records, launch)
    asked = np.where(queued != NO_ID, queued, np.where(launch != NO_ID, launch, asker))
    launch_start_ns = np.minimum(values_at(host.start_ns, launch), start_ns[order])
    asked_ns = np.where(
        launch != NO_ID,
        np.where(queued != NO_ID, values_at(host.start_ns, queued), launch_start_ns),
        np.where(told_ns != NO_TIME, told_ns, values_at(host.start_ns, asked)),
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
    """Take the values of some rows, and another one where a row is NO_ID."""
    # NO_ID, which is -1, picks what stands at the end.
    return np.append(values, absent)[rows]


def _launches(
    records: Records, kind: FlowEnd, table: Tasks | CommunicationOps, rows: Rows, is_runtime: Bool
) -> tuple[Int64, Int64]:
    """The call that launched each of some rows of a table, and what else an arrow comes from."""
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
    """The host row that starts last of those that lead to each target, NO_ID for none.

    latest_ns: when a call may start at the latest to count, a row for each target.
    """
    found = np.full(len(latest_ns), NO_ID)
    start_ns = host.start_ns[source]
    possible = np.flatnonzero(start_ns <= latest_ns[target])
    order = possible[np.argsort(start_ns[possible], kind="stable")]
    # The last of several values for one place stays.
    found[target[order]] = source[order]
    return found


def _latest_connected(host: HostEvents, calls: Rows, connection: Int64, latest_ns: Int64) -> Int64:
    """The call that starts last of those with each connection, NO_ID for none.

    connection, latest_ns: (k,) what is looked for, and when a call may start at the latest.
    """
    count = len(calls)
    ids = np.concatenate([host.connection[calls], connection])
    # Calls and what is looked for in one order: the call before each, if it is connected.
    order = np.lexsort((np.concatenate([host.start_ns[calls], latest_ns]), ids))
    last = np.maximum.accumulate(np.where(order < count, np.arange(len(order)), 0))
    call, wanted = order[last], order >= count
    is_known = wanted & (call < count) & (ids[call] == ids[order])
    found = np.full(len(connection), NO_ID)
    found[order[is_known] - count] = calls[call[is_known]]
    return found


def _queued(records: Records, launch: Int64) -> Int64:
    """The call that put into a queue what each launch was made for, NO_ID where none did.

    That is the one whose arrow ends at the call that took it out, around the launch on its thread.
    """
    found = np.full(len(launch), NO_ID)
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
        found[asked[inside]] = put[of_thread[at[inside]]]
    return found
