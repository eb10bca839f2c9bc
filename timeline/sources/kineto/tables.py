"""Typed events of PyTorch's own traces (Kineto), and tables of records built from them."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from timeline.columns.columns import Bool, Codes, ColumnTable, Int64, Rows, column
from timeline.columns.constant import constant
from timeline.columns.distinct import distinct_pairs, rows_by_value
from timeline.columns.strings import NO_NAME
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import RUNTIME, Allocations, HostEvents, Tasks
from timeline.records.task_kinds import COPY_TYPES, drive_communication, have_type
from timeline.sources.common.call_stacks import read_stacks
from timeline.sources.common.counters import CounterEvents
from timeline.sources.decoders.event_columns import ArgValues, EventRows
from timeline.sources.decoders.exported_values import Value, number
from timeline.sources.decoders.trace_events import (
    Counter,
    EventFormat,
    FlowFinish,
    FlowStart,
    FlowStep,
    Metadata,
    make_format,
)
from timeline.sources.source import ReadRequest

_COLLECTIVE = "collective_comm"
COLLECTIVES = frozenset({_COLLECTIVE, "Communication"})
"""Categories of collectives, as written by a profiler plug-in (mspti of NPUs) or by msMonitor.

msMonitor writes the events of mspti as a trace (chrome_trace_exporter.py), whose categories are
Kernel, Communication, AclAPI, NodeAPI, RuntimeAPI and Overlap.
"""
_LAUNCH_MARK = "privateuse1_runtime"
"""Category of runtime calls of other accelerators; mspti's have no length and no correlation."""


class KinetoTable(enum.IntEnum):
    """The table that the events of a category belong to."""

    KERNEL = enum.auto()
    DEVICE = enum.auto()
    """Copies, fills and waits on a stream, and collectives recorded as such."""
    RUNTIME = enum.auto()
    HOST = enum.auto()
    ANNOTATION = enum.auto()
    """Annotations of the host, repeated on the device around the kernels launched in them."""
    PROFILER = enum.auto()
    """Events about the profiler's own recording."""
    UNKNOWN = enum.auto()
    """Other categories, whose process decides if they belong to the device or the host."""


_TABLES = {
    "kernel": KinetoTable.KERNEL,
    "gpu_memcpy": KinetoTable.DEVICE,
    "memcpy": KinetoTable.DEVICE,
    "gpu_memset": KinetoTable.DEVICE,
    "memset": KinetoTable.DEVICE,
    "cuda_sync": KinetoTable.DEVICE,
    "cuda_event": KinetoTable.DEVICE,
    "musa_sync": KinetoTable.DEVICE,
    "runtime": KinetoTable.RUNTIME,
    "hpu_op": KinetoTable.RUNTIME,
    "aclapi": KinetoTable.RUNTIME,
    "nodeapi": KinetoTable.RUNTIME,
    "runtimeapi": KinetoTable.RUNTIME,
    "mtia_ccp_events": KinetoTable.KERNEL,
    **dict.fromkeys(COLLECTIVES, KinetoTable.DEVICE),
    "cpu_op": KinetoTable.HOST,
    "operator": KinetoTable.HOST,
    "user_annotation": KinetoTable.HOST,
    "python_function": KinetoTable.HOST,
    "python": KinetoTable.HOST,
    "gpu_user_annotation": KinetoTable.ANNOTATION,
    "trace": KinetoTable.PROFILER,
    "xpu_scope_profiler": KinetoTable.PROFILER,
    "overlap": KinetoTable.PROFILER,
}
_RUNTIME_SUFFIXES = ("_runtime", "_driver")
"""Ends of categories of runtime calls, which each vendor prefixes with its own name."""
_METRICS = "metrics: "
"""Prefix of a kernel's name in a second event that XPUs write with measurements of the kernel and
without its correlation (XpuptiScopeProfilerHandlers.cpp)."""
LAUNCHING = frozenset({"ac2g", "async", "async_gpu", "async_cpu_to_gpu"})
"""Categories of flows from a runtime call to its tasks; their id is the correlation of both."""


