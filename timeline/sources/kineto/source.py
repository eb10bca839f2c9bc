"""Records of one trace of PyTorch's own profiler."""

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
    build_ops,
    find_announcing,
    find_communicating,
    find_members,
)
from timeline.sources.kineto.header import KinetoHeader, read_header
from timeline.sources.kineto.launches import (
    NOT_LAUNCHED,
    ArrowEnds,
    Launches,
    Numbered,
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
    clip_overruns,
    correlation_ids,
    device_ids,
    device_table,
    external_ids,
    host_table,
    is_known_category,
    kineto_format,
    memory_counters,
    most_reserved,
    tables_of,
    tell_of_collectives,
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
"""Codes of what is left out, True for losses, and the layers that would draw it, if not all do.

In the order of reports: events come in parts of any size.
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
    """Read a trace, or the part of it that is of one rank, given what stands beside its events.

    Tables that no layer needs stay empty; tasks, ops, steps and launch times are always read,
    because the overlap of a step needs them.

    Raises:
        SourceError: the file cannot be read or holds an event of an unexpected shape.
    """
    reader, damage = _Reader(strings, wanted, part), LossLog(path)
    for key in header.damaged:
        damage.add("metadata values that are not valid JSON", f'"{printable(key)}"')
    reader.read(path, damage)
    records = reader.records(rank, header)
    omissions = (*records.omissions, *damage.omissions(rank))
    warnings = (*records.warnings, *damage.warnings(rank))
    return _shifted(replace(records, omissions=omissions, warnings=warnings), header.base_ns)


class _Reader:
    """One pass over a file: events become columns as soon as there are enough of them.

    Events of a kind stay in file order, kind after kind, however many come at a time.
    """

    def __init__(self, strings: StringPool, wanted: ReadRequest, part: Part) -> None:
        self._strings, self._wanted = strings, wanted
        self._device, self._is_first = part.device, part.is_first
        self._pids = dict(part.processes) or None
        self._is_moved = any(isinstance(pid, int) and pid != to for pid, to in part.processes)
        self._elsewhere: list[Int64] = []
        """Correlations of what ran on devices that are not read."""
        self._has_host = bool(wanted.layers & {Layer.CANN, Layer.FRAMEWORK})
        self._names = LaneNames()
        self._format = kineto_format(shapes=wanted.shapes)
        self._held = EventBatch(self._format, strings, counters=Layer.COUNTERS in wanted.layers)
        self._tasks = {kind: TableBuilder(Tasks) for kind in _DEVICE_KINDS}
        self._origins = {kind: TableBuilder(TaskOrigins) for kind in _DEVICE_KINDS}
        self._told, self._announced = TableBuilder(Descriptions), TableBuilder(Announcements)
        self._host = {kind: TableBuilder(HostEvents) for kind in _HOST_KINDS}
        self._unknown = TableBuilder(HostEvents)
        self._processes: dict[KinetoTable, set[int]] = defaultdict(set)
        """The processes that have events of each kind."""
        self._steps, self._calls = TableBuilder(Steps), TableBuilder(RuntimeCalls)
        self._operators, self._numbered = TableBuilder(Operators), TableBuilder(Numbered)
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
        """Add the events that are held to the tables."""
        if self._held.others:
            self._left_out[_OTHERS] += self._held.others if self._is_first else 0
            self._held.others = 0
        for events in self._held.take():
            self._add(events)

    def _add(self, events: EventColumns) -> None:
        phase = self._phase_if_read(events)
        self._add_instants(EventRows(events, np.flatnonzero(phase == INSTANT)))
        complete = EventRows(events, np.flatnonzero(phase == COMPLETE))
        kinds = tables_of(complete)
        by_table = {one: complete.at(np.flatnonzero(kinds == one)) for one in KinetoTable}
        if self._device is not None:
            for kind in (*_DEVICE_KINDS, KinetoTable.ANNOTATION):
                by_table[kind] = self._on_device(by_table[kind])
        for kind in _DEVICE_KINDS:
            if len(tasks := by_table[kind]):
                described = self._add_descriptions(tasks)
                origins = {"external": external_ids(tasks), "described": described}
                self._origins[kind].add(TaskOrigins.of(len(tasks), tasks.lanes() | origins))
                self._tasks[kind].add(device_table(tasks, kind, every_arg=self._wanted.every_arg))
        for one in (*_DEVICE_KINDS, *_HOST_KINDS):
            self._processes[one].update(distinct(by_table[one].processes(NO_ID)).tolist())
        unknown = by_table[KinetoTable.UNKNOWN]
        self._unknown.add(host_table(unknown, KinetoTable.UNKNOWN, self._wanted))
        host = by_table[KinetoTable.HOST]
        self._steps.add(profiler_steps(host))
        saying = host.at(find_announcing(host))
        self._announced.add(Announcements.read(saying, self._add_descriptions(saying)))
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
        known = map_values(
            events.group,
            lambda groups: np.array(
                [events.values.process(group) is not None for group in groups.tolist()], np.bool_
            ),
        )
        return np.where(known, events.phase, 0)

    def _on_device(self, events: EventRows) -> EventRows:
        """Those that ran on the device that is read; what launched others is noted."""
        device = device_ids(events)
        other = (device != self._device) & (device != NO_ID)
        if other.any():
            self._elsewhere.append(correlation_ids(events.at(other)))
        return events.at(~other)

    def _add_instants(self, instants: EventRows) -> None:
        of_memory = instants.by_name(np.bool_, lambda name: name == _MEMORY_EVENT)
        is_known = instants.at(~of_memory).by_category(np.bool_, lambda category: not category)
        known = int(np.count_nonzero(is_known))
        self._left_out[_MARKS] += known
        self._left_out[_OTHERS] += len(is_known) - known
        memory = instants.at(of_memory)
        if self._device is not None:
            device = memory.ids(NO_ID, "memory_device")
            memory = memory.at((device == self._device) | (device == NO_ID))
        samples = list(memory_counters(memory))
        self._left_out[_NO_TOTALS] += len(memory) - sum(len(one.time_ns) for one in samples)
        if Layer.COUNTERS in self._wanted.layers:
            self._counters.add(samples)
        if self._wanted.memory:
            self._reserved_bytes = max(self._reserved_bytes, most_reserved(memory))
        if self._wanted.operators:
            self._memory.add(MemoryChanges.among(memory))

    def _add_arrows(self, events: EventColumns, rows: Rows) -> None:
        """Take in the ends of arrows; those from calls to what they launch tell launches too."""
        category = events.category[rows]
        launching = events.values.meanings(category, np.bool_, LAUNCHING.__contains__)
        self._arrow_ends.add(ArrowEnds.among(events, rows[launching]))
        if Layer.ARROWS in self._wanted.layers:
            self._flows.add(events, rows[~launching])

    def _add_host(self, events: EventRows, table: KinetoTable) -> None:
        if not self._has_host and table is KinetoTable.HOST:
            events = events.at(are_operators(events))
        host = host_table(events, table, self._wanted)
        if table is KinetoTable.RUNTIME:
            self._calls.add(RuntimeCalls.among(events, host, self._host[table].rows))
        else:
            self._operators.add(Operators.among(events, host))
            if Layer.ARROWS in self._wanted.layers and self._has_host:
                self._numbered.add(Numbered.among(events, self._host[table].rows))
        if self._has_host:
            self._host[table].add(host)

    def records(self, rank: int, header: KinetoHeader) -> Records:
        """All that was read, at the times of the file."""
        self._place_unknown()
        tasks, origins = _joined(self._tasks), _joined(self._origins)
        # Some who merge traces move the ids of arrows and correlations by different numbers.
        ends = ArrowEnds.empty() if self._is_moved else self._arrow_ends.build()
        launches = find_launches(tasks, origins, self._calls.build(), ends)
        calls, task_call = launches.calls, launches.task_call
        # Versions 2.0 and 2.1 write the correlation as External id, which is not an operator then.
        not_named = origins.external == tasks.connection
        if launches.names_calls:
            not_named |= tasks.connection == NO_ID
        named = np.where(not_named, NO_ID, origins.external)
        tasks, overruns = clip_overruns(launches.tasks, launches.are_replayed())
        host, runtime_rows = self._host_table(calls)
        launching = self._operators.build().launching(named, task_call, calls)
        tasks = replace(tasks, launch_ns=calls.moments_ns(task_call), op_type=launching)
        tasks, ops, told = self._communication(tasks, origins.described, calls, task_call)
        numbered = self._numbered.build()
        numbered = replace(numbered, row=numbered.row + runtime_rows)
        flows = self._arrows(launches, ends, host, numbered)
        steps = self._steps.build()
        _, first = np.unique(steps.iteration, return_index=True)
        self._left_out[_SAME_STEPS] += len(steps) - len(first)
        series, samples = self._counters.tables(self._group, self._strings)
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
                *_several_devices(tasks, calls, rank),
                *_unknown_categories(tasks, self._strings, rank),
                *_overrunning(tasks.take(overruns), self._strings, rank),
            ),
            hardware=GPU,
            numbered_ops=False,
            members=find_members(told, header.groups, header.world, self._strings),
            allocations=self._memory.build().allocations(),
            reserved_bytes=self._reserved_bytes,
        )

    def _add_descriptions(self, events: EventRows) -> Int64:
        """Note what args of events say about collectives: the row of each, NO_ID for nothing."""
        rows = np.full(len(events), NO_ID, np.int64)
        telling = np.flatnonzero(tell_of_collectives(events))
        rows[telling] = self._told.rows + np.arange(len(telling))
        self._told.add(Descriptions.read(events.at(telling)))
        return rows

    def _place_unknown(self) -> None:
        """Add events of unknown categories to the device or the host, whose process they have."""
        unknown = self._unknown.build()
        devices, host = (
            set[int]().union(*(self._processes[one] for one in kinds))
            for kinds in (_DEVICE_KINDS, _HOST_KINDS)
        )
        on_device = np.isin(unknown.process, [*(devices - host - {NO_ID})])
        found = unknown.take(on_device)
        columns = {"device": found.process, "stream": found.thread, "task_type": found.layer}
        spans = {"start_ns": found.start_ns, "end_ns": found.end_ns, "name": found.name}
        self._tasks[KinetoTable.DEVICE].add(Tasks.of(len(found), spans | columns))
        lanes = {"process": found.process, "thread": found.thread}
        self._origins[KinetoTable.DEVICE].add(TaskOrigins.of(len(found), lanes))
        if self._has_host:
            self._host[KinetoTable.HOST].add(unknown.take(~on_device))

    def _host_table(self, calls: RuntimeCalls) -> tuple[HostEvents, int]:
        """Return what ran on the host, calls of the runtime first, and the number of these."""
        runtime_rows = self._host[KinetoTable.RUNTIME].rows
        host = _joined(self._host)
        if self._has_host and (host.connection[calls.row] != calls.connection).any():
            connection = host.connection.copy()
            connection[calls.row] = calls.connection
            host = replace(host, connection=connection)
        return host, runtime_rows

    def _communication(
        self, tasks: Tasks, own: Int64, calls: RuntimeCalls, task_call: Rows
    ) -> tuple[Tasks, CommunicationOps, Descriptions]:
        """Return the tasks, those that communicate marked as not computing, their ops and args.

        own: (n,) the row of what each task itself says about its collective.
        """
        rows = find_communicating(tasks, self._strings)
        announced, described = self._announced.build().of_calls(task_call[rows], calls)
        told = self._told.build().at(np.where(own[rows] != NO_ID, own[rows], described))
        ops = build_ops(tasks.take(rows), announced, told, self._strings)
        compute = tasks.compute.copy()
        compute[rows] = False
        return replace(tasks, compute=compute), ops, told

    def _arrows(
        self, launches: Launches, ends: ArrowEnds, host: HostEvents, numbered: Numbered
    ) -> Flows:
        """Arrows from each call to what it launched, and those that the trace draws by time."""
        if Layer.ARROWS not in self._wanted.layers:
            return Flows.empty()
        calls, task_call, tasks = launches.calls, launches.task_call, launches.tasks
        if not self._has_host:
            task_call = np.full(len(task_call), NOT_LAUNCHED, np.intp)
        joined = tasks.connection[task_call != NOT_LAUNCHED]
        launched = calls.arrows(task_call, LAUNCH, self._strings)
        resolved = self._flows.resolve(_lanes_of(host).get)
        drawn = resolved.flows
        if not (drawn.category == self._strings.code(FORWARD_BACKWARD)).any():
            drawn = Flows.concat([drawn, numbered.arrows(host, self._strings)])
        half, loose = ends.count_half(np.concatenate([joined, *self._elsewhere]))
        self._left_out[_HALF] += len(resolved.lacking) + half
        self._left_out[_LOOSE] += loose
        return Flows.concat([launched, drawn])

    def _group(self, pid: object) -> str:
        return MEMORY if pid == MEMORY else self._names.process(pid)

    def _omissions(self, rank: int) -> tuple[Omission, ...]:
        layers = self._wanted.layers
        return tuple(
            Omission(reason, rows, rank, loss=loss, code=code, layers=drawing)
            for reason, (code, loss, drawing) in _LEFT_OUT.items()
            if (rows := self._left_out[reason]) and (not drawing or drawing & layers)
        )


def _joined(builders: Mapping[KinetoTable, TableBuilder[_Table]]) -> _Table:
    """Build one table of several, one behind the other."""
    first, *others = builders.values()
    for other in others:
        first.extend(other)
    return first.build()


def _lanes_of(host: HostEvents) -> dict[LaneKey, LaneRows]:
    pairs, which = distinct_pairs(host.process, host.thread)
    keys: list[LaneKey] = list(zip(*pairs.T.tolist(), strict=True))
    return {
        keys[place]: LaneRows(FlowEnd.HOST, rows, host.start_ns[rows], host.end_ns[rows])
        for place, rows in rows_by_value(which)
    }


def _several_devices(tasks: Tasks, calls: RuntimeCalls, rank: int) -> tuple[str, ...]:
    """Return a remark where several devices or processes are taken for one rank."""
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


def _unknown_categories(tasks: Tasks, strings: StringPool, rank: int) -> tuple[str, ...]:
    """Return a remark on what ran on the device and is of a category that nothing is known of."""
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


def _overrunning(tasks: Tasks, strings: StringPool, rank: int) -> tuple[str, ...]:
    """Say which tasks were cut because their durations were broken."""
    if not len(tasks):
        return ()
    name = printable(strings[int(tasks.name[0])])
    return (
        f"rank {rank}: {format_count(len(tasks), 'task')} of the device cannot have run as long as "
        "recorded, because two or more whole kernels ran meanwhile on the same stream; each is cut "
        f"where the next task starts. The first is {name} on stream {tasks.stream[0]}.",
    )


def _shifted(records: Records, by_ns: int) -> Records:
    """All times moved by a constant."""
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
    """`*.pt.trace.json` of tensorboard_trace_handler, or what export_chrome_trace wrote."""

    layout: str
    identity: Identity
    clock: Clock
    trace: Path
    part: Part = ALL

    @property
    def files(self) -> tuple[Path, ...]:
        """The trace, which may be packed."""
        return (self.trace,)

    def read(self, wanted: ReadRequest) -> Records:
        """See `Source.read`."""
        header = read_header(self.trace)
        if not self.part.is_first:
            header = header.of_other_rank()
        rank, strings = self.identity.rank, StringPool()
        return read_kineto(self.trace, rank, header, strings, wanted, self.part)
