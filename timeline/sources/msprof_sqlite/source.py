"""Source of captures that msprof parsed into databases but never exported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from timeline.columns.columns import Codes, Int64
from timeline.columns.constant import constant
from timeline.columns.strings import StringPool
from timeline.errors import SourceError
from timeline.layers import Layer
from timeline.records.clock import Clock
from timeline.records.joining import IDS
from timeline.records.kernel_metrics import KernelMetrics
from timeline.records.not_given import NO_CONTEXT, NO_GRAPH, NO_ID, NO_TIME
from timeline.records.tables import (
    AI_CORE_FREQUENCY,
    CommunicationOps,
    CounterSamples,
    CounterSeries,
    Flows,
    HostEvents,
    OmissionCode,
    PlaneTasks,
    Records,
    StepPart,
    StepParts,
    Steps,
    Tasks,
)
from timeline.sources.common.core_metrics import read_core_counts
from timeline.sources.common.counter_tables import CounterTable, SampleClock, parsed_tables
from timeline.sources.common.counters import CounterBuilder
from timeline.sources.common.device_clock import DeviceClocks, read_device_clocks
from timeline.sources.common.flow_events import ArrowTargets
from timeline.sources.common.losses import FFTS_REASON, LostRows
from timeline.sources.common.overlap_analysis import remark_on_ai_cpu_tasks
from timeline.sources.decoders.joins import Lookup, common_keys, covering_parents, ordinals
from timeline.sources.msprof_sqlite import TASKS
from timeline.sources.msprof_sqlite.communication import (
    Communication,
    read_communication,
    read_transfers,
)
from timeline.sources.msprof_sqlite.databases import (
    LooseTable,
    ParsedDatabases,
    open_parsed_databases,
)
from timeline.sources.msprof_sqlite.tasks import (
    DeviceTasks,
    describe_tasks,
    read_calls,
    read_device_tasks,
    read_marks,
    with_metrics,
)
from timeline.sources.source import SQLITE, Identity, ReadRequest


@dataclass(frozen=True)
class ParsedSteps:
    """Steps and their reduces and data fetches.

    uncounted: number of rows without times, because no clock converts their device counts.
    """

    steps: Steps
    parts: StepParts
    uncounted: int


def read_steps(databases: ParsedDatabases, clock: DeviceClocks) -> ParsedSteps:
    """Read steps and their parts from trace.db, or from step_trace.db of versions without it.

    Both hold counts of the device; without the clock of its counter, rows have no times.
    """
    training = databases.device_table("trace.db", "training_trace")
    spans = databases.device_table("step_trace.db", "step_trace_data", "StepTime")
    reduces = databases.device_table("trace.db", "all_reduce")
    fetches = databases.device_table("trace.db", "get_next")
    if clock.counter is None:
        uncounted = (len(training) or len(spans)) + len(reduces) + len(fetches)
        return ParsedSteps(Steps.empty(), StepParts.empty(), uncounted)
    steps = _read_marked_steps(training, clock) if len(training) else _read_bare_steps(spans, clock)
    parts = StepParts.concat(
        [
            _read_parts(reduces, steps, clock, StepPart.REDUCE, "start", "end"),
            _read_parts(fetches, steps, clock, StepPart.GET_NEXT, "start_time", "end_time"),
        ]
    )
    return ParsedSteps(steps, parts, 0)


def _read_marked_steps(table: LooseTable, clock: DeviceClocks) -> Steps:
    """Read steps with forward start and backward end; start is iteration_end - iteration_time."""
    marks = {"fp_start_ns": "FP_start", "bp_end_ns": "BP_end"}
    columns = {"end_ns": "iteration_end", "graph": "model_id", "iteration": "iteration_id"}
    steps = table.read(Steps, columns | marks, start_ns=NO_ID)
    length = table.integers({"iteration_time": NO_ID})["iteration_time"]
    is_timed = (length >= 0) & (steps.end_ns != NO_TIME)
    counts = np.where(is_timed, steps.end_ns - np.where(is_timed, length, 0), NO_ID)
    return _convert_counts(replace(steps, start_ns=counts), clock)


def _read_bare_steps(table: LooseTable, clock: DeviceClocks) -> Steps:
    """Read steps without forward start and backward end."""
    columns = {"start_ns": "step_start", "end_ns": "step_end"}
    return _convert_counts(
        table.read(Steps, columns | {"graph": "model_id", "iteration": "index_id"}), clock
    )


def _convert_counts(steps: Steps, clock: DeviceClocks) -> Steps:
    """Convert times of steps from counts of the device to ns."""
    return replace(
        steps,
        start_ns=clock.counted_ns(steps.start_ns),
        end_ns=clock.counted_ns(steps.end_ns),
        fp_start_ns=clock.counted_ns(steps.fp_start_ns),
        bp_end_ns=clock.counted_ns(steps.bp_end_ns),
    )


def _read_parts(
    table: LooseTable, steps: Steps, clock: DeviceClocks, kind: StepPart, start: str, end: str
) -> StepParts:
    """Read step parts of one kind, numbered by start within their step."""
    raw = table.integers(
        {"model_id": NO_GRAPH, "index_id": NO_ID, "iteration_end": NO_ID, start: NO_ID, end: NO_ID}
    )
    graph, iteration = IDS["graph"].normalise(raw["model_id"]), raw["index_id"]
    if not table.has("index_id"):  # rows name the end of their step instead of its number
        iteration = _find_iterations(graph, clock.counted_ns(raw["iteration_end"]), steps)
    start_ns = clock.counted_ns(raw[start])
    step, _ = common_keys([graph, iteration], [graph[:0], iteration[:0]])
    return StepParts.of(
        len(start_ns),
        start_ns=start_ns,
        end_ns=clock.counted_ns(raw[end]),
        graph=graph,
        iteration=iteration,
        number=ordinals(step, start_ns),
        kind=kind,
    )


def _find_iterations(graph: Int64, end_ns: Int64, steps: Steps) -> Int64:
    key, step_key = common_keys([graph, end_ns], [steps.graph, steps.end_ns])
    lookup = Lookup({"key": step_key, "iteration": steps.iteration}, "key")
    return lookup.of("iteration", lookup.find(key))


_Part = TypeVar("_Part")


@dataclass(frozen=True)
class ParsedSource:
    """`PROF_*/device_N/sqlite` and `PROF_*/host/sqlite`: the tables that msprof parsed."""

    layout: str
    identity: Identity
    clock: Clock
    device: Path
    """The directory of the device's databases."""

    @property
    def host(self) -> Path:
        """The directory of the host's databases."""
        return self.device.parent.parent / "host" / SQLITE

    @property
    def files(self) -> tuple[Path, ...]:
        """All databases of the device and its host."""
        return (*sorted(self.device.glob("*.db")), *sorted(self.host.glob("*.db")))

    def read(self, wanted: ReadRequest) -> Records:
        """See `Source.read`."""
        clock = read_device_clocks(self.device.parent, self.host.parent, self.clock.wall_offset_ns)
        device = NO_ID if self.identity.device is None else self.identity.device
        with open_parsed_databases(self.device, self.host) as databases:
            return _Reader(databases, clock, self.identity.rank, device, wanted).records()