class KinetoArgs(
    msgspec.Struct,
    gc=False,
    frozen=True,
    rename={
        "device_inside": "inDevice",
        "occupancy": "est. achieved occupancy %",
        "size": "bytes",
        "collective": "Collective name",
        "elements": "In msg nelems",
        "data_type": "dtype",
        "group": "Process Group Name",
        "group_description": "Process Group Description",
        "group_ranks": "Process Group Ranks",
        "group_size": "Group size",
        "sequence": "Seq",
        "gradient": "Sequence number",
        "forward_thread": "Fwd thread id",
        "external": "External id",
        "external_small": "external id",
        "communicator": "commName",
        "stream_id": "streamId",
        "device_id": "deviceId",
        "correlation_id": "correlationId",
        "input_dims": "Input Dims",
        "input_types": "Input type",
        "call_stack": "Call stack",
    },
):
    """The args of kernels, copies, calls of the runtime, operators and collectives."""

    device: Value = None
    stream: Value = None
    correlation: Value = None
    grid: Any = None
    occupancy: Value = None
    device_inside: Value = None
    size: Value = None
    collective: Value = None
    elements: Value = None
    data_type: Value = None
    group: Value = None
    group_description: Value = None
    group_ranks: Any = None
    group_size: Value = None
    sequence: Any = None
    gradient: Value = None
    forward_thread: Value = None
    external: Value = None
    external_small: Value = None
    communicator: Value = None
    stream_id: Value = None
    device_id: Value = None
    correlation_id: Value = None
    rank: Value = None
    input_dims: Any = None
    input_types: Any = None
    call_stack: Value = None


_EMPTY = msgspec.Raw(b"")


class MemoryArgs(
    msgspec.Struct,
    gc=False,
    rename={
        "device_type": "Device Type",
        "memory_device": "Device Id",
        "allocated": "Total Allocated",
        "reserved": "Total Reserved",
        "address": "Addr",
        "changed": "Bytes",
    },
):
    """The args of memory events."""

    device_type: Value = None
    memory_device: Value = None
    allocated: Value = None
    reserved: Value = None
    address: Value = None
    changed: Value = None


class Instant(msgspec.Struct, gc=False, tag_field="ph", tag="i"):
    """An instant event: memory was allocated or freed, or the recording began or ended."""

    name: str = ""
    pid: int | str | float = 0
    tid: int | str | float = 0
    cat: str = ""
    ts: msgspec.Raw = _EMPTY
    args: MemoryArgs | None = None


_OTHER_KINDS = Instant | Counter | Metadata | FlowStart | FlowStep | FlowFinish


def kineto_format(wanted: ReadRequest) -> EventFormat:
    """Return the format of Kineto events, with large args of operators only if wanted."""
    left_out = frozenset[str]() if wanted.with_shapes else frozenset({"input_dims"})
    left_out |= frozenset[str]() if wanted.every_arg else frozenset({"input_types"})
    left_out |= frozenset[str]() if wanted.with_stacks else frozenset({"call_stack"})
    return make_format(KinetoArgs, _OTHER_KINDS, (MemoryArgs,), left_out)


def find_tables(events: EventRows) -> Int64:
    """Return the `KinetoTable` of each interval, (n,).

    An event of an unknown category that names a stream ran on a device. A collective that names
    neither stream nor device may be a library call on the host, as those of oneCCL, so its process
    decides. Runtime calls without a length or correlation are marks at the start of tasks, from
    which no launch time can be read.
    """
    table = events.by_category(np.int64, _find_table).copy()
    rows = np.flatnonzero(events.by_category(np.bool_, lambda name: name == _COLLECTIVE))
    placed = [events.at(rows).are_given(arg) for arg in ("stream", "stream_id", "device")]
    table[rows[~np.any(placed, axis=0)]] = KinetoTable.UNKNOWN
    rows = np.flatnonzero(table == KinetoTable.KERNEL)
    rows = rows[events.at(rows).by_name(np.bool_, lambda name: name.startswith(_METRICS))]
    table[rows[~events.at(rows).are_given("correlation")]] = KinetoTable.PROFILER
    unknown = np.flatnonzero(table == KinetoTable.UNKNOWN)
    if len(unknown):
        on_device = events.at(unknown).are_given("stream")
        table[unknown[on_device]] = KinetoTable.DEVICE
    calls = np.flatnonzero(events.by_category(np.bool_, lambda name: name == _LAUNCH_MARK))
    if len(calls):
        spans, marks = events.spans(calls), ~events.at(calls).are_given("correlation")
        marks &= spans["end_ns"] == spans["start_ns"]
        table[calls[marks]] = KinetoTable.PROFILER
    return table


