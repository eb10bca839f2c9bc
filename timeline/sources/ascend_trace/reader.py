"""Records of Ascend trace files that share one set of process and thread names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from timeline.columns.columns import Bool, ColumnTable, Int64, TableBuilder, column
from timeline.columns.constant import constant
from timeline.columns.distinct import distinct
from timeline.columns.strings import StringPool
from timeline.layers import Layer
from timeline.records.not_given import NO_GRAPH, NO_ID, NO_TIME
from timeline.records.tables import (
    AI_CORE_FREQUENCY,
    CommunicationOps,
    FlowEnd,
    Flows,
    HostEvents,
    Omission,
    OmissionCode,
    PlaneTasks,
    Records,
    StepParts,
    Steps,
    Tasks,
)
from timeline.sources.ascend_trace.lanes import (
    HARDWARE,
    AscendLanes,
    LaneEvents,
    LaneKind,
    LaneMeaning,
    LaneTable,
    find_lanes,
    split_by_kind,
)
from timeline.sources.ascend_trace.tables import (
    build_host_events,
    build_ops,
    build_planes,
    build_steps,
    build_tasks,
    format_for,
)
from timeline.sources.common.counters import CounterReader, counters_at
from timeline.sources.common.decimals import whole_number
from timeline.sources.common.flow_events import (
    ArrowTargets,
    FlowReader,
    LaneRows,
    Launches,
    ResolvedFlows,
)
from timeline.sources.common.losses import LossLog
from timeline.sources.common.overlap_analysis import (
    VendorOverlap,
    collect_overlap_events,
    find_marked_ops,
    infer_free_rule,
    mark_compute_by_overlap,
    sum_overlap,
)
from timeline.sources.common.trace_names import HOST_DEVICE, device_of, profiler_steps
from timeline.sources.decoders.event_columns import ARROWS, COMPLETE, COUNTER, EventColumns, LaneKey
from timeline.sources.decoders.joins import last_rows, values_at
from timeline.sources.decoders.json_events import EventBatch, look_for_metadata
from timeline.sources.source import ReadRequest

CALLS = "CANN"
CONNECTION_LAUNCH = "HostToDevice"
_Connected = TypeVar("_Connected", Tasks, HostEvents)


class Calls(ColumnTable):
    """Connections and starts of host calls that launched something."""

    connection: Int64 = column(np.int64)
    start_ns: Int64 = column(np.int64)

    @classmethod
    def of_host(cls, host: HostEvents) -> Calls:
        """Return the calls among host events."""
        rows = host.connection != NO_ID
        return cls(host.connection[rows], host.start_ns[rows])

    @classmethod
    def of_lanes(cls, lanes: LaneEvents) -> Calls:
        """Return the calls among events that do not become host events."""
        connection = lanes.ids(NO_ID, "connection")
        rows = np.flatnonzero(connection != NO_ID)
        return cls(connection[rows], lanes.spans(rows)["start_ns"])


def set_launches(records: Records, calls: Calls, launches: Launches) -> Records:
    """Set launch times of tasks and ops: from the host call of their connection, else a flow.

    The latest of several calls with the same connection counts.
    """
    order = np.lexsort((calls.start_ns, calls.connection))
    connection, called_ns = calls.connection[order], calls.start_ns[order]

    def launch_ns(kind: FlowEnd, wanted: Int64) -> Int64:
        flow_ns = np.full(len(wanted), NO_TIME, np.int64)
        at_kind = launches.kind == kind
        np.maximum.at(flow_ns, launches.row[at_kind], launches.time_ns[at_kind])
        return values_at(called_ns, last_rows(connection, wanted), flow_ns)

    tasks, ops = records.tasks, records.ops
    return replace(
        records,
        tasks=replace(tasks, launch_ns=launch_ns(FlowEnd.TASK, tasks.connection)),
        ops=replace(ops, launch_ns=launch_ns(FlowEnd.OP, ops.connection)),
    )


def drop_connections(records: Records) -> Records:
    """Drop connections from tasks and host events, which are unused once launch times are set."""

    def without(table: _Connected) -> _Connected:
        return replace(table, connection=constant(NO_ID, len(table), np.int64))

    return replace(records, tasks=without(records.tasks), host=without(records.host))


def connect_flows(records: Records, resolved: ResolvedFlows) -> tuple[Flows, int]:
    """Add arrows between calls and tasks of one connection; also count arrows that lack an end.

    Some exporters write one end of an arrow only, or neither, although the call and the task share
    a connection.
    """
    host, strings = records.host, records.strings
    rows = np.flatnonzero(host.layer == strings.code(CALLS))
    device = ArrowTargets(strings, records.tasks, records.ops)
    connected = Flows.concat(device.arrows(CONNECTION_LAUNCH, host.connection[rows], rows))
    drawn = resolved.flows.take(resolved.flows.category == strings.code(CONNECTION_LAUNCH))
    connected = connected.take(~np.isin(_number_targets(connected), _number_targets(drawn)))
    lacking = resolved.lacking
    completed = np.isin(_number_targets(lacking), _number_targets(connected))
    completed |= np.isin(_number_sources(lacking), _number_sources(connected))
    return Flows.concat([resolved.flows, connected]), int(np.count_nonzero(~completed))


def _number_targets(flows: Flows) -> Int64:
    """Return a number that identifies each flow's target, negative if it has none."""
    return flows.target_row * len(FlowEnd) + flows.target_kind


