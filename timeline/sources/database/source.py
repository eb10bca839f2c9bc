"""Reads a profile database of msprof, torch_npu or MindSpore."""

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
    ends_as_communication,
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
    operators_table,
    read_communication_sums,
    read_counters,
    read_reserved_bytes,
)
from timeline.sources.database.host import DatabaseNames, read_cann_calls, read_host
from timeline.sources.decoders.joins import Lookup, covering_parents, values_at
from timeline.sources.decoders.sqlite import Database, open_database
from timeline.sources.source import Identity, ReadRequest

_UNUSED_TABLES = {
    "TASK_PMU_INFO": "metrics of kernels",
    "SAMPLE_PMU_SUMMARY": "metrics of cores, without times",
    "COMMUNICATION_SCHEDULE_TASK_INFO": "tasks that drive communication",
    "OSRT_API": "calls of the operating system",
    "GC_RECORD": "garbage collections of Python",
    "DPU_TASK": "tasks of DPUs",
    "CCU": "tasks of CCUs",
    "UB": "samples of UB ports",
    "PYTORCH_CALLCHAINS": "call stacks of host operators",
}
"""Tables that are not used, and what they hold."""
_NEEDED = {
    "STRING_IDS": ("id", "value"),
    "COMPUTE_TASK_INFO": ("globalTaskId",),
    "COMMUNICATION_TASK_INFO": ("globalTaskId",),
    "CONNECTION_IDS": ("id", "connectionId"),
    "MSTX_EVENTS": ("startNs", "message"),
}
"""Columns without which a table says nothing; those of times are asked for where they are read."""


_MOST_GIGABYTES = 1e6
"""No link moves as much in a second: msprof of 2025 (db_assembler.cpp) writes bytes, not GB."""


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

    def read(self, wanted: ReadRequest) -> Records:
        """See `Source.read`."""
        device = self.identity.device if self.several_devices else None
        with open_database(self.path) as database:
            return _Reader(database, self.identity.rank, device, wanted).records()


