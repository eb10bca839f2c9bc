"""Source of a trace of PyTorch's own profiler."""

from __future__ import annotations

from collections import Counter as Multiset
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from timeline.columns.columns import ColumnTable, Int64, Rows, TableBuilder
from timeline.columns.distinct import distinct, distinct_pairs, map_values, rows_by_value
from timeline.columns.strings import StringPool
from timeline.errors import format_ids
from timeline.layers import Layer
from timeline.printable import printable
from timeline.records.clock import Clock, ClockMove
from timeline.records.not_given import NO_ID
from timeline.records.tables import (
    FORWARD_BACKWARD,
    GPU,
    CommunicationOps,
    FlowEnd,
    Flows,
    HostEvents,
    Omission,
    OmissionCode,
    Records,
    Steps,
    Tasks,
)
from timeline.sources.capture import Part
from timeline.sources.common.counters import CounterReader, counters_at
from timeline.sources.common.flow_events import FlowReader, LaneRows
from timeline.sources.common.losses import LossLog
from timeline.sources.common.trace_names import LaneNames, profiler_steps
from timeline.sources.decoders.event_columns import (
    ARROWS,
    COMPLETE,
    COUNTER,
    INSTANT,
    Bytes,
    EventColumns,
    EventRows,
    LaneKey,
)
from timeline.sources.decoders.json_events import EventBatch
from timeline.sources.kineto.collectives import (
    Announcements,
    Descriptions,
    are_announcements,
    build_ops,
    find_communicating,
    find_members,
)
from timeline.sources.kineto.header import KinetoHeader, read_header
from timeline.sources.kineto.launches import (
    NOT_LAUNCHED,
    ArrowEnds,
    AutogradOperators,
    Launches,
    Operators,
    RuntimeCalls,
    TaskOrigins,
    are_operators,
    find_launches,
)
from timeline.sources.kineto.tables import (
    LAUNCHING,
    MEMORY,
    KinetoTable,
    MemoryChanges,
    build_device_tasks,
    build_host_events,
    clip_overruns,
    correlation_ids,
    device_ids,
    external_ids,
    find_tables,
    have_collective_args,
    is_known_category,
    kineto_format,
    memory_counters,
    most_reserved,
)
from timeline.sources.source import Identity, ReadRequest
from timeline.units import format_count

LAUNCH = "ac2g"
_MEMORY_EVENT = "[memory]"
_ANNOTATIONS = "spans of annotations on devices, which are drawn on the host"
_MARKS = "marks that the profiler made of its own recording"
_HALF = "arrows whose other end is not in the profile"
_LOOSE = "arrows that could not be tied to a call and to what it launched"
_NO_TOTALS = "memory events without totals"
_SAME_STEPS = "steps with the number of another step"
_OTHERS = "trace events of a kind that is not drawn"
_LEFT_OUT: dict[str, tuple[OmissionCode, bool, frozenset[Layer]]] = {
    _OTHERS: (OmissionCode.NOT_DRAWN, True, frozenset()),
    _ANNOTATIONS: (OmissionCode.REPEATED, False, frozenset({Layer.FRAMEWORK})),
    _MARKS: (OmissionCode.NOT_DRAWN, False, frozenset({Layer.FRAMEWORK})),
    _HALF: (OmissionCode.ARROW_HALF, False, frozenset({Layer.ARROWS})),
    _LOOSE: (OmissionCode.UNPAIRED, False, frozenset({Layer.ARROWS})),
    _NO_TOTALS: (OmissionCode.NO_TIME, True, frozenset({Layer.COUNTERS})),
    _SAME_STEPS: (OmissionCode.REPEATED, True, frozenset()),
}
"""Reasons why events are not drawn, in order of reports.

Each has a code, whether data is lost, and the layers that would draw the events; no layers if any
would.
"""
_DEVICE_KINDS = (KinetoTable.KERNEL, KinetoTable.DEVICE)
_HOST_KINDS = (KinetoTable.RUNTIME, KinetoTable.HOST)
_Table = TypeVar("_Table", bound=ColumnTable)
ALL = Part("")


