"""Step traces, how a run is split over ranks, and the bubbles of its pipeline, as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.waits.pipeline import Bubbles, measure_bubbles
from timeline.columns.columns import Bool, Int64, Rows, sort_rows
from timeline.columns.distinct import distinct_values
from timeline.records.not_given import NO_GRAPH, NO_ID, NO_TIME
from timeline.records.profiler_tables import (
    ParallelSource,
    ParallelStrategies,
    ParallelTimes,
    StepPoints,
    StepTraceMeans,
)
from timeline.tables.table import Columns, Json, Method, Run, Spec, Table, given
from timeline.units import format_count, format_share

OF_STEPS, OF_FILE = "steps", "file"
"""What a mean is of: the steps of the table, and the steps that the profiler's file is of."""
PARTS = ("total_ns", "interval_ns", "fp_bp_ns", "tail_ns")
STEP_TRACE = Spec(
    "step_trace",
    "rank, graph and step of the step trace, and for the means of each graph",
    """
    rank, graph
    step: masked in means
    text of: in means: steps for the selected ones without the first, file for the file's
    start_ns: the end of the step before
    total_ns: interval_ns + fp_bp_ns + tail_ns
    interval_ns: the wait for data; masked in the first step
    fp_bp_ns, tail_ns
    text fp_start: the operator that begins forward
    text bp_end: the operator that ends backward
    """,
    lambda run: (part for rank in run.facts for part in _parts(rank)),
    Json("step_trace"),
    Method("step_trace"),
)


def _parts(facts: RankFacts) -> Iterator[Columns]:
    """Yield the rows of a rank: its steps, then means."""
    steps, trace = facts.steps, facts.step_trace
    rows = np.flatnonzero(~steps.host) if len(trace) else np.zeros(0, np.int64)
    rows = rows[sort_rows(steps.graph[rows], steps.iteration[rows], steps.start_ns[rows])]
    graphs, which = distinct_values(steps.graph[rows])
    points = {graph: _points(facts, graph) for graph in graphs.tolist()}
    if len(rows):
        fp_start, bp_end = np.array([*points.values()], object)[which].T
        yield {
            "rank": np.full(len(rows), facts.rank, np.int64),
            "graph": given(steps.graph[rows], NO_GRAPH),
            "step": steps.iteration[rows],
            "of": np.full(len(rows), None, object),
            "start_ns": given(steps.start_ns[rows] - trace.lead_ns[rows], NO_TIME),
            **{part: given(getattr(trace, part)[rows], NO_TIME) for part in PARTS},
            "fp_start": fp_start,
            "bp_end": bp_end,
        }
    means = [*_means(facts, rows, points)]
    if means:
        yield STEP_TRACE.of_rows(means).columns


_Points: TypeAlias = tuple[str | None, str | None]


def _means(
    facts: RankFacts, rows: Rows, points: Mapping[int, _Points]
) -> Iterator[tuple[object, ...]]:
    """Yield the means of the steps of each graph, and those in the file.

    rows: of the steps in the step trace. points: see `_points`, by graph.
    """
    steps, trace = facts.steps, facts.step_trace
    for graph in points:
        its = rows[steps.graph[rows] == graph]
        if len(its) > 1:
            means_ns = (
                mean_time_ns(getattr(trace, part)[its[~trace.first[its]]]) for part in PARTS
            )
            yield facts.rank, _graph(graph), None, OF_STEPS, None, *means_ns, *points[graph]
    graph = next(iter(points)) if len(points) == 1 else NO_GRAPH
    means = facts.profiler_tables.of(StepTraceMeans)
    for row in range(len(means)):
        its_ns = (int(getattr(means, part)[row]) for part in PARTS)
        given_ns = (None if time_ns == NO_TIME else time_ns for time_ns in its_ns)
        yield facts.rank, _graph(graph), None, OF_FILE, None, *given_ns, *_points(facts, graph)


def _points(facts: RankFacts, graph: int) -> _Points:
    """Return where forward begins and backward ends in a graph; some files know no graphs."""
    strings, points = facts.profiler_tables.strings, facts.profiler_tables.of(StepPoints)
    for row in np.flatnonzero((points.graph == graph) | (points.graph == NO_GRAPH)).tolist():
        return strings[points.fp_start[row]] or None, strings[points.bp_end[row]] or None
    return None, None


def _graph(graph: int) -> int | None:
    return None if graph == NO_GRAPH else graph


def mean_time_ns(times_ns: Int64) -> int | None:
    """Return the mean of the known times, to the nearest nanosecond, halves up."""
    known_ns = times_ns[times_ns != NO_TIME]
    if not len(known_ns):
        return None
    return (2 * int(known_ns.sum()) + len(known_ns)) // (2 * len(known_ns))


