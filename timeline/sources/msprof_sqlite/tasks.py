"""Device tasks and host calls from databases of msprof."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from timeline.columns.columns import Bool, Codes, Int64
from timeline.columns.distinct import map_values
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.joining import IDS
from timeline.records.kernel_metrics import KernelMetrics, is_metric
from timeline.records.not_given import NO_CONTEXT, NO_ID, NO_TIME
from timeline.records.tables import HostEvents, Tasks
from timeline.records.task_kinds import COPY_TYPES, compute_by_type, drive_communication, have_type
from timeline.sources.common.decimals import whole_number
from timeline.sources.common.device_clock import DeviceClocks
from timeline.sources.decoders.joins import Lookup, common_keys
from timeline.sources.msprof_sqlite.databases import LooseTable, ParsedDatabases

_IDS = ("stream_id", "task_id", "batch_id", "context_id")
_TASK_COLUMNS = {
    **dict(zip(("stream", "task", "batch", "context"), _IDS, strict=True)),
    "graph": "model_id",
    "connection": "connection_id",
}
_FIRST_QUEUE_TYPES = (
    "AI_CORE",
    "AI_CPU",
    "AIV_SQE",
    "PLACE_HOLDER_SQE",
    "EVENT_RECORD_SQE",
    "EVENT_WAIT_SQE",
    "NOTIFY_RECORD_SQE",
    "NOTIFY_WAIT_SQE",
    "WRITE_VALUE_SQE",
)
"""Types of hardware queue entries by number, up to 8; from 9 on they differ between chips."""
_STRING_COLUMNS = {
    "op_name": "name",
    "task_type": "task_type",
    "op_type": "op_type",
    "input_shapes": "input_shapes",
    "output_shapes": "output_shapes",
    "input_data_types": "input_types",
}
"""Columns of `Tasks` by columns of TaskInfo."""

_COMMUNICATION_KINDS = frozenset({"HCCL", "COMMUNICATION"})


@dataclass(frozen=True)
class DeviceTasks:
    """Tasks that the device recorded, and the type that the device gave each.

    never_ran: number of tasks that the host launched but the device never recorded.
    """

    tasks: Tasks
    device_type: Codes
    never_ran: int


def read_device_tasks(table: LooseTable, device: int, strings: StringPool) -> DeviceTasks:
    """Read table AscendTask, which has one row per task and per sub-task of an FFTS+ task.

    The last row of a database page that was overwritten with zeros may keep some of its numbers.
    Its types, which follow its times in the page, then hold zero bytes; its times are dropped.
    """
    tasks = table.read(Tasks, _TASK_COLUMNS, start_ns=-1, end_ns=-1, name=NO_NAME)
    times_ns = table.intervals("start_time", "duration")
    types = table.codes(("host_task_type", "device_task_type"), strings)
    overwritten = strings.codes_where("\0" in string for string in strings)
    is_intact = ~np.any([np.isin(codes, overwritten) for codes in types.values()], axis=0)
    start_ns, end_ns = (np.where(is_intact, values_ns, NO_TIME) for values_ns in times_ns)
    unknown = strings.find("UNKNOWN")
    has_run = ~(
        (start_ns == -1) | (types["device_task_type"] == (-1 if unknown is None else unknown))
    )
    device_type = _name_device_types(types["device_task_type"], strings)
    kind = _choose_types(types["host_task_type"], device_type, strings)
    tasks = replace(
        tasks,
        start_ns=start_ns,
        end_ns=end_ns,
        device=np.full(len(tasks), device),
        name=kind,
        task_type=kind,
        copy=have_type(COPY_TYPES, kind, strings),
    )
    return DeviceTasks(tasks.take(has_run), device_type[has_run], int(np.count_nonzero(~has_run)))


def _name_device_types(codes: Codes, strings: StringPool) -> Codes:
    """Replace types that the device gave as numbers by their names."""
    names = dict(enumerate(_FIRST_QUEUE_TYPES))

    def name_distinct(distinct_codes: Codes) -> Codes:
        numbers = ((code, whole_number(strings[code])) for code in distinct_codes.tolist())
        named = (
            code if number is None else strings.code(names.get(number, f"Task type {number}"))
            for code, number in numbers
        )
        return np.fromiter(named, np.int32)

    return map_values(codes, name_distinct)


def _choose_types(host: Codes, device: Codes, strings: StringPool) -> Codes:
    """Return the type of each task: the host's if that is specific, else the device's."""
    vague = [
        code for name in ("FFTS_PLUS", "UNKNOWN", "") if (code := strings.find(name)) is not None
    ]
    return np.where(np.isin(host, np.array(vague, np.int32)), device, host)


def build_task_keys(tasks: Tasks, ids: dict[str, Int64], table: LooseTable) -> tuple[Int64, Int64]:
    """Return keys of tasks, and of rows of a table that refers to tasks, from ids that both have.

    ids: the ids in the rows of the table, by column.
    """
    task_ids = dict(zip(_IDS, (tasks.stream, tasks.task, tasks.batch, tasks.context), strict=True))
    shared = [name for name in _IDS if table.has(name)]
    return common_keys([task_ids[name] for name in shared], [ids[name] for name in shared])


def read_task_ids(table: LooseTable) -> dict[str, Int64]:
    """Read the ids of tasks to which the rows of a table refer."""
    return table.integers(dict.fromkeys(_IDS, NO_ID) | {"context_id": NO_CONTEXT})


def describe_tasks(
    recorded: DeviceTasks,
    operators: LooseTable,
    launched: LooseTable,
    strings: StringPool,
    *,
    named: bool,
    every_arg: bool,
) -> Tasks:
    """Add names, types and shapes of the operators that tasks ran, and which tasks compute.

    A task computes if it ran an operator other than communication. Without a table of operators
    its type decides, which does not show what AI CPUs ran.

    Args:
        recorded: the tasks.
        operators: ge_info.db TaskInfo, the operators of this device.
        launched: runtime.db HostTask, which in new versions also names kernels that belong to no
            operator.
        strings: the pool of the tasks' names.
        named: whether shapes and types of operators are wanted.
        every_arg: whether args are wanted that only `--args all` shows.
    """
    tasks = recorded.tasks
    if not len(operators) or not operators.has("stream_id", "task_id"):
        by_type = [
            compute_by_type(types, strings) for types in (tasks.task_type, recorded.device_type)
        ]
        tasks = replace(tasks, compute=by_type[0] | by_type[1])
        return _use_type_as_op_type(_name_by_kernel(tasks, launched, strings))
    named_operators = _Operators(operators, strings, named=named, every_arg=every_arg)
    key, operator_key = build_task_keys(tasks, named_operators.ids, operators)
    row = Lookup({"key": operator_key}, "key").find(key)
    has, at = row >= 0, np.maximum(row, 0)

    columns = {}
    for column, name in _STRING_COLUMNS.items():
        if column in named_operators.codes:
            codes = named_operators.codes[column][at]
            columns[name] = np.where(has & (codes != NO_NAME), codes, getattr(tasks, name))
    return replace(
        tasks,
        blocks=np.where(has, named_operators.blocks[at], NO_ID),
        compute=has & named_operators.computes[at],
        **columns,
    )


def with_metrics(
    tasks: Tasks, table: LooseTable, *, every_arg: bool
) -> tuple[Tasks, KernelMetrics]:
    """Give tasks their row among the kernels that the counters of the cores measured.

    Args:
        table: ai_core_metrics or MetricSummary, a row per kernel.
        every_arg: whether all metrics are wanted, or only those that say what bounds a kernel.
    """
    columns = [name for name in table.columns if is_metric(name, every=every_arg)]
    if not columns or not table.has("stream_id", "task_id"):
        return tasks, KernelMetrics()
    metrics = KernelMetrics(table.reals(columns)).measured()
    ids = table.integers({**dict.fromkeys(_IDS[:3], NO_ID), "subtask_id": NO_CONTEXT})
    ids["subtask_id"] = IDS["context"].normalise(ids["subtask_id"])
    of_tasks = [tasks.stream, tasks.task, tasks.batch, tasks.context]
    key, of_kernel = common_keys(of_tasks, [*ids.values()])
    row = Lookup({"key": of_kernel}, "key").find(key)
    return replace(tasks, metrics=row.astype(np.int64)), metrics


class _Operators:
    """The rows of TaskInfo."""

    def __init__(
        self, table: LooseTable, strings: StringPool, *, named: bool, every_arg: bool
    ) -> None:
        self._strings = strings
        self.ids = read_task_ids(table)
        # block_dim held the number of blocks before column block_num existed.
        column = "block_num" if table.has("block_num") else "block_dim"
        self.blocks = table.integers({column: NO_ID})[column]
        columns = ["op_name", "op_type", "task_type"]
        columns += ["input_shapes"] if named else []
        columns += ["output_shapes", "input_data_types"] if named and every_arg else []
        self.codes = table.codes(columns, strings)
        for name in (column for column in columns if column.endswith("_shapes")):
            self.codes[name] = _strip_quotes(self.codes[name], strings)

    @cached_property
    def computes(self) -> Bool:
        """Mask of operators that are neither communication nor kernels that launch it."""
        is_communication = have_type(_COMMUNICATION_KINDS, self.codes["task_type"], self._strings)
        return ~(is_communication | drive_communication(self.codes["op_name"], self._strings))


def _strip_quotes(codes: Codes, strings: StringPool) -> Codes:
    """Strip the quotes that msprof stores around shapes because its CSV export needs them."""
    return map_values(
        codes, lambda values: strings.codes([strings[code].strip('"') for code in values.tolist()])
    )


def _name_by_kernel(tasks: Tasks, launched: LooseTable, strings: StringPool) -> Tasks:
    """Rename computing tasks to the kernels that the runtime launched, if it recorded them."""
    if not launched.has("kernel_name", "stream_id", "task_id"):
        return tasks
    ids = read_task_ids(launched)
    names = launched.codes(("kernel_name",), strings)["kernel_name"]
    key, kernel_key = build_task_keys(tasks, ids, launched)
    row = Lookup({"key": kernel_key}, "key").find(key)
    name = names[np.maximum(row, 0)] if len(names) else tasks.name
    is_named = (row >= 0) & (name != NO_NAME) & tasks.compute
    return replace(tasks, name=np.where(is_named, name, tasks.name))


def _use_type_as_op_type(tasks: Tasks) -> Tasks:
    """Use the task type (its execution unit) as operator type of computing tasks without a name."""
    unnamed = tasks.compute & (tasks.name == tasks.task_type)
    return replace(tasks, op_type=np.where(unnamed, tasks.task_type, tasks.op_type))


_NAME_COLUMNS = {"acl": "id", "hccl": "item_id", "communication": "item_id"}
"""Columns with the names of calls, by level; at other levels it is struct_type."""


def read_calls(
    databases: ParsedDatabases, clock: DeviceClocks, strings: StringPool, *, whole: bool
) -> HostEvents:
    """Read the calls of CANN.

    whole: whether all columns are wanted, or only starts and connections.
    """
    table = databases.host_table("api_event.db", "ApiData")
    columns = {"start_ns": "start", "end_ns": "end" if whole else "start"}
    columns["connection"] = "connection_id"
    columns |= {"thread": "thread_id", "level": "level"} if whole else {}
    absent = {"process": clock.process} if whole else {"thread": NO_ID}
    calls = table.read(
        HostEvents, columns, strings, layer=strings.code("CANN"), name=NO_NAME, **absent
    )
    if whole:
        codes = table.codes(("struct_type", "id", "level", "item_id"), strings)
        calls = replace(calls, name=_choose_call_names(codes, strings))
    start_ns, end_ns = clock.host_times_ns(calls.start_ns), clock.host_times_ns(calls.end_ns)
    return replace(calls, start_ns=start_ns, end_ns=end_ns)


def _choose_call_names(columns: dict[str, Codes], strings: StringPool) -> Codes:
    """Return the names of calls as msprof shows them."""
    name = columns["struct_type"]
    for level, column in _NAME_COLUMNS.items():
        is_named = (columns["level"] == strings.code(level)) & (columns[column] != NO_NAME)
        name = np.where(is_named, columns[column], name)
    return name


def read_marks(databases: ParsedDatabases, clock: DeviceClocks, strings: StringPool) -> HostEvents:
    """Read ranges and marks of mstx from its older and its newer table."""
    tables = [databases.host_table("msproftx.db", name) for name in ("MsprofTx", "MsprofTxEx")]
    return HostEvents.concat([_read_mark_table(table, clock, strings) for table in tables])


def _read_mark_table(table: LooseTable, clock: DeviceClocks, strings: StringPool) -> HostEvents:
    columns = {"start_ns": "start_time", "end_ns": "end_time", "process": "pid", "thread": "tid"}
    columns |= {"name": "message", "level": "event_type"}
    marks = table.read(HostEvents, columns, strings, layer=strings.code("MSTX"))
    start_ns, end_ns = clock.host_times_ns(marks.start_ns), clock.host_times_ns(marks.end_ns)
    # Some versions write 0 as the end of a mark.
    is_instant = (marks.end_ns == 0) & (start_ns != NO_TIME)
    return replace(marks, start_ns=start_ns, end_ns=np.where(is_instant, start_ns, end_ns))