class _Reader(LostRows):
    """One pass over one database."""

    def __init__(
        self, database: Database, rank: int, device: int | None, wanted: ReadRequest
    ) -> None:
        super().__init__(rank)
        self.database, self.device = database, device
        self.wanted, self.layers, self.every_arg = wanted, wanted.layers, wanted.every_arg
        self.with_frequency = wanted.frequency
        self.names = DatabaseNames(database)
        self.strings = self.names.strings
        self.group_numbers: dict[int, int] = {}
        self.steps = self._steps()
        self.overlap = read_overlap_table(database, device)
        self.free_rule = FreeRule()
        self.communication_rule = self._communication_rule()
        # Where steps are not marked they are found by the names of operators.
        # Those of HCCL tasks may be known of the device task alone.
        # Kernels that run communication are distinguished from those that compute by their names.
        self.named = (
            wanted.with_names
            or not len(self.steps)
            or Layer.COMMUNICATION in wanted.layers
            or any(map(ends_as_communication, self.names.by_id.values()))
        )
        operators = "COMPUTE_TASK_INFO"
        self.operators_unknown = not (database.count(operators) or database.is_lost(operators))
        self.ops_table = operators_table(database)
        for table, columns in _NEEDED.items():
            database.note_unread(table, *columns)
        if not database.has("TASK"):
            self.warn(f"{database.path.name} has no table TASK, so that computing is not known.")

    def records(self) -> Records:
        """Read every table that a layer needs."""
        tasks, task_ids = self._tasks()
        communication = self._communication(tasks)
        ops = self._ops(tasks, task_ids, communication)
        marks = self._marks()
        calls: dict[str, Int64] = {}
        with_host = bool(self.layers & {Layer.CANN, Layer.FRAMEWORK})
        # Steps of a database are host time: what a step launched belongs to it.
        if with_host or len(self.steps):
            calls = read_cann_calls(self.database, whole=with_host, every_arg=self.every_arg)
            lookup = Lookup(_joined(calls, marks), "connectionId")
            tasks = replace(tasks, launch_ns=_launch_times(tasks.connection, lookup))
            ops = replace(ops, launch_ns=_launch_times(ops.connection, lookup))
        lookup, listed = Lookup(marks, "connectionId"), len(ops)
        message = self.names.codes(lookup.of("message", lookup.find(tasks.connection), NO_ID))
        marked = find_marked_ops(tasks, message, ops, self.strings)
        ops = CommunicationOps.concat([ops, marked]) if len(marked) else ops
        planes = PlaneTasks.empty()
        if self._reads_planes:
            planes = self._planes(tasks, task_ids, communication)
        host, flows = HostEvents.empty(), Flows.empty()
        before = len(self.database.damage.omissions(self.rank))
        if with_host:
            host, flows = read_host(
                self.database, self.names, calls, tasks, ops, shapes=self.wanted.shapes
            )
        of_host = range(before, len(self.database.damage.omissions(self.rank)))
        if not self.every_arg:
            tasks = replace(tasks, connection=constant(NO_ID, len(tasks), np.int64))
        members, allocations = self._members(), Allocations.empty()
        counting = Layer.COUNTERS in self.layers
        if counting or self.wanted.with_allocations:
            # It shares code with readers of tables, which a database alone does not need.
            from timeline.sources.companions.counters import add_allocations, read_allocation_table

            found, lost = read_allocation_table(
                self.database, self.device, self.rank, self.names.codes
            )
            self.omissions += lost
            allocations = found if self.wanted.with_allocations else allocations
        counters = CounterBuilder()
        if counting:
            add_allocations(found, counters)
        if counting or self.with_frequency:
            lost = read_counters(
                self.database, counters, self.names, self.device, self.rank, every=counting
            )
            self.omissions += lost if counting else []
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
            omissions=(*self.omissions, *self._damage(of_host)),
            warnings=tuple(self.warnings),
            free_rule=self.free_rule,
            communication_rule=self.communication_rule,
            numbered_ops=bool(listed) or not len(ops),
            members=members,
            allocations=allocations,
            reserved_bytes=reserved_bytes,
            vendor=sum_overlap(
                self.overlap, f"{OVERLAP_TABLE} of {self.database.path.name}", NO_ID, self.strings
            ),
            unused=tuple(
                UnusedFile(f"table {table} of {self.database.path.name}", what)
                for table, what in _UNUSED_TABLES.items()
                if self.database.has_rows(table)
            ),
        )

    def _damage(self, of_host: range) -> list[Omission]:
        """Return what is damaged; of_host: the places of losses of the host alone."""
        return [
            replace(omission, layers=HOST_LAYERS) if at in of_host else omission
            for at, omission in enumerate(self.database.damage.omissions(self.rank))
        ]

    @property
    def _reads_planes(self) -> bool:
        """True if HCCL tasks are drawn, or may be what counts as communication."""
        return Layer.COMMUNICATION in self.layers or self.communication_rule.of_tasks

    def _members(self) -> GroupMembers:
        """Return groups and their members, which torch_npu notes among the metadata."""
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
            if self.device is None:  # else they may be of all devices
                step_sums_ns = read_communication_sums(self.database.path)
        except SourceError as error:
            self.warn(str(error))
        return find_communication_rule(self.database, step_sums_ns)

    def _tasks(self) -> tuple[Tasks, Int64]:
        """Device tasks without the FFTS+ parents, and their globalTaskId."""
        where = self.database.where("TASK", "deviceId", self.device)
        self.database.require("TASK", "startNs", "endNs")
        compute, codes = self._compute_tasks()
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
        stays = ~covering_parents(_unnamed_tasks(raw, row))
        parents = int(np.count_nonzero(~stays))
        self.leave_out(FFTS_REASON, parents, OmissionCode.FFTS_WHOLE, loss=False)
        if not stays.all():
            row = filter_in_place(row, stays)
            raw = {name: filter_in_place(values, stays) for name, values in raw.items()}
        tasks = replace(_unnamed_tasks(raw, row), **self._names_of(raw, codes, row))
        if self.named:
            drives = drive_communication(tasks.name, self.strings)
            tasks = replace(tasks, compute=tasks.compute & ~drives)
        if self.operators_unknown:
            tasks = self._with_compute_by_type(tasks, self.names.codes(raw["taskType"]))
        copy = map_values(raw["taskType"], lambda types: np.isin(types, copying))
        tasks = replace(tasks, copy=copy)
        if self.every_arg:
            tasks = replace(
                tasks,
                batch=raw["batchId"],
                output_shapes=values_at(codes["outputShapes"], row, NO_NAME),
                input_types=values_at(codes["inputDataTypes"], row, NO_NAME),
                blocks=compute.of(self._blocks_column(), row),
            )
        return tasks, raw["globalTaskId"]

    def _with_compute_by_type(self, tasks: Tasks, types: Codes) -> Tasks:
        """Tasks of which only their type says whether they compute."""
        compute = compute_by_type(types, self.strings)
        found = replace(
            tasks, compute=compute, op_type=np.where(compute, types, NO_NAME), task_type=types
        )
        if remark := remark_on_ai_cpu_tasks(found, self.strings, "COMPUTE_TASK_INFO"):
            self.warn(remark)
        return found

    def _has_one_device(self) -> bool:
        return self.device is not None or self.database.count("NPU_INFO") == 1

    def _compute_tasks(self) -> tuple[Lookup, dict[str, Codes]]:
        """Return what is known of the tasks that compute, and the codes of their names.

        Names are read, whatever is drawn, where only they give the types of operators.
        """
        table, names = "COMPUTE_TASK_INFO", {"name": NO_ID, "inputShapes": NO_ID}
        raw = self.database.integers(
            table,
            {"globalTaskId": NO_ID, "taskType": NO_ID, "opType": NO_ID}
            | (names if self.named else {})
            | self._if_every_arg(
                {"outputShapes": NO_ID, "inputDataTypes": NO_ID, self._blocks_column(): NO_ID}
            ),
        )
        codes = {name: self.names.codes(raw.pop(name)) for name in ("taskType", "opType")}
        if not self.named and any((column == NO_NAME).any() for column in codes.values()):
            self.named = True
            raw |= self.database.integers(table, names)
        coded = {
            "name": self.names.codes,
            "inputShapes": self.names.shapes,
            "outputShapes": self.names.shapes,
            "inputDataTypes": self.names.codes,
        }
        codes |= {name: coded[name](raw.pop(name)) for name in coded if name in raw}
        return Lookup(raw, "globalTaskId"), codes

    def _names_of(
        self, raw: dict[str, Int64], codes: dict[str, Codes], row: Rows
    ) -> dict[str, Any]:
        found = {
            "task_type": values_at(codes["taskType"], row, NO_NAME),
            "op_type": values_at(codes["opType"], row, NO_NAME),
        }
        if not self.named:
            return found
        # The row of what computes may lack a type or a name; its task has a type in any case.
        kind = self.names.codes(raw["taskType"])
        return found | {
            "task_type": _given_or(found["task_type"], kind),
            "name": _given_or(values_at(codes["name"], row, NO_NAME), kind),
            "input_shapes": values_at(codes["inputShapes"], row, NO_NAME),
        }

    def _if_every_arg(self, columns: dict[str, int]) -> dict[str, int]:
        """Columns that only `--args all` shows."""
        return columns if self.every_arg else {}

    def _blocks_column(self) -> str:
        """Return the column of block counts: blockDim until blockNum came, and not since."""
        return "blockNum" if self.database.has("COMPUTE_TASK_INFO", "blockNum") else "blockDim"

    def _communication(self, tasks: Tasks) -> dict[str, Int64]:
        """HCCL tasks as they are in the database, as far as they are drawn or needed for ops."""
        drawn = self._reads_planes
        make_ops = not self.database.count(self.ops_table)
        of_ops = make_ops or self.device is not None or bool((tasks.graph != NO_GRAPH).any())
        columns = {"globalTaskId": NO_ID} if drawn or of_ops else {}
        if of_ops:
            columns |= {"opId": NO_ID}
        if make_ops:
            columns |= {"name": NO_ID, "groupName": NO_ID}
        if drawn:
            names = ("taskType", "planeId", "groupName", "srcRank", "dstRank", "size", "linkType")
            args = ("name", "notifyId", "transportType", "dataType") if self.every_arg else ()
            columns |= dict.fromkeys((*names, *args), NO_ID)
        return self.database.integers("COMMUNICATION_TASK_INFO", columns) if columns else {}

    def _ops(
        self, tasks: Tasks, task_ids: Int64, communication: dict[str, Int64]
    ) -> CommunicationOps:
        """Communication ops; their graph and device are those of their tasks."""
        if not self.database.count(self.ops_table):
            return self._ops_of_tasks(tasks, task_ids, communication)
        self.database.require(self.ops_table, "startNs", "endNs")
        raw = self.database.integers(
            self.ops_table,
            {"startNs": NO_TIME, "endNs": NO_TIME}
            | dict.fromkeys(("opName", "connectionId", "groupName", "opId", "dataType"), NO_ID)
            | dict.fromkeys(("algType", "count", "deviceId"), NO_ID),
        )
        graph: Int64 = constant(NO_GRAPH, len(raw["opId"]), np.int64)
        owned = np.zeros(len(graph), np.bool_)
        if "opId" in communication:
            row = Lookup(communication, "globalTaskId").find(task_ids)
            found = row >= 0
            owners = Lookup(
                {"op": communication["opId"][row[found]], "graph": tasks.graph[found]}, "op"
            )
            owner = owners.find(raw["opId"])
            graph, owned = owners.of("graph", owner, NO_GRAPH), owner >= 0
        group, label = self._groups(raw["groupName"])
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
        here = np.ones(len(ops), np.bool_)
        if self.device is not None:
            here = (raw["deviceId"] == self.device) | ((raw["deviceId"] == NO_ID) & owned)
        return ops.take(here)

    def _marks(self) -> dict[str, Int64]:
        """Read the marks of mstx that lie on the device too."""
        raw = self.database.integers(
            "MSTX_EVENTS", {"startNs": NO_TIME, "connectionId": NO_ID, "message": NO_ID}
        )
        known = IDS["connection"].normalise(raw["connectionId"]) != NO_ID
        return {name: values[known] for name, values in raw.items()}

    def _ops_of_tasks(
        self, tasks: Tasks, task_ids: Int64, communication: dict[str, Int64]
    ) -> CommunicationOps:
        """Ops of databases that list none, as those of early 2024: what the tasks of each span."""
        of_hardware = Lookup({"id": task_ids}, "id").find(communication["globalTaskId"])
        at = np.flatnonzero(of_hardware >= 0)
        if not len(at):
            return CommunicationOps.empty()
        at = at[np.argsort(tasks.start_ns[of_hardware[at]], kind="stable")]
        rows = of_hardware[at]
        which = [communication[name][at] for name in ("opId", "name", "groupName")]
        ops = group_by(len(rows), [*which, tasks.graph[rows]])
        order = np.argsort(ops.first)
        first, end_ns = ops.first[order], ops.greatest(tasks.end_ns[rows])[order]
        group, label = self._groups(which[2][first])
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
            name=self.names.codes(which[1][first]),
            graph=tasks.graph[rows[first]],
            connection=tasks.connection[rows[first]],
        )

    def _groups(self, ids: Int64) -> tuple[Codes, Codes]:
        """Return groups, numbered by first op as exports to text do, and their names."""
        found, which, turn = distinct_turns(ids)
        for number in found[np.argsort(turn)].tolist():
            if number != NO_ID:
                self.group_numbers.setdefault(number, len(self.group_numbers))
        labels = self.strings.codes(
            "Group not given"
            if number == NO_ID
            else f"Group {self.group_numbers.get(number, number)}"
            for number in found.tolist()
        )
        return labels[which], self.names.codes(ids)

    def _planes(self, tasks: Tasks, task_ids: Int64, raw: dict[str, Int64]) -> PlaneTasks:
        """HCCL tasks, with the interval and ids of their hardware task."""
        group, _ = self._groups(raw["groupName"])
        of_hardware = Lookup({"id": task_ids}, "id").find(raw["globalTaskId"])
        known = of_hardware >= 0
        if self.device is None:
            reason = "HCCL tasks whose device task is not in the profile"
            self.leave_out(reason, int(np.count_nonzero(~known)), OmissionCode.NO_TASK)
        rows = take(of_hardware, known)

        def of_row(column: str) -> Any:
            return raw[column] if known.all() else take(raw[column], known)

        def of_task(column: str) -> Any:
            return take(getattr(tasks, column), rows)

        columns = {
            "start_ns": of_task("start_ns"),
            "end_ns": of_task("end_ns"),
            "group": group if known.all() else group[known],
            "plane": of_row("planeId"),
            # At the lowest level of profiling only the hardware task says what it is.
            "name": _given_or(self.names.codes(of_row("taskType")), of_task("task_type")),
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
        return PlaneTasks.of(len(rows), columns | self._bandwidth(known))

    def _bandwidth(self, known: Bool) -> dict[str, Float64]:
        table, column = "COMMUNICATION_TASK_INFO", "bandwidth"
        if not self.database.has(table, column):
            return {}
        gigabytes = self.database.floats(table, {column: -1.0})[column]
        if gigabytes.max(initial=0) > _MOST_GIGABYTES:
            gigabytes = gigabytes / 1e9
        return {column: np.where(gigabytes < 0, np.nan, gigabytes)[known]}

    def _steps(self) -> Steps:
        """ProfilerStep windows; they are host time."""
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


def _unnamed_tasks(raw: dict[str, Int64], row: Rows) -> Tasks:
    """Tasks as in their own table; those with a row among the compute tasks compute."""
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


def _given_or(codes: Codes, others: Codes) -> Codes:
    """Return the codes, and where one is of no name, that of others."""
    if (codes != NO_NAME).all():
        return codes

    def given(codes: Codes, others: Codes) -> Codes:
        return np.where(codes == NO_NAME, others, codes)

    return compute_in_chunks(np.int32, given, codes, others)


def _joined(calls: dict[str, Int64], marks: dict[str, Int64]) -> dict[str, Int64]:
    """Return what may launch: the calls of CANN, and the marks of mstx."""
    if not len(marks["startNs"]):
        return calls
    return {
        name: np.concatenate([calls[name], marks[name]]) for name in marks.keys() & calls.keys()
    }


def _launch_times(connection: Int64, calls: Lookup) -> Int64:
    """Return when the host call of each connection began."""
    return calls.of("startNs", calls.find(connection), NO_TIME)
