"""Operators by type and source, by step, and as the framework describes them, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from timeline.analysis.rank_facts import RankFacts
from timeline.figures.table import Table

__all__ = [
    "FRAMEWORK",
    "OPERATORS",
    "OPERATOR_STEPS",
    "framework_table",
    "operator_step_table",
    "operator_sum_table",
]

OPERATORS: Mapping[str, type] = {
    "rank": int,
    "source": object,
    "type": object,
    "core": object,
    "count": int,
    "total_ns": int,
    "mean_ns": int,
    "dispatch_ns": int,
    "run_ns": int,
    "share": float,
}
OPERATOR_STEPS: Mapping[str, type] = {
    "rank": int,
    "step": int,
    "level": object,
    "side": object,
    "type": object,
    "name": object,
    "shapes": object,
    "count": int,
    "total_ns": int,
    "mean_ns": int,
}
FRAMEWORK: Mapping[str, type] = {
    "rank": int,
    "graph": int,
    "stream": int,
    "task": int,
    "name": object,
    "type": object,
    "block_dim": int,
    "inputs": object,
    "outputs": object,
}


def operator_sum_table(facts: Sequence[RankFacts]) -> Table:
    """A row per rank, source (tasks, aicore_intermediate, aicpu_intermediate, aicpu) and type."""
    return Table.of_rows(OPERATORS, ())


def operator_step_table(facts: Sequence[RankFacts]) -> Table:
    """A row per rank, step and type, name or kernel: how often and how long it ran."""
    return Table.of_rows(OPERATOR_STEPS, ())


def framework_table(facts: Sequence[RankFacts]) -> Table:
    """A row per operator that the framework describes; inputs and outputs are lists of format, type
    and shape."""
    return Table.of_rows(FRAMEWORK, ())