def is_known_category(category: str) -> bool:
    """Return whether the kind of a category's events is known."""
    return _find_table(category) != KinetoTable.UNKNOWN


def _find_table(category: str) -> int:
    if category.endswith(_RUNTIME_SUFFIXES):
        return KinetoTable.RUNTIME
    return _TABLES.get(category) or _TABLES.get(category.lower()) or KinetoTable.UNKNOWN


def have_collective_args(events: EventRows) -> Bool:
    """Return which events have args that describe a collective."""
    has_op = events.are_given("collective") | events.are_given("group")
    return has_op | events.are_given("communicator")


PYTHON = "Python"
"""Layer of framework events, named like their process in traces of torch_npu."""
MEMORY = "Memory"
_NOT_A_STREAM = 4294967295
"""Stream id of a wait for all streams in older versions."""
_DEVICE_KINDS = {0: "CPU", 1: "GPU", 20: "GPU"}
"""Names of c10::DeviceType for CPU, CUDA and HIP; other types are shown by number."""
_LAYERS = {
    "cpu_op": PYTHON,
    "operator": PYTHON,
    "python_function": PYTHON,
    "python": PYTHON,
    "user_annotation": PYTHON,
}


def device_ids(events: EventRows) -> Int64:
    """Return the device of each event: from its args, else its pid, which is a device's number."""
    return events.ids(events.processes(NO_ID), "device", "device_inside", "device_id")


def build_device_tasks(events: EventRows, table: KinetoTable, *, every_arg: bool) -> Tasks:
    """Build device tasks.

    Kernels are marked as computing; copies, fills and waits are not. Kernels that communicate are
    found later, when their launches are known.
    """
    count, strings = len(events), events.strings
    stream = events.ids(events.threads(NO_ID), "stream", "stream_id")
    names, kinds = events.names(), events.categories()
    columns: dict[str, Any] = {
        "device": device_ids(events),
        "stream": np.where((stream < 0) | (stream == _NOT_A_STREAM), NO_ID, stream),
        "connection": correlation_ids(events),
        "name": names,
        "task_type": kinds,
        "compute": ~drive_communication(names, strings) & (table is KinetoTable.KERNEL),
        "copy": have_type(COPY_TYPES, kinds, strings),
    }
    if every_arg:
        rows, grids = events.given("grid")
        blocks = np.full(count, NO_ID)
        blocks[rows] = grids.of_others(_count_blocks, NO_ID)
        columns["blocks"] = blocks
        columns["occupancy"] = events.ids(NO_ID, "occupancy")
        columns["size_bytes"] = events.ids(NO_ID, "size")
    return Tasks.of(count, events.spans() | columns)


def clip_overruns(tasks: Tasks, replayed: Bool) -> tuple[Tasks, Rows]:
    """Cut tasks with impossible durations at the start of the next task on their stream.

    A stream runs one task after the other. Kernels that are launched early may overlap the one
    before them, but two whole kernels inside another mean that its duration is wrong, as ROCm's
    sometimes are. Only kernels and copies are cut, not waits.

    Args:
        tasks: (n,) all tasks.
        replayed: (n,) which tasks graphs launched; their branches may overlap on one stream.

    Returns:
        The tasks, and the rows of those that were cut.
    """
    runs = (tasks.end_ns > tasks.start_ns) & (tasks.start_ns != NO_TIME) & ~replayed
    rows = np.flatnonzero(runs & (tasks.compute | tasks.copy) & (tasks.stream != NO_ID))
    _, lane = distinct_pairs(tasks.device[rows], tasks.stream[rows])
    cut, cut_ns = [], []
    for _, lane_rows in rows_by_value(lane):
        ordered = rows[lane_rows[np.argsort(tasks.start_ns[rows[lane_rows]], kind="stable")]]
        start_ns, end_ns = tasks.start_ns[ordered], tasks.end_ns[ordered]
        earliest_ns = np.minimum.accumulate(end_ns[::-1])[::-1]
        for at in np.flatnonzero(end_ns[:-1] >= earliest_ns[1:]).tolist():
            first, last = np.searchsorted(start_ns, [start_ns[at] + 1, end_ns[at]])
            whole = (end_ns[first:last] <= end_ns[at]) & tasks.compute[ordered[first:last]]
            if np.count_nonzero(whole) >= 2:
                cut.append(ordered[at])
                cut_ns.append(start_ns[first])
    if not cut:
        return tasks, np.empty(0, np.intp)
    every_end_ns = tasks.end_ns.copy()
    every_end_ns[cut] = cut_ns
    return replace(tasks, end_ns=every_end_ns), np.array(cut, np.intp)


