"""The events of PyTorch's own traces (Kineto) as typed values, and the table that each belongs to.

What an event is tells its category, whatever the threads and processes of the file are called.
The spelling is that of libkineto's output_json.cpp; the oldest files capitalise categories and
call some of them otherwise.
"""

from __future__ import annotations

import enum
from typing import Any

import msgspec
import numpy as np

from timeline.columns.columns import Bool, Int64
from timeline.sources.decoders.event_format import EventFormat
from timeline.sources.decoders.event_rows import EventRows
from timeline.sources.decoders.exported_values import Value
from timeline.sources.decoders.trace_events import (
    Complete,
    Counter,
    FlowFinish,
    FlowStart,
    FlowStep,
    Metadata,
)
from timeline.sources.source import ReadRequest

_COLLECTIVE = "collective_comm"
COLLECTIVES = frozenset({_COLLECTIVE, "Communication"})
"""Categories of collectives that a profiler plug-in (mspti of NPUs) or msMonitor records as such.

msMonitor writes the events of mspti as a trace (chrome_trace_exporter.py), whose categories are
Kernel, Communication, AclAPI, NodeAPI, RuntimeAPI and Overlap.
"""
_LAUNCH_MARK = "privateuse1_runtime"
"""Category of the calls of other accelerators; those of mspti have no length and no correlation."""


class KinetoTable(enum.IntEnum):
    """The table that the events of a category belong to."""

    KERNEL = enum.auto()
    DEVICE = enum.auto()
    """Copies, fills and waits on a stream."""
    RUNTIME = enum.auto()
    HOST = enum.auto()
    ANNOTATION = enum.auto()
    """What the host annotated, repeated around the kernels that it launched."""
    PROFILER = enum.auto()
    """What the profiler says of its own recording."""
    UNKNOWN = enum.auto()
    """Categories that are in no list: on the device or the host, as their process tells."""


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
_OF_RUNTIME = ("_runtime", "_driver")
"""How categories of calls of a runtime end, which every vendor names after itself."""
_METRICS = "metrics: "
"""What XPUs write before the name of a kernel, a second time and without its correlation, beside
what they measured of it (XpuptiScopeProfilerHandlers.cpp)."""
LAUNCHING = frozenset({"ac2g", "async", "async_gpu", "async_cpu_to_gpu"})
"""Flows from a call of the runtime to what it launched; their id is the correlation of both."""


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


_EMPTY = msgspec.Raw(b"")


class KinetoComplete(Complete, gc=False, tag_field="ph", tag="X"):
    """An interval on a thread of the host or a stream of a device."""

    args: KinetoArgs | None = None


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
    """The args of events of memory."""

    device_type: Value = None
    memory_device: Value = None
    allocated: Value = None
    reserved: Value = None
    address: Value = None
    changed: Value = None


class Instant(msgspec.Struct, gc=False, tag_field="ph", tag="i"):
    """A moment: memory was taken or given back, or the recording began or ended."""

    name: str = ""
    pid: int | str | float = 0
    tid: int | str | float = 0
    cat: str = ""
    ts: msgspec.Raw = _EMPTY
    args: MemoryArgs | None = None


KinetoEvent = KinetoComplete | Instant | Counter | Metadata | FlowStart | FlowStep | FlowFinish

KINETO: EventFormat[KinetoEvent] = EventFormat(KinetoEvent, (KinetoArgs, MemoryArgs))


class ShapedArgs(KinetoArgs, gc=False, frozen=True, rename={"input_dims": "Input Dims"}):
    """The same, and the shapes of the inputs of an operator."""

    input_dims: Any = None


class ShapedComplete(Complete, gc=False, tag_field="ph", tag="X"):
    """An interval whose shapes are read."""

    args: ShapedArgs | None = None


ShapedEvent = ShapedComplete | Instant | Counter | Metadata | FlowStart | FlowStep | FlowFinish
SHAPED: EventFormat[ShapedEvent] = EventFormat(ShapedEvent, (ShapedArgs, MemoryArgs))


def format_for(wanted: ReadRequest) -> EventFormat[Any]:
    """The format that decodes what is wanted: shapes are many texts, which few ask for."""
    return SHAPED if wanted.shapes else KINETO


def tables_of(events: EventRows) -> Int64:
    """The `KinetoTable` of each interval, (n,).

    What names a stream ran on a device, whatever its category; a collective that names none is the
    call of a library where its process is one of the host, as those of oneCCL are. Calls without
    a length or a correlation stand at the start of what they launched, and are marks that tell no
    launch.
    """
    table = events.by_category(np.int64, _table_of_category).copy()
    rows = np.flatnonzero(events.by_category(np.bool_, lambda one: one == _COLLECTIVE))
    placed = [events.at(rows).are_given(arg) for arg in ("stream", "stream_id", "device")]
    table[rows[~np.any(placed, axis=0)]] = KinetoTable.UNKNOWN
    rows = np.flatnonzero(table == KinetoTable.KERNEL)
    rows = rows[events.at(rows).by_name(np.bool_, lambda name: name.startswith(_METRICS))]
    table[rows[~events.at(rows).are_given("correlation")]] = KinetoTable.PROFILER
    unknown = np.flatnonzero(table == KinetoTable.UNKNOWN)
    if len(unknown):
        on_device = events.at(unknown).are_given("stream")
        table[unknown[on_device]] = KinetoTable.DEVICE
    calls = np.flatnonzero(events.by_category(np.bool_, lambda one: one == _LAUNCH_MARK))
    if len(calls):
        spans, marks = events.spans(calls), ~events.at(calls).are_given("correlation")
        marks &= spans["end_ns"] == spans["start_ns"]
        table[calls[marks]] = KinetoTable.PROFILER
    return table


def is_known_category(category: str) -> bool:
    """Return whether it is known what events of a category are."""
    return _table_of_category(category) != KinetoTable.UNKNOWN


def _table_of_category(category: str) -> int:
    if category.endswith(_OF_RUNTIME):
        return KinetoTable.RUNTIME
    return _TABLES.get(category) or _TABLES.get(category.lower()) or KinetoTable.UNKNOWN


def tell_of_collectives(events: EventRows) -> Bool:
    """Which events have args that tell of a collective."""
    told = events.are_given("collective") | events.are_given("group")
    return told | events.are_given("communicator")