def _number_sources(flows: Flows) -> Int64:
    """Return a number that identifies each flow's source, negative if it has none."""
    return flows.source_row * len(FlowEnd) + flows.source_kind


_UNNAMED_FACTOR = 4
"""Factor by which the event buffer is larger until the first process name was read.

torch_npu writes the names after the calls of the framework. Looking ahead for them reads those
calls twice.
"""
_DRAWN_AS_STEPS = "Data_aug Bound"
"""Category of flows that only repeat a duration of the step trace."""


@dataclass(frozen=True)
class TraceFiles:
    """Files that share one set of process and thread names.

    graph, iteration: as in the file name, if the layout writes them there. only_device: whether
    only processes of `device` are read, because the files hold several devices. packed: process
    numbers of the operating system that msprof combined with a device in `pid`s; None if every
    `pid` is such a combination.
    """

    paths: tuple[Path, ...]
    device: int
    graph: int = NO_GRAPH
    iteration: int = NO_ID
    only_device: bool = False
    packed: frozenset[int] | None = None


def find_packed_devices(path: Path) -> tuple[frozenset[int], list[int]]:
    """Return the processes that msprof combined with devices in `pid`s, and the devices, ascending.

    A `pid` that the framework wrote is the process number of the operating system itself.

    Raises:
        SourceError: the file cannot be read.
    """
    pids = {
        event.pid
        for metadata in look_for_metadata(path, HARDWARE.encode())
        for event in metadata
        if isinstance(event.pid, int) and event.name == "process_name"
    }
    devices = {device for pid in pids if (device := device_of(pid)) not in (None, HOST_DEVICE)}
    return frozenset(pid >> PROCESS_BITS for pid in pids), sorted(devices)


def read_trace(files: TraceFiles, rank: int, strings: StringPool, wanted: ReadRequest) -> Records:
    """Read the files into records.

    Tables that no wanted layer needs stay empty. Tasks, ops, steps and launch times are always
    read because overlap per step is computed from them.

    Raises:
        SourceError: a file cannot be read or holds an event of an unexpected shape.
    """
    return read_trace_and_overlap(files, rank, strings, wanted)[0]


def read_trace_and_overlap(
    files: TraceFiles, rank: int, strings: StringPool, wanted: ReadRequest
) -> tuple[Records, VendorOverlap]:
    """Read the files into records, and the intervals of their own Overlap Analysis.

    Raises:
        SourceError: as `read_trace`.
    """
    reader = _Reader(files, strings, wanted)
    reader.read()
    if reader.misread():
        reader = _Reader(files, strings, wanted, reader.names)
        reader.read()
    return reader.records(rank), reader.overlap


