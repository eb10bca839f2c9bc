"""Communication ops and their HCCL tasks, read from tables of any version of msprof."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from timeline.columns.columns import Codes, ColumnTable, Float64, Int64, Rows, column
from timeline.columns.distinct import NO_ROWS, distinct, map_values, rows_by_value
from timeline.columns.group_by import group_by
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.not_given import FLOAT_NOT_GIVEN, NO_CONTEXT, NO_GRAPH, NO_ID, NO_TIME
from timeline.records.tables import CommunicationOps, GroupMembers, PlaneTasks, Tasks
from timeline.sources.common.identity import label_groups
from timeline.sources.decoders.joins import Lookup, common_keys, ordinals, values_at
from timeline.sources.msprof_sqlite.databases import LooseTable, ParsedDatabases
from timeline.sources.msprof_sqlite.tasks import build_task_keys, read_task_ids


class Transfers(ColumnTable):
    """HCCL tasks, each with the run of the communication op it belongs to.

    Name, group, connection and turn of an op identify a run of it. master is 1 for tasks that
    decide the interval of the op.
    """

    start_ns: Int64 = column(np.int64, NO_TIME)
    end_ns: Int64 = column(np.int64, NO_TIME)
    name: Codes = column(np.int32, NO_NAME)
    op: Codes = column(np.int32, NO_NAME)
    group: Codes = column(np.int32)
    connection: Int64 = column(np.int64, NO_ID)
    turn: Int64 = column(np.int64, NO_ID)
    master: Int64 = column(np.int64, 1)
    plane: Int64 = column(np.int64)
    stream: Int64 = column(np.int64)
    task: Int64 = column(np.int64)
    context: Int64 = column(np.int64, NO_CONTEXT)
    graph: Int64 = column(np.int64, NO_GRAPH)
    source_rank: Int64 = column(np.int64)
    target_rank: Int64 = column(np.int64)
    size_bytes: Int64 = column(np.int64)
    bandwidth: Float64 = column(np.float64, FLOAT_NOT_GIVEN)
    notify: Codes = column(np.int32)
    transport: Codes = column(np.int32)
    link: Codes = column(np.int32)
    data_type: Codes = column(np.int32)


_DETAILS = {
    "group": "group_name",
    "master": "is_master",
    "plane": "plane_id",
    "stream": "stream_id",
    "task": "task_id",
    "context": "context_id",
    "graph": "model_id",
    "source_rank": "local_rank",
    "target_rank": "remote_rank",
    "size_bytes": "size",
    "bandwidth": "bandwidth",
    "notify": "notify_id",
    "transport": "transport_type",
    "link": "link_type",
    "data_type": "data_type",
}
"""Columns of `Transfers` and their names in the database, without those that versions differ in."""


def read_transfers(
    databases: ParsedDatabases, device: int, tasks: Tasks, strings: StringPool
) -> tuple[Transfers, int]:
    """Read the HCCL tasks of a device, and count those of which the device recorded no task.

    If the device's database has no HCCL tasks, those that the host launched are read instead, with
    times of the device tasks they ran as.
    """
    names = ("HCCLTaskSingleDevice", "HCCLSingleDevice")
    recorded = databases.device_table("hccl_single_device.db", *names)
    unfolded = databases.device_table("hccl_single_device.db", "KfcTask")
    tables = [_read_recorded(table, strings) for table in (recorded, unfolded) if len(table)]
    if tables:
        return Transfers.concat(tables), 0
    launched = databases.host_table("hccl.db", "HCCLTask", where={"device_id": device})
    ops = databases.host_table("hccl.db", "HCCLOP", where={"device_id": device})
    return _read_launched(launched, ops, tasks, strings)


def _read_recorded(table: LooseTable, strings: StringPool) -> Transfers:
    """Read HCCL tasks that have times of their own.

    Older versions identify the run of an op by its connection and the time of its first task, newer
    ones by op_id, which is the connection of the op, and iter_id.
    """
    run = ("op_id", "iter_id") if table.has("op_id") else ("connection_id", "first_timestamp")
    columns = _DETAILS | dict(zip(("connection", "turn"), run, strict=True))
    columns |= {"name": "hccl_name", "op": "op_name"}
    transfers = table.read(Transfers, columns, strings)
    start_ns, end_ns = table.intervals("timestamp", "duration")
    return replace(transfers, start_ns=start_ns, end_ns=end_ns)


def _read_launched(
    table: LooseTable, ops: LooseTable, tasks: Tasks, strings: StringPool
) -> tuple[Transfers, int]:
    """Read HCCL tasks that the host launched, with times of the device tasks of the same ids.

    A task of a graph is launched once and runs in every iteration; each run is a turn. Also return
    the number of launched tasks without a device task.
    """
    if not len(table) or not table.has("stream_id", "task_id"):
        return Transfers.empty(), len(table)
    key, launch_key = build_task_keys(tasks, read_task_ids(table), table)
    row = Lookup({"key": launch_key}, "key").find(key)
    recorded = np.flatnonzero(row >= 0)
    launched = row[recorded]
    op = _find_ops(table, ops)[launched]
    connections = ops.integers({"connection_id": NO_ID})["connection_id"]
    names = ops.codes(("op_name",), strings)["op_name"]
    # Tasks without an op have row -1, which selects the appended default.
    connection, op_name = np.append(connections, NO_ID)[op], np.append(names, np.int32(NO_NAME))[op]
    launches = table.read(Transfers, _DETAILS | {"name": "name"}, strings)
    transfers = replace(
        launches.take(launched),
        start_ns=tasks.start_ns[recorded],
        end_ns=tasks.end_ns[recorded],
        graph=tasks.graph[recorded],
        op=op_name,
        connection=connection,
        turn=ordinals(key[recorded], tasks.start_ns[recorded]),
    )
    return transfers, len(launch_key) - len(distinct(launched))


def _find_ops(table: LooseTable, ops: LooseTable) -> Rows:
    """Return the row of the op that launched each task, -1 for none.

    It is found by op_id, else as the op whose call was open on the thread of the launch.
    """
    if table.has("op_id"):
        lookup = Lookup(ops.integers({"connection_id": NO_ID}), "connection_id")
        return lookup.find(table.integers({"op_id": NO_ID})["op_id"])
    calls = ops.integers({"begin": NO_TIME, "end": NO_TIME, "thread_id": NO_ID})
    launches = table.integers({"timestamp": NO_TIME, "thread_id": NO_ID})
    op_row = np.full(len(launches["timestamp"]), -1, np.intp)
    threaded = table.has("thread_id") and ops.has("thread_id")
    launched_on = dict(rows_by_value(launches["thread_id"])) if threaded else {}
    for thread, thread_calls in rows_by_value(calls["thread_id"]):
        by_begin = thread_calls[np.argsort(calls["begin"][thread_calls], kind="stable")]
        rows = launched_on.get(thread, NO_ROWS) if threaded else np.flatnonzero(op_row == -1)
        times = launches["timestamp"][rows]
        at = np.searchsorted(calls["begin"][by_begin], times, side="right") - 1
        op = by_begin[np.maximum(at, 0)]
        op_row[rows] = np.where((at >= 0) & (times <= calls["end"][op]), op, -1)
    return op_row


_HASH = re.compile(r"[0-9]{1,20}")
OTHER_SOURCE = 1
"""`source` of ops in table KfcOP that kernels of operators run themselves.