class _Reader(LostRows):
    """One pass over the databases of one device."""

    def __init__(
        self,
        databases: ParsedDatabases,
        clock: DeviceClocks,
        rank: int,
        device: int,
        wanted: ReadRequest,
    ) -> None:
        super().__init__(rank)
        self.databases, self.clock, self.device = databases, clock, device
        self.wanted, self.layers, self.every_arg = wanted, wanted.layers, wanted.every_arg
        self.strings = StringPool()
        self.named = True

    def records(self) -> Records:
        """Read every table that a wanted layer needs.

        Tables that cannot be read are left out and counted, except that of tasks.

        Raises:
            SourceError: the table of tasks cannot be read or lacks times.
        """
        steps = self._attempt(
            lambda: read_steps(self.databases, self.clock),
            ParsedSteps(Steps.empty(), StepParts.empty(), 0),
        )
        reason = "steps and their parts, counted by a clock that nothing relates to the tasks"
        self.leave_out(reason, steps.uncounted, OmissionCode.NO_CLOCK)
        # Without recorded steps, steps are inferred from the names of operators.
        self.named = self.wanted.with_names or not len(steps.steps)
        tasks = self._tasks()
        no_metrics = tasks, KernelMetrics()
        tasks, metrics = self._attempt(lambda: self._with_metrics(tasks), no_metrics)
        communication = self._attempt(
            lambda: self._communication(tasks),
            Communication(CommunicationOps.empty(), PlaneTasks.empty(), np.empty(0, np.int64)),
        )
        calls = self._attempt(
            lambda: read_calls(self.databases, self.clock, self.strings, whole=self._with_host),
            HostEvents.empty(),
        )
        launches = Lookup(
            {"connection": calls.connection, "start_ns": calls.start_ns}, "connection"
        )
        tasks = replace(tasks, launch_ns=_find_starts_ns(tasks.connection, launches))
        ops, planes = communication.ops, communication.planes
        ops = replace(ops, launch_ns=_find_starts_ns(ops.connection, launches))
        planes = replace(
            planes, launch_ns=_find_starts_ns(communication.plane_connection, launches)
        )
        host = self._host(calls)
        flows = Flows.empty()
        if Layer.ARROWS in self.layers:
            rows = np.flatnonzero(host.layer == self.strings.code("CANN"))
            targets = ArrowTargets(self.strings, tasks, ops)
            flows = Flows.concat(targets.arrows("HostToDevice", host.connection[rows], rows))
        if not self.every_arg:
            no_ids = constant(NO_ID, len(tasks), np.int64)
            no_context = constant(NO_CONTEXT, len(tasks), np.int64)
            tasks = replace(tasks, batch=no_ids, context=no_context, connection=no_ids)
        series, samples = self._counters()
        return Records(
            self.rank,
            self.strings,
            tasks=tasks,
            planes=planes if Layer.COMMUNICATION in self.layers else PlaneTasks.empty(),
            ops=ops,
            steps=steps.steps,
            parts=steps.parts,
            host=host,
            series=series,
            samples=samples,
            flows=flows,
            omissions=(*self.omissions, *self.databases.omissions(self.rank)),
            warnings=tuple(self.warnings),
            members=communication.members,
            metrics=metrics,
            cores=read_core_counts(self.databases.device.parent.parent, self.device),
        )

    @property
    def _with_host(self) -> bool:
        return bool(self.layers & {Layer.CANN, Layer.FRAMEWORK})

    def _tasks(self) -> Tasks:
        """Read device tasks and the operators they ran, without FFTS+ tasks that have sub-tasks."""
        table = self.databases.device_table(TASKS, "AscendTask")
        if not table.has("start_time", "duration"):
            raise SourceError(
                self.databases.device / TASKS,
                "holds no table AscendTask with start_time and duration.",
                do="Export the capture instead: msprof --export=on --output=PROF_...",
            )
        recorded = read_device_tasks(table, self.device, self.strings)
        reason = "tasks that were launched and of which the device recorded nothing"
        self.leave_out(reason, recorded.never_ran, OmissionCode.NO_TASK)
        parents = covering_parents(recorded.tasks)
        if parents.any():
            self.leave_out(FFTS_REASON, int(parents.sum()), OmissionCode.FFTS_WHOLE, loss=False)
            recorded = DeviceTasks(recorded.tasks.take(~parents), recorded.device_type[~parents], 0)
        return self._attempt(lambda: self._describe(recorded), recorded.tasks)

    def _with_metrics(self, tasks: Tasks) -> tuple[Tasks, KernelMetrics]:
        table = self.databases.device_table("metric_summary.db", "MetricSummary")
        if not len(table):
            table = self.databases.device_table("ai_core_op_summary.db", "ai_core_metrics")
        return with_metrics(tasks, table, every_arg=self.every_arg)

    def _describe(self, recorded: DeviceTasks) -> Tasks:
        where = {"device_id": self.device}
        operators = self.databases.host_table("ge_info.db", "TaskInfo", where=where)
        launched = self.databases.host_table("runtime.db", "HostTask", where=where)
        if len(recorded.tasks) and not len(operators):
            self.warn("no operators in ge_info.db; tasks are named by their type.")
            if remark := remark_on_ai_cpu_tasks(recorded.tasks, self.strings, "ge_info.db"):
                self.warn(remark)
        elif len(operators) and not operators.has("batch_id"):
            self.warn("operators have no batch_id; a task id used again keeps its first name.")
        return describe_tasks(
            recorded, operators, launched, self.strings, named=self.named, every_arg=self.every_arg
        )

    def _communication(self, tasks: Tasks) -> Communication:
        transfers, never_ran = read_transfers(self.databases, self.device, tasks, self.strings)
        communication = read_communication(
            self.databases, self.device, transfers, tasks, self.strings, every_arg=self.every_arg
        )
        reason = "HCCL tasks whose device task is not in the profile"
        self.leave_out(reason, never_ran, OmissionCode.NO_TASK)
        reason = "communication ops of which nothing tells when they ran"
        self.leave_out(reason, communication.timeless, OmissionCode.NO_TIME)
        return communication

    def _host(self, calls: HostEvents) -> HostEvents:
        """Return calls and marks if a wanted layer shows them."""
        if not self._with_host:
            return HostEvents.empty()
        marks = self._attempt(
            lambda: read_marks(self.databases, self.clock, self.strings), HostEvents.empty()
        )
        return HostEvents.concat([calls, marks])

    def _counters(self) -> tuple[CounterSeries, CounterSamples]:
        nothing = CounterSeries.empty(), CounterSamples.empty()
        every = Layer.COUNTERS in self.layers
        if not every and not self.wanted.frequency:
            return nothing
        return self._attempt(
            lambda: _read_counters(self.databases, self.clock, self.strings, every=every), nothing
        )

    def _attempt(self, read: Callable[[], _Part], otherwise: _Part) -> _Part:
        """Return the result of `read`; if its database is broken, note that and use `otherwise`."""
        try:
            return read()
        except SourceError as error:
            reason = f"databases that cannot be read ({error.path.name})"
            self.leave_out(reason, 1, OmissionCode.DAMAGED)
            self.warn(str(error))
            return otherwise


