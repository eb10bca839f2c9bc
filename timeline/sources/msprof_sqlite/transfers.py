"""msprof's tables of HCCL tasks, all their versions in one form."""

from __future__ import annotations

from typing import Any

import numpy as np

from timeline.columns.columns import Codes, ColumnTable, Float64, Int64, Rows, column
from timeline.columns.distinct import NO_ROWS, distinct, rows_by_value
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.joining import IDS
from timeline.records.not_given import NO_CONTEXT, NO_GRAPH, NO_ID, NO_TIME
from timeline.records.tables import Tasks
from timeline.sources.decoders.joins import Lookup, ordinals
from timeline.sources.decoders.sqlite_loose import LooseTable
from timeline.sources.msprof_sqlite.databases import ParsedDatabases
from timeline.sources.msprof_sqlite.tasks import build_task_keys, read_task_ids


class Transfers(ColumnTable):
    """HCCL tasks: what each did, when, and which run of which op it belongs to.

    connection and turn tell the run of an op together with its name and group; master marks the
    tasks whose span is that of the op.
    """

    start_ns: Int64 = column(np.int64)
    end_ns: Int64 = column(np.int64)
    name: Codes = column(np.int32)
    op: Codes = column(np.int32)
    group: Codes = column(np.int32)
    connection: Int64 = column(np.int64)
    turn: Int64 = column(np.int64)
    master: Int64 = column(np.int64)
    plane: Int64 = column(np.int64)
    stream: Int64 = column(np.int64)
    task: Int64 = column(np.int64)
    context: Int64 = column(np.int64)
    graph: Int64 = column(np.int64)
    source_rank: Int64 = column(np.int64)
    target_rank: Int64 = column(np.int64)
    size_bytes: Int64 = column(np.int64)
    bandwidth: Float64 = column(np.float64)
    notify: Codes = column(np.int32)
    transport: Codes = column(np.int32)
    link: Codes = column(np.int32)
    data_type: Codes = column(np.int32)


def read_transfers(
    databases: ParsedDatabases, device: int, tasks: Tasks, strings: StringPool
) -> tuple[Transfers, int]:
    """Read the HCCL tasks of a device; where it has none, those the host launched on its tasks.

    Also the number of those launched of which the device recorded no task.
    """
    names = ("HCCLTaskSingleDevice", "HCCLSingleDevice")
    recorded = databases.device_table("hccl_single_device.db", *names)
    unfolded = databases.device_table("hccl_single_device.db", "KfcTask")
    parts = [_read_recorded(table, strings) for table in (recorded, unfolded) if len(table)]
    if parts:
        return Transfers.concat(parts), 0
    launched = databases.host_table("hccl.db", "HCCLTask", where={"device_id": device})
    ops = databases.host_table("hccl.db", "HCCLOP", where={"device_id": device})
    return _read_launched(launched, ops, tasks, strings)


def _read_recorded(table: LooseTable, strings: StringPool) -> Transfers:
    """Tasks with the interval that the device recorded.

    Older versions tell the op by its name and the time of its first task, newer ones by op_id,
    which is the connection of the op, and iter_id.
    """
    newer = table.has("op_id")
    raw = table.integers(
        {
            "op_id" if newer else "connection_id": NO_ID,
            "iter_id" if newer else "first_timestamp": NO_ID,
        }
    )
    start_ns, end_ns = table.intervals("timestamp", "duration")
    texts = table.texts(("hccl_name", "op_name"), strings)
    return Transfers.of(
        len(end_ns),
        _details(table, strings)
        | {
            "start_ns": start_ns,
            "end_ns": end_ns,
            "name": texts["hccl_name"],
            "op": texts["op_name"],
            "connection": raw["op_id" if newer else "connection_id"],
            "turn": raw["iter_id" if newer else "first_timestamp"],
        },
    )


