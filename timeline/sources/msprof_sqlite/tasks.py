"""Device tasks and host calls from msprof's tables, and arrows between them."""

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
from timeline.records.tables import CommunicationOps, Flows, HostEvents, Tasks
from timeline.records.task_kinds import COPY_TYPES, compute_by_type, drive_communication, have_type
from timeline.sources.common.decimals import whole_number
from timeline.sources.common.device_clock import DeviceClocks
from timeline.sources.common.flow_events import ArrowTargets
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
"""Types of queue entries, whatever the chip, by their number; from 9 on chips differ."""
_TEXTS = {
    "op_name": "name",
    "task_type": "task_type",
    "op_type": "op_type",
    "input_shapes": "input_shapes",
    "output_shapes": "output_shapes",
    "input_data_types": "input_types",
}
"""Columns of TaskInfo by what tasks call them."""
_SHAPES = frozenset({"input_shapes", "output_shapes"})
_COMMUNICATION_KINDS = frozenset({"HCCL", "COMMUNICATION"})


@dataclass(frozen=True)
class DeviceTasks:
    """Tasks as the device and the runtime know them, and the type that the device gave each.

    never_ran: tasks that the host launched and of which the device recorded nothing.
    """

    tasks: Tasks
    device_type: Codes
    never_ran: int


def read_device_tasks(table: LooseTable, device: int, strings: StringPool) -> DeviceTasks:
    """Read AscendTask: one row per task, and per sub-task of an FFTS+ task.

    Where a page was overwritten with zeros, its last row may keep some of its numbers. Its types,
    which lie behind its times, then hold zeros too, and its times are not believed.
    """
    tasks = table.read(Tasks, _TASK_COLUMNS, start_ns=-1, end_ns=-1, name=NO_NAME)
    times_ns = table.intervals("start_time", "duration")
    types = table.texts(("host_task_type", "device_task_type"), strings)
    overwritten = strings.codes_where("\0" in text for text in strings)
    whole = ~np.any([np.isin(codes, overwritten) for codes in types.values()], axis=0)
    start_ns, end_ns = (np.where(whole, moments_ns, NO_TIME) for moments_ns in times_ns)
    unknown = strings.find("UNKNOWN")
    ran = ~((start_ns == -1) | (types["device_task_type"] == (-1 if unknown is None else unknown)))
    device_type = _device_types(types["device_task_type"], strings)
    kind = _kinds(types["host_task_type"], device_type, strings)
    tasks = replace(
        tasks,
        start_ns=start_ns,
        end_ns=end_ns,
        device=np.full(len(tasks), device),
        name=kind,
        task_type=kind,
        copy=have_type(COPY_TYPES, kind, strings),
    )
    return DeviceTasks(tasks.take(ran), device_type[ran], int(np.count_nonzero(~ran)))


def _device_types(codes: Codes, strings: StringPool) -> Codes:
    """Types that the device gave as numbers, by name."""
    names = dict(enumerate(_FIRST_QUEUE_TYPES))

    def named(some: Codes) -> Codes:
        numbers = ((code, whole_number(strings[code])) for code in some.tolist())
        meant = (
            code if number is None else strings.code(names.get(number, f"Task type {number}"))
            for code, number in numbers
        )
        return np.fromiter(meant, np.int32)

    return map_values(codes, named)


def _kinds(host: Codes, device: Codes, strings: StringPool) -> Codes:
    """Return the type of a task as the host has it, else as the device has it."""
    vague = [
        code for name in ("FFTS_PLUS", "UNKNOWN", "") if (code := strings.find(name)) is not None
    ]
    return np.where(np.isin(host, np.array(vague, np.int32)), device, host)


