"""Turns one capture's trace files into records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from timeline.errors import SourceError
from timeline.records.strings import StringPool
from timeline.records.tables import (
    NO_GRAPH,
    NO_ID,
    NO_TIME,
    CommunicationOps,
    CounterSamples,
    CounterSeries,
    FlowEnd,
    Flows,
    HostEvents,
    Omission,
    PlaneTasks,
    Records,
    Spans,
    StepParts,
    Steps,
    Tasks,
)
from timeline.selection import Layer
from timeline.sources.json_events import Event, read_events
from timeline.sources.trace_flows import LaneRows, ResolvedFlows, resolve_flows
from timeline.sources.trace_lanes import LaneKey, LaneKind, LaneNames
from timeline.sources.trace_tables import (
    counters_table,
    host_table,
    ops_table,
    planes_table,
    profiler_steps,
    step_tables,
    tasks_table,
)

__all__ = ["TraceFiles", "join_records", "read_trace"]

_FLOW_PHASES = frozenset("stf")
_DRAWN_AS_STEPS = "Data_aug Bound"
"""Flow category that only draws a number of the step trace."""


@dataclass(frozen=True)
class TraceFiles:
    """Files that share one set of process and thread names.

    graph and iteration are those of the file's name, where the layout puts them there; `device`
    keeps only the processes of one device where one export holds several.
    """

    paths: tuple[Path, ...]
    device: int
    graph: int = NO_GRAPH
    iteration: int = NO_ID
    only_device: bool = False


@dataclass
class _Collected:
    """The events of a trace, by lane."""

    names: LaneNames = field(default_factory=LaneNames)
    lanes: dict[LaneKey, list[Event]] = field(default_factory=lambda: defaultdict(list))
    counters: list[Event] = field(default_factory=list)
    flows: list[Event] = field(default_factory=list)
    others: int = 0


def read_trace(
    files: TraceFiles, rank: int, strings: StringPool, layers: frozenset[Layer]
) -> Records:
    """Read the files into records.

    Tables that no layer needs stay empty; tasks, ops, steps and launch times are always read,
    because the overlap of a step needs them.

    Raises:
        SourceError: a file cannot be read or holds an event of an unexpected shape.
    """
    collected = _Collected()
    for path in files.paths:
        for events in read_events(path):
            _collect(collected, events, files)
    try:
        return _build(collected, files, rank, strings, layers)
    except msgspec.DecodeError as error:
        raise SourceError(
            files.paths[0], f"holds an event whose args have another shape: {error}."
        ) from error


def _collect(collected: _Collected, events: Iterable[Event], files: TraceFiles) -> None:
    lanes, flows, counters = collected.lanes, collected.flows, collected.counters
    for event in events:
        phase = event.ph
        if files.only_device and _device_of(event.pid) not in (files.device, HOST_DEVICE):
            continue
        if phase == "X":
            lanes[event.pid, event.tid].append(event)
        elif phase == "C":
            counters.append(event)
        elif phase == "M":
            collected.names.add(event)
        elif phase in _FLOW_PHASES:
            if event.cat != _DRAWN_AS_STEPS:
                flows.append(event)
        else:
            collected.others += 1


HOST_DEVICE = 31
"""Device number that msprof packs into the pid of host processes."""


def _device_of(pid: object) -> int | None:
    """The device packed into the low bits of every pid that msprof writes."""
    return pid & 31 if isinstance(pid, int) else None


def _build(
    collected: _Collected,
    files: TraceFiles,
    rank: int,
    strings: StringPool,
    layers: frozenset[Layer],
) -> Records:
    tables = _Tables()
    rows: dict[LaneKey, LaneRows] = {}
    for key, events in collected.lanes.items():
        made = _add_lane(tables, collected.names, key, events, files, strings, layers)
        if made is not None:
            rows[key] = made
    resolved = resolve_flows(collected.flows, rows, strings)
    records = tables.records(rank, strings, files.iteration)
    series, samples = CounterSeries.empty(), CounterSamples.empty()
    if Layer.COUNTERS in layers:
        series, samples = counters_table(collected.counters, collected.names.process, strings)
    return replace(
        _with_launches(records, resolved),
        series=series,
        samples=samples,
        flows=resolved.flows if Layer.ARROWS in layers else Flows.empty(),
        omissions=_omissions(collected, resolved, rank, layers),
    )


def _omissions(
    collected: _Collected, resolved: ResolvedFlows, rank: int, layers: frozenset[Layer]
) -> tuple[Omission, ...]:
    made = []
    if resolved.half and Layer.ARROWS in layers:
        made.append(Omission("arrows whose other end is not in the profile", resolved.half, rank))
    if collected.others:
        made.append(
            Omission("trace events of a phase that is not drawn", collected.others, rank, loss=True)
        )
    return tuple(made)


@dataclass
class _Tables:
    """Parts of tables, one per lane, and the number of rows they hold so far."""

    tasks: list[Tasks] = field(default_factory=list)
    planes: list[PlaneTasks] = field(default_factory=list)
    ops: list[CommunicationOps] = field(default_factory=list)
    host: list[HostEvents] = field(default_factory=list)
    steps: list[Steps] = field(default_factory=list)
    parts: list[StepParts] = field(default_factory=list)

    def records(self, rank: int, strings: StringPool, iteration: int) -> Records:
        """Join the parts; rows take the iteration of their file."""

        return Records(
            rank,
            strings,
            tasks=_at_iteration(Tasks.concat(self.tasks), iteration),
            planes=_at_iteration(PlaneTasks.concat(self.planes), iteration),
            ops=_at_iteration(CommunicationOps.concat(self.ops), iteration),
            host=_at_iteration(HostEvents.concat(self.host), iteration),
            steps=Steps.concat(self.steps),
            parts=StepParts.concat(self.parts),
        )


_Iterated = TypeVar("_Iterated", Tasks, PlaneTasks, CommunicationOps, HostEvents)
_Table = TypeVar("_Table", bound=Spans)


def _at_iteration(table: _Iterated, iteration: int) -> _Iterated:
    return replace(table, iteration=np.full(len(table), iteration, np.int64))


def _add_lane(
    tables: _Tables,
    names: LaneNames,
    key: LaneKey,
    events: list[Event],
    files: TraceFiles,
    strings: StringPool,
    layers: frozenset[Layer],
) -> LaneRows | None:
    """Add the events of one lane to the table they belong to; where they went, if anywhere."""
    kind = names.kind(key)
    if kind is LaneKind.STREAM:
        tasks = tasks_table(
            events, strings, stream=names.stream(key), device=files.device, graph=files.graph
        )
        return _append(tables.tasks, tasks, FlowEnd.TASK)
    if kind is LaneKind.OPS:
        ops = ops_table(events, strings, group=names.group(key), graph=files.graph)
        return _append(tables.ops, ops, FlowEnd.OP)
    if kind is LaneKind.PLANE and Layer.COMMUNICATION in layers:
        planes = planes_table(
            events, strings, group=names.group(key), plane=names.plane(key), graph=files.graph
        )
        return _append(tables.planes, planes, FlowEnd.PLANE)
    if kind is LaneKind.STEP_TRACE:
        graph = names.graph(key)
        steps, parts = step_tables(events, graph=files.graph if graph is None else graph)
        tables.steps.append(steps)
        tables.parts.append(parts)
    if kind is LaneKind.HOST:
        tables.steps.append(profiler_steps(events))
        if layers & {Layer.CANN, Layer.FRAMEWORK}:
            host = host_table(
                events,
                strings,
                layer=names.process(key[0]),
                process=_process(names, key),
                thread=_whole(key[1]),
                graph=files.graph,
            )
            return _append(tables.host, host, FlowEnd.HOST)
    return None


def _append(parts: list[_Table], table: _Table, kind: FlowEnd) -> LaneRows:
    first = sum(len(part) for part in parts)
    parts.append(table)
    return LaneRows(kind, first, table.start_ns, table.end_ns)


PACKED_PID = 1 << 22
"""Linux numbers no process higher; msprof packs the process above layer and device."""


def _process(names: LaneNames, key: LaneKey) -> int:
    """The process of a host lane; older msprof packs it in a way that cannot be told apart."""
    pid = _whole(key[0])
    if pid >= PACKED_PID:
        return pid >> 10
    return NO_ID if names.process(key[0]) == "CANN" else pid


def _whole(value: object) -> int:
    return int(str(value)) if str(value).isdigit() else NO_ID


def _with_launches(records: Records, resolved: ResolvedFlows) -> Records:
    """Note when tasks and ops were launched: the host call of the same connection, else a flow."""
    host_ns = dict(
        zip(records.host.connection.tolist(), records.host.start_ns.tolist(), strict=True)
    )
    host_ns.pop(NO_ID, None)
    made: dict[FlowEnd, np.ndarray] = {}
    for kind, table in ((FlowEnd.TASK, records.tasks), (FlowEnd.OP, records.ops)):
        launch_ns = np.full(len(table), NO_TIME, np.int64)
        for flow_kind, row, time_ns in resolved.launches:
            if flow_kind is kind:
                launch_ns[row] = max(launch_ns[row], time_ns)
        for row, connection in enumerate(table.connection.tolist()):
            launch_ns[row] = host_ns.get(connection, launch_ns[row])
        made[kind] = launch_ns
    return replace(
        records,
        tasks=replace(records.tasks, launch_ns=made[FlowEnd.TASK]),
        ops=replace(records.ops, launch_ns=made[FlowEnd.OP]),
    )


def join_records(parts: Sequence[Records]) -> Records:
    """Join the records of several files of one rank; flows keep pointing at their rows."""
    flows, firsts = [], dict.fromkeys(FlowEnd, 0)
    for part in parts:
        shift = np.array([firsts[kind] for kind in FlowEnd])
        flows.append(
            replace(
                part.flows,
                source_row=part.flows.source_row + shift[part.flows.source_kind],
                target_row=part.flows.target_row + shift[part.flows.target_kind],
            )
        )
        for kind, table in (
            (FlowEnd.HOST, part.host),
            (FlowEnd.TASK, part.tasks),
            (FlowEnd.OP, part.ops),
            (FlowEnd.PLANE, part.planes),
        ):
            firsts[kind] += len(table)
    return Records(
        parts[0].rank,
        parts[0].strings,
        tasks=Tasks.concat(part.tasks for part in parts),
        planes=PlaneTasks.concat(part.planes for part in parts),
        ops=CommunicationOps.concat(part.ops for part in parts),
        steps=Steps.concat(part.steps for part in parts),
        parts=StepParts.concat(part.parts for part in parts),
        host=HostEvents.concat(part.host for part in parts),
        series=CounterSeries.concat(part.series for part in parts),
        samples=CounterSamples.concat(_shifted_samples(parts)),
        flows=Flows.concat(flows),
        omissions=tuple(omission for part in parts for omission in part.omissions),
        warnings=tuple(warning for part in parts for warning in part.warnings),
    )


def _shifted_samples(parts: Sequence[Records]) -> list[CounterSamples]:
    shifted, first = [], 0
    for part in parts:
        shifted.append(replace(part.samples, series=part.samples.series + first))
        first += len(part.series)
    return shifted
