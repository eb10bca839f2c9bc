"""Turns the events of PyTorch traces into the tables of records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from timeline.columns.columns import Int64
from timeline.columns.constant import constant
from timeline.columns.strings import StringPool
from timeline.records.tables import (
    NO_ID,
    RUNTIME,
    HostEvents,
    Tasks,
)
from timeline.sources.common.task_kinds import COPY_TYPES, are_of
from timeline.sources.kineto_events import NO_ARGS, Activity, Instant, Place
from timeline.sources.trace_json.event_fields import first_ids, ids_of, spans_of
from timeline.sources.trace_json.events import Counter, number

__all__ = ["MEMORY", "device_table", "host_table", "memory_counter"]

PYTHON = "Python"
"""What torch_npu calls the process of the same events."""
MEMORY = "Memory"
_NOT_A_STREAM = 4294967295
"""Stream of a wait for all streams, in older versions."""
_DEVICE_KINDS = {0: "CPU", 1: "GPU", 20: "GPU"}
"""c10::DeviceType: CPU, CUDA, HIP as CUDA; others keep their number."""
_LAYERS = {
    "cpu_op": PYTHON,
    "operator": PYTHON,
    "python_function": PYTHON,
    "python": PYTHON,
    "user_annotation": PYTHON,
}


def device_table(
    events: Sequence[Activity], place: Place, strings: StringPool, *, every_arg: bool
) -> Tasks:
    """What ran on devices.

    Only kernels compute; copies, fills and waits do not. Which kernels communicate instead is
    known when all that launched them is.
    """
    args, count = [event.args or NO_ARGS for event in events], len(events)
    spans, names = spans_of(events), strings.codes([event.name for event in events])
    stream = first_ids([arg.stream for arg in args], [event.tid for event in events], NO_ID)
    device = first_ids(
        [arg.device if arg.device is not None else arg.device_inside for arg in args],
        [event.pid for event in events],
        NO_ID,
    )
    kinds = strings.codes([event.cat for event in events])
    columns: dict[str, Any] = {
        "device": device,
        "stream": np.where((stream < 0) | (stream == _NOT_A_STREAM), NO_ID, stream),
        "connection": correlations([arg.correlation for arg in args]),
        "name": names,
        "task_type": kinds,
        "compute": constant(place is Place.KERNEL, count, np.bool_),
        "copy": are_of(COPY_TYPES, kinds, strings),
    }
    if every_arg:
        columns["blocks"] = [_blocks(arg.grid) for arg in args]
        columns["occupancy"] = ids_of([arg.occupancy for arg in args], NO_ID)
        columns["size_bytes"] = ids_of([arg.size for arg in args], NO_ID)
    return Tasks.of(count, spans | columns)


def _blocks(grid: object) -> int:
    """Thread blocks of a grid of three dimensions."""
    if not isinstance(grid, list) or len(grid) != 3:
        return NO_ID
    x, y, z = (value if type(value) is int and value >= 0 else NO_ID for value in grid)
    return number(x * y * z, NO_ID) if min(x, y, z) >= 0 else NO_ID


def correlations(values: list[Any]) -> Int64:
    """Correlation ids as a column; PyTorch counts from 1."""
    found = ids_of(values, NO_ID)
    return np.where(found > 0, found, NO_ID)


def host_table(
    events: Sequence[Activity], place: Place, strings: StringPool, *, every_arg: bool
) -> HostEvents:
    """What ran on the host, of one place: calls of the runtime, or all else by category."""
    count = len(events)
    layers = (
        constant(strings.code(RUNTIME), count, np.int32)
        if place is Place.RUNTIME
        else strings.codes([_layer(event.cat) for event in events])
    )
    return HostEvents.of(
        count,
        spans_of(events)
        | {
            "layer": layers,
            "process": ids_of([event.pid for event in events], NO_ID),
            "thread": ids_of([event.tid for event in events], NO_ID),
            "name": strings.codes([event.name for event in events]),
            "connection": correlations([event.args and event.args.correlation for event in events])
            if place is Place.RUNTIME
            else constant(NO_ID, count, np.int64),
        }
        | ({"level": strings.codes([event.cat for event in events])} if every_arg else {}),
    )


def _layer(category: str) -> str:
    """The layer of a category of the host; one that is not known is a layer of its own."""
    return _LAYERS.get(category) or _LAYERS.get(category.lower()) or category or PYTHON


def memory_counter(event: Instant) -> Counter | None:
    """What a memory event says of its device as samples; None where it says nothing."""
    args = event.args
    if args is None:
        return None
    amounts = {
        f"{name}(bytes)": value
        for name, value in (("Allocated", args.allocated), ("Reserved", args.reserved))
        if isinstance(value, (int, float))
    }
    if len(amounts) < 2:  # with one alone, the counter would be named like the device
        return None
    kind = number(args.device_type, 0)
    name = _DEVICE_KINDS.get(kind, f"Device type {kind}")
    device = number(args.device, NO_ID)
    return Counter(name if device < 0 else f"{name} {device}", MEMORY, event.ts, amounts)