Other rows of that table repeat ops of the main table.
"""


class _Ops(ColumnTable):
    """Runs of communication ops."""

    start_ns: Int64 = column(np.int64)
    end_ns: Int64 = column(np.int64)
    name: Codes = column(np.int32)
    group: Codes = column(np.int32)
    connection: Int64 = column(np.int64)
    turn: Int64 = column(np.int64)
    graph: Int64 = column(np.int64, NO_GRAPH)
    count: Int64 = column(np.int64)
    data_type: Codes = column(np.int32)
    algorithm: Codes = column(np.int32)
    ranks: Int64 = column(np.int64, NO_ID)


_OP_COLUMNS = {
    "start_ns": "start",
    "end_ns": "end",
    "name": "op_name",
    "group": "group_name",
    "connection": "connection_id",
    "turn": "iter_id",
    "graph": "model_id",
    "count": "count",
    "data_type": "data_type",
    "algorithm": "alg_type",
    "ranks": "rank_size",
}


@dataclass(frozen=True)
class Communication:
    """Communication ops, their HCCL tasks, and the connection of each task's op.

    timeless: number of ops without times, whose tasks have none either. members: sizes of groups,
    as far as they are known.
    """

    ops: CommunicationOps
    planes: PlaneTasks
    plane_connection: Int64
    timeless: int = 0
    members: GroupMembers = field(default_factory=GroupMembers.empty)


def read_communication(
    databases: ParsedDatabases,
    device: int,
    transfers: Transfers,
    tasks: Tasks,
    strings: StringPool,
    *,
    every_arg: bool,
) -> Communication:
    """Read communication ops; those without times of their own span the times of their tasks."""
    table = databases.device_table("hccl_single_device.db", "HCCLOpSingleDevice")
    if not len(table):
        table = databases.host_table("hccl.db", "HCCLOP", where={"device_id": device})
    unfolded = databases.device_table("hccl_single_device.db", "KfcOP")
    listed = _Ops.concat([_read_ops(table, strings), _read_ops(unfolded, strings, OTHER_SOURCE)])
    timed = listed.take(listed.start_ns != NO_TIME)
    transfers = _name_by_task_type(_fill_op_names(transfers, listed), tasks)
    ops = _Ops.concat([timed, _build_untimed_ops(transfers, timed, listed)])
    ops = ops.take(np.argsort(ops.start_ns, kind="stable"))
    names = _GroupNames(databases, strings)
    sized = listed.take(listed.ranks > 0)
    sized_group = names.resolve(sized.group)
    first = group_by(len(sized), [sized_group, sized.ranks]).first
    op_group, plane_group = names.resolve(ops.group), names.resolve(transfers.group)
    labels = label_groups(np.concatenate([op_group, plane_group]), strings)
    return Communication(
        CommunicationOps.of(
            len(ops), ops.columns() | {"group": labels[: len(ops)], "group_name": op_group}
        ),
        _build_planes(transfers, labels[len(ops) :], every_arg=every_arg),
        transfers.connection,
        int(np.count_nonzero(~np.isin(listed.connection, ops.connection))),
        GroupMembers.of(len(first), group=sized_group[first], size=sized.ranks[first]),
    )


def _read_ops(table: LooseTable, strings: StringPool, source: int | None = None) -> _Ops:
    """Read ops from a table, with NO_TIME if the version of msprof wrote no times.

    source: the only value of column `source` that is kept, None for all rows.
    """
    ops = table.read(_Ops, _OP_COLUMNS, strings)
    if table.has("timestamp", "duration"):
        start_ns, end_ns = table.intervals("timestamp", "duration")
        ops = replace(ops, start_ns=start_ns, end_ns=np.maximum(start_ns, end_ns))
    elif not table.has("start", "end"):  # HCCLOP holds `end` as a time of the host
        untimed = np.full(len(ops), NO_TIME)
        ops = replace(ops, start_ns=untimed, end_ns=untimed)
    if source is None:
        return ops
    return ops.take(table.integers({"source": NO_ID})["source"] == source)


def _fill_op_names(transfers: Transfers, ops: _Ops) -> Transfers:
    """Fill in missing names of ops and groups of transfers from the op of their connection."""
    ops = ops.take(ops.connection != NO_ID)
    row = Lookup({"connection": ops.connection}, "connection").find(transfers.connection)

    def fill(codes: Codes, op_codes: Codes) -> Codes:
        # Transfers without an op have row -1, which selects the appended default.
        return np.where(codes == NO_NAME, np.append(op_codes, np.int32(NO_NAME))[row], codes)

    return replace(
        transfers, op=fill(transfers.op, ops.name), group=fill(transfers.group, ops.group)
    )


def _build_untimed_ops(transfers: Transfers, timed: _Ops, listed: _Ops) -> _Ops:
    """Build ops that are not in `timed` from their transfers.

    An op lasts from the first start to the last end of its master tasks, or of all its tasks if
    none is a master. Its other columns come from `listed`.
    """
    is_timed = np.isin(transfers.connection, timed.connection)
    untimed = transfers.take(~is_timed | (transfers.connection == NO_ID))
    untimed = untimed.take((untimed.start_ns != NO_TIME) & (untimed.end_ns != NO_TIME))
    if not len(untimed):
        return _Ops.empty()
    groups = group_by(len(untimed), [untimed.connection, untimed.turn, untimed.op, untimed.group])
    has_master = np.zeros(len(groups.first), np.bool_)
    has_master[groups.group[untimed.master == 1]] = True
    counts = (untimed.master == 1) | ~has_master[groups.group]
    counted = replace(groups, group=groups.group[counts])
    start_ns = counted.least(untimed.start_ns[counts])
    end_ns = counted.greatest(untimed.end_ns[counts])
    ops = untimed.take(groups.first)
    details = Lookup(
        {
            "connection": listed.connection,
            "count": listed.count,
            "data_type": listed.data_type.astype(np.int64),
            "algorithm": listed.algorithm.astype(np.int64),
        },
        "connection",
    )
    row = np.where(ops.connection == NO_ID, -1, details.find(ops.connection))
    return _Ops.of(
        len(ops),
        ops.columns()
        | {
            "start_ns": start_ns,
            "end_ns": end_ns,
            "name": ops.op,
            "count": details.of("count", row, NO_ID),
            "data_type": details.of("data_type", row, NO_NAME),
            "algorithm": details.of("algorithm", row, NO_NAME),
        },
    )


def _name_by_task_type(transfers: Transfers, tasks: Tasks) -> Transfers:
    """Name unnamed transfers, as at the lowest level of profiling, by the type of their task."""
    rows = np.flatnonzero(transfers.name == NO_NAME)
    if not len(rows):
        return transfers
    key, task_key = common_keys(
        [transfers.stream[rows], transfers.task[rows], transfers.start_ns[rows]],
        [tasks.stream, tasks.task, tasks.start_ns],
    )
    name = transfers.name.copy()
    name[rows] = values_at(tasks.task_type, Lookup({"key": task_key}, "key").find(key), NO_NAME)
    return replace(transfers, name=name)


_PLANE_ARGS = ("op", "stream", "task", "context", "notify", "transport", "data_type")
"""Columns that only `--args all` shows."""


def _build_planes(transfers: Transfers, labels: Codes, *, every_arg: bool) -> PlaneTasks:
    columns = transfers.columns() | {"group": labels}
    for name in () if every_arg else _PLANE_ARGS:
        del columns[name]
    return PlaneTasks.of(len(transfers), columns)


class _GroupNames:
    """Names of communication groups, of which some versions of msprof write only a hash."""

    def __init__(self, databases: ParsedDatabases, strings: StringPool) -> None:
        self._databases, self._strings = databases, strings

    def resolve(self, codes: Codes) -> Codes:
        """Return codes of group names; a hash without a known name stays as it is."""

        def resolve_distinct(distinct_codes: Codes) -> Codes:
            names = (
                self._by_hash.get(code, code) if _HASH.fullmatch(self._strings[code]) else code
                for code in distinct_codes.tolist()
            )
            return np.fromiter(names, np.int32)

        return map_values(codes, resolve_distinct)

    @cached_property
    def _by_hash(self) -> dict[int, int]:
        """Codes of names by codes of their hashes."""
        table = self._databases.host_table("ge_hash.db", "GeHashInfo")
        codes = table.codes(("hash_key", "hash_value"), self._strings)
        return dict(zip(codes["hash_key"].tolist(), codes["hash_value"].tolist(), strict=True))
