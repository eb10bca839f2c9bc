"""Tables of step traces, of the split of a run over ranks, and of pipeline bubbles."""

from __future__ import annotations

import re
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
"""Basis of a mean: the selected steps, or the profiler's file, which holds the mean itself."""
PARTS = ("total_ns", "interval_ns", "fp_bp_ns", "tail_ns")
STEP_TRACE = Spec(
    "step_trace",
    "rank, graph and step of the step trace, and for the means of each graph",
    """
    rank, graph
    step: masked in means
    text of: in means: steps if over the selected ones without the first, file if from the file
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
    """Yield the rows of a rank: its steps, then their means."""
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
        of_graph = rows[steps.graph[rows] == graph]
        if len(of_graph) > 1:
            later = of_graph[~trace.first[of_graph]]
            means_ns = (_mean_time_ns(getattr(trace, part)[later]) for part in PARTS)
            yield facts.rank, _graph(graph), None, OF_STEPS, None, *means_ns, *points[graph]
    graph = next(iter(points)) if len(points) == 1 else NO_GRAPH
    means = facts.profiler_tables.of(StepTraceMeans)
    for row in range(len(means)):
        row_ns = (int(getattr(means, part)[row]) for part in PARTS)
        means_ns = (None if time_ns == NO_TIME else time_ns for time_ns in row_ns)
        yield facts.rank, _graph(graph), None, OF_FILE, None, *means_ns, *_points(facts, graph)


def _points(facts: RankFacts, graph: int) -> _Points:
    """Return the operators at which forward begins and backward ends in a graph, None if unknown.

    A file without graph numbers applies to all graphs.
    """
    strings, points = facts.profiler_tables.strings, facts.profiler_tables.of(StepPoints)
    for row in np.flatnonzero((points.graph == graph) | (points.graph == NO_GRAPH)).tolist():
        return strings[points.fp_start[row]] or None, strings[points.bp_end[row]] or None
    return None, None


def _graph(graph: int) -> int | None:
    return None if graph == NO_GRAPH else graph


def _mean_time_ns(times_ns: Int64) -> int | None:
    """Return the mean of the known times, rounded half up; None if none is known."""
    known_ns = times_ns[times_ns != NO_TIME]
    if not len(known_ns):
        return None
    return (2 * int(known_ns.sum()) + len(known_ns)) // (2 * len(known_ns))


_NUMBERS = ("stages", "ranks", "stage", "tensors", "contexts")

PARALLEL: Spec = Spec(
    "parallel",
    "run whose files record how it is split over ranks, at most one",
    """
    text mode: as in the file, such as auto_parallel or pipeline-parallel
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
    """Yield a row with the split of the run, or no row if no file records it.

    If files differ, the file name of the parallel times takes precedence, then parallel_strategy,
    then profiler_info; of each kind, the file of the first rank.
    """
    descriptions = _Description.of(facts)
    if not descriptions:
        return
    mode, stages, ranks = (_first(descriptions, name) for name in ("mode", "stages", "ranks"))
    stage_ranks: list[list[int]] | None = None
    if stages is not None and ranks is not None and stages <= ranks:
        # Stages of pipelines may not follow the order of ranks; then only recorded ones are known.
        recorded = {
            one.rank: one.stage
            for one in descriptions
            if one.source is ParallelSource.METADATA and one.stage is not None
        }
        in_order = {rank: rank * stages // ranks for rank in range(ranks)}
        known = in_order if recorded.items() <= in_order.items() else recorded
        stage_ranks = [[] for _ in range(stages)]
        for rank, stage in sorted(known.items()):
            if stage < stages:
                stage_ranks[stage].append(rank)
    yield mode, stages, ranks, stage_ranks


def stage_of(rank: int, parallel: Table) -> int | None:
    """Return the stage of a rank, from 0; None if it is not known."""
    split = next(iter(parallel.to_dicts()), None)
    stages = enumerate(split["stage_ranks"] or () if split else ())
    return next((stage for stage, ranks in stages if rank in ranks), None)


def parts_of_run(facts: Sequence[RankFacts], parallel: Table, pipeline: Table) -> dict[int, str]:
    """Return the part of the run that each rank has, such as "stage 2" or "replica 0".

    It is the pipeline stage, as its sends show, or a file or groups of ranks tell. Without stages,
    it is the replica of the model, if each is shared by several ranks. Empty unless all ranks are
    known to be in one of several.
    """
    sent = {row["rank"]: row["stage"] for row in pipeline.to_dicts()}
    indices = parallel_indices(facts)
    is_shared = len({one.tp for one in indices.values()}) > 1
    for word, part_of in (
        ("stage", sent),
        ("stage", {rank.rank: stage_of(rank.rank, parallel) for rank in facts}),
        ("stage", {rank: one.pp for rank, one in indices.items()}),
        ("replica", {rank: one.dp if is_shared else None for rank, one in indices.items()}),
    ):
        parts = {rank.rank: part_of.get(rank.rank) for rank in facts}
        if None not in parts.values() and len(set(parts.values())) > 1:
            return {rank: f"{word} {part}" for rank, part in parts.items()}
    return {}


@dataclass(frozen=True)
class ParallelIndices:
    """The data, pipeline and tensor parallel index of a rank, None if unknown."""

    dp: int | None = None
    pp: int | None = None
    tp: int | None = None


def parallel_indices(facts: Sequence[RankFacts]) -> dict[int, ParallelIndices]:
    """Return the parallel indices of each rank of a Megatron run, by the sizes in its metadata.

    Without metadata they are the places of ranks in the groups of their collectives, by name.

    Ranks are numbered by tensor, context, data and pipeline index, the first of them fastest.
    (msprof-analyze assumes the same order, but counts contexts as data parallel.) No rank has
    indices if the sizes contradict each other.
    """
    descriptions = [one for one in _Description.of(facts) if one.source is ParallelSource.METADATA]
    tensors, stages, ranks = (_first(descriptions, name) for name in ("tensors", "stages", "ranks"))
    if tensors is None or stages is None or ranks is None:
        return {one.rank: _indices_in_groups(one) for one in facts}
    inner = tensors * (_first(descriptions, "contexts") or 1)
    copies, rest = divmod(ranks, inner * stages)
    recorded = {one.rank: one.stage for one in descriptions if one.stage is not None}
    return {
        rank: ParallelIndices(
            rank // inner % copies, recorded.get(rank, rank // (inner * copies)), rank % tensors
        )
        for rank in (one.rank for one in facts)
        if rank < ranks and copies and not rest
    }


_GROUPS = {
    "dp": re.compile(r"(?i)(mesh_)?(dp|data_parallel(_group)?)"),
    "pp": re.compile(r"(?i)(mesh_)?(pp|pipeline(_model)?_parallel(_group)?)"),
    "tp": re.compile(r"(?i)(mesh_)?(tp|tensor(_model)?_parallel(_group)?)"),
}
"""Names of groups of each axis, as torchtitan, vLLM and Megatron call them."""


def _indices_in_groups(facts: RankFacts) -> ParallelIndices:
    """Return the place of a rank in its group of each axis, None if that has no or several."""
    groups = {view.group for view in facts.collectives.arrivals.views.values()}
    places: dict[str, int | None] = {}
    for axis, name in _GROUPS.items():
        named = {one.members for one in groups if name.fullmatch(one.name)}
        members = named.pop() if len(named) == 1 else ()
        places[axis] = members.index(facts.rank) if facts.rank in members else None
    return ParallelIndices(**places)


def parallel_contradictions(facts: Sequence[RankFacts]) -> Iterator[str]:
    """Yield sentences on files that contradict each other about the split of the run.

    Modes are compared only between files of one kind, since kinds name them differently.
    """
    descriptions = _Description.of(facts)
    for name in ("mode", "stages", "ranks"):
        for kind in ParallelSource if name == "mode" else (None,):
            with_value = [
                one
                for one in descriptions
                if kind in (None, one.source) and getattr(one, name) is not None
            ]
            for other in with_value[1:]:
                if getattr(other, name) != getattr(with_value[0], name):
                    yield (
                        f"rank {other.rank}: {other.file} says {other.format(name)}, but "
                        f"{with_value[0].file} {with_value[0].format(name)}, which is taken."
                    )
                    break


@dataclass(frozen=True)
class _Description:
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
    def of(cls, facts: Sequence[RankFacts]) -> list[_Description]:
        """Return the descriptions in all files, the most trusted first."""
        descriptions = []
        for rank in facts:
            strings = rank.profiler_tables.strings
            rows = rank.profiler_tables.of(ParallelStrategies)
            for row in range(len(rows)):
                numbers = (int(getattr(rows, name)[row]) for name in _NUMBERS)
                descriptions.append(
                    cls(
                        ParallelSource(int(rows.source[row])),
                        rank.rank,
                        strings[int(rows.file[row])],
                        strings[int(rows.mode[row])] or None,
                        *(None if number == NO_ID else number for number in numbers),
                    )
                )
        return sorted(descriptions, key=lambda one: (one.source, one.rank))

    def format(self, name: str) -> str:
        """Format a value of the description, such as "4 stages"."""
        value = getattr(self, name)
        return str(value) if name == "mode" else format_count(value, name.removesuffix("s"))


def _first(descriptions: Sequence[_Description], name: str) -> Any:
    """Return the value of the most trusted file, None if no file has one."""
    values = (getattr(one, name) for one in descriptions)
    return next((value for value in values if value is not None), None)


PARALLEL_TIMES: Spec = Spec(
    "parallel_times",
    "rank and step of a cluster, and for their means",
    """
    rank
    stage: from 0
    step: masked in means
    text of: in means: steps if over the selected ones without the first, file if from the file
    computing_ns
    communication_alone_ns = Communication alone: while nothing computes
    stage_ns = Stage time: computing_ns + collective_alone_ns; from step_trace_time.csv its own
    receive_alone_ns = Receives alone: part of communication alone
    collective_alone_ns = Collectives alone: part of communication alone
    communication_ns: only of ranks with tables alone, as the next two
    free_ns, preparing_ns
    """,
    lambda run: PARALLEL_TIMES.of_rows(_parallel_rows(run)),
    Json("parallel_times"),
    Method("parallel_times"),
)
_TIMES = tuple(name for name in PARALLEL_TIMES.kinds if name.endswith("_ns"))


def _parallel_rows(run: Run) -> Iterator[tuple[Any, ...]]:
    parallel, descriptions = run["parallel"], _Description.of(run.facts)
    recorded = {one.rank: one.stage for one in descriptions if one.stage is not None}
    for rank in run.facts:
        stage = stage_of(rank.rank, parallel)
        stage = recorded.get(rank.rank) if stage is None else stage
        times = rank.profiler_tables.of(ParallelTimes)
        steps, means = times.take(~times.mean), times.take(times.mean)
        for table, of in ((steps, None), (_mean_of(steps), OF_STEPS), (means, OF_FILE)):
            steps_or_none = [None] * len(table) if of else table.step.tolist()
            numbers = [None if step == NO_ID else step for step in steps_or_none]
            columns = [getattr(table, name).tolist() for name in _TIMES]
            for step, *row_ns in zip(numbers, *columns, strict=True):
                times_ns = [None if time_ns == NO_TIME else time_ns for time_ns in row_ns]
                yield rank.rank, stage, step, of, *times_ns


def _mean_of(steps: ParallelTimes) -> ParallelTimes:
    """Return the mean of two or more steps, without the first of the run, which warms up."""
    if len(steps) < 2:
        return ParallelTimes.empty()
    kept = steps.take(~steps.first)
    means_ns = {name: _mean_time_ns(getattr(kept, name)) for name in _TIMES}
    known_ns = {name: [time_ns] for name, time_ns in means_ns.items() if time_ns is not None}
    return ParallelTimes.of(1, known_ns)


NOTABLE = 0.01
"""Minimum share of bubbles in the time of steps for a sentence on them."""


PIPELINE = Spec(
    "pipeline",
    "rank and step in which it receives from another stage of a pipeline",
    """
    rank
    step: masked outside of any
    stage: from 0
    stages, micro_batches, receives
    matched: number of receives whose send is known
    bubble_ns: time it waited in receives
    exposed_ns: part of the bubble in which nothing computed
    share share: of the bubble in the step
    share exposed_share: of the exposed part in the step
    share ideal_share: (stages - 1) / (micro_batches + stages - 1)
    text ordinary: true if the step is ordinary
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
    spans_ns, is_ordinary = _steps_of(run.facts, bubbles, run.ordinary)
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
        "ordinary": is_ordinary.astype(object),
    }


_SHAPE = ("stage", "stages", "micro_batches")
_WAITED = ("receives", "matched", "bubble_ns", "exposed_ns")


def _shares(times_ns: Int64, spans_ns: Int64) -> npt.NDArray[Any]:
    return np.ma.masked_array(np.round(times_ns / np.maximum(spans_ns, 1), 6), spans_ns == 0)


def _steps_of(
    facts: Sequence[RankFacts], bubbles: Bubbles, ordinary: Sequence[Bool]
) -> tuple[Int64, Bool]:
    """Return the span of the step of each bubble, 0 if unknown, and whether it is ordinary.

    A rank without steps counts as one ordinary step.
    """
    rows = list[tuple[int, bool]]()
    for position, rank in enumerate(facts):
        steps, totals = rank.steps.iteration, rank.step_totals
        whole_ns = rank.span_ns[1] - rank.span_ns[0] if rank.span_ns and not len(steps) else 0
        for iteration in bubbles.iteration[bubbles.rank == position].tolist():
            in_step = steps == iteration
            span_ns = int(totals.span_ns[in_step & totals.known].sum())
            is_ordinary = bool(ordinary[position][in_step].any()) or not len(steps)
            rows.append((span_ns if iteration != NO_ID else whole_ns, is_ordinary))
    return np.array([span_ns for span_ns, _ in rows], np.int64), np.array([one for _, one in rows])


def pipeline_sentences(pipeline: Table, filed_stages: int | None = None) -> Iterator[str]:
    """Yield a sentence on the bubbles of ordinary steps, unless they are negligible.

    pipeline: the table PIPELINE. filed_stages: number of stages according to a file, if any.
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
    """Return the exposed share of the waiting, empty if all of it is exposed."""
    share = _mean_share(rows, "exposed_share")
    return "" if share == _mean_share(rows) else f"; {share} while nothing computes"


def _largest(rows: Table, name: str) -> tuple[int, str]:
    """Return the rank or stage with the largest mean share, and that share."""
    shares: dict[int, list[float]] = {}
    for number, share in zip(rows[name].tolist(), rows["share"].tolist(), strict=True):
        shares.setdefault(number, []).append(share)
    means = {number: sum(of_number) / len(of_number) for number, of_number in shares.items()}
    largest = max(means, key=lambda number: (means[number], -number))
    return largest, format_share(means[largest], 1)
