"""How a run is split over ranks, and what each computes and communicates, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from timeline.analysis.rank_facts import RankFacts
from timeline.figures.table import Table

__all__ = ["PARALLEL", "PARALLEL_TIMES", "parallel_table", "parallel_times_table"]

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
}


def parallel_table(facts: Sequence[RankFacts]) -> Table:
    """One row, or none where nothing tells how the run is split: mode, stages, ranks, and
    stage_ranks,
    the ranks of each stage."""
    return Table.of_rows(PARALLEL, ())


def parallel_times_table(facts: Sequence[RankFacts]) -> Table:
    """A row per rank and step, and their means: of is steps or file there, and step masked."""
    return Table.of_rows(PARALLEL_TIMES, ())
