"""Source of a profile database of msprof, torch_npu or MindSpore."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from timeline.columns.chunks import compute_in_chunks
from timeline.columns.columns import Bool, Codes, Float64, Int64, Rows, filter_in_place, take
from timeline.columns.constant import constant
from timeline.columns.distinct import distinct_turns, map_values
from timeline.columns.group_by import group_by
from timeline.columns.strings import NO_NAME
from timeline.errors import SourceError
from timeline.layers import HOST_LAYERS, Layer
from timeline.records.clock import Clock, CommunicationRule, FreeRule
from timeline.records.joining import IDS
from timeline.records.kernel_metrics import KernelMetrics
from timeline.records.not_given import NO_CONTEXT, NO_GRAPH, NO_ID, NO_TIME
from timeline.records.profiler_tables import UnusedFile
from timeline.records.tables import (
    Allocations,
    CommunicationOps,
    Flows,
    GroupMembers,
    HostEvents,
    Omission,
    OmissionCode,
    PlaneTasks,
    Records,
    Steps,
    Tasks,
)
from timeline.records.task_kinds import (
    COPY_TYPES,
    compute_by_type,
    drive_communication,
)
from timeline.sources.common.core_metrics import (
    read_core_counts,
    read_task_metrics,
)
from timeline.sources.common.counters import CounterBuilder
from timeline.sources.common.identity import (
    GROUPS,
    ProcessGroup,
    members_of,
    read_groups_text,
)
from timeline.sources.common.losses import FFTS_REASON, LostRows
from timeline.sources.common.overlap_analysis import (
    OVERLAP_TABLE,
    find_marked_ops,
    read_overlap_table,
    remark_on_ai_cpu_tasks,
    sum_overlap,
)
from timeline.sources.database.counting import (
    find_communication_rule,
    find_free_rule,
    find_ops_table,
    read_communication_sums,
    read_counters,
    read_reserved_bytes,
)
from timeline.sources.database.host import DatabaseNames, read_cann_calls, read_host
from timeline.sources.decoders.joins import Lookup, covering_parents, values_at
from timeline.sources.decoders.sqlite import Database, open_database
from timeline.sources.source import Identity, ReadRequest

_UNUSED_TABLES = {
    "SAMPLE_PMU_SUMMARY": "metrics of cores, without times",
    "COMMUNICATION_SCHEDULE_TASK_INFO": "tasks that drive communication",
    "OSRT_API": "calls of the operating system",
    "GC_RECORD": "garbage collections of Python",
    "DPU_TASK": "tasks of DPUs",
    "CCU": "tasks of CCUs",
    "UB": "samples of UB ports",
}
"""Content of tables that are not read."""
_NEEDED = {
    "STRING_IDS": ("id", "value"),
    "COMPUTE_TASK_INFO": ("globalTaskId",),
    "COMMUNICATION_TASK_INFO": ("globalTaskId",),
    "CONNECTION_IDS": ("id", "connectionId"),
    "MSTX_EVENTS": ("startNs", "message"),
}
"""Columns without which a table is useless; columns of times are checked by their readers."""


_MOST_GIGABYTES = 1e6
"""Bandwidth in GB/s that no link reaches; larger values are bytes/s of msprof of 2025
(db_assembler.cpp)."""


@dataclass(frozen=True)
class DatabaseSource:
    """`ascend_pytorch_profiler_R.db`, `ascend_mindspore_profiler_R.db` and `msprof_*.db`."""

    layout: str
    identity: Identity
    clock: Clock
    path: Path
    several_devices: bool = False

    @property
    def files(self) -> tuple[Path, ...]:
        """The database."""
        return (self.path,)

    def list_steps(self) -> frozenset[int]:
        """See `StepLister.list_steps`."""
        with open_database(self.path, in_part=True) as database:
            return frozenset(database.integers("STEP_TIME", {"id": NO_ID})["id"].tolist())

    def read(self, wanted: ReadRequest) -> Records:
        """See `Source.read`."""
        device = self.identity.device if self.several_devices else None
        with open_database(self.path) as database:
            records = _Reader(database, self.identity.rank, device, wanted).records()
        if not len(records.metrics):
            return records
        cores = read_core_counts(self.identity.directory, self.identity.device)
        return replace(records, cores=cores)


class _Reader(LostRows):
    """One pass over one database."""

    def __init__(
        self, database: Database, rank: int, device: int | None, wanted: ReadRequest
    ) -> None:
        super().__init__(rank)
        self.database, self.device = database, device
        self.wanted, self.layers, self.every_arg = wanted, wanted.layers, wanted.every_arg
        self.names = DatabaseNames(database)
        self.strings = self.names.strings
        self.group_numbers: dict[int, int] = {}
        self.metrics = KernelMetrics()
        self.steps = self._steps()
        self.overlap = read_overlap_table(database, device)
        self.free_rule = FreeRule()
        self.communication_rule = self._communication_rule()
        operators = "COMPUTE_TASK_INFO"
        self.operators_unknown = not (database.count(operators) or database.is_lost(operators))
        self.ops_table = find_ops_table(database)
        for table, columns in _NEEDED.items():
            database.note_unread(table, *columns)
        if not database.has("TASK"):
            self.warn(f"{database.path.name} has no table TASK, so that computing is not known.")

    def records(self) -> Records:
        """Read every table that a wanted layer needs."""
        tasks, task_ids = self._read_tasks()
        communication = self._read_communication(tasks)
        ops = self._read_ops(tasks, task_ids, communication)
        marks = self._read_marks()
        calls: dict[str, Int64] = {}
        with_host = bool(self.layers & {Layer.CANN, Layer.FRAMEWORK})
        # Steps of a database are host time; tasks belong to the step in which they were launched.
        if with_host or len(self.steps):
            calls = read_cann_calls(self.database, whole=with_host, every_arg=self.every_arg)
            lookup = Lookup(_join_launchers(calls, marks), "connectionId")
            tasks = replace(tasks, launch_ns=_find_starts_ns(tasks.connection, lookup))
            ops = replace(ops, launch_ns=_find_starts_ns(ops.connection, lookup))
        lookup, listed = Lookup(marks, "connectionId"), len(ops)
        message = self.names.codes(lookup.of("message", lookup.find(tasks.connection), NO_ID))
        marked_ops = find_marked_ops(tasks, message, ops, self.strings)
        ops = CommunicationOps.concat([ops, marked_ops]) if len(marked_ops) else ops
        planes = PlaneTasks.empty()
        if self._reads_planes:
            planes = self._build_planes(tasks, task_ids, communication)
        host, flows = HostEvents.empty(), Flows.empty()
        before = len(self.database.damage.omissions(self.rank))
        if with_host:
            host, flows = read_host(self.database, self.names, calls, tasks, ops, self.wanted)
        host_damage = range(before, len(self.database.damage.omissions(self.rank)))
        if not self.every_arg:
            tasks = replace(tasks, connection=constant(NO_ID, len(tasks), np.int64))
        members, allocations = self._read_members(), Allocations.empty()
        counting = Layer.COUNTERS in self.layers
        if counting or self.wanted.with_allocations:
            # Imported here because most reads of a database do not need it.
            from timeline.sources.companions.counters import add_allocations, read_allocation_table

            recorded, omissions = read_allocation_table(
                self.database, self.device, self.rank, self.names.codes
            )
            self.omissions += omissions
            allocations = recorded if self.wanted.with_allocations else allocations
        counters = CounterBuilder()
        if counting:
            add_allocations(recorded, counters)
        if counting or self.wanted.frequency:
            omissions = read_counters(
                self.database, counters, self.names, self.device, self.rank, every=counting
            )
            self.omissions += omissions if counting else []
        series, samples = counters.tables(self.strings)
        reserved_bytes = NO_ID
        if self.wanted.memory:
            reserved_bytes = read_reserved_bytes(self.database, self.device)
        return Records(
            self.rank,
            self.strings,
            tasks=tasks,
            planes=planes,
            ops=ops,
            steps=self.steps,
            host=host,
            series=series,
            samples=samples,
            flows=flows if Layer.ARROWS in self.layers else Flows.empty(),
            omissions=(*self.omissions, *self._damage(host_damage)),
            warnings=tuple(self.warnings),
            free_rule=self.free_rule,
            communication_rule=self.communication_rule,
            numbered_ops=bool(listed) or not len(ops),
            members=members,
            allocations=allocations,
            reserved_bytes=reserved_bytes,
            metrics=self.metrics,
            vendor=sum_overlap(
                self.overlap, f"{OVERLAP_TABLE} of {self.database.path.name}", NO_ID, self.strings
            ),
            unused=tuple(
                UnusedFile(f"table {table} of {self.database.path.name}", what)
                for table, what in _UNUSED_TABLES.items()
                if self.database.has_rows(table)
            ),
        )

    def _damage(self, host_damage: range) -> list[Omission]:
        """Return damage of the database.

        host_damage: indices of damage in tables of the host.
        """
        return [
            replace(omission, layers=HOST_LAYERS) if at in host_damage else omission
            for at, omission in enumerate(self.database.damage.omissions(self.rank))
        ]

    @property
    def _reads_planes(self) -> bool:
        """True if HCCL tasks are drawn, or may decide the time of communication."""
        return Layer.COMMUNICATION in self.layers or self.communication_rule.of_tasks

    def _read_members(self) -> GroupMembers:
        """Read groups and their members from the metadata that torch_npu writes."""
        if not self.database.has("META_DATA", "name", "value"):
            return GroupMembers.empty()
        rows = self.database.rows(f"SELECT value FROM META_DATA WHERE name = '{GROUPS}'")
        groups: list[ProcessGroup] = []
        try:
            for (text,) in rows:
                groups += read_groups_text(str(text), self.database.path)
        except SourceError as error:
            self.warn(str(error))
        return members_of(groups, self.strings)

    def _communication_rule(self) -> CommunicationRule:
        step_sums_ns: dict[int, int] = {}
        try:
            if self.device is None:  # sums may be of all devices
                step_sums_ns = read_communication_sums(self.database.path)
        except SourceError as error:
            self.warn(str(error))
        return find_communication_rule(self.database, step_sums_ns)

    def _read_tasks(self) -> tuple[Tasks, Int64]:
        """Read device tasks without FFTS+ tasks that have sub-tasks, and their globalTaskId."""
        where = self.database.where("TASK", "deviceId", self.device)
        self.database.require("TASK", "startNs", "endNs")
        compute, codes = self._read_compute_tasks()
        raw = self.database.integers(
            "TASK",
            {"startNs": NO_TIME, "endNs": NO_TIME, "contextId": NO_CONTEXT, "modelId": NO_GRAPH}
            | dict.fromkeys(("connectionId", "globalTaskId", "streamId", "taskId"), NO_ID)
            | {"taskType": NO_ID}
            | ({} if self._has_one_device() else {"deviceId": NO_ID})
            | self._if_every_arg({"batchId": NO_ID}),
            where,
        )
        if self.database.is_lost("TASK"):
            raise SourceError(self.database.path, "the table TASK is damaged from its first page.")
        types = self.names.by_id
        self.free_rule = find_free_rule(self.database, raw, types, self.overlap)
        copying = [number for number, name in types.items() if name in COPY_TYPES]
        row = compute.find(raw["globalTaskId"])
        stays = ~covering_parents(_build_unnamed_tasks(raw, row))
        parents = int(np.count_nonzero(~stays))
        self.leave_out(FFTS_REASON, parents, OmissionCode.FFTS_WHOLE, loss=False)
        if not stays.all():
            row = filter_in_place(row, stays)
            raw = {name: filter_in_place(values, stays) for name, values in raw.items()}
        tasks = replace(_build_unnamed_tasks(raw, row), **self._choose_names(raw, codes, row))
        drives = drive_communication(tasks.name, self.strings)
        tasks = replace(tasks, compute=tasks.compute & ~drives)
        if self.operators_unknown:
            tasks = self._decide_compute(tasks, self.names.codes(raw["taskType"]))
        copy = map_values(raw["taskType"], lambda types: np.isin(types, copying))
        tasks = replace(tasks, copy=copy)
        if self.every_arg:
            tasks = replace(tasks, batch=raw["batchId"])
        self.metrics, metrics = read_task_metrics(
            self.database, types, raw["globalTaskId"], every=self.every_arg
        )
        tasks = replace(
            tasks,
            output_shapes=values_at(codes["outputShapes"], row, NO_NAME),
            input_types=values_at(codes["inputDataTypes"], row, NO_NAME),
            blocks=compute.of(self._blocks_column(), row),
            metrics=metrics,
        )
        return tasks, raw["globalTaskId"]

    def _decide_compute(self, tasks: Tasks, types: Codes) -> Tasks:
        """Decide by type which tasks compute, as there is no table of operators."""
        compute = compute_by_type(types, self.strings)
        op_type = np.where(compute, types, NO_NAME)
        tasks = replace(tasks, compute=compute, op_type=op_type, task_type=types)
        if remark := remark_on_ai_cpu_tasks(tasks, self.strings, "COMPUTE_TASK_INFO"):
            self.warn(remark)
        return tasks

    def _has_one_device(self) -> bool:
        return self.device is not None or self.database.count("NPU_INFO") == 1

    def _read_compute_tasks(self) -> tuple[Lookup, dict[str, Codes]]:
        """Read the table of operators by globalTaskId, and their strings as codes."""
        encoders = {
            "taskType": self.names.codes,
            "opType": self.names.codes,
            "name": self.names.codes,
            "inputShapes": self.names.shapes,
            "outputShapes": self.names.shapes,
            "inputDataTypes": self.names.codes,
        }
        raw = self.database.integers(
            "COMPUTE_TASK_INFO",
            dict.fromkeys(("globalTaskId", *encoders, self._blocks_column()), NO_ID),
        )
        codes = {name: encode(raw.pop(name)) for name, encode in encoders.items()}
        return Lookup(raw, "globalTaskId"), codes

    def _choose_names(
        self, raw: dict[str, Int64], codes: dict[str, Codes], row: Rows
    ) -> dict[str, Any]:
        # The row of an operator may lack a type or name, but its task always has a type.
        kind = self.names.codes(raw["taskType"])
        return {
            "task_type": _fill(values_at(codes["taskType"], row, NO_NAME), kind),
            "op_type": values_at(codes["opType"], row, NO_NAME),
            "name": _fill(values_at(codes["name"], row, NO_NAME), kind),
            "input_shapes": values_at(codes["inputShapes"], row, NO_NAME),
        }

    def _if_every_arg(self, columns: dict[str, int]) -> dict[str, int]:
        """Return columns that only `--args all` shows, none if that is not wanted."""
        return columns if self.every_arg else {}

    def _blocks_column(self) -> str:
        """Return the column with the number of blocks: blockNum, or blockDim in older databases."""
        return "blockNum" if self.database.has("COMPUTE_TASK_INFO", "blockNum") else "blockDim"

    def _read_communication(self, tasks: Tasks) -> dict[str, Int64]:
        """Read the columns of HCCL tasks that are drawn or needed for ops."""
        is_drawn = self._reads_planes
        builds_ops = not self.database.count(self.ops_table)
        has_graphs = bool((tasks.graph != NO_GRAPH).any())
        needs_op_ids = builds_ops or self.device is not None or has_graphs
        columns = {"globalTaskId": NO_ID} if is_drawn or needs_op_ids else {}
        if needs_op_ids:
            columns |= {"opId": NO_ID}
        if builds_ops:
            columns |= {"name": NO_ID, "groupName": NO_ID}
        if is_drawn:
            names = ("taskType", "planeId", "groupName", "srcRank", "dstRank", "size", "linkType")
            args = ("name", "notifyId", "transportType", "dataType") if self.every_arg else ()
            columns |= dict.fromkeys((*names, *args), NO_ID)
        return self.database.integers("COMMUNICATION_TASK_INFO", columns) if columns else {}

    def _read_ops(
        self, tasks: Tasks, task_ids: Int64, communication: dict[str, Int64]
    ) -> CommunicationOps:
        """Read communication ops, and take their graph and device from their tasks."""
        if not self.database.count(self.ops_table):
            return self._build_ops(tasks, task_ids, communication)
        self.database.require(self.ops_table, "startNs", "endNs")
        raw = self.database.integers(
            self.ops_table,
            {"startNs": NO_TIME, "endNs": NO_TIME}
            | dict.fromkeys(("opName", "connectionId", "groupName", "opId", "dataType"), NO_ID)
            | dict.fromkeys(("algType", "count", "deviceId"), NO_ID),
        )
        graph: Int64 = constant(NO_GRAPH, len(raw["opId"]), np.int64)
        has_task = np.zeros(len(graph), np.bool_)
        if "opId" in communication:
            row = Lookup(communication, "globalTaskId").find(task_ids)
            is_hccl = row >= 0
            hccl_tasks = Lookup(
                {"op": communication["opId"][row[is_hccl]], "graph": tasks.graph[is_hccl]}, "op"
            )
            task = hccl_tasks.find(raw["opId"])
            graph, has_task = hccl_tasks.of("graph", task, NO_GRAPH), task >= 0
        group, label = self._label_groups(raw["groupName"])
        ops = CommunicationOps.of(
            len(graph),
            start_ns=raw["startNs"],
            end_ns=raw["endNs"],
            group=group,
            group_name=label,
            name=self.names.codes(raw["opName"]),
            graph=graph,
            connection=IDS["connection"].normalise(raw["connectionId"]),
            count=raw["count"],
            data_type=self.names.enum("ENUM_HCCL_DATA_TYPE", raw["dataType"]),
            algorithm=self.names.codes(raw["algType"]),
        )
        on_device = np.ones(len(ops), np.bool_)
        if self.device is not None:
            on_device = (raw["deviceId"] == self.device) | ((raw["deviceId"] == NO_ID) & has_task)
        return ops.take(on_device)

    def _read_marks(self) -> dict[str, Int64]:
        """Read the mstx marks that have a connection, which are marks on the device too."""
        raw = self.database.integers(
            "MSTX_EVENTS", {"startNs": NO_TIME, "connectionId": NO_ID, "message": NO_ID}
        )
        connected = IDS["connection"].normalise(raw["connectionId"]) != NO_ID
        return {name: values[connected] for name, values in raw.items()}

    def _build_ops(
        self, tasks: Tasks, task_ids: Int64, communication: dict[str, Int64]
    ) -> CommunicationOps:
        """Build ops from their HCCL tasks, for databases without ops as those of early 2024."""
        task_row = Lookup({"id": task_ids}, "id").find(communication["globalTaskId"])
        at = np.flatnonzero(task_row >= 0)
        if not len(at):
            return CommunicationOps.empty()
        at = at[np.argsort(tasks.start_ns[task_row[at]], kind="stable")]
        rows = task_row[at]
        op, name, group_id = (communication[name][at] for name in ("opId", "name", "groupName"))
        ops = group_by(len(rows), [op, name, group_id, tasks.graph[rows]])
        order = np.argsort(ops.first)
        first, end_ns = ops.first[order], ops.greatest(tasks.end_ns[rows])[order]
        group, label = self._label_groups(group_id[first])
        self.warn(
            f"{self.database.path.name} lists no communication ops; each is taken to run from the "
            "first to the last of its HCCL tasks."
        )
        return CommunicationOps.of(
            len(first),
            start_ns=tasks.start_ns[rows[first]],
            end_ns=end_ns,
            group=group,
            group_name=label,
            name=self.names.codes(name[first]),
            graph=tasks.graph[rows[first]],
            connection=tasks.connection[rows[first]],
        )

    def _label_groups(self, ids: Int64) -> tuple[Codes, Codes]:
        """Return labels of groups, numbered by first op as in CSV and JSON exports, and names."""
        distinct_ids, place, turn = distinct_turns(ids)
        for number in distinct_ids[np.argsort(turn)].tolist():
            if number != NO_ID:
                self.group_numbers.setdefault(number, len(self.group_numbers))
        labels = self.strings.codes(
            "Group not given"
            if number == NO_ID
            else f"Group {self.group_numbers.get(number, number)}"
            for number in distinct_ids.tolist()
        )
        return labels[place], self.names.codes(ids)

    def _build_planes(self, tasks: Tasks, task_ids: Int64, raw: dict[str, Int64]) -> PlaneTasks:
        """Build HCCL tasks, with the interval and ids of their device task."""
        group, _ = self._label_groups(raw["groupName"])
        task_row = Lookup({"id": task_ids}, "id").find(raw["globalTaskId"])
        has_task = task_row >= 0
        if self.device is None:
            reason = "HCCL tasks whose device task is not in the profile"
            self.leave_out(reason, int(np.count_nonzero(~has_task)), OmissionCode.NO_TASK)
        rows = take(task_row, has_task)

        def of_row(column: str) -> Any:
            return raw[column] if has_task.all() else take(raw[column], has_task)

        def of_task(column: str) -> Any:
            return take(getattr(tasks, column), rows)

        columns = {
            "start_ns": of_task("start_ns"),
            "end_ns": of_task("end_ns"),
            "group": group if has_task.all() else group[has_task],
            "plane": of_row("planeId"),
            # At the lowest level of profiling only the device task has a type.
            "name": _fill(self.names.codes(of_row("taskType")), of_task("task_type")),
            "graph": of_task("graph"),
            "launch_ns": of_task("launch_ns"),
            "task": of_task("task"),
            "context": of_task("context"),
            "source_rank": of_row("srcRank"),
            "target_rank": of_row("dstRank"),
            "size_bytes": of_row("size"),
            "link": self.names.enum("ENUM_HCCL_LINK_TYPE", of_row("linkType")),
        }
        if self.every_arg:
            columns |= {
                "op": self.names.codes(of_row("name")),
                "stream": of_task("stream"),
                "notify": self.names.numbers(of_row("notifyId")),
                "transport": self.names.enum("ENUM_HCCL_TRANSPORT_TYPE", of_row("transportType")),
                "data_type": self.names.enum("ENUM_HCCL_DATA_TYPE", of_row("dataType")),
            }
        return PlaneTasks.of(len(rows), columns | self._read_bandwidth(has_task))

    def _read_bandwidth(self, has_task: Bool) -> dict[str, Float64]:
        table, column = "COMMUNICATION_TASK_INFO", "bandwidth"
        if not self.database.has(table, column):
            return {}
        gigabytes = self.database.floats(table, {column: -1.0})[column]
        if gigabytes.max(initial=0) > _MOST_GIGABYTES:
            gigabytes = gigabytes / 1e9
        return {column: np.where(gigabytes < 0, np.nan, gigabytes)[has_task]}

    def _steps(self) -> Steps:
        """Read steps of the framework (ProfilerStep), which are host time."""
        raw = self.database.integers(
            "STEP_TIME", {"id": NO_ID, "startNs": NO_TIME, "endNs": NO_TIME}
        )
        count = len(raw["id"])
        return Steps.of(
            count,
            start_ns=raw["startNs"],
            end_ns=raw["endNs"],
            iteration=raw["id"],
            graph=NO_GRAPH,
            host=True,
        )


def _build_unnamed_tasks(raw: dict[str, Int64], row: Rows) -> Tasks:
    """Build tasks without names.

    row: the row of each task in the table of operators; tasks with a row >= 0 compute.
    """
    return Tasks.of(
        len(row),
        {
            "start_ns": raw["startNs"],
            "end_ns": raw["endNs"],
            "stream": raw["streamId"],
            "task": raw["taskId"],
            "context": IDS["context"].normalise(raw["contextId"]),
            "graph": IDS["graph"].normalise(raw["modelId"]),
            "connection": IDS["connection"].normalise(raw["connectionId"]),
            "name": NO_NAME,
            "compute": row >= 0,
        }
        | ({"device": raw["deviceId"]} if "deviceId" in raw else {}),
    )


def _fill(codes: Codes, others: Codes) -> Codes:
    """Replace NO_NAME among codes by the code of the same row in `others`."""
    if (codes != NO_NAME).all():
        return codes

    def fill_chunk(codes: Codes, others: Codes) -> Codes:
        return np.where(codes == NO_NAME, others, codes)

    return compute_in_chunks(np.int32, fill_chunk, codes, others)


def _join_launchers(calls: dict[str, Int64], marks: dict[str, Int64]) -> dict[str, Int64]:
    """Join the CANN calls and mstx marks, both of which have launch times."""
    if not len(marks["startNs"]):
        return calls
    return {
        name: np.concatenate([calls[name], marks[name]]) for name in marks.keys() & calls.keys()
    }


def _find_starts_ns(connection: Int64, calls: Lookup) -> Int64:
    """Return the start of the host call of each connection, NO_TIME if there is none."""
    return calls.of("startNs", calls.find(connection), NO_TIME)
