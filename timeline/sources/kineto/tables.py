"""Turns the events of PyTorch traces into the tables of records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from timeline.columns.columns import Bool, Columns, Int64, Rows, column
from timeline.columns.constant import constant
from timeline.columns.distinct import distinct
from timeline.columns.strings import StringPool
from timeline.records.tables import (
    NO_ID,
    NO_TIME,
    RUNTIME,
    FlowEnd,
    Flows,
    HostEvents,
    Tasks,
)
from timeline.records.task_kinds import COPY_TYPES, are_of
from timeline.sources.kineto.events import NO_ARGS, Activity, Instant, Place
from timeline.sources.trace_json.event_fields import first_ids, ids_of, spans_of
from timeline.sources.trace_json.events import Counter, number

__all__ = ["MEMORY", "NOT_LAUNCHED", "RuntimeCalls", "device_table", "host_table", "memory_counter"]

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


NOT_LAUNCHED = -1
"""The call of what no call of the trace launched."""
_GRAPH_LAUNCH = "graphlaunch"
"""cudaGraphLaunch, cuGraphLaunch, hipGraphLaunch."""


@dataclass(frozen=True)
class RuntimeCalls(Columns):
    """Calls with a correlation: that, their times and thread, and their row in the host table.

    The row has no meaning where the host table was not read.
    """

    connection: Int64 = column(np.int64)
    start_ns: Int64 = column(np.int64)
    end_ns: Int64 = column(np.int64)
    row: Int64 = column(np.int64)
    process: Int64 = column(np.int64)
    thread: Int64 = column(np.int64)
    graph: Bool = column(np.bool_)
    """Whether it launches a graph, which was captured before."""

    @classmethod
    def among(cls, host: HostEvents, first_row: int, strings: StringPool) -> RuntimeCalls:
        """Those of a part of the host table that starts at a row."""
        graphs = [
            code for code in distinct(host.name).tolist() if _GRAPH_LAUNCH in strings[code].lower()
        ]
        calls = cls(
            host.connection,
            host.start_ns,
            host.end_ns,
            first_row + np.arange(len(host)),
            host.process,
            host.thread,
            np.isin(host.name, np.array(graphs, np.int32)),
        )
        return calls.take(calls.connection != NO_ID)

    def in_order(self) -> RuntimeCalls:
        """The same by correlation, then start, as the methods below need them."""
        return self.take(np.lexsort((self.start_ns, self.connection)))

    def launching(self, connection: Int64) -> Rows:
        """The latest call of each correlation: of a call inside another, the inner one."""
        at = np.searchsorted(self.connection, connection, side="right") - 1
        found = (at >= 0) & (connection != NO_ID)
        found[found] = self.connection[at[found]] == connection[found]
        return np.where(found, at, NOT_LAUNCHED)

    def moments_ns(self, call: Rows) -> Int64:
        """When each call began, NO_TIME where there is none."""
        if not len(self):
            return constant(NO_TIME, len(call), np.int64)
        return np.where(call != NOT_LAUNCHED, self.start_ns[call], NO_TIME)

    def arrows(self, task_call: Rows, category: int) -> Flows:
        """Arrows from calls on the host to tasks, given the call of each task."""
        launched = np.flatnonzero(task_call != NOT_LAUNCHED)
        count = len(launched)
        return Flows.of(
            count,
            {
                "category": constant(category, count, np.int32),
                "source_kind": constant(FlowEnd.HOST, count, np.int64),
                "source_row": self.row[task_call[launched]],
                "target_kind": constant(FlowEnd.TASK, count, np.int64),
                "target_row": launched,
            },
        )
