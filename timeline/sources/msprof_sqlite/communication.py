"""Communication ops and their HCCL tasks, from all versions of msprof's tables."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

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
    """HCCL tasks: what each did, when, and which run of which op it belongs to.

    connection and turn identify the run of an op together with its name and group; master marks the
    tasks whose span is that of the op.
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
"""The columns of transfers in every table of them: all but their times, names and op."""


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

    Older versions identify the op by its name and the time of its first task, newer ones by op_id,
    which is the connection of the op, and iter_id.
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
    every = table.read(Transfers, _DETAILS | {"name": "name"}, strings)
    transfers = replace(
        every.take(launched),
        start_ns=tasks.start_ns[ran],
        end_ns=tasks.end_ns[ran],
        graph=tasks.graph[ran],
        op=op_name,
        connection=connection,
        turn=ordinals(key[ran], tasks.start_ns[ran]),
    )
    return transfers, len(of_launch) - len(distinct(launched))


def _op_rows(table: LooseTable, ops: LooseTable) -> Rows:
    """Return the op that launched each task, by op_id or by time of launch on its thread."""
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


_HASH = re.compile(r"[0-9]{1,20}")
OTHER_SOURCE = 1
"""Ops that kernels of operators run themselves; of the others this table only repeats some."""


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
    """Ops, their HCCL tasks, and the connection of each task's op.

    timeless: ops whose time neither they nor any task has. members: the sizes of
    groups, where they are known.
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
    """Read the ops; those that have no times of their own last as long as their tasks."""
    table = databases.device_table("hccl_single_device.db", "HCCLOpSingleDevice")
    if not len(table):
        table = databases.host_table("hccl.db", "HCCLOP", where={"device_id": device})
    unfolded = databases.device_table("hccl_single_device.db", "KfcOP")
    listed = _Ops.concat([_read_ops(table, strings), _read_ops(unfolded, strings, OTHER_SOURCE)])
    given = listed.take(listed.start_ns != NO_TIME)
    transfers = _with_task_types(_with_op_names(transfers, listed), tasks)
    ops = _Ops.concat([given, _ops_of_transfers(transfers, given, listed)])
    ops = ops.take(np.argsort(ops.start_ns, kind="stable"))
    names = _GroupNames(databases, strings)
    sized = listed.take(listed.ranks > 0)
    op_group, plane_group = names.resolve(ops.group), names.resolve(transfers.group)
    labels = label_groups(np.concatenate([op_group, plane_group]), strings)
    return Communication(
        CommunicationOps.of(
            len(ops), ops.columns() | {"group": labels[: len(ops)], "group_name": op_group}
        ),
        _planes(transfers, labels[len(ops) :], every_arg=every_arg),
        transfers.connection,
        int(np.count_nonzero(~np.isin(listed.connection, ops.connection))),
        _sizes(names.resolve(sized.group), sized.ranks),
    )


def _sizes(group: Codes, ranks: Int64) -> GroupMembers:
    """Return how many members groups have, by their ops."""
    first = group_by(len(group), [group, ranks]).first
    return GroupMembers.of(len(first), group=group[first], size=ranks[first])


def _read_ops(table: LooseTable, strings: StringPool, source: int | None = None) -> _Ops:
    """Return the ops of a table; older versions have no times, or a start and a duration."""
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


def _with_op_names(transfers: Transfers, ops: _Ops) -> Transfers:
    """Transfers that do not name their op or group take both from the op of their connection."""
    ops = ops.take(ops.connection != NO_ID)
    row = Lookup({"connection": ops.connection}, "connection").find(transfers.connection)

    def fill(codes: Codes, of_op: Codes) -> Codes:
        # The row of no op lies behind the others.
        return np.where(codes == NO_NAME, np.append(of_op, np.int32(NO_NAME))[row], codes)

    return replace(
        transfers, op=fill(transfers.op, ops.name), group=fill(transfers.group, ops.group)
    )


def _ops_of_transfers(transfers: Transfers, given: _Ops, listed: _Ops) -> _Ops:
    """Ops from the first start to the last end of their master tasks, or of all without any."""
    of_given = np.isin(transfers.connection, given.connection)
    rest = transfers.take(~of_given | (transfers.connection == NO_ID))
    rest = rest.take((rest.start_ns != NO_TIME) & (rest.end_ns != NO_TIME))
    if not len(rest):
        return _Ops.empty()
    groups = group_by(len(rest), [rest.connection, rest.turn, rest.op, rest.group])
    led = np.zeros(len(groups.first), np.bool_)
    led[groups.group[rest.master == 1]] = True
    spans = (rest.master == 1) | ~led[groups.group]
    spanning = replace(groups, group=groups.group[spans])
    start_ns = spanning.least(rest.start_ns[spans])
    end_ns = spanning.greatest(rest.end_ns[spans])
    ops = rest.take(groups.first)
    known = Lookup(
        {
            "connection": listed.connection,
            "count": listed.count,
            "data_type": listed.data_type.astype(np.int64),
            "algorithm": listed.algorithm.astype(np.int64),
        },
        "connection",
    )
    row = np.where(ops.connection == NO_ID, -1, known.find(ops.connection))
    return _Ops.of(
        len(ops),
        ops.columns()
        | {
            "start_ns": start_ns,
            "end_ns": end_ns,
            "name": ops.op,
            "count": known.of("count", row, NO_ID),
            "data_type": known.of("data_type", row, NO_NAME),
            "algorithm": known.of("algorithm", row, NO_NAME),
        },
    )


def _with_task_types(transfers: Transfers, tasks: Tasks) -> Transfers:
    """Transfers of unknown kind, as at the lowest level, have the task's type."""
    rows = np.flatnonzero(transfers.name == NO_NAME)
    if not len(rows):
        return transfers
    keys, of_task = common_keys(
        [transfers.stream[rows], transfers.task[rows], transfers.start_ns[rows]],
        [tasks.stream, tasks.task, tasks.start_ns],
    )
    name = transfers.name.copy()
    name[rows] = values_at(tasks.task_type, Lookup({"key": of_task}, "key").find(keys), NO_NAME)
    return replace(transfers, name=name)


_PLANE_ARGS = ("op", "stream", "task", "context", "notify", "transport", "data_type")


def _planes(transfers: Transfers, labels: Codes, *, every_arg: bool) -> PlaneTasks:
    columns = transfers.columns() | {"group": labels}
    for name in () if every_arg else _PLANE_ARGS:
        del columns[name]
    return PlaneTasks.of(len(transfers), columns)


class _GroupNames:
    """The names of groups, of which some versions only hold the hash."""

    def __init__(self, databases: ParsedDatabases, strings: StringPool) -> None:
        self._databases, self._strings = databases, strings
        self._by_hash: dict[int, int] | None = None

    def resolve(self, codes: Codes) -> Codes:
        """Return the names themselves; a hash that nothing explains stays as it is."""

        def resolved(some: Codes) -> Codes:
            meant = (
                self._known().get(code, code) if _HASH.fullmatch(self._strings[code]) else code
                for code in some.tolist()
            )
            return np.fromiter(meant, np.int32)

        return map_values(codes, resolved)

    def _known(self) -> dict[int, int]:
        if self._by_hash is None:
            table = self._databases.host_table("ge_hash.db", "GeHashInfo")
            texts = table.texts(("hash_key", "hash_value"), self._strings)
            pairs = zip(texts["hash_key"].tolist(), texts["hash_value"].tolist(), strict=True)
            self._by_hash = dict(pairs)
        return self._by_hash