def read_kineto(
    path: Path,
    rank: int,
    header: KinetoHeader,
    strings: StringPool,
    wanted: ReadRequest,
    part: Part = ALL,
) -> Records:
    """Read a trace, or the part of it that belongs to one rank.

    Tables that no wanted layer needs stay empty. Tasks, ops, steps and launch times are always
    read because overlap per step is computed from them.

    Args:
        path: the trace.
        rank: the rank of the records.
        header: the metadata of the trace.
        strings: the pool of the records' strings.
        wanted: the tables and columns that are wanted.
        part: the processes or the device that belong to the rank.

    Raises:
        SourceError: the file cannot be read or holds an event of an unexpected shape.
    """
    # A comparison, which reads memory, matches kernels by the shapes of what launched them.
    wanted = replace(wanted, shapes=wanted.shapes or wanted.memory)
    reader, damage = _Reader(strings, wanted, part), LossLog(path)
    for key in header.damaged:
        damage.add("metadata values that are not valid JSON", f'"{printable(key)}"')
    reader.read(path, damage)
    records = reader.records(rank, header)
    omissions = (*records.omissions, *damage.omissions(rank))
    warnings = (*records.warnings, *damage.warnings(rank))
    return _shift(replace(records, omissions=omissions, warnings=warnings), header.base_ns)


