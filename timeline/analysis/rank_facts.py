"""What the whole must know of one rank without its records."""

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
from timeline.analysis.idle.idle_sums import IdleTimes
from timeline.analysis.memory import AllocatedMemory, MemoryPeaks
from timeline.analysis.overlap import (
    FreeParts,
    OverlapTotals,
    communication_spans,
    overlap_by_launch,
)
from timeline.analysis.path.critical_path import RankPath
from timeline.analysis.questions import Questions
from timeline.analysis.recorded_steps import RecordedSteps
from timeline.analysis.selected_rank import SelectedRank, count_detail_rows, detail_omission
from timeline.analysis.single_records import SingleRecords
from timeline.analysis.step_trace import StepTrace
from timeline.analysis.step_waits import StepWaits, step_waits
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
    """Whether there is a record that the layer draws; one that draws no records needs none."""
    if layer.option is Layer.CANN:  # host calls of all layers are in one table
        return any(map(records.holds_layer, RUNTIME_LAYERS))
    return not layer.tables or any(len(getattr(records, table)) for table in layer.tables)


def _lacking(records: Records) -> frozenset[Layer]:
    """The expected layers of which there is not one record."""
    return frozenset(
        layer.option
        for layer in LAYERS
        if layer.option and layer.missing and not holds_any(records, layer)
    )


@dataclass(frozen=True, slots=True)
class ProfileFacts:
    """What a profile of one rank holds, whatever is selected of it."""

    rank: int
    monotonic: bool
    """Whether its clock counts from the start of its host."""
    graphs: frozenset[int]
    steps: frozenset[int]
    lacks: frozenset[Layer]
    """Layers that are expected (`LayerSpec.missing`), and of which there is not one record."""
    omissions: tuple[Omission, ...]
    warnings: tuple[str, ...]
    free_rule: FreeRule
    communication_rule: CommunicationRule
    unused: tuple[UnusedFile, ...] = ()
    host_offset_ns: int = 0
    """What its host times were moved by, on to the clock of its device."""
    host_layers: frozenset[str] = frozenset()
    """Whose calls on the host were read, such as CANN."""
    timed: bool = True
    """Whether anything that was read has a time, so that there is something to draw."""
    tables_only: bool = False
    """Whether it is nothing but small tables and what lies beside them; see `Records`."""
    notes: tuple[str, ...] = ()
    """What its reader assumed or left out that changes what the figures are about."""
    untimed_steps: bool = False
    """Whether its steps have no times of their own; see `Records`."""


@dataclass(frozen=True, slots=True)
class RankFacts:
    """What is known of what is selected of one rank.

    steps, step_totals, step_waits, device_start_ns, device_end_ns and step_rows have a row per
    selected step: when the device works in its period (NO_TIME for never), and the number of its
    device records. span_ns is the first start and last end on the device, None without any;
    host_span_ns that of steps and calls of the host.
    """

    profile: ProfileFacts
    steps: Steps
    step_totals: OverlapTotals
    step_waits: StepWaits
    device_start_ns: Int64
    device_end_ns: Int64
    step_rows: Int64
    other_rows: int
    """Host events and counter samples."""
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
    """The detail that is left out to keep a limit."""
    recorded: RecordedSteps = field(default_factory=RecordedSteps.empty)
    """A row per selected step: what the recording holds of it."""
    exposed: IntervalSet = field(default_factory=lambda: union(*np.zeros((2, 0), np.int64)))
    """When its communication ran and nothing computed."""
    idle: IdleTimes | None = None
    """Why it idles, None where that was not asked."""
    path: RankPath = field(default_factory=RankPath)
    """What can lie on the critical path, where causes are asked for, until that is known."""
    replay: Recording = field(default_factory=Recording)
    """What its run can be played again with, where causes are asked for."""
    work: RankWork = field(default_factory=RankWork)
    """What it computes in a step, where causes are asked for."""
    launchers: LauncherFigures = field(default_factory=LauncherFigures)
    """Whose work its device does, where causes are asked for."""
    task_sums: TaskSums = field(default_factory=TaskSums)
    """What HCCL tasks and copies take, for a comparison."""
    memory: MemoryPeaks = field(default_factory=MemoryPeaks)
    """How much memory it held at most, for a comparison that reads counters."""
    ordinary: RankFacts | None = None
    """For a comparison, the same of the ordinary steps alone, as far as the rank tells which those
    are; None where they are all. Its collectives are those of the rank, of which others are
    selected."""
    profiler_tables: ProfilerTables = field(default_factory=ProfilerTables)
    """What of the small tables beside the capture is selected."""
    framework: FrameworkSums | None = None
    """What operators and modules of the framework launched and allocated, for a comparison that
    asks for causes; None for any other."""
    allocated: AllocatedMemory = field(default_factory=AllocatedMemory)
    """What operators of the framework allocated and when most was held, where that is asked for."""
    operator_steps: OperatorSteps = field(default_factory=OperatorSteps)
    """What runs in each step; nothing where only ordinary steps are compared."""

    class_times: ClassTimes | None = None
    """How often and how long each class of work ran, for a comparison; None without one."""
    step_trace: StepTrace = field(default_factory=StepTrace.empty)
    """A row per selected step: what it consists of."""
    not_recorded: frozenset[str] = frozenset()
    """Parts of device time, by their names in the report, that nothing records."""
    single: SingleRecords = field(default_factory=SingleRecords)
    """Its tasks and host calls one by one, where they are asked for."""
    host_span_ns: tuple[int, int] | None = None

    @property
    def rank(self) -> int:
        """The rank."""
        return self.profile.rank

    @property
    def steps_on_device_ns(self) -> tuple[Int64, Int64]:
        """When each step began and ended (n,): on its host where no device work of it is known."""
        steps = self.steps
        on_device = steps.host & (self.device_start_ns != NO_TIME)
        return (
            np.where(on_device, self.device_start_ns, steps.start_ns),
            np.where(on_device, self.device_end_ns, steps.end_ns),
        )

    def moved(self, move: ClockMove) -> RankFacts:
        """The facts, moved to another clock; what was summed stays."""
        if move.still:
            return self
        start_ns, end_ns = self.device_start_ns, self.device_end_ns
        return replace(
            self,
            steps=self.steps.moved(move),
            operators=self.operators.moved(move),
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
    return None if span_ns is None else (move.of_moment(span_ns[0]), move.of_moment(span_ns[1]))


def collect_profile_facts(records: Records) -> ProfileFacts:
    """What all records of a rank tell."""
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
    """What the selected records of a rank tell.

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
    )
    overlap_ns = selected.overlap.totals_ns()
    if not records.tells_free:  # nobody is told this part, but the parts are the span
        busy_ns = overlap_ns["computing_ns"] + overlap_ns["not_overlapped_ns"]
        overlap_ns["free_ns"] = selected.overlap.span_ns - busy_ns
    communication, its_step = communication_spans(records, membership)
    totals = selected.step_totals
    measured = Measured(
        selected.overlap,
        records.steps,
        overlap_by_launch(records.tasks, membership.tasks, communication, its_step, count)
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
        selected.overlap.free_parts(tells_copies=records.tells_copies),
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
        not_recorded=frozenset() if records.tells_free else frozenset({"free_ns", "idle_ns"}),
        idle=None if selected.idle is None else selected.idle.times,
        profiler_tables=with_queue_sums(
            records.profiler_tables.selected(selection.steps, selection.graphs)
        ),
        step_trace=selected.cut.trace,
        host_span_ns=host_span_ns(records),
    )