def _read_launched(
    table: LooseTable, ops: LooseTable, tasks: Tasks, strings: StringPool
) -> tuple[Transfers, int]:
    """Tasks as they were launched, with the interval of the device task of the same ids.

    A task of a graph that is loaded once runs in every iteration; each run is a turn.
    """
    if not len(table) or not table.has("stream_id", "task_id"):
        return Transfers.empty(), len(table)
    key, of_launch = build_task_keys(tasks, read_task_ids(table), table)
    row = Lookup({"key": of_launch}, "key").find(key)
    ran = np.flatnonzero(row >= 0)
    launched = row[ran]
    op = _op_rows(table, ops)[launched]
    connections = ops.integers({"connection_id": NO_ID})["connection_id"]
    names = ops.texts(("op_name",), strings)["op_name"]
    # The row of no op lies behind the others.
    connection, op_name = np.append(connections, NO_ID)[op], np.append(names, np.int32(NO_NAME))[op]
    columns = _details(table, strings) | table.texts(("name",), strings)
    found = Transfers.of(
        len(ran),
        {name: values[launched] for name, values in columns.items()}
        | {
            "start_ns": tasks.start_ns[ran],
            "end_ns": tasks.end_ns[ran],
            "graph": tasks.graph[ran],
            "op": op_name,
            "connection": connection,
            "turn": ordinals(key[ran], tasks.start_ns[ran]),
        },
    )
    return found, len(of_launch) - len(distinct(launched))


def _op_rows(table: LooseTable, ops: LooseTable) -> Rows:
    """The op that launched each task: by op_id, or by the time of its launch on its thread."""
    if table.has("op_id"):
        lookup = Lookup(ops.integers({"connection_id": NO_ID}), "connection_id")
        return lookup.find(table.integers({"op_id": NO_ID})["op_id"])
    calls = ops.integers({"begin": NO_TIME, "end": NO_TIME, "thread_id": NO_ID})
    launches = table.integers({"timestamp": NO_TIME, "thread_id": NO_ID})
    found = np.full(len(launches["timestamp"]), -1, np.intp)
    threaded = table.has("thread_id") and ops.has("thread_id")
    launched_on = dict(rows_by_value(launches["thread_id"])) if threaded else {}
    for thread, its in rows_by_value(calls["thread_id"]):
        calls_here = its[np.argsort(calls["begin"][its], kind="stable")]
        rows = launched_on.get(thread, NO_ROWS) if threaded else np.flatnonzero(found == -1)
        moments = launches["timestamp"][rows]
        at = np.searchsorted(calls["begin"][calls_here], moments, side="right") - 1
        op = calls_here[np.maximum(at, 0)]
        found[rows] = np.where((at >= 0) & (moments <= calls["end"][op]), op, -1)
    return found


def _details(table: LooseTable, strings: StringPool) -> dict[str, Any]:
    """What a table says of its transfers, apart from their time and op."""
    raw = table.integers(
        {
            "is_master": 1,
            "plane_id": NO_ID,
            "stream_id": NO_ID,
            "task_id": NO_ID,
            "context_id": NO_CONTEXT,
            "model_id": NO_GRAPH,
            "local_rank": NO_ID,
            "remote_rank": NO_ID,
            "size": NO_ID,
        }
    )
    texts = table.texts(
        ("group_name", "notify_id", "transport_type", "link_type", "data_type"), strings
    )
    bandwidth = table.reals(("bandwidth",)).get("bandwidth")
    return {
        "group": texts["group_name"],
        "master": raw["is_master"],
        "plane": raw["plane_id"],
        "stream": raw["stream_id"],
        "task": raw["task_id"],
        "context": raw["context_id"],
        "graph": IDS["graph"].given(raw["model_id"]),
        "source_rank": raw["local_rank"],
        "target_rank": raw["remote_rank"],
        "size_bytes": raw["size"],
        "bandwidth": np.full(len(raw["size"]), np.nan) if bandwidth is None else bandwidth,
        "notify": texts["notify_id"],
        "transport": texts["transport_type"],
        "link": texts["link_type"],
        "data_type": texts["data_type"],
    }
