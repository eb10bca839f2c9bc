"""Communication ops and their HCCL tasks on planes, from the transfers and ops of msprof."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

import numpy as np

from timeline.columns.columns import Codes, ColumnTable, Int64, column
from timeline.columns.distinct import map_values
from timeline.columns.group_by import group_by
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.joining import IDS
from timeline.records.not_given import NO_GRAPH, NO_ID, NO_TIME
from timeline.records.tables import CommunicationOps, GroupMembers, PlaneTasks, Tasks
from timeline.sources.common.identity import label_groups
from timeline.sources.decoders.joins import Lookup, common_keys, values_at
from timeline.sources.decoders.sqlite_loose import LooseTable
from timeline.sources.msprof_sqlite.databases import ParsedDatabases
from timeline.sources.msprof_sqlite.transfers import Transfers

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
    graph: Int64 = column(np.int64)
    count: Int64 = column(np.int64)
    data_type: Codes = column(np.int32)
    algorithm: Codes = column(np.int32)
    ranks: Int64 = column(np.int64, NO_ID)


@dataclass(frozen=True)
class Communication:
    """Ops, their HCCL tasks, and the connection of each task's op.

    timeless: ops of which neither they nor any task tells when they ran. members: the sizes of
    groups, where they are told.
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
            len(ops),
            {
                "start_ns": ops.start_ns,
                "end_ns": ops.end_ns,
                "group": labels[: len(ops)],
                "group_name": op_group,
                "name": ops.name,
                "graph": ops.graph,
                "connection": ops.connection,
                "count": ops.count,
                "data_type": ops.data_type,
                "algorithm": ops.algorithm,
            },
        ),
        _planes(transfers, labels[len(ops) :], every_arg=every_arg),
        transfers.connection,
        int(np.count_nonzero(~np.isin(listed.connection, ops.connection))),
        _sizes(names.resolve(sized.group), sized.ranks),
    )


def _sizes(group: Codes, ranks: Int64) -> GroupMembers:
    """How many members groups have, by their ops."""
    first = group_by(len(group), [group, ranks]).first
    return GroupMembers.of(len(first), {"group": group[first], "size": ranks[first]})


def _read_ops(table: LooseTable, strings: StringPool, source: int | None = None) -> _Ops:
    """The ops that a table lists; older versions give no times, or a start and a duration."""
    raw = table.integers(
        {
            "start": NO_TIME,
            "end": NO_TIME,
            "connection_id": NO_ID,
            "iter_id": NO_ID,
            "model_id": NO_GRAPH,
            "count": NO_ID,
            "rank_size": NO_ID,
            "source": NO_ID,
        }
    )
    texts = table.texts(("op_name", "group_name", "data_type", "alg_type"), strings)
    start_ns, end_ns = raw["start"], raw["end"]
    if table.has("timestamp", "duration"):
        start_ns, end_ns = table.intervals("timestamp", "duration")
        end_ns = np.maximum(start_ns, end_ns)
    elif not table.has("start", "end"):  # HCCLOP holds `end` as a time of the host
        start_ns = end_ns = np.full(len(start_ns), NO_TIME)
    found = _Ops.of(
        len(start_ns),
        {
            "start_ns": start_ns,
            "end_ns": end_ns,
            "name": texts["op_name"],
            "group": texts["group_name"],
            "connection": IDS["connection"].given(raw["connection_id"]),
            "turn": raw["iter_id"],
            "graph": IDS["graph"].given(raw["model_id"]),
            "count": raw["count"],
            "data_type": texts["data_type"],
            "algorithm": texts["alg_type"],
            "ranks": raw["rank_size"],
        },
    )
    return found if source is None else found.take(raw["source"] == source)


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
        {
            "start_ns": start_ns,
            "end_ns": end_ns,
            "name": ops.op,
            "group": ops.group,
            "connection": ops.connection,
            "turn": ops.turn,
            "graph": ops.graph,
            "count": known.of("count", row, NO_ID),
            "data_type": known.of("data_type", row, NO_NAME),
            "algorithm": known.of("algorithm", row, NO_NAME),
        },
    )


def _with_task_types(transfers: Transfers, tasks: Tasks) -> Transfers:
    """Transfers of which nothing tells the kind, as at the lowest level, have the task's type."""
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


def _planes(transfers: Transfers, labels: Codes, *, every_arg: bool) -> PlaneTasks:
    columns = {
        "start_ns": transfers.start_ns,
        "end_ns": transfers.end_ns,
        "group": labels,
        "plane": transfers.plane,
        "name": transfers.name,
        "graph": transfers.graph,
        "source_rank": transfers.source_rank,
        "target_rank": transfers.target_rank,
        "size_bytes": transfers.size_bytes,
        "link": transfers.link,
        "bandwidth": transfers.bandwidth,
    }
    if every_arg:
        columns |= {
            "op": transfers.op,
            "stream": transfers.stream,
            "task": transfers.task,
            "context": transfers.context,
            "notify": transfers.notify,
            "transport": transfers.transport,
            "data_type": transfers.data_type,
        }
    return PlaneTasks.of(len(transfers), columns)


class _GroupNames:
    """The names of groups, of which some versions only hold the hash."""

    def __init__(self, databases: ParsedDatabases, strings: StringPool) -> None:
        self._databases, self._strings = databases, strings
        self._by_hash: dict[int, int] | None = None

    def resolve(self, codes: Codes) -> Codes:
        """The names themselves; a hash that nothing explains stays as it is."""

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
