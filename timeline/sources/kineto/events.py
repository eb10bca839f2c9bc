"""Turns the JSON of PyTorch's own traces (Kineto) into typed values.

What an event is tells its category, whatever the threads and processes of the file are called.
The spelling is that of libkineto's output_json.cpp; the oldest files capitalise categories and
call some of them otherwise.
"""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from timeline.sources.trace_json.event_pieces import EventDecoder
from timeline.sources.trace_json.events import (
    Counter,
    FlowFinish,
    FlowStart,
    FlowStep,
    Metadata,
    Value,
)

__all__ = [
    "KINETO",
    "LAUNCHING",
    "NO_ARGS",
    "Activity",
    "Args",
    "Instant",
    "KinetoEvent",
    "Place",
    "place_of",
]


class Place(enum.Enum):
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


_PLACES = {
    "kernel": Place.KERNEL,
    "gpu_memcpy": Place.DEVICE,
    "memcpy": Place.DEVICE,
    "gpu_memset": Place.DEVICE,
    "memset": Place.DEVICE,
    "cuda_sync": Place.DEVICE,
    "cuda_runtime": Place.RUNTIME,
    "cuda_driver": Place.RUNTIME,
    "runtime": Place.RUNTIME,
    "xpu_runtime": Place.RUNTIME,
    "mtia_runtime": Place.RUNTIME,
    "mtia_ccp_events": Place.KERNEL,
    "glow_runtime": Place.RUNTIME,
    "privateuse1_runtime": Place.RUNTIME,
    "privateuse1_driver": Place.RUNTIME,
    "cpu_op": Place.HOST,
    "operator": Place.HOST,
    "user_annotation": Place.HOST,
    "python_function": Place.HOST,
    "python": Place.HOST,
    "gpu_user_annotation": Place.ANNOTATION,
    "trace": Place.PROFILER,
}
LAUNCHING = frozenset({"ac2g", "async", "async_gpu", "async_cpu_to_gpu"})
"""Flows from a call of the runtime to what it launched; their id is the correlation of both."""


class Args(
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
        "external": "External id",
        "external_small": "external id",
    },
):
    """The args of kernels, copies, calls of the runtime and collectives."""

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
    external: Value = None
    external_small: Value = None

    @property
    def of_collective(self) -> bool:
        """Whether they tell of a collective."""
        return self.collective is not None or self.group is not None


NO_ARGS = Args()
"""Args of an event without any."""
_EMPTY = msgspec.Raw(b"")


class Activity(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """An interval on a thread of the host or a stream of a device."""

    cat: str = ""
    name: str = ""
    pid: int | str | float = 0
    tid: int | str | float = 0
    ts: msgspec.Raw = _EMPTY
    dur: msgspec.Raw = _EMPTY
    args: Args | None = None


class _MemoryArgs(
    msgspec.Struct,
    gc=False,
    rename={
        "device_type": "Device Type",
        "device": "Device Id",
        "allocated": "Total Allocated",
        "reserved": "Total Reserved",
    },
):
    device_type: Value = None
    device: Value = None
    allocated: Value = None
    reserved: Value = None


class Instant(msgspec.Struct, gc=False, tag_field="ph", tag="i"):
    """A moment: memory was taken or given back, or the recording began or ended."""

    name: str = ""
    cat: str = ""
    ts: msgspec.Raw = _EMPTY
    args: _MemoryArgs | None = None


KinetoEvent = Activity | Instant | Counter | Metadata | FlowStart | FlowStep | FlowFinish

KINETO: EventDecoder[KinetoEvent] = EventDecoder(
    KinetoEvent,
    mends=(
        (b'"Process Group Description": ,', b'"Process Group Description":0,'),
        (b'"blocks per SM": inf', b'"blocks per SM":null'),
        (b'"warps per SM": inf', b'"warps per SM":null'),
    ),
)
"""Some versions leave the description of a group out, or write a division by zero."""


def place_of(event: Activity) -> Place:
    """Where an event belongs; one of an unknown category goes by whether it names a stream."""
    found = _PLACES.get(event.cat) or _PLACES.get(event.cat.lower())
    if found is None:
        on_device = event.args is not None and event.args.stream is not None
        return Place.DEVICE if on_device else Place.HOST
    return found
