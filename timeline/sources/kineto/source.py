"""Turns one trace of PyTorch's own profiler into records."""

from __future__ import annotations

from collections import Counter as Multiset
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from timeline.columns.columns import Int64, Rows, TableBuilder
from timeline.columns.distinct import distinct
from timeline.columns.strings import StringPool
from timeline.errors import spell_ids
from timeline.records.clock import ClockMove
from timeline.records.tables import (
    GPU,
    NO_ID,
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
from timeline.selection import Layer
from timeline.sources.common.damage import Damage
from timeline.sources.kineto.collectives import (
    Announcements,
    Descriptions,
    announces,
    communicating,
    communication_ops,
)
from timeline.sources.kineto.events import (
    KINETO,
    LAUNCHING,
    NO_ARGS,
    Activity,
    Args,
    Instant,
    KinetoEvent,
    Place,
    place_of,
)
from timeline.sources.kineto.header import read_header
from timeline.sources.kineto.operators import Operators, external_ids, is_operator
from timeline.sources.kineto.tables import (
    MEMORY,
    NOT_LAUNCHED,
    RuntimeCalls,
    correlations,
    device_table,
    host_table,
    memory_counter,
)
from timeline.sources.source import Clock, Identity, Wanted
from timeline.sources.trace_json.counters import CounterKey, CounterReader, decoded_counters
from timeline.sources.trace_json.event_fields import numbered, spans_of
from timeline.sources.trace_json.events import (
    Counter,
    FlowFinish,
    FlowStart,
    FlowStep,
    Metadata,
    Other,
)
from timeline.sources.trace_json.flows import FlowReader, LaneRows
from timeline.sources.trace_json.json_events import read_as
from timeline.sources.trace_json.lane_names import LaneKey, LaneNames
from timeline.sources.trace_json.tables import PROFILER_STEP, profiler_steps

__all__ = ["KinetoSource", "read_kineto"]

HELD_BLOCKS = 16
"""Blocks of text that are held, as what their events keep, before these become columns.

Their number of events differs: call stacks and shapes take thousands of bytes.
"""
LAUNCH = "ac2g"
_MEMORY_EVENT = "[memory]"
_ANNOTATIONS = "spans of annotations on devices, which are drawn on the host"
_MARKS = "marks that the profiler made of its own recording"
_HALF = "arrows whose other end is not in the profile"
_NO_TOTALS = "memory events without totals"
_SAME_STEPS = "steps with the number of another step"
_OTHERS = "trace events of a kind that is not drawn"
_CODES = {
    _ANNOTATIONS: OmissionCode.REPEATED,
    _MARKS: OmissionCode.NOT_DRAWN,
    _HALF: OmissionCode.ARROW_HALF,
    _NO_TOTALS: OmissionCode.NO_TIME,
    _SAME_STEPS: OmissionCode.REPEATED,
    _OTHERS: OmissionCode.NOT_DRAWN,
}
_LOSSES = frozenset({_NO_TOTALS, _SAME_STEPS, _OTHERS})


def read_kineto(
    path: Path, rank: int, base_ns: int, strings: StringPool, wanted: Wanted
) -> Records:
    """Read a trace whose times count from a base.

    Tables that no layer needs stay empty; tasks, ops, steps and launch times are always read,
    because the overlap of a step needs them.

    Raises:
        SourceError: the file cannot be read or holds an event of an unexpected shape.
    """
    reader, damage = _Reader(strings, wanted), Damage(path)
    for events in read_as(KINETO, path, damage=damage):
        reader.add(events)
    records = reader.records(rank)
    omissions = (*records.omissions, *damage.omissions(rank))
    return _shifted(replace(records, omissions=omissions), base_ns)


class _Reader:
    """One pass over a file: events become columns as soon as there are enough of them."""

    def __init__(self, strings: StringPool, wanted: Wanted) -> None:
        self._strings, self._wanted = strings, wanted
        self._has_host = bool(wanted.layers & {Layer.CANN, Layer.FRAMEWORK})
        self._names = LaneNames()
        self._activities: dict[Place, list[Activity]] = {place: [] for place in Place}
        self._samples: dict[CounterKey, list[Counter]] = defaultdict(list)
        self._flow_ends: list[FlowStart | FlowStep | FlowFinish] = []
        self._launch_ends: list[FlowStart | FlowStep | FlowFinish] = []
        self._held = 0
        self._tasks, self._announced = TableBuilder(Tasks), TableBuilder(Announcements)
        self._told, self._task_told = TableBuilder(Descriptions), list[Int64]()
        self._host, self._steps, self._calls = (
            TableBuilder(HostEvents),
            TableBuilder(Steps),
            TableBuilder(RuntimeCalls),
        )
        self._operators = TableBuilder(Operators)
        self._named: list[Int64] = []
        self._counters, self._flows = CounterReader(), FlowReader(strings)
        self._launches: list[Int64] = []
        self._left_out: Multiset[str] = Multiset()

    def add(self, events: Sequence[KinetoEvent | Other]) -> None:
        """Sort events by what they are; they stay objects for HELD_BLOCKS."""
        activities = self._activities
        for event in events:
            if isinstance(event, Activity):
                activities[place_of(event)].append(event)
            elif isinstance(event, (FlowStart, FlowStep, FlowFinish)):
                (self._launch_ends if event.cat in LAUNCHING else self._flow_ends).append(event)
            elif isinstance(event, Instant):
                self._add_instant(event)
            elif isinstance(event, Counter):
                self._samples[event.pid, event.name].append(event)
            elif isinstance(event, Metadata):
                self._names.add(event)
            else:
                self._left_out[_OTHERS] += 1
        self._held += 1
        if self._held >= HELD_BLOCKS:
            self._flush()

    def _add_instant(self, event: Instant) -> None:
        if event.name != _MEMORY_EVENT:
            known = not event.cat
            self._left_out[_MARKS if known else _OTHERS] += 1
            return
        counter = memory_counter(event)
        if counter is None:
            self._left_out[_NO_TOTALS] += 1
        else:
            self._samples[counter.pid, counter.name].append(counter)

    def _flush(self) -> None:
        """Turn events into columns."""
        for place in (Place.KERNEL, Place.DEVICE):
            if events := self._activities[place]:
                described = self._described([event.args for event in events])
                tasks = device_table(events, place, self._strings, every_arg=self._wanted.every_arg)
                self._tasks.add(tasks)
                self._task_told.append(described)
                self._named.append(external_ids(events))
        calls = self._activities[Place.HOST]
        rows, numbers = numbered([call.name for call in calls], PROFILER_STEP)
        self._steps.add(profiler_steps(numbers, spans_of([calls[row] for row in rows])))
        announcing = [call for call in calls if announces(call)]
        described = self._described([call.args for call in announcing])
        self._announced.add(Announcements.read(announcing, described, self._strings))
        for place in (Place.RUNTIME, Place.HOST):
            if events := self._activities[place]:
                self._add_host(events, place)
        self._left_out[_ANNOTATIONS] += len(self._activities[Place.ANNOTATION])
        self._left_out[_MARKS] += len(self._activities[Place.PROFILER])
        for events in self._activities.values():
            events.clear()
        if Layer.COUNTERS in self._wanted.layers:
            self._counters.add(decoded_counters(self._samples))
        if Layer.ARROWS in self._wanted.layers:
            self._flows.add(self._flow_ends)
            self._launches.append(correlations([_id(event) for event in self._launch_ends]))
        self._samples.clear()
        self._flow_ends.clear()
        self._launch_ends.clear()
        self._held = 0

    def _add_host(self, events: Sequence[Activity], place: Place) -> None:
        if not self._has_host and place is Place.HOST:
            events = [event for event in events if is_operator(event)]
        host = host_table(events, place, self._strings, every_arg=self._wanted.every_arg)
        if place is Place.RUNTIME:
            self._calls.add(RuntimeCalls.among(host, self._host.rows, self._strings))
        else:
            self._operators.add(Operators.among(events, host))
        if self._has_host:
            self._host.add(host)

    def records(self, rank: int) -> Records:
        """All that was read, at the times of the file."""
        self._flush()
        calls = self._calls.joined()
        calls = calls.in_order()
        tasks, host, steps = self._tasks.joined(), self._host.joined(), self._steps.joined()
        task_call = calls.launching(tasks.connection)
        named = np.concatenate([np.empty(0, np.int64), *self._named])
        launching = self._operators.joined().launching(named, task_call, calls)
        tasks = replace(tasks, launch_ns=calls.moments_ns(task_call), op_type=launching)
        tasks, ops = self._communication(tasks, calls, task_call)
        flows = self._arrows(calls, task_call, tasks, host)
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
            omissions=self._omissions(rank),
            warnings=_several_devices(tasks, rank),
            hardware=GPU,
            numbered_ops=False,
        )

    def _described(self, args: Sequence[Args | None]) -> Int64:
        """The row of what the args of each event tell of a collective, NO_ID for nothing."""
        rows = np.full(len(args), NO_ID, np.int64)
        held = [at for at, own in enumerate(args) if own is not None and own.of_collective]
        rows[held] = self._told.rows + np.arange(len(held))
        self._told.add(Descriptions.read([args[at] or NO_ARGS for at in held], self._strings))
        return rows

    def _communication(
        self, tasks: Tasks, calls: RuntimeCalls, task_call: Rows
    ) -> tuple[Tasks, CommunicationOps]:
        """The tasks, of which those that communicate do not compute, and the ops of these."""
        kernels = np.flatnonzero(tasks.compute)
        own = tasks.take(kernels)
        communicates = communicating(own.name, own.op_type, self._strings)
        rows, own = kernels[communicates], own.take(communicates)
        announced, described = self._announced.joined().around(task_call[rows], calls)
        told = np.concatenate([np.empty(0, np.int64), *self._task_told])[rows]
        told = np.where(told != NO_ID, told, described)
        ops = communication_ops(own, announced, self._told.joined().at(told), self._strings)
        compute = tasks.compute.copy()
        compute[rows] = False
        return replace(tasks, compute=compute), ops

    def _arrows(
        self, calls: RuntimeCalls, task_call: Rows, tasks: Tasks, host: HostEvents
    ) -> Flows:
        """Arrows from each call to what it launched, and those that the trace draws by time."""
        if Layer.ARROWS not in self._wanted.layers:
            return Flows.empty()
        if not self._has_host:
            task_call = np.full(len(task_call), NOT_LAUNCHED, np.intp)
        launches = calls.arrows(task_call, self._strings.code(LAUNCH))
        resolved = self._flows.resolve(lambda key: _lane(host, key))
        ends = np.concatenate([np.empty(0, np.int64), *self._launches])
        joined = np.isin(ends, tasks.connection[launches.target_row])
        self._left_out[_HALF] += resolved.half + int(np.count_nonzero(~joined))
        return Flows.concat([launches, resolved.flows])

    def _group(self, pid: object) -> str:
        return MEMORY if pid == MEMORY else self._names.process(pid)

    def _omissions(self, rank: int) -> tuple[Omission, ...]:
        layers = self._wanted.layers
        asked = {
            _ANNOTATIONS: Layer.FRAMEWORK in layers,
            _MARKS: Layer.FRAMEWORK in layers,
            _NO_TOTALS: Layer.COUNTERS in layers,
        }
        return tuple(
            Omission(reason, rows, rank, loss=reason in _LOSSES, code=_CODES[reason])
            for reason, rows in self._left_out.items()
            if rows and asked.get(reason, True)
        )