def _count_blocks(grid: object) -> int:
    """Return the number of thread blocks in a grid of three dimensions, NO_ID if it is not one."""
    if not isinstance(grid, list) or len(grid) != 3:
        return NO_ID
    x, y, z = (value if type(value) is int and value >= 0 else NO_ID for value in grid)
    return number(x * y * z, NO_ID) if min(x, y, z) >= 0 else NO_ID


def correlations(ids: Int64) -> Int64:
    """Replace ids below 1 by NO_ID, as PyTorch counts from 1."""
    return np.where(ids > 0, ids, NO_ID)


def correlation_ids(events: EventRows) -> Int64:
    """Return the correlation id of each event, NO_ID for none."""
    return correlations(events.ids(NO_ID, "correlation", "correlation_id"))


def external_ids(events: EventRows) -> Int64:
    """Return the External id of each event, that of an operator or a call, NO_ID for none."""
    return correlations(events.ids(NO_ID, "external", "external_small"))


def build_host_events(events: EventRows, table: KinetoTable, wanted: ReadRequest) -> HostEvents:
    """Build host events: of one layer for runtime calls, else of a layer by category."""
    count, strings = len(events), events.strings
    is_runtime = table is KinetoTable.RUNTIME
    layers = (
        constant(strings.code(RUNTIME), count, np.int32)
        if is_runtime
        else events.by_category(np.int64, lambda name: strings.code(_choose_layer(name))).astype(
            np.int32
        )
    )
    return HostEvents.of(
        count,
        events.spans()
        | events.lanes()
        | {
            "layer": layers,
            "name": events.names(),
            "connection": correlation_ids(events)
            if is_runtime
            else constant(NO_ID, count, np.int64),
        }
        | ({"level": events.categories()} if wanted.every_arg or wanted.operators else {})
        | ({} if is_runtime else _read_operator_columns(events, wanted)),
    )


def _read_operator_columns(events: EventRows, wanted: ReadRequest) -> dict[str, Any]:
    """Return the columns that only operators of the framework have, as far as they are wanted."""
    columns: dict[str, Any] = {}
    if wanted.with_shapes:
        columns["shapes"] = _read_inputs(events)
    if wanted.every_arg:
        columns["input_types"] = _read_inputs(events, "input_types")
        number = events.ids(NO_ID, "gradient")
        columns["sequence"] = np.where(number < 0, NO_ID, number)
    if wanted.with_stacks:
        columns["stack"] = read_stacks(events)
    return columns


def _read_inputs(events: EventRows, arg: str = "input_dims") -> Codes:
    """Return input shapes or types in the format of device tasks: `32,3;10`."""
    rows, dims = events.given(arg)
    if not len(rows):
        return constant(NO_NAME, len(events), np.int32)
    inputs = np.full(len(events), NO_NAME, np.int32)
    codes = dims.of_others(lambda value: events.strings.code(_format_shapes(value)), NO_NAME)
    inputs[rows] = codes.astype(np.int32)
    return inputs


def _format_shapes(dims: object) -> str:
    """Format shapes, with brackets around lists of tensors.

    >>> _format_shapes([[32, 3], [], [[4], [5, 6]]])
    '32,3;;[4;5,6]'
    """
    if not isinstance(dims, list):
        return ""
    return ";".join(map(_format_shape, dims))


