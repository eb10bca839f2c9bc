"""How a run is split over ranks, and what each computes and communicates, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from timeline.analysis.rank_facts import RankFacts
from timeline.figures.step_trace_table import OF_FILE, OF_STEPS, mean_time_ns
from timeline.figures.table import Table
from timeline.frozen import dataclass
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.profiler_tables import (
    ParallelSource,
    ParallelStrategies,
    ParallelTimes,
)
from timeline.units import spell_count

__all__ = [
    "PARALLEL",
    "PARALLEL_TIMES",
    "ParallelIndices",
    "parallel_contradictions",
    "parallel_indices",
    "parallel_table",
    "parallel_times_table",
    "stage_of",
]

PARALLEL: Mapping[str, type] = {
    "mode": object,
    "stages": int,
    "ranks": int,
    "stage_ranks": object,
}
PARALLEL_TIMES: Mapping[str, type] = {
    "rank": int,
    "stage": int,
    "step": int,
    "of": object,
    "computing_ns": int,
    "communication_alone_ns": int,
    "stage_ns": int,
    "receive_alone_ns": int,
    "collective_alone_ns": int,
    "communication_ns": int,
    "free_ns": int,
    "preparing_ns": int,
}
_NUMBERS = ("stages", "ranks", "stage", "tensors", "contexts")
_TIMES = tuple(name for name in PARALLEL_TIMES if name.endswith("_ns"))


def parallel_table(facts: Sequence[RankFacts]) -> Table:
    """How the run is split over ranks: one row, or none where nothing tells it.

    mode: in the file's words. stages, ranks: how many. stage_ranks: the ranks of each stage. Where
    files differ, the name of the parallel times is believed first, then parallel_strategy, then
    profiler_info, and of each kind that of the first rank.
    """
    said = _Said.of(facts)
    if not said:
        return Table.of_rows(PARALLEL, ())
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
    return Table.of_rows(PARALLEL, [(mode, stages, ranks, stage_ranks)])


def stage_of(rank: int, parallel: Table) -> int | None:
    """The stage of a rank, from 0; None where that is not known."""
    split = next(iter(parallel.to_dicts()), None)
    stages = enumerate(split["stage_ranks"] or () if split else ())
    return next((stage for stage, ranks in stages if rank in ranks), None)


@dataclass(frozen=True)
class ParallelIndices:
    """Where a rank is among the copies of the model, the stages and the parts of a tensor."""

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
    """What files say of how the run is split that others contradict.

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
    """What one file says of how the run is split."""

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
        """What all files say, those that are believed first."""
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
        return str(value) if name == "mode" else spell_count(value, name.removesuffix("s"))


def _first(said: Sequence[_Said], name: str) -> Any:
    """What is believed of one thing, None where nothing tells it."""
    return next((getattr(one, name) for one in said if one.tells(name)), None)


def parallel_times_table(facts: Sequence[RankFacts]) -> Table:
    """A row per rank and step: what it computes, and communicates while it does not; then means.

    stage: from 0. Means have no step; `of` is steps for that of the selected steps but the first of
    the run, where there are two at least, and file for the profiler's own. communication_alone_ns =
    receive_alone_ns + collective_alone_ns; stage_ns = computing_ns + collective_alone_ns. Of ranks
    with tables alone, times are those of step_trace_time.csv (`ParallelTimes`).
    """
    parallel, said = parallel_table(facts), _Said.of(facts)
    own_stage = {one.rank: one.stage for one in said if one.stage is not None}
    rows: list[tuple[Any, ...]] = []
    for rank in facts:
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
                rows.append((rank.rank, stage, step, of, *given))
    return Table.of_rows(PARALLEL_TIMES, rows)


def _mean_of(steps: ParallelTimes) -> ParallelTimes:
    """The mean of steps without the first of the run, which prepares the others; of two or more."""
    if len(steps) < 2:
        return ParallelTimes.empty()
    kept = steps.take(~steps.first)
    means_ns = {name: mean_time_ns(getattr(kept, name)) for name in _TIMES}
    known_ns = {name: [time_ns] for name, time_ns in means_ns.items() if time_ns is not None}
    return ParallelTimes.of(1, known_ns)