def build_task_keys(tasks: Tasks, ids: dict[str, Int64], table: LooseTable) -> tuple[Int64, Int64]:
    """Keys of tasks, and of the rows of a table that names them, by the ids that both hold."""
    of_tasks = dict(zip(_IDS, (tasks.stream, tasks.task, tasks.batch, tasks.context), strict=True))
    shared = [name for name in _IDS if table.has(name)]
    return common_keys([of_tasks[name] for name in shared], [ids[name] for name in shared])


def read_task_ids(table: LooseTable) -> dict[str, Int64]:
    """Return the ids of the tasks that the rows of a table name."""
    return table.integers(dict.fromkeys(_IDS, NO_ID) | {"context_id": NO_CONTEXT})


def describe_tasks(
    found: DeviceTasks,
    operators: LooseTable,
    launched: LooseTable,
    strings: StringPool,
    *,
    named: bool,
    every_arg: bool,
) -> Tasks:
    """Give tasks the operators that they ran.

    Args:
        found: the tasks.
        operators: ge_info.db TaskInfo, the operators of this device.
        launched: runtime.db HostTask, which in new versions knows the names of kernels that belong
            to no operator.
        strings: the pool of the tasks' names.
        named: whether more is wanted of operators than which of them compute.
        every_arg: whether args are wanted that only `--args all` shows.

    A task computes if it ran an operator; without any operators, by the type of the task, which
    leaves open what AI CPUs ran.
    """
    tasks = found.tasks
    if not len(operators) or not operators.has("stream_id", "task_id"):
        by_type = [
            compute_by_type(types, strings) for types in (tasks.task_type, found.device_type)
        ]
        tasks = replace(tasks, compute=by_type[0] | by_type[1])
        return _with_unit_as_op_type(_with_kernel_names(tasks, launched, strings))
    named_operators = _Operators(operators, strings, named=named, every_arg=every_arg)
    key, of_operator = build_task_keys(tasks, named_operators.ids, operators)
    row = Lookup({"key": of_operator}, "key").find(key)
    has, at = row >= 0, np.maximum(row, 0)

    found_texts = {}
    for column, name in _TEXTS.items():
        if column in named_operators.texts:
            values = named_operators.texts[column][at]
            found_texts[name] = np.where(has & (values != NO_NAME), values, getattr(tasks, name))
    return replace(
        tasks,
        blocks=np.where(has, named_operators.blocks[at], NO_ID),
        compute=has & named_operators.computes[at],
        **found_texts,
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
    ids["subtask_id"] = IDS["context"].given(ids["subtask_id"])
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
        # block_dim was the number of blocks before block_num came, and means something else since.
        column = "block_num" if table.has("block_num") else "block_dim"
        self.blocks = table.integers({column: NO_ID})[column]
        columns = ["op_name", "op_type", "task_type"]
        columns += ["input_shapes"] if named else []
        columns += ["output_shapes", "input_data_types"] if named and every_arg else []
        self.texts = table.texts(columns, strings)
        for name in filter(_SHAPES.__contains__, columns):
            self.texts[name] = _strip_quotes(self.texts[name], strings)

    @cached_property
    def computes(self) -> Bool:
        """Mask of operators that are neither communication nor kernels that drive it."""
        of_communication = have_type(_COMMUNICATION_KINDS, self.texts["task_type"], self._strings)
        return ~(of_communication | drive_communication(self.texts["op_name"], self._strings))


def _strip_quotes(codes: Codes, strings: StringPool) -> Codes:
    """Text without the quotes around it, which are those of the table that msprof would write."""
    return map_values(
        codes, lambda texts: strings.codes([strings[code].strip('"') for code in texts.tolist()])
    )


def _with_kernel_names(tasks: Tasks, launched: LooseTable, strings: StringPool) -> Tasks:
    """Name computing tasks by the kernel that the runtime launched."""
    if not launched.has("kernel_name", "stream_id", "task_id"):
        return tasks
    ids = read_task_ids(launched)
    names = launched.texts(("kernel_name",), strings)["kernel_name"]
    key, of_kernel = build_task_keys(tasks, ids, launched)
    row = Lookup({"key": of_kernel}, "key").find(key)
    name = names[np.maximum(row, 0)] if len(names) else tasks.name
    known = (row >= 0) & (name != NO_NAME) & tasks.compute
    return replace(tasks, name=np.where(known, name, tasks.name))


def _with_unit_as_op_type(tasks: Tasks) -> Tasks:
    """Tasks that nothing else is known of have the type of their unit as that of their operator."""
    unnamed = tasks.compute & (tasks.name == tasks.task_type)
    return replace(tasks, op_type=np.where(unnamed, tasks.task_type, tasks.op_type))


_NAMED_BY_ID = ("acl",)
_NAMED_BY_ITEM = ("hccl", "communication")
"""Levels whose calls are distinguished by another column than the type of the call."""


def read_calls(
    databases: ParsedDatabases, clock: DeviceClocks, strings: StringPool, *, whole: bool
) -> HostEvents:
    """Read the calls of CANN; only when they began and what they launched, unless whole."""
    table = databases.host_table("api_event.db", "ApiData")
    columns = {"start_ns": "start", "end_ns": "end" if whole else "start"}
    columns["connection"] = "connection_id"
    columns |= {"thread": "thread_id", "level": "level"} if whole else {}
    absent = {"process": clock.process} if whole else {"thread": NO_ID}
    calls = table.read(
        HostEvents, columns, strings, layer=strings.code("CANN"), name=NO_NAME, **absent
    )
    if whole:
        texts = table.texts(("struct_type", "id", "level", "item_id"), strings)
        calls = replace(calls, name=_call_names(texts, strings))
    start_ns, end_ns = clock.host_times_ns(calls.start_ns), clock.host_times_ns(calls.end_ns)
    return replace(calls, start_ns=start_ns, end_ns=end_ns)


def _call_names(texts: dict[str, Codes], strings: StringPool) -> Codes:
    """Return the name msprof gives a call: its id, item or type, depending on the level."""
    name = texts["struct_type"]
    for levels, column in ((_NAMED_BY_ID, "id"), (_NAMED_BY_ITEM, "item_id")):
        codes = [code for level in levels if (code := strings.find(level)) is not None]
        here = np.isin(texts["level"], np.array(codes, np.int32)) & (texts[column] != NO_NAME)
        name = np.where(here, texts[column], name)
    return name


def read_marks(databases: ParsedDatabases, clock: DeviceClocks, strings: StringPool) -> HostEvents:
    """Read the ranges and marks of mstx, of the older and the newer kind."""
    tables = [databases.host_table("msproftx.db", name) for name in ("MsprofTx", "MsprofTxEx")]
    return HostEvents.concat([_marks(table, clock, strings) for table in tables])


def _marks(table: LooseTable, clock: DeviceClocks, strings: StringPool) -> HostEvents:
    columns = {"start_ns": "start_time", "end_ns": "end_time", "process": "pid", "thread": "tid"}
    columns |= {"name": "message", "level": "event_type"}
    marks = table.read(HostEvents, columns, strings, layer=strings.code("MSTX"))
    start_ns, end_ns = clock.host_times_ns(marks.start_ns), clock.host_times_ns(marks.end_ns)
    # A mark has no end of its own in some versions.
    is_moment = (marks.end_ns == 0) & (start_ns != NO_TIME)
    return replace(marks, start_ns=start_ns, end_ns=np.where(is_moment, start_ns, end_ns))


def launch_arrows(
    host: HostEvents, tasks: Tasks, ops: CommunicationOps, strings: StringPool
) -> Flows:
    """Arrows from each call of CANN to the tasks and ops of its connection."""
    rows = np.flatnonzero(host.layer == strings.code("CANN"))
    device = ArrowTargets(strings, tasks, ops)
    return Flows.concat(device.arrows("HostToDevice", host.connection[rows], rows))