class _Reader:
    """One pass over a file, which turns events into columns batch by batch.

    Each table is in file order, whatever the size of the batches.
    """

    def __init__(self, strings: StringPool, wanted: ReadRequest, part: Part) -> None:
        self._strings, self._wanted = strings, wanted
        self._device, self._is_first = part.device, part.is_first
        self._pids = dict(part.processes) or None
        self._is_moved = any(isinstance(pid, int) and pid != to for pid, to in part.processes)
        self._elsewhere: list[Int64] = []
        """Correlations of tasks on devices that are not read."""
        self._has_host = bool(wanted.layers & {Layer.CANN, Layer.FRAMEWORK})
        self._names = LaneNames()
        self._format = kineto_format(wanted)
        self._held = EventBatch(self._format, strings, counters=Layer.COUNTERS in wanted.layers)
        self._tasks = {kind: TableBuilder(Tasks) for kind in _DEVICE_KINDS}
        self._origins = {kind: TableBuilder(TaskOrigins) for kind in _DEVICE_KINDS}
        self._descriptions = TableBuilder(Descriptions)
        self._announcements = TableBuilder(Announcements)
        self._host = {kind: TableBuilder(HostEvents) for kind in _HOST_KINDS}
        self._unknown = TableBuilder(HostEvents)
        self._processes: dict[KinetoTable, set[int]] = defaultdict(set)
        """Processes with events of each kind."""
        self._steps, self._calls = TableBuilder(Steps), TableBuilder(RuntimeCalls)
        self._operators = TableBuilder(Operators)
        self._autograd = TableBuilder(AutogradOperators)
        self._memory = TableBuilder(MemoryChanges)
        self._reserved_bytes = NO_ID
        self._counters, self._flows = CounterReader(), FlowReader(strings)
        self._arrow_ends = TableBuilder(ArrowEnds)
        self._left_out: Multiset[str] = Multiset()

    def read(self, path: Path, damage: LossLog) -> None:
        for metadata in self._held.read(path, damage):
            for event in metadata:
                if self._pids is None:
                    self._names.add(event)
                elif event.pid in self._pids:
                    self._names.add(msgspec.structs.replace(event, pid=self._pids[event.pid]))
            if self._held.is_full():
                self._flush()
        self._flush()

    def _flush(self) -> None:
        """Move buffered events into the tables."""
        if self._held.others:
            self._left_out[_OTHERS] += self._held.others if self._is_first else 0
            self._held.others = 0
        for events in self._held.take():
            self._add(events)

    def _add(self, events: EventColumns) -> None:
        phase = self._phase_if_read(events)
        self._add_instants(EventRows(events, np.flatnonzero(phase == INSTANT)))
        complete = EventRows(events, np.flatnonzero(phase == COMPLETE))
        kinds = find_tables(complete)
        by_table = {table: complete.at(np.flatnonzero(kinds == table)) for table in KinetoTable}
        if self._device is not None:
            for kind in (*_DEVICE_KINDS, KinetoTable.ANNOTATION):
                by_table[kind] = self._on_device(by_table[kind])
        for kind in _DEVICE_KINDS:
            if len(tasks := by_table[kind]):
                described = self._add_descriptions(tasks)
                origins = {"external": external_ids(tasks), "described": described}
                self._origins[kind].add(TaskOrigins.of(len(tasks), tasks.lanes() | origins))
                self._tasks[kind].add(
                    build_device_tasks(tasks, kind, every_arg=self._wanted.every_arg)
                )
        for kind in (*_DEVICE_KINDS, *_HOST_KINDS):
            self._processes[kind].update(distinct(by_table[kind].processes(NO_ID)).tolist())
        unknown = by_table[KinetoTable.UNKNOWN]
        self._unknown.add(build_host_events(unknown, KinetoTable.UNKNOWN, self._wanted))
        host = by_table[KinetoTable.HOST]
        self._steps.add(profiler_steps(host))
        launchers = host.at(are_announcements(host))
        described = self._add_descriptions(launchers)
        self._announcements.add(Announcements.read(launchers, described))
        for kind in _HOST_KINDS:
            if len(by_table[kind]):
                self._add_host(by_table[kind], kind)
        self._left_out[_ANNOTATIONS] += len(by_table[KinetoTable.ANNOTATION])
        self._left_out[_MARKS] += len(by_table[KinetoTable.PROFILER])
        counters = np.flatnonzero(phase == COUNTER)
        self._counters.add(counters_at(events, counters))
        self._add_arrows(events, np.flatnonzero(np.isin(phase, list(ARROWS))))

    def _phase_if_read(self, events: EventColumns) -> Bytes:
        """Return the phase of each event, 0 for those of processes that are not read."""
        events.values.pids = self._pids
        if self._pids is None:
            return events.phase
        is_read = map_values(
            events.group,
            lambda groups: np.array(
                [events.values.process(group) is not None for group in groups.tolist()], np.bool_
            ),
        )
        return np.where(is_read, events.phase, 0)

    def _on_device(self, events: EventRows) -> EventRows:
        """Return events of the device that is read, and keep the correlations of the others."""
        device = device_ids(events)
        other = (device != self._device) & (device != NO_ID)
        if other.any():
            self._elsewhere.append(correlation_ids(events.at(other)))
        return events.at(~other)

    def _add_instants(self, instants: EventRows) -> None:
        is_memory = instants.by_name(np.bool_, lambda name: name == _MEMORY_EVENT)
        is_mark = instants.at(~is_memory).by_category(np.bool_, lambda category: not category)
        marks = int(np.count_nonzero(is_mark))
        self._left_out[_MARKS] += marks
        self._left_out[_OTHERS] += len(is_mark) - marks
        memory = instants.at(is_memory)
        if self._device is not None:
            device = memory.ids(NO_ID, "memory_device")
            memory = memory.at((device == self._device) | (device == NO_ID))
        samples = list(memory_counters(memory))
        drawn = sum(len(counter.time_ns) for counter in samples)
        self._left_out[_NO_TOTALS] += len(memory) - drawn
        if Layer.COUNTERS in self._wanted.layers:
            self._counters.add(samples)
        if self._wanted.memory:
            self._reserved_bytes = max(self._reserved_bytes, most_reserved(memory))
        if self._wanted.operators:
            self._memory.add(MemoryChanges.among(memory))

    def _add_arrows(self, events: EventColumns, rows: Rows) -> None:
        """Add the ends of arrows; those between calls and tasks are kept apart to find launches."""
        category = events.category[rows]
        launching = events.values.meanings(category, np.bool_, LAUNCHING.__contains__)
        self._arrow_ends.add(ArrowEnds.among(events, rows[launching]))
        if Layer.ARROWS in self._wanted.layers:
            self._flows.add(events, rows[~launching])

    def _add_host(self, events: EventRows, table: KinetoTable) -> None:
        if not self._has_host and table is KinetoTable.HOST:
            events = events.at(are_operators(events))
        host = build_host_events(events, table, self._wanted)
        if table is KinetoTable.RUNTIME:
            self._calls.add(RuntimeCalls.among(events, host, self._host[table].rows))
        else:
            self._operators.add(Operators.among(events, host))
            if Layer.ARROWS in self._wanted.layers and self._has_host:
                self._autograd.add(AutogradOperators.among(events, self._host[table].rows))
        if self._has_host:
            self._host[table].add(host)

    def records(self, rank: int, header: KinetoHeader) -> Records:
        """Build records, with times as they are in the file."""
        self._place_unknown()
        tasks, origins = _join(self._tasks), _join(self._origins)
        # Some mergers of traces increase ids of arrows and correlations by different numbers.
        ends = ArrowEnds.empty() if self._is_moved else self._arrow_ends.build()
        launches = find_launches(tasks, origins, self._calls.build(), ends)
        calls, task_call = launches.calls, launches.task_call
        # PyTorch 2.0 and 2.1 write the correlation as External id instead of the operator's id.
        lacks_operator = origins.external == tasks.connection
        if launches.names_calls:
            lacks_operator |= tasks.connection == NO_ID
        operator = np.where(lacks_operator, NO_ID, origins.external)
        tasks, overruns = clip_overruns(launches.tasks, launches.are_replayed())
        host, runtime_rows = self._host_table(calls)
        launchers, shapes, row = self._operators.build().launching(operator, task_call, calls)
        tasks = replace(tasks, launch_ns=calls.starts_ns(task_call), op_type=launchers)
        if self._wanted.with_shapes:
            tasks = replace(tasks, input_shapes=shapes, call=row)
        tasks, ops, descriptions = self._communication(tasks, origins.described, calls, task_call)
        autograd = self._autograd.build()
        autograd = replace(autograd, row=autograd.row + runtime_rows)
        flows = self._arrows(launches, ends, host, autograd)
        steps = self._steps.build()
        _, first = np.unique(steps.iteration, return_index=True)
        self._left_out[_SAME_STEPS] += len(steps) - len(first)
        series, samples = self._counters.tables(self._name_group, self._strings)
        return Records(
            rank,
            self._strings,
            tasks=tasks,
            ops=ops,
            steps=steps.take(first),
            host=host,
            series=series,
            samples=samples,
            flows=flows,
            omissions=(*self._omissions(rank), *self._counters.omissions(rank)),
            warnings=(
                *_warn_of_several_devices(tasks, calls, rank),
                *_warn_of_unknown_categories(tasks, self._strings, rank),
                *_warn_of_overruns(tasks.take(overruns), self._strings, rank),
            ),
            hardware=GPU,
            numbered_ops=False,
            members=find_members(descriptions, header.groups, header.world, self._strings),
            allocations=self._memory.build().allocations(),
            reserved_bytes=self._reserved_bytes,
        )

    def _add_descriptions(self, events: EventRows) -> Int64:
        """Add args of collectives; return the row of each event's description, NO_ID for none."""
        rows = np.full(len(events), NO_ID, np.int64)
        described = np.flatnonzero(have_collective_args(events))
        rows[described] = self._descriptions.rows + np.arange(len(described))
        self._descriptions.add(Descriptions.read(events.at(described)))
        return rows

    def _place_unknown(self) -> None:
        """Add events of unknown categories to the device or the host, judged by their process."""
        unknown = self._unknown.build()
        devices, host = (
            set[int]().union(*(self._processes[kind] for kind in kinds))
            for kinds in (_DEVICE_KINDS, _HOST_KINDS)
        )
        on_device = np.isin(unknown.process, [*(devices - host - {NO_ID})])
        tasks = unknown.take(on_device)
        columns = {"device": tasks.process, "stream": tasks.thread, "task_type": tasks.layer}
        spans = {"start_ns": tasks.start_ns, "end_ns": tasks.end_ns, "name": tasks.name}
        self._tasks[KinetoTable.DEVICE].add(Tasks.of(len(tasks), spans | columns))
        lanes = {"process": tasks.process, "thread": tasks.thread}
        self._origins[KinetoTable.DEVICE].add(TaskOrigins.of(len(tasks), lanes))
        if self._has_host:
            self._host[KinetoTable.HOST].add(unknown.take(~on_device))

    def _host_table(self, calls: RuntimeCalls) -> tuple[HostEvents, int]:
        """Build the host table, runtime calls first, and return the number of these calls."""
        runtime_rows = self._host[KinetoTable.RUNTIME].rows
        host = _join(self._host)
        if self._has_host and (host.connection[calls.row] != calls.connection).any():
            connection = host.connection.copy()
            connection[calls.row] = calls.connection
            host = replace(host, connection=connection)
        return host, runtime_rows

    def _communication(
        self, tasks: Tasks, described: Int64, calls: RuntimeCalls, task_call: Rows
    ) -> tuple[Tasks, CommunicationOps, Descriptions]:
        """Build communication ops.

        Returns the tasks, of which those that communicate no longer count as computing, the ops,
        and the description of each op.

        described: (n,) the row of the description in each task's own args, NO_ID for none.
        """
        rows = find_communicating(tasks, self._strings)
        own = described[rows]
        announced, by_call = self._announcements.build().of_calls(task_call[rows], calls)
        descriptions = self._descriptions.build().at(np.where(own != NO_ID, own, by_call))
        ops = build_ops(tasks.take(rows), announced, descriptions, self._strings)
        compute = tasks.compute.copy()
        compute[rows] = False
        return replace(tasks, compute=compute), ops, descriptions

    def _arrows(
        self, launches: Launches, ends: ArrowEnds, host: HostEvents, autograd: AutogradOperators
    ) -> Flows:
        """Build arrows from calls to their tasks, those of the trace, and from forward to backward.

        Arrows from forward to backward operators are built only if the trace has none.
        """
        if Layer.ARROWS not in self._wanted.layers:
            return Flows.empty()
        calls, task_call, tasks = launches.calls, launches.task_call, launches.tasks
        if not self._has_host:
            task_call = np.full(len(task_call), NOT_LAUNCHED, np.intp)
        joined = tasks.connection[task_call != NOT_LAUNCHED]
        launched = calls.arrows(task_call, LAUNCH, self._strings)
        resolved = self._flows.resolve(_find_lanes(host).get)
        drawn = resolved.flows
        if not (drawn.category == self._strings.code(FORWARD_BACKWARD)).any():
            drawn = Flows.concat([drawn, autograd.arrows(host, self._strings)])
        half, loose = ends.count_half(np.concatenate([joined, *self._elsewhere]))
        self._left_out[_HALF] += len(resolved.lacking) + half
        self._left_out[_LOOSE] += loose
        return Flows.concat([launched, drawn])

    def _name_group(self, pid: object) -> str:
        return MEMORY if pid == MEMORY else self._names.process(pid)

    def _omissions(self, rank: int) -> tuple[Omission, ...]:
        layers = self._wanted.layers
        return tuple(
            Omission(reason, rows, rank, loss=loss, code=code, layers=drawing)
            for reason, (code, loss, drawing) in _LEFT_OUT.items()
            if (rows := self._left_out[reason]) and (not drawing or drawing & layers)
        )