class _Reader:
    """One pass over the files, which turns events into columns batch by batch.

    names: lane names from an earlier pass, None to collect them in this one.
    """

    def __init__(
        self,
        files: TraceFiles,
        strings: StringPool,
        wanted: ReadRequest,
        names: AscendLanes | None = None,
    ) -> None:
        self._files, self._strings, self._wanted = files, strings, wanted
        self._layers = wanted.layers
        self.names = names or AscendLanes()
        self._all_named = self._named_before = names is not None
        self._looked_ahead = self._renamed = False
        self._read_as: dict[LaneKey, LaneMeaning] = {}
        self._tables, self.overlap = _Tables(), VendorOverlap.empty()
        self._counters, self._flows = CounterReader(), FlowReader(strings)
        self._every_counter = Layer.COUNTERS in wanted.layers
        self._format = format_for(wanted)
        self._held = EventBatch(
            self._format, strings, counters=self._every_counter or wanted.frequency
        )
        self._damages = [LossLog(path) for path in files.paths]
        self._unread = Counter[str]()

    def read(self) -> None:
        for path, damage in zip(self._files.paths, self._damages, strict=True):
            for metadata in self._held.read(path, damage):
                for event in metadata:
                    if not self._named_before and self._of_device(event.pid):
                        self.names.add(event)
                if self._held.is_full(1 if self.names.processes else _UNNAMED_FACTOR):
                    self._flush()
        self._all_named = True
        self._flush()

    def misread(self) -> bool:
        """Return whether lane names that came later change how events already read are read."""
        return self._renamed or any(
            self.names.meaning(key) != used for key, used in self._read_as.items()
        )

    def _of_device(self, pid: object) -> bool:
        files = self._files
        if not files.only_device or device_of(pid) in (files.device, HOST_DEVICE):
            return True
        if files.packed is None:
            return False
        return not isinstance(pid, int) or pid >> PROCESS_BITS not in files.packed

    def _flush(self) -> None:
        """Move buffered events into the tables."""
        for events in self._held.take():
            self._add(events)

    def _add(self, events: EventColumns) -> None:
        is_read = self._of_read_processes(events)
        complete = np.flatnonzero(is_read & (events.phase == COMPLETE))
        lanes = find_lanes(events, complete)
        if not self._all_named and not all(map(self.names.has_names, lanes.values())):
            self._look_ahead(lanes.values())
        for kind, kind_lanes in split_by_kind(self._kind, lanes, events, complete):
            self._add_kind(kind, kind_lanes)
        counters = np.flatnonzero(is_read & (events.phase == COUNTER))
        self._counters.add(
            part
            for part in counters_at(events, counters)
            if self._every_counter or part.name.startswith(AI_CORE_FREQUENCY)
        )
        arrows = np.flatnonzero(np.isin(events.phase, list(ARROWS)))
        category = events.values.names(events.category[arrows])
        self._flows.add(events, arrows[category != self._strings.code(_DRAWN_AS_STEPS)])

    def _of_read_processes(self, events: EventColumns) -> Bool:
        if not self._files.only_device:
            return np.ones(len(events), np.bool_)
        groups = distinct(events.group).tolist()
        return np.isin(
            events.group,
            [group for group in groups if self._of_device(events.values.process(group))],
        )

    def _kind(self, key: LaneKey) -> LaneKind:
        """Return the kind of a lane by the names read so far, and note whether those changed."""
        meaning = self.names.meaning(key)
        self._renamed |= self._read_as.setdefault(key, meaning) != meaning
        return self.names.kind(key)

    def _look_ahead(self, lanes: Collection[LaneKey]) -> None:
        """Search the files for names of lanes that come after many events.

        The first search stops once all `lanes` are named, since most files write names together.
        A second search reads to the end of the files.
        """
        ahead = AscendLanes()
        for path in self._files.paths:
            for metadata in look_for_metadata(path):
                for event in metadata:
                    ahead.add(event)
                if metadata and not self._looked_ahead:
                    names = self.names.with_more(ahead)
                    if all(map(names.has_names, lanes)):
                        self.names, self._looked_ahead = names, True
                        return
        self.names, self._all_named = ahead.with_more(self.names), True

    def records(self, rank: int) -> Records:
        self.overlap = self._tables.overlap.build()
        records = self._tables.records(rank, self._strings, self._files, self.overlap)
        resolved = self._flows.resolve(
            lambda key: self._tables.lane_rows(key, records), lambda key: self._of_device(key[0])
        )
        records = set_launches(records, self._tables.calls.build(), resolved.launches)
        marked_ops = find_marked_ops(records.tasks, records.tasks.name, records.ops, self._strings)
        if len(marked_ops):
            numbered, ops = bool(len(records.ops)), [records.ops, marked_ops]
            records = replace(records, ops=CommunicationOps.concat(ops), numbered_ops=numbered)
        flows, half = Flows.empty(), 0
        if Layer.ARROWS in self._layers:
            flows, half = connect_flows(records, resolved)
        if not self._wanted.every_arg:
            records = drop_connections(records)
        series, samples = self._counters.tables(self.names.process, self._strings)
        warnings = (warning for damage in self._damages for warning in damage.warnings(rank))
        return replace(
            records,
            series=series,
            samples=samples,
            flows=flows,
            omissions=self._omissions(half, rank),
            warnings=tuple(warnings),
        )

    def _omissions(self, half: int, rank: int) -> tuple[Omission, ...]:
        omissions = []
        if half:
            reason = "arrows whose other end is not in the profile"
            arrows = frozenset({Layer.ARROWS})
            omissions.append(
                Omission(reason, half, rank, code=OmissionCode.ARROW_HALF, layers=arrows)
            )
        if self._held.others:
            reason, code = "trace events of a phase that is not drawn", OmissionCode.NOT_DRAWN
            omissions.append(Omission(reason, self._held.others, rank, loss=True, code=code))
        for process, rows in sorted(self._unread.items()):
            reason = f"events of {process}, which labels call a part of the device"
            omissions.append(Omission(reason, rows, rank, loss=True, code=OmissionCode.NOT_DRAWN))
        omissions += self._counters.omissions(rank)
        return (
            *omissions,
            *(omission for damage in self._damages for omission in damage.omissions(rank)),
        )

    def _add_kind(self, kind: LaneKind, lanes: LaneEvents) -> None:
        """Add the events of lanes of one kind to its table, if it has one."""
        names, files, tables = self.names, self._files, self._tables
        every_arg, keys = self._wanted.every_arg, lanes.keys
        if kind is LaneKind.STREAM:
            tasks = build_tasks(
                lanes,
                streams=[names.stream(key) for key in keys],
                device=files.device,
                graph=files.graph,
                every_arg=every_arg,
            )
            tables.tasks.add(tasks, lanes)
        if kind is LaneKind.OPS:
            groups = [names.group(key) for key in keys]
            ops = build_ops(lanes, groups=groups, graph=files.graph)
            tables.ops.add(ops, lanes)
        if kind is LaneKind.PLANE and Layer.COMMUNICATION in self._layers:
            planes = build_planes(
                lanes,
                groups=[names.group(key) for key in keys],
                planes=[names.plane(key) for key in keys],
                graph=files.graph,
                every_arg=every_arg,
            )
            tables.planes.add(planes, lanes)
        if kind is LaneKind.STEP_TRACE:
            graphs = [names.graph(key) for key in keys]
            steps, parts = build_steps(
                lanes, [files.graph if graph is None else graph for graph in graphs]
            )
            tables.steps.add(steps)
            tables.parts.add(parts)
        if kind is LaneKind.OTHER:
            for key, rows in zip(keys, lanes.counts, strict=True):
                self._unread[names.process(key[0])] += rows
        if kind is LaneKind.DERIVED:
            tables.overlap.add(collect_overlap_events(lanes))
        if kind is LaneKind.HOST:
            tables.steps.add(profiler_steps(lanes))
            if self._layers & {Layer.CANN, Layer.FRAMEWORK}:
                host = build_host_events(
                    lanes,
                    layers=[names.process(key[0]) for key in keys],
                    processes=[_find_process(names, key) for key in keys],
                    threads=[_parse_id(key[1]) for key in keys],
                    graph=files.graph,
                    wanted=self._wanted,
                )
                tables.host.add(host, lanes)
                tables.calls.add(Calls.of_host(host))
            else:
                tables.calls.add(Calls.of_lanes(lanes))