_NUMBERS = ("stages", "ranks", "stage", "tensors", "contexts")

PARALLEL: Spec = Spec(
    "parallel",
    "run whose files record how it is split over ranks, which is one at most",
    """
    text mode: in the file's words, such as auto_parallel or pipeline-parallel
    stages: their number
    ranks: their number
    text stage_ranks: a list: the ranks of each stage
    """,
    lambda run: PARALLEL.of_rows(_splits(run.facts)),
    Json(
        "parallel",
        lambda _run, table: next(iter(table.to_dicts()), None),
        "how MindSpore, or the metadata of torch_npu, split the run, or `null`: `mode`, `stages`, "
        "`ranks`, `stage_ranks` (the ranks of each stage)",
    ),
    Method("parallel"),
)


def _splits(facts: Sequence[RankFacts]) -> Iterator[tuple[Any, ...]]:
    """Yield how the run is split, in one row, or none if no file records that.

    If files differ, the name of the parallel times is believed first, then parallel_strategy, then
    profiler_info, and of each kind that of the first rank.
    """
    said = _Said.of(facts)
    if not said:
        return
    mode, stages, ranks = (_first(said, name) for name in ("mode", "stages", "ranks"))
    stage_ranks: list[list[int]] | None = None
    if stages is not None and ranks is not None and stages <= ranks:
        # Pipelines may be built in another order than ranks: then only known ones have a stage.
        own = {one.rank: one.stage for one in said if one.source is ParallelSource.METADATA}
        known = {rank: stage for rank, stage in own.items() if stage is not None}
        every = {rank: rank * stages // ranks for rank in range(ranks)}
        placed = every if known.items() <= every.items() else known
        stage_ranks = [[] for _ in range(stages)]
        for rank, stage in sorted(placed.items()):
            if stage < stages:
                stage_ranks[stage].append(rank)
    yield mode, stages, ranks, stage_ranks


def stage_of(rank: int, parallel: Table) -> int | None:
    """Return the stage of a rank, from 0; None if it is not known."""
    split = next(iter(parallel.to_dicts()), None)
    stages = enumerate(split["stage_ranks"] or () if split else ())
    return next((stage for stage, ranks in stages if rank in ranks), None)


@dataclass(frozen=True)
class ParallelIndices:
    """The DP, PP and TP index of a rank."""

    dp: int | None = None
    pp: int | None = None
    tp: int | None = None


def parallel_indices(facts: Sequence[RankFacts]) -> dict[int, ParallelIndices]:
    """Return the indices of each rank of a run of Megatron, by the sizes in its metadata.

    Ranks are numbered by tensor, sequence, copy and stage, the first fastest (msprof-analyze has
    the same, but takes sequences for copies); none where sizes contradict each other.
    """
    said = [one for one in _Said.of(facts) if one.source is ParallelSource.METADATA]
    tensors, stages, ranks = (_first(said, name) for name in ("tensors", "stages", "ranks"))
    if tensors is None or stages is None or ranks is None:
        return {}
    inner = tensors * (_first(said, "contexts") or 1)
    copies, rest = divmod(ranks, inner * stages)
    own = {one.rank: one.stage for one in said if one.stage is not None}
    return {
        rank: ParallelIndices(
            rank // inner % copies, own.get(rank, rank // (inner * copies)), rank % tensors
        )
        for rank in (one.rank for one in facts)
        if rank < ranks and copies and not rest
    }


def parallel_contradictions(facts: Sequence[RankFacts]) -> Iterator[str]:
    """Return contradictions between files on how the run is split.

    Modes are compared between files of one kind: others name them otherwise.
    """
    said = _Said.of(facts)
    for name in ("mode", "stages", "ranks"):
        for kind in ParallelSource if name == "mode" else (None,):
            alike = [one for one in said if kind in (None, one.source) and one.tells(name)]
            others = [one for one in alike[1:] if getattr(one, name) != getattr(alike[0], name)]
            if others:
                yield (
                    f"rank {others[0].rank}: {others[0].file} says {others[0].spelled(name)}, but "
                    f"{alike[0].file} {alike[0].spelled(name)}, which is taken."
                )


@dataclass(frozen=True)
class _Said:
    """One file's description of how the run is split."""

    source: ParallelSource
    rank: int
    file: str
    mode: str | None
    stages: int | None
    ranks: int | None
    stage: int | None
    tensors: int | None = None
    contexts: int | None = None

    @classmethod
    def of(cls, facts: Sequence[RankFacts]) -> list[_Said]:
        """Return what all files say, the most trusted first."""
        found = []
        for rank in facts:
            strings = rank.profiler_tables.strings
            rows = rank.profiler_tables.of(ParallelStrategies)
            for row in range(len(rows)):
                numbers = (int(getattr(rows, name)[row]) for name in _NUMBERS)
                found.append(
                    cls(
                        ParallelSource(int(rows.source[row])),
                        rank.rank,
                        strings[int(rows.file[row])],
                        strings[int(rows.mode[row])] or None,
                        *(None if number == NO_ID else number for number in numbers),
                    )
                )
        return sorted(found, key=lambda one: (one.source, one.rank))

    def tells(self, name: str) -> bool:
        return getattr(self, name) is not None

    def spelled(self, name: str) -> str:
        value = getattr(self, name)
        return str(value) if name == "mode" else format_count(value, name.removesuffix("s"))


def _first(said: Sequence[_Said], name: str) -> Any:
    """Return the value of the most trusted file, None if no file has one."""
    return next((getattr(one, name) for one in said if one.tells(name)), None)


PARALLEL_TIMES: Spec = Spec(
    "parallel_times",
    "rank and step of a cluster, and for their means",
    """
    rank
    stage: from 0
    step: masked in means
    text of: in means: steps for the selected ones without the first, file for the file's
    computing_ns
    communication_alone_ns = Communication alone: while nothing computes
    stage_ns = Stage time: computing_ns + collective_alone_ns; of step_trace_time.csv its own
    receive_alone_ns = Receives alone: of communication alone
    collective_alone_ns = Collectives alone: of communication alone
    communication_ns: of ranks with tables alone, as the next two
    free_ns, preparing_ns
    """,
    lambda run: PARALLEL_TIMES.of_rows(_parallel_rows(run)),
    Json("parallel_times"),
    Method("parallel_times"),
)
_TIMES = tuple(name for name in PARALLEL_TIMES.kinds if name.endswith("_ns"))


def _parallel_rows(run: Run) -> Iterator[tuple[Any, ...]]:
    parallel, said = run["parallel"], _Said.of(run.facts)
    own_stage = {one.rank: one.stage for one in said if one.stage is not None}
    for rank in run.facts:
        stage = stage_of(rank.rank, parallel)
        stage = own_stage.get(rank.rank) if stage is None else stage
        times = rank.profiler_tables.of(ParallelTimes)
        steps, means = times.take(~times.mean), times.take(times.mean)
        for table, of in ((steps, None), (_mean_of(steps), OF_STEPS), (means, OF_FILE)):
            every = [None] * len(table) if of else table.step.tolist()
            numbers = [None if step == NO_ID else step for step in every]
            columns = [getattr(table, name).tolist() for name in _TIMES]
            for step, *found in zip(numbers, *columns, strict=True):
                given = [None if time_ns == NO_TIME else time_ns for time_ns in found]
                yield rank.rank, stage, step, of, *given


def _mean_of(steps: ParallelTimes) -> ParallelTimes:
    """Return the mean of two or more steps, without the first of the run, which warms up."""
    if len(steps) < 2:
        return ParallelTimes.empty()
    kept = steps.take(~steps.first)
    means_ns = {name: mean_time_ns(getattr(kept, name)) for name in _TIMES}
    known_ns = {name: [time_ns] for name, time_ns in means_ns.items() if time_ns is not None}
    return ParallelTimes.of(1, known_ns)


NOTABLE = 0.01
"""Bubbles of a smaller share of the time are not worth a sentence."""


PIPELINE = Spec(
    "pipeline",
    "rank and step in which it receives from another stage of a pipeline",
    """
    rank
    step: masked outside of any
    stage: from 0
    stages, micro_batches, receives
    matched: of how many of them the send is known
    bubble_ns: the time it waited in them
    exposed_ns: of that, while nothing computed
    share share: the bubble's of the step
    share exposed_share: the exposed part's of the step
    share ideal_share: (stages - 1) / (micro_batches + stages - 1)
    text ordinary: whether the step is
    """,
    lambda run: _pipeline(run),  # noqa: PLW0108 - defined below
    Json("pipeline"),
)


def _pipeline(run: Run) -> Iterator[Columns]:
    exposed = [rank.exposed for rank in run.facts]
    bubbles = measure_bubbles(
        [rank.collectives for rank in run.facts], exposed, run.rank_waiting.pairs
    )
    if not len(bubbles):
        return
    ranks = np.array([rank.rank for rank in run.facts], np.int64)
    spans_ns, plain = _steps_of(run.facts, bubbles, run.ordinary)
    unknown = (bubbles.stages == NO_ID) | (bubbles.micro_batches == NO_ID)
    between = bubbles.stages - 1
    ideal = between / np.where(unknown, 1, bubbles.micro_batches + between)
    yield {
        "rank": ranks[bubbles.rank],
        "step": given(bubbles.iteration, NO_ID),
        **{name: given(getattr(bubbles, name), NO_ID) for name in _SHAPE},
        **{name: getattr(bubbles, name) for name in _WAITED},
        "share": _shares(bubbles.bubble_ns, spans_ns),
        "exposed_share": _shares(bubbles.exposed_ns, spans_ns),
        "ideal_share": np.ma.masked_array(np.round(ideal, 6), unknown),
        "ordinary": plain.astype(object),
    }


_SHAPE = ("stage", "stages", "micro_batches")
_WAITED = ("receives", "matched", "bubble_ns", "exposed_ns")


def _shares(times_ns: Int64, spans_ns: Int64) -> npt.NDArray[Any]:
    return np.ma.masked_array(np.round(times_ns / np.maximum(spans_ns, 1), 6), spans_ns == 0)


def _steps_of(
    facts: Sequence[RankFacts], bubbles: Bubbles, ordinary: Sequence[Bool]
) -> tuple[Int64, Bool]:
    """Return how long each step took on its rank, 0 if not known, and whether it is ordinary.

    Without steps, the selection counts as one ordinary step.
    """
    found = list[tuple[int, bool]]()
    for position, rank in enumerate(facts):
        steps, totals = rank.steps.iteration, rank.step_totals
        whole_ns = rank.span_ns[1] - rank.span_ns[0] if rank.span_ns and not len(steps) else 0
        for iteration in bubbles.iteration[bubbles.rank == position].tolist():
            its = steps == iteration
            span_ns = int(totals.span_ns[its & totals.known].sum())
            plain = bool(ordinary[position][its].any()) or not len(steps)
            found.append((span_ns if iteration != NO_ID else whole_ns, plain))
    return np.array([one for one, _ in found], np.int64), np.array([one for _, one in found])


def pipeline_sentences(pipeline: Table, filed_stages: int | None = None) -> Iterator[str]:
    """Return sentences on the bubbles of ordinary steps, none if there are none.

    pipeline: the table PIPELINE. filed_stages: how many stages a file says that there are.
    """
    if not len(pipeline):
        return
    known = pipeline.take(
        pipeline["ordinary"].astype(np.bool_) & ~np.ma.getmaskarray(pipeline["share"])
    )
    if not len(known) or float(np.ma.mean(known["share"])) < NOTABLE:
        return
    shape = Counter(
        (stages, micro_batches)
        for stages, micro_batches in zip(
            known["stages"].tolist(), known["micro_batches"].tolist(), strict=True
        )
        if stages is not None and micro_batches is not None
    )
    if not shape:
        rank, share = _largest(known, "rank")
        stages_are = "the stages of the pipeline are not known"
        if filed_stages is not None and filed_stages > 1:
            stages_are = f"the pipeline has {filed_stages} stages"
        yield (
            f"Ranks wait {_mean_share(known)} of a step in receives, most on rank {rank} "
            f"({share}){_exposed(known)}; {stages_are}."
        )
        return
    (stages, micro_batches), _ = shape.most_common(1)[0]
    alike = (np.ma.filled(known["stages"], 0) == stages) & (
        np.ma.filled(known["micro_batches"], 0) == micro_batches
    )
    chosen = known.take(alike)
    stage, share = _largest(chosen, "stage")
    ideal = (stages - 1) / (micro_batches + stages - 1)
    yield (
        f"Pipeline of {format_count(stages, 'stage')} and "
        f"{_micro_batches(micro_batches)}: stages wait {_mean_share(chosen)} of a "
        f"step to receive (the ideal bubble is {format_share(ideal, 1)}), most in stage {stage} "
        f"({share}){_exposed(chosen)}."
    )


def _micro_batches(count: int) -> str:
    return f"{count} micro-batch" + ("" if count == 1 else "es")


def _mean_share(rows: Table, name: str = "share") -> str:
    return format_share(float(np.ma.mean(rows[name])), 1)


def _exposed(rows: Table) -> str:
    """Return how much of the waiting is exposed, if that differs."""
    share = _mean_share(rows, "exposed_share")
    return "" if share == _mean_share(rows) else f"; {share} while nothing computes"


def _largest(rows: Table, name: str) -> tuple[int, str]:
    """Return the rank or stage with the largest mean share, and that share."""
    shares: dict[int, list[float]] = {}
    for which, one in zip(rows[name].tolist(), rows["share"].tolist(), strict=True):
        shares.setdefault(which, []).append(one)
    means = {which: sum(its) / len(its) for which, its in shares.items()}
    largest = max(means, key=lambda which: (means[which], -which))
    return largest, format_share(means[largest], 1)