def _join(builders: Mapping[KinetoTable, TableBuilder[_Table]]) -> _Table:
    """Build one table from the rows of several builders, in order."""
    first, *others = builders.values()
    for other in others:
        first.extend(other)
    return first.build()


def _find_lanes(host: HostEvents) -> dict[LaneKey, LaneRows]:
    pairs, lane = distinct_pairs(host.process, host.thread)
    keys: list[LaneKey] = list(zip(*pairs.T.tolist(), strict=True))
    return {
        keys[number]: LaneRows(FlowEnd.HOST, rows, host.start_ns[rows], host.end_ns[rows])
        for number, rows in rows_by_value(lane)
    }


def _warn_of_several_devices(tasks: Tasks, calls: RuntimeCalls, rank: int) -> tuple[str, ...]:
    """Return a warning if several devices or processes are read as one rank."""
    devices = distinct(tasks.device[tasks.device != NO_ID]).tolist()
    processes = len(distinct(calls.process))
    if len(devices) < 2 and processes < 2:
        return ()
    used = f"its process used devices {format_ids(devices)}"
    if processes > 1:
        used = f"{processes} processes of its trace launch kernels, and nothing tells their ranks"
    return (
        f"rank {rank}: {used}; streams of the same number "
        "share a row, and overlap counts all devices as one.",
    )


