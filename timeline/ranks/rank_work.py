"""The work on one rank: read its records, collect its facts and draw its tracks."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from timeline.analysis.cut import Cut, cut, cut_steps, cut_window
from timeline.analysis.filed_times import filed_totals, with_filed_times
from timeline.analysis.gains.recording import MOST_ITEMS, Recording, record_rank
from timeline.analysis.idle.call_sums import HostCallSums, find_one_off, own_times, sum_calls
from timeline.analysis.idle.idle_causes import measure_idle
from timeline.analysis.idle.idle_sums import IdleCause
from timeline.analysis.idle.launches import cut_off_before, with_lost_kernels
from timeline.analysis.memory import allocated_memory, memory_peaks, with_memory_of_graphs
from timeline.analysis.ordinary_steps import ordinary_steps
from timeline.analysis.overlap import (
    Overlap,
    OverlapTotals,
    communication_spans,
    measure_overlap,
    overlap_within,
    totals_by_period,
    with_communication_rule,
)
from timeline.analysis.path.rank_path import RankPath, rank_path
from timeline.analysis.questions import EVERY_ROW, Questions
from timeline.analysis.rank_facts import (
    ProfileFacts,
    RankFacts,
    collect_facts,
    collect_profile_facts,
)
from timeline.analysis.selected_rank import (
    ChosenDetail,
    DrawOptions,
    SelectedRank,
    drawn_records,
    omissions_of_drawn,
    with_chosen_detail,
)
from timeline.analysis.single_records import single_records
from timeline.analysis.sound_records import drop_backward_arrows, drop_invalid_rows, fit_host_clock
from timeline.analysis.steps import NO_STEP, Membership, with_steps
from timeline.analysis.waits.collectives import RankCollectives, rank_collectives
from timeline.analysis.waits.group_members import with_global_ranks
from timeline.analysis.work.computed_work import computed_work
from timeline.analysis.work.launching_operators import launcher_figures, with_launchers
from timeline.analysis.work.operators import host_operators, operator_steps
from timeline.analysis.work.task_sums import sum_tasks
from timeline.columns.columns import Int64
from timeline.columns.intervals import subtract, union
from timeline.layers import HOST_LAYERS, Layer, SizeLayer
from timeline.options import Args, ClockOptions, ExportOptions, Fit, StepOperators
from timeline.records.clock import INNER
from timeline.records.not_given import NO_TIME
from timeline.records.profiler_tables import OperatorRuns
from timeline.records.tables import GPU, Records
from timeline.selection import Align, Kind, Selection
from timeline.sources.source import ReadRequest, Source
from timeline.tracks.model import element_count
from timeline.tracks.rank_tracks import DrawnRank, RankTracks, arg_filter


def read_rank(
    source: Source, wanted: ReadRequest, operators: StepOperators, align: Align | None = None
) -> Records:
    """Read at least the requested records of a rank, drop invalid ones and assign steps.

    If host calls are requested, the host clock is fitted to the device clock, unless `align` asks
    for clocks as recorded.

    Raises:
        SourceError: its profile cannot be read.
    """
    with _collector_paused():
        records = source.read(wanted)
    records = drop_backward_arrows(with_global_ranks(drop_invalid_rows(records)))
    if wanted.layers & HOST_LAYERS and align not in (Align.RECORDED, Align.NONE):
        records = fit_host_clock(records)
    return with_communication_rule(with_steps(records, operators))


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause the garbage collector: reading makes millions of short-lived objects, no cycles."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


BYTES_OF_ELEMENT = 8
"""Bytes of the file per slice or sample; with fewer, tracks may not fit and are measured."""
SIZE_SLACK = 3.0
"""Factor by which tracks may exceed their share of the file: sizes are estimates, and slices that
are merged too far here cannot be drawn finer in the file."""
DENSEST_RANK = 4
"""Multiple of the average size that one rank may have before it is merged further."""
MOST_ELEMENTS = 1 << 24
"""Slices and samples that all ranks together may send to the main process: about 800 MB."""
MOST_STEP_ROWS, LEAST_STEP_ROWS = 20_000, 1_000
"""Rows of operators by step: of all ranks together unless every row is requested, and those that
each rank may have in any case."""
MOST_CALL_NAMES, LEAST_CALL_NAMES = 100_000, 200
"""Names of host calls that all ranks together may have, and that each may have in any case."""
LEAST_MERGED_BYTES = 64 << 10
"""Smallest file size that ranks are merged for; ranks of smaller files take little memory."""
LEAST_RANK_BYTES = 1 << 20
"""Size below which a rank is not merged alone: it is sent quickly, and merging many small ranks
together gives better results."""


@dataclass(frozen=True)
class RankRequest:
    """The work to do on one rank: what to read, which facts to collect and what to draw.

    limit_bytes: size of the file that ranks are merged for; 0 leaves them unmerged. ranks: number
    of ranks in the file. target: the file, which determines the format. window_ns: [start, end) on
    the rank's own clock. chosen: the parts that are drawn in detail, None for all. floors: the
    level at which each layer was merged when the rank was drawn before; the rank is merged at the
    same levels again, except inside the windows `exact_ns` on its own clock. None if it is drawn
    for the first time. draw: whether to draw tracks or only collect facts. clock: options for
    joining the clocks of ranks. questions: the optional facts to collect. read_ranks: all ranks
    that are read with this one. on_disk: all ranks of the profile, selected or not.
    """

    selection: Selection
    operators: StepOperators = field(default_factory=StepOperators)
    options: DrawOptions = field(default_factory=lambda: DrawOptions(frozenset()))
    args: Args = Args.DEFAULT
    limit_bytes: int = 0
    ranks: int = 1
    target: Path = Path("timeline.pftrace")
    window_ns: tuple[int, int] | None = None
    chosen: ChosenDetail | None = None
    floors: Mapping[SizeLayer, int] | None = None
    exact_ns: tuple[tuple[int, int], ...] = ()
    draw: bool = True
    clock: ClockOptions = field(default_factory=ClockOptions)
    questions: Questions = field(default_factory=Questions)
    read_ranks: frozenset[int] = frozenset()
    on_disk: frozenset[int] = frozenset()

    @property
    def is_first(self) -> bool:
        """Return whether the rank is read for the first time, so that questions are answered."""
        return self.chosen is None and self.floors is None

    @property
    def drawn_layers(self) -> frozenset[Layer]:
        """Return the layers of the selection; if it names none, those of a summary."""
        return self.selection.layers_of(Kind.SUMMARY)

    @property
    def read_layers(self) -> frozenset[Layer]:
        """Return the layers whose records are read: to be drawn, or to answer questions."""
        return self.drawn_layers | self.questions.layers

    @property
    def read_request(self) -> ReadRequest:
        """Return the request for the source: the layers and optional columns to read."""
        asked = self.questions
        return ReadRequest(
            self.read_layers,
            self.args is Args.ALL,
            asked.names,
            frequency=asked.causes,
            memory=asked.compare,
            operators=asked.framework is not None,
            shapes=asked.every_run or asked.with_shapes or asked.peak_flop_per_s > 0,
            allocations=asked.allocations,
        )


def merging_limit(options: ExportOptions, ranks: int) -> int:
    """Return the size of the file that each of `ranks` ranks is merged for; 0 if none is.

    Several ranks are merged, so that none of them fills the file alone.
    """
    if ranks < 2 or options.fit is not Fit.COARSEN or not options.limit_bytes:
        return 0
    return max(options.limit_bytes, LEAST_MERGED_BYTES)


def import_for_workers(request: RankRequest) -> None:
    """Import modules that every worker needs before workers are forked, so that they share them."""
    import numpy.ma  # noqa: F401 - imported by `np.unique`

    if request.draw:
        import timeline.tracks.detail  # noqa: F401


def draw_rank_from_source(source: Source, request: RankRequest) -> DrawnRank:
    """Read a rank, collect its facts and draw its selected part.

    Raises:
        SourceError: its profile cannot be read.
    """
    records = read_rank(source, request.read_request, request.operators, request.clock.align)
    return draw_rank_from_records(records, request)


def draw_rank_from_records(records: Records, request: RankRequest) -> DrawnRank:
    """Collect facts and draw the selected part of a rank's records, which have steps assigned."""
    if records.tables_only and not len(records.parts):
        # Tables alone hold no causes; skipping them halves the time for thousands of such ranks.
        request = replace(request, questions=replace(request.questions, causes=False))
    if request.questions.causes:
        records = with_lost_kernels(with_launchers(records))
    if Layer.COUNTERS in request.drawn_layers:
        records = with_memory_of_graphs(records)
    if request.questions.compare:
        from timeline.analysis.work.work_classes import with_work_classes

        records = with_work_classes(records)
    relevant = replace(records, omissions=omissions_of_drawn(records, request.drawn_layers))
    facts, tracks = _draw_selected(collect_profile_facts(relevant), records, request)
    if request.floors is not None:
        from timeline.fitting.coarsen_ranks import coarsen_rank

        return DrawnRank(facts, coarsen_rank(tracks, request.floors, request.exact_ns))
    fair_bytes = max(LEAST_RANK_BYTES, request.limit_bytes * DENSEST_RANK // request.ranks)
    most_bytes = min(request.limit_bytes, fair_bytes)
    fitting, fair = most_bytes * SIZE_SLACK // BYTES_OF_ELEMENT, MOST_ELEMENTS // request.ranks
    if most_bytes and element_count(tracks.tracks) > min(fitting, fair):
        most = int(max(fitting, fair * DENSEST_RANK))
        (tracks,) = coarsen_for_file((DrawnRank(facts, tracks),), request, most_bytes, most)
    return DrawnRank(facts, tracks)


def coarsen_for_file(
    ranks: tuple[DrawnRank, ...], request: RankRequest, most_bytes: float, most: int
) -> tuple[RankTracks, ...]:
    """Coarsen the tracks of ranks until they take little more than `most_bytes` of the file.

    most: number of slices and samples that may be left in any case.
    """
    from timeline.encoders.formats import format_of
    from timeline.encoders.piece_maker import PieceMaker
    from timeline.encoders.pieces import Compression
    from timeline.fitting.coarsen_ranks import coarsen_ranks
    from timeline.fitting.limits import Limits
    from timeline.fitting.sizes import measure_by

    form = format_of(request.target)
    maker = PieceMaker(form, [track for rank in ranks for track in rank.tracks.tracks], 0)

    # SIZE_SLACK is 3: the 40 % by which fast compression misjudges sizes do not matter.
    measure = measure_by(maker, Limits(), Compression.FAST)
    return coarsen_ranks([rank.tracks for rank in ranks], most_bytes * SIZE_SLACK, most, measure)


def _draw_selected(
    profile: ProfileFacts, records: Records, request: RankRequest
) -> tuple[RankFacts, RankTracks]:
    part = cut(records, request.selection)
    if request.window_ns is not None:
        part = cut_window(part, *request.window_ns)
    selected = _selected(part, request)
    if request.chosen is not None:
        selected = with_chosen_detail(selected, request.chosen)
    collectives = _collectives_of(records, part, request)
    facts = collect_facts(
        profile,
        selected,
        collectives,
        request.selection,
        request.questions,
        windowed=request.window_ns is not None,
    )
    own_ns = None
    if request.is_first:
        facts = _with_answers(facts, part, collectives, request)
        if request.questions.causes and request.questions.calls:
            own_ns = own_times(records.host, part.host_rows)
        facts = _with_calls(facts, selected, part, own_ns, request)
    facts = with_filed_times(facts, windowed=request.window_ns is not None)
    if request.questions.compare:
        ordinary = _ordinary_facts(facts, records, part, own_ns, request)
        facts = replace(_with_sums(facts, part, request), ordinary=ordinary)
    if not request.draw:
        return facts, RankTracks(records.rank, (), 0)
    from timeline.tracks.detail import draw_rank

    return facts, draw_rank(selected, request.options, arg_filter(request.args))


def _with_answers(
    facts: RankFacts, part: Cut, collectives: RankCollectives, request: RankRequest
) -> RankFacts:
    asked, records = request.questions, part.records
    has_runs = len(records.profiler_tables.of(OperatorRuns)) > 0
    if asked.operator_steps or asked.every_run or (has_runs and not asked.compare):
        most = max(LEAST_STEP_ROWS, MOST_STEP_ROWS // request.ranks)
        steps = operator_steps(
            records,
            part.membership,
            facts.profiler_tables,
            most=EVERY_ROW if asked.every_run else most,
            names=asked.every_run,
        )
        facts = replace(facts, operator_steps=steps)
    if asked.causes:
        facts = _with_causes(facts, part, collectives, request)
    if asked.allocations:
        facts = replace(facts, allocated=allocated_memory(records, asked.most_allocations))
    if asked.every_task or asked.every_call:
        facts = replace(facts, single=single_records(part, asked))
    return facts


def _collectives_of(records: Records, part: Cut, request: RankRequest) -> RankCollectives:
    """Return the collectives of all records; those inside the part are marked as selected."""
    return rank_collectives(
        records,
        part.op_iterations,
        part.op_rows,
        read_ranks=request.read_ranks,
        recorded=Layer.COMMUNICATION in request.read_layers or records.hardware == GPU,
    )


def _ordinary_facts(
    facts: RankFacts, records: Records, part: Cut, own_ns: Int64 | None, request: RankRequest
) -> RankFacts | None:
    """Return the facts of ordinary steps alone, including free time at their edges.

    None if the rank has no ordinary steps. own_ns: as for `_with_calls`.
    """
    (ordinary,) = ordinary_steps([facts], with_first=False)
    if not ordinary.any():
        return None
    steps = cut_steps(part, ordinary)
    selected = _selected(steps, request, edges=True)
    collectives = _collectives_of(records, steps, request)
    step_facts = with_filed_times(
        collect_facts(facts.profile, selected, collectives, request.selection, request.questions),
        windowed=request.window_ns is not None,
    )
    if request.questions.causes:
        # Counters are rarely sampled, so work is taken from the whole rank, also without warm-up.
        launchers = launcher_figures(steps.records)
        step_facts = replace(step_facts, work=facts.work, launchers=launchers)
        step_facts = _with_calls(step_facts, selected, steps, own_ns, request)
    return _with_sums(step_facts, steps, request)


def _with_sums(facts: RankFacts, part: Cut, request: RankRequest) -> RankFacts:
    """Add to the facts the sums that only a comparison shows."""
    from timeline.analysis.work.work_classes import sum_classes

    facts = replace(
        facts,
        task_sums=sum_tasks(part.records),
        memory=memory_peaks(part.records),
        class_times=sum_classes(part.records),
    )
    rules = request.questions.framework
    if rules is None:
        return facts
    from timeline.analysis.work.framework_sums import sum_framework

    return replace(facts, framework=sum_framework(part.records, rules))


def _with_causes(
    facts: RankFacts, part: Cut, collectives: RankCollectives, request: RankRequest
) -> RankFacts:
    """Add to the facts the work done, its launchers, the rank's critical path and its replay."""
    records = part.records
    if not len(records.tasks) and not len(records.ops):
        facts = replace(facts, operators=host_operators(records))
    work = computed_work(
        records,
        part.membership.tasks,
        facts.step_totals.computing_ns,
        facts.overlap_ns["computing_ns"],
    )
    path, recording = RankPath(), Recording()
    if not facts.not_recorded:
        if not request.questions.compare:
            most = MOST_ITEMS // max(request.ranks, 1)
            recording = record_rank(records, part.membership, collectives.ops.selected, most)
        path = rank_path(records, collectives.ops.selected, facts.device_end_ns)
    return replace(
        facts,
        work=work,
        launchers=launcher_figures(records),
        path=path,
        replay=recording,
    )


def _with_calls(
    facts: RankFacts, selected: SelectedRank, part: Cut, own_ns: Int64 | None, request: RankRequest
) -> RankFacts:
    """Add to the facts the longest gaps and host calls, if causes are requested.

    own_ns: own time of each host event of the profile, None if calls are not summed.
    """
    idle, records = selected.idle, part.records
    if idle is None:
        return facts
    causes, calls = idle.times.causes, (idle.charged, part.around.host, records.strings)
    idle_ns = int(causes.total_ns[causes.step == NO_STEP].sum())
    sums = HostCallSums(idle_ns=idle_ns, one_off=find_one_off(records.host, *calls, idle_ns))
    if own_ns is not None:
        most = max(LEAST_CALL_NAMES, MOST_CALL_NAMES // request.ranks)
        strings, times = sum_calls(records.host, own_ns[part.host_rows], *calls, most=most)
        sums = replace(sums, strings=strings, times=times)
    return replace(facts, host_calls=sums, idle_gaps=idle.gaps)


def _selected(part: Cut, request: RankRequest, *, edges: bool = False) -> SelectedRank:
    """Return the selected part of a rank with its sums; only records that are drawn are kept.

    edges: whether free time before the first and after the last kernel of a step counts.
    """
    records, membership, periods = part.records, part.membership, part.recorded
    every, _ = communication_spans(part.around, membership)
    selection = request.selection
    cut_through = selection.graphs, selection.steps, request.window_ns
    rule = records.free_rule if cut_through == (None, None, None) else INNER
    cut_off = cut_off_before(part.around)
    whole = measure_overlap(part.around.tasks, every, rule, cut_off)
    totals = totals_by_period(whole, periods.begin_ns, periods.end_ns)
    if not part.every_step:
        reached = union(periods.begin_ns, periods.end_ns)
        whole = overlap_within(whole, part.around.tasks, reached, edges=edges)
    if not records.free_is_known:
        whole, totals = _without_free_inside_steps(whole, totals, membership)
    idle = measure_idle(part, whole) if request.questions.causes else None
    if idle is not None and not records.free_is_known:
        idle = idle.of_cause(IdleCause.WAITING_FOR_DATA)
    if not len(records.tasks) and request.window_ns is None:
        totals = filed_totals(records.profiler_tables, records.steps, totals) or totals
    drawn = drawn_records(records, request.drawn_layers)
    return SelectedRank(replace(part, records=drawn, around=drawn), whole, totals, drawn, idle=idle)


def _without_free_inside_steps(
    whole: Overlap, totals: OverlapTotals, membership: Membership
) -> tuple[Overlap, OverlapTotals]:
    """Count as free only the time between steps, which last from mark to mark."""
    start_ns, end_ns = membership.device_start_ns, membership.device_end_ns
    timed = start_ns != NO_TIME
    steps = union(start_ns[timed], end_ns[timed])
    none = np.zeros(len(totals), np.int64)
    return (
        replace(whole, free=subtract(whole.free, steps), idle=subtract(whole.idle, steps)),
        replace(
            totals,
            known=timed,
            free_ns=none,
            idle_ns=none,
            span_ns=np.where(timed, end_ns - start_ns, 0),
            start_ns=start_ns,
        ),
    )