def _format_shape(shape: object) -> str:
    if not isinstance(shape, list):
        return str(shape)
    if any(isinstance(size, list) for size in shape):
        return f"[{_format_shapes(shape)}]"
    return ",".join(map(str, shape))


def _choose_layer(category: str) -> str:
    """Return the layer of a host category; an unknown category is a layer of its own."""
    return _LAYERS.get(category) or _LAYERS.get(category.lower()) or category or PYTHON


def memory_counters(events: EventRows) -> Iterator[CounterEvents]:
    """Yield memory counters by device; omit events that lack one of both totals."""
    allocated_at, allocated = _read_numbers(events, "allocated")
    reserved_at, reserved = _read_numbers(events, "reserved")
    # A counter of only one series would be shown under the name of the device.
    rows, first, second = np.intersect1d(allocated_at, reserved_at, return_indices=True)
    allocated, reserved = allocated[first], reserved[second]
    kind = np.stack([allocated.kind, reserved.kind], axis=1)
    value = np.stack([allocated.value, reserved.value], axis=1)
    time_ns = events.spans(rows)["start_ns"]
    devices, device_of_row = distinct_pairs(
        events.ids(0, "device_type")[rows], events.ids(NO_ID, "memory_device")[rows]
    )
    by_first_row = sorted(rows_by_value(device_of_row), key=lambda item: int(item[1][0]))
    for place, device_rows in by_first_row:
        device_type, device = devices[place].tolist()
        name = _DEVICE_KINDS.get(device_type, f"Device type {device_type}")
        yield CounterEvents(
            MEMORY,
            name if device < 0 else f"{name} {device}",
            ("Allocated(bytes)", "Reserved(bytes)"),
            time_ns[device_rows],
            ArgValues(
                kind[device_rows].reshape(-1), value[device_rows].reshape(-1), events.events.values
            ),
        )


def most_reserved(events: EventRows) -> int:
    """Return the highest reserved memory on a device in bytes, NO_ID if memory events name none."""
    on_device = events.at(np.flatnonzero(events.ids(NO_ID, "memory_device") >= 0))
    _, values = on_device.given("reserved")
    return int(values.ids(NO_ID).max(initial=NO_ID))


class MemoryChanges(ColumnTable):
    """Allocations and releases of device memory."""

    time_ns: Int64 = column(np.int64)
    device: Int64 = column(np.int64)
    address: Int64 = column(np.int64)
    """NO_ID if the event names none."""
    size_bytes: Int64 = column(np.int64)
    """Negative for a release."""

    @classmethod
    def among(cls, events: EventRows) -> MemoryChanges:
        """Read changes from memory events that name a device and a size."""
        rows = np.flatnonzero(
            (events.ids(NO_ID, "memory_device") != NO_ID) & events.are_given("changed")
        )
        changed, values = events.at(rows).given("changed")
        changes = events.at(rows[changed])
        return cls(
            changes.spans()["start_ns"],
            changes.ids(NO_ID, "memory_device"),
            changes.ids(NO_ID, "address"),
            values.ids(0),
        )

    def allocations(self) -> Allocations:
        """Return each allocation, which ends when its address is released, NO_TIME if never."""
        order = np.lexsort((self.time_ns, self.address, self.device))
        ordered = self.take(order)
        same = (ordered.address[1:] == ordered.address[:-1]) & (
            ordered.device[1:] == ordered.device[:-1]
        )
        same &= ordered.address[1:] != NO_ID
        is_released = same & (ordered.size_bytes[1:] == -ordered.size_bytes[:-1])
        released_ns = np.full(len(ordered), NO_TIME)
        released_ns[:-1][is_released] = ordered.time_ns[1:][is_released]
        taken = np.flatnonzero(ordered.size_bytes > 0)
        return Allocations.of(
            len(taken),
            {
                "start_ns": ordered.time_ns[taken],
                "end_ns": released_ns[taken],
                "size_bytes": ordered.size_bytes[taken],
            },
        )


def _read_numbers(events: EventRows, arg: str) -> tuple[Rows, ArgValues]:
    """Return the rows in which an arg is a number, and its values there."""
    rows, values = events.given(arg)
    numbers, _ = values.reals()
    return rows[numbers], values[numbers]