def _describe_files(files: TraceFiles) -> str:
    """Return the name of the file, or a pattern for files that hold one iteration each."""
    name = files.paths[0].name
    return name if files.iteration == NO_ID else f"{name.partition('_')[0]}_*.json"


class _Tables:
    """Builders of all tables of one capture."""

    def __init__(self) -> None:
        self.tasks = LaneTable(Tasks)
        self.planes = LaneTable(PlaneTasks)
        self.ops = LaneTable(CommunicationOps)
        self.host = LaneTable(HostEvents)
        self.steps = TableBuilder(Steps)
        self.parts = TableBuilder(StepParts)
        self.calls = TableBuilder(Calls)
        self.overlap = TableBuilder(VendorOverlap)

    def records(
        self, rank: int, strings: StringPool, files: TraceFiles, overlap: VendorOverlap
    ) -> Records:
        """Build records, and clear the builders; rows take the iteration of their file."""
        iteration = files.iteration
        tasks = mark_compute_by_overlap(self.tasks.build(), overlap, strings)
        return Records(
            rank,
            strings,
            tasks=_set_iteration(tasks, iteration),
            planes=_set_iteration(self.planes.build(), iteration),
            ops=_set_iteration(self.ops.build(), iteration),
            host=_set_iteration(self.host.build(), iteration),
            steps=self.steps.build(),
            parts=self.parts.build(),
            vendor=sum_overlap(
                overlap, f"Overlap Analysis of {_describe_files(files)}", iteration, strings
            ),
            free_rule=infer_free_rule(overlap, f"Overlap Analysis of {files.paths[0].name}"),
        )

    def lane_rows(self, key: LaneKey, records: Records) -> LaneRows | None:
        """Return the rows of a lane in the table of records that holds it, None if none does."""
        for kind, lanes, table in (
            (FlowEnd.HOST, self.host, records.host),
            (FlowEnd.TASK, self.tasks, records.tasks),
            (FlowEnd.OP, self.ops, records.ops),
            (FlowEnd.PLANE, self.planes, records.planes),
        ):
            if key in lanes:
                rows = lanes.rows_of(key)
                return LaneRows(kind, rows, table.start_ns[rows], table.end_ns[rows])
        return None


_Iterated = TypeVar("_Iterated", Tasks, PlaneTasks, CommunicationOps, HostEvents)


def _set_iteration(table: _Iterated, iteration: int) -> _Iterated:
    return replace(table, iteration=constant(iteration, len(table), np.int64))


PROCESS_BITS = 10
"""Bits by which msprof shifts the process number in `pid`; they hold layer and device."""
PACKED_PID = 1 << 22
"""Smallest `pid` that certainly holds layer and device, as Linux numbers no process higher."""


def _find_process(names: AscendLanes, key: LaneKey) -> int:
    """Return the process of a host lane; NO_ID if the `pid` of older msprof is ambiguous."""
    pid = _parse_id(key[0])
    if pid >= PACKED_PID:
        return pid >> PROCESS_BITS
    return NO_ID if names.process(key[0]) == "CANN" else pid


def _parse_id(value: object) -> int:
    number = whole_number(value)
    return NO_ID if number is None or number < 0 else number
