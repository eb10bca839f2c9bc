"""Facts of one rank that are needed across ranks, without its records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from timeline.analysis.checks import Measured, RankChecks, rank_checks
from timeline.analysis.contents import find_graphs, find_steps, is_monotonic
from timeline.analysis.cut import device_span_ns, host_span_ns
from timeline.analysis.data_queues import with_queue_sums
from timeline.analysis.gains.recording import Recording
from timeline.analysis.idle.call_sums import HostCallSums
from timeline.analysis.idle.charges import RankGaps
from timeline.analysis.idle.idle_sums import IdleTimes
from timeline.analysis.memory import AllocatedMemory, MemoryPeaks
from timeline.analysis.overlap import (
    FreeParts,
    OverlapTotals,
    StepWaits,
    communication_spans,
    overlap_by_launch,
    step_waits,
)
from timeline.analysis.path.rank_path import RankPath
from timeline.analysis.questions import Questions
from timeline.analysis.selected_rank import SelectedRank, count_detail_rows, detail_omission
from timeline.analysis.single_records import SingleRecords
from timeline.analysis.steps import RecordedSteps, StepTrace
from timeline.analysis.waits.collectives import RankCollectives
from timeline.analysis.work.computed_work import RankWork
from timeline.analysis.work.launching_operators import LauncherFigures
from timeline.analysis.work.operators import (
    OperatorFigures,
    OperatorSteps,
    kernel_waits,
    operator_figures,
)
from timeline.analysis.work.task_sums import RankLinks, TaskSums, rank_links
from timeline.columns.columns import Int64
from timeline.columns.distinct import distinct
from timeline.columns.intervals import IntervalSet, union
from timeline.layers import LAYERS, Layer, LayerSpec
from timeline.records.clock import ClockMove, CommunicationRule, FreeRule
from timeline.records.not_given import NO_TIME
from timeline.records.profiler_tables import ProfilerTables, UnusedFile
from timeline.records.tables import RUNTIME_LAYERS, Omission, Records, Steps
from timeline.selection import Selection

if TYPE_CHECKING:
    from timeline.analysis.work.framework_sums import FrameworkSums
    from timeline.analysis.work.work_classes import ClassTimes


def holds_any(records: Records, layer: LayerSpec) -> bool:
    """Return whether any record is drawn by the layer; True for a layer that draws no records."""
    if layer.option is Layer.CANN:  # host calls of all layers are in one table
        return any(map(records.holds_layer, RUNTIME_LAYERS))
    return not layer.tables or any(len(getattr(records, table)) for table in layer.tables)


def _lacking(records: Records) -> frozenset[Layer]:
    """Return the expected layers without a single record."""
    return frozenset(
        layer.option
        for layer in LAYERS
        if layer.option and layer.missing and not holds_any(records, layer)
    )


@dataclass(frozen=True, slots=True)
class ProfileFacts:
    """Contents of a profile of one rank, independent of the selection."""

    rank: int
    monotonic: bool
    """True if its clock counts from the start of its host."""
    graphs: frozenset[int]
    steps: frozenset[int]
    lacks: frozenset[Layer]
    """Expected layers (`LayerSpec.missing`) without a single record."""
    omissions: tuple[Omission, ...]
    warnings: tuple[str, ...]
    free_rule: FreeRule
    communication_rule: CommunicationRule
    unused: tuple[UnusedFile, ...] = ()
    host_offset_ns: int = 0
    """Shift of its host times onto the clock of its device."""
    host_layers: frozenset[str] = frozenset()
    """Layers with host calls, such as CANN."""
    timed: bool = True
    """True if any record has a time, so that there is something to draw."""
    tables_only: bool = False
    """True if it consists of small tables and the files beside them; see `Records`."""
    notes: tuple[str, ...] = ()
    """Assumptions and omissions of its reader that affect the figures."""
    untimed_steps: bool = False
    """True if its steps have no times of their own; see `Records`."""


@dataclass(frozen=True, slots=True)
class RankFacts:
    """Facts of the selection of one rank.

    steps, step_totals and step_waits have a row per selected step. device_start_ns, device_end_ns,
    (steps,): the interval in which the device works in its period, NO_TIME for never. step_rows,
    (steps,): number of its tasks, communication ops and HCCL tasks. span_ns is the first start and
    last end on the device, None without any; host_span_ns that of steps and calls of the host.
    """

    profile: ProfileFacts
    steps: Steps
    step_totals: OverlapTotals
    step_waits: StepWaits
    device_start_ns: Int64
    device_end_ns: Int64
    step_rows: Int64
    other_rows: int
    """Number of host events and counter samples."""
    overlap_ns: Mapping[str, int]
    free_parts: FreeParts
    graphs: frozenset[int]
    tasks: int
    communication_tasks: int
    communication_ops: int
    rows: int
    span_ns: tuple[int, int] | None
    omissions: tuple[Omission, ...]
    operators: OperatorFigures
    collectives: RankCollectives
    links: RankLinks
    checks: RankChecks = field(default_factory=RankChecks)
    missing: Omission | None = None
    """Detail that is left out to keep a limit."""
    recorded: RecordedSteps = field(default_factory=RecordedSteps.empty)
    """Extent of the recording in each selected step, one row each."""
    exposed: IntervalSet = field(default_factory=lambda: union(*np.zeros((2, 0), np.int64)))
    """Intervals in which communication ran and nothing computed."""
    idle: IdleTimes | None = None
    """Idle time by cause, None if not requested."""
    idle_gaps: RankGaps = field(default_factory=RankGaps)
    """Its longest gaps, if causes are requested."""
    host_calls: HostCallSums = field(default_factory=HostCallSums)
    """Host calls by name, if causes are requested."""
    path: RankPath = field(default_factory=RankPath)
    """Items that can lie on the critical path, if causes are requested, until the path is known."""
    replay: Recording = field(default_factory=Recording)
    """Recording to replay its run, if causes are requested."""
    work: RankWork = field(default_factory=RankWork)
    """Work in a step, if causes are requested."""
    launchers: LauncherFigures = field(default_factory=LauncherFigures)
    """Origins of its device work, if causes are requested."""
    task_sums: TaskSums = field(default_factory=TaskSums)
    """Time of HCCL tasks and copies, for a comparison."""
    memory: MemoryPeaks = field(default_factory=MemoryPeaks)
    """Peak memory, for a comparison that reads counters."""
    ordinary: RankFacts | None = None
    """The same facts of the ordinary steps alone, for a comparison.

    None if all steps are ordinary or the rank does not show which ones are. The collectives are
    those of the rank, with a different selection.
    """
    profiler_tables: ProfilerTables = field(default_factory=ProfilerTables)
    """Selected rows of the small tables beside the capture."""
    framework: FrameworkSums | None = None
    """Device time and memory of the framework's operators and modules, for a comparison with
    causes; else None.
    """
    allocated: AllocatedMemory = field(default_factory=AllocatedMemory)
    """Allocations of the framework's operators and peak memory, if requested."""
    operator_steps: OperatorSteps = field(default_factory=OperatorSteps)
    """Runs in each step; empty if only ordinary steps are compared."""

    class_times: ClassTimes | None = None
    """Number and duration of tasks of each class of work, for a comparison; else None."""
    step_trace: StepTrace = field(default_factory=StepTrace.empty)
    """Components of each selected step, one row each."""
    not_recorded: frozenset[str] = frozenset()
    """Parts of device time that are not recorded, by their names in the report."""
    single: SingleRecords = field(default_factory=SingleRecords)
    """Its tasks and host calls one by one, if requested."""
    host_span_ns: tuple[int, int] | None = None

    @property
    def rank(self) -> int:
        """Return the global rank."""
        return self.profile.rank

    @property
    def steps_on_device_ns(self) -> tuple[Int64, Int64]:
        """Return start and end of each step (n,): on the host if no device work of it is known."""
        steps = self.steps
        on_device = steps.host & (self.device_start_ns != NO_TIME)
        return (
            np.where(on_device, self.device_start_ns, steps.start_ns),
            np.where(on_device, self.device_end_ns, steps.end_ns),
        )

    def moved(self, move: ClockMove) -> RankFacts:
        """Return the facts on another clock; sums stay unchanged."""
        if move.still:
            return self
        start_ns, end_ns = self.device_start_ns, self.device_end_ns
        return replace(
            self,
            steps=self.steps.moved(move),
            operators=self.operators.moved(move),
            idle_gaps=self.idle_gaps.moved(move),
            collectives=self.collectives.moved(move),
            path=self.path.moved(move),
            replay=self.replay.moved(move),
            recorded=self.recorded.moved(move),
            single=self.single.moved(move),
            ordinary=None if self.ordinary is None else self.ordinary.moved(move),
            device_start_ns=np.where(start_ns == NO_TIME, NO_TIME, move.of(start_ns)),
            device_end_ns=np.where(start_ns == NO_TIME, end_ns, move.of(end_ns)),
            exposed=IntervalSet(move.of(self.exposed.start_ns), move.of(self.exposed.end_ns)),
            span_ns=_moved(self.span_ns, move),
            host_span_ns=_moved(self.host_span_ns, move),
        )