def _warn_of_unknown_categories(tasks: Tasks, strings: StringPool, rank: int) -> tuple[str, ...]:
    """Return a warning about device tasks of unknown categories."""
    unknown = [
        f"{np.count_nonzero(tasks.task_type == code)} of {strings[code]}"
        for code in distinct(tasks.task_type).tolist()
        if not is_known_category(strings[code])
    ]
    if not unknown:
        return ()
    return (
        f"rank {rank}: events of an unknown category ran on the device ({', '.join(unknown)}); "
        "they are drawn, and count neither as computing nor as communication.",
    )


def _warn_of_overruns(tasks: Tasks, strings: StringPool, rank: int) -> tuple[str, ...]:
    """Return a warning about tasks that were cut because their recorded durations are wrong."""
    if not len(tasks):
        return ()
    name = printable(strings[int(tasks.name[0])])
    return (
        f"rank {rank}: {format_count(len(tasks), 'task')} of the device cannot have run as long as "
        "recorded, because two or more whole kernels ran meanwhile on the same stream; each is cut "
        f"where the next task starts. The first is {name} on stream {tasks.stream[0]}.",
    )


def _shift(records: Records, by_ns: int) -> Records:
    """Add a constant to all times."""
    if not by_ns:
        return records
    return replace(
        records,
        tasks=records.tasks.shifted(by_ns),
        ops=records.ops.shifted(by_ns),
        steps=records.steps.shifted(by_ns),
        host=records.host.shifted(by_ns),
        allocations=records.allocations.shifted(by_ns),
        samples=replace(
            records.samples, time_ns=ClockMove(by_ns).of_recorded(records.samples.time_ns)
        ),
    )


@dataclass(frozen=True)
class KinetoSource:
    """A trace file that PyTorch's tensorboard_trace_handler or export_chrome_trace wrote."""

    layout: str
    identity: Identity
    clock: Clock
    trace: Path
    part: Part = ALL

    @property
    def files(self) -> tuple[Path, ...]:
        """The trace, which may be compressed."""
        return (self.trace,)

    def read(self, wanted: ReadRequest) -> Records:
        """See `Source.read`."""
        header = read_header(self.trace)
        if not self.part.is_first:
            header = header.of_other_rank()
        rank, strings = self.identity.rank, StringPool()
        return read_kineto(self.trace, rank, header, strings, wanted, self.part)