def _find_starts_ns(connection: Int64, launches: Lookup) -> Int64:
    """Return the start of the host call of each connection, NO_TIME if there is none."""
    row = np.where(connection == NO_ID, -1, launches.find(connection))
    return launches.of("start_ns", row, NO_TIME)


def _read_counters(
    databases: ParsedDatabases, clock: DeviceClocks, strings: StringPool, *, every: bool = True
) -> tuple[CounterSeries, CounterSamples]:
    """Read counters from all tables of samples; a sample without a timestamp gets NO_TIME.

    every: whether all counters are wanted, or only the frequency of the AI Core.
    """
    counters = CounterBuilder()
    for table in parsed_tables():
        if not every and table.group != AI_CORE_FREQUENCY:
            continue
        rows = databases.device_table(table.file, table.table)
        if len(rows) and rows.has(table.time):
            tags: dict[str, Int64 | Codes] = {}
            if table.label:
                tags |= rows.integers({table.label: NO_ID})
            if table.kind:
                tags |= rows.codes((table.kind,), strings)
            counters.add_table(
                table,
                _read_times_ns(table, rows, clock),
                rows.reals(tuple(table.values)),
                tags,
                partial(_kind_name, table.words, strings),
            )
    return counters.tables(strings)


def _kind_name(words: Mapping[str, str], strings: StringPool, code: int) -> str:
    return words.get(strings[code], strings[code])


def _read_times_ns(table: CounterTable, rows: LooseTable, clock: DeviceClocks) -> Int64:
    name = table.time
    match table.clock:
        case SampleClock.HOST:
            return rows.integers({name: NO_TIME})[name]
        case SampleClock.COUNTER:
            return clock.counted_ns(rows.integers({name: NO_ID})[name])
        case SampleClock.SAMPLER:
            return clock.sampled_ns(rows.integers({name: NO_ID})[name])
        case SampleClock.MEMORY_SAMPLER:
            times = rows.integers({name: NO_ID})[name]
            return clock.memory_ns(times, rows.reals((name,))[name])