def _moved(span_ns: tuple[int, int] | None, move: ClockMove) -> tuple[int, int] | None:
    return None if span_ns is None else (move.of_time(span_ns[0]), move.of_time(span_ns[1]))


def collect_profile_facts(records: Records) -> ProfileFacts:
    """Return the facts of all records of a rank."""
    return ProfileFacts(
        records.rank,
        is_monotonic(records),
        find_graphs(records),
        find_steps(records),
        _lacking(records) if not records.tables_only else frozenset(),
        records.omissions,
        records.warnings,
        records.free_rule,
        records.communication_rule,
        records.unused,
        records.host_offset_ns,
        host_layers=frozenset(
            records.strings[layer] for layer in distinct(records.host.layer).tolist()
        ),
        timed=records.timed,
        tables_only=records.tables_only,
        notes=records.notes,
        untimed_steps=records.untimed_steps,
    )


def collect_facts(
    profile: ProfileFacts,
    selected: SelectedRank,
    collectives: RankCollectives,
    selection: Selection,
    questions: Questions,
    *,
    windowed: bool = False,
) -> RankFacts:
    """Return the facts of the selected records of a rank.

    windowed: whether a window cuts through the selection.
    """
    records, membership = selected.records, selected.cut.membership
    count = len(records.steps)
    op_iterations = selected.cut.op_iterations[selected.cut.op_rows]
    rows = [membership.tasks, membership.ops, membership.planes]
    operators = operator_figures(
        records,
        op_iterations,
        most_names=questions.named_operators,
        most_lengths=questions.most_lengths,
        waits=kernel_waits(records, None if selection.steps is None else membership)
        if questions.causes
        else None,
        peak_flop_per_s=questions.peak_flop_per_s,
    )
    overlap_ns = selected.overlap.totals_ns()
    if not records.free_is_known:  # not reported, but the parts add up to the span
        busy_ns = overlap_ns["computing_ns"] + overlap_ns["not_overlapped_ns"]
        overlap_ns["free_ns"] = selected.overlap.span_ns - busy_ns
    communication, communication_step = communication_spans(records, membership)
    totals = selected.step_totals
    measured = Measured(
        selected.overlap,
        records.steps,
        overlap_by_launch(records.tasks, membership.tasks, communication, communication_step, count)
        if len(records.vendor)
        else [],
        operators.times,
        operators.strings,
        op_iterations,
    )
    return RankFacts(
        profile,
        records.steps,
        totals,
        step_waits(records, membership, selected.cut.recorded, totals),
        *selected.cut.recorded.on_device(membership),
        sum((np.bincount(step[step >= 0], minlength=count) for step in rows), np.zeros(count, int)),
        len(records.host) + len(records.samples),
        overlap_ns,
        selected.overlap.free_parts(has_copies=records.records_copies),
        find_graphs(records),
        len(records.tasks),
        len(records.planes),
        len(records.ops),
        count_detail_rows(records),
        device_span_ns(records),
        records.omissions,
        operators,
        collectives,
        rank_links(records, selection.steps, whole=not windowed and selection.graphs is None),
        RankChecks()
        if records.tables_only
        else rank_checks(records, selection, windowed, measured),
        detail_omission(selected),
        recorded=selected.cut.recorded,
        exposed=selected.overlap.not_overlapped,
        not_recorded=frozenset() if records.free_is_known else frozenset({"free_ns", "idle_ns"}),
        idle=None if selected.idle is None else selected.idle.times,
        profiler_tables=with_queue_sums(
            records.profiler_tables.selected(selection.steps, selection.graphs)
        ),
        step_trace=selected.cut.trace,
        host_span_ns=host_span_ns(records),
    )