def _id(event: FlowStart | FlowStep | FlowFinish) -> str:
    return bytes(event.id).strip(b'"').decode("ascii", "replace")


def _lane(host: HostEvents, key: LaneKey) -> LaneRows | None:
    """The rows of one thread of the host."""
    if not (isinstance(key[0], int) and isinstance(key[1], int)):
        return None
    rows = np.flatnonzero((host.process == key[0]) & (host.thread == key[1]))
    if not len(rows):
        return None
    return LaneRows(FlowEnd.HOST, rows, host.start_ns[rows], host.end_ns[rows])


def _several_devices(tasks: Tasks, rank: int) -> tuple[str, ...]:
    """A remark where one process used several devices: streams of one number share a row."""
    devices = distinct(tasks.device[tasks.device != NO_ID]).tolist()
    if len(devices) < 2:
        return ()
    return (
        f"rank {rank}: its process used devices {spell_ids(devices)}; streams of the same number "
        "share a row, and overlap counts all devices as one.",
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
        samples=replace(
            records.samples, time_ns=ClockMove(by_ns).of_recorded(records.samples.time_ns)
        ),
    )


@dataclass(frozen=True)
class KinetoSource:
    """`*.pt.trace.json` of tensorboard_trace_handler, or what export_chrome_trace wrote."""

    identity: Identity
    clock: Clock
    trace: Path
    layout: str = "PyTorch trace"

    @property
    def files(self) -> tuple[Path, ...]:
        """The trace, which may be packed."""
        return (self.trace,)

    def read(self, wanted: Wanted) -> Records:
        """See `Source.read`."""
        base_ns = read_header(self.trace).base_ns
        return read_kineto(self.trace, self.identity.rank, base_ns, StringPool(), wanted)
