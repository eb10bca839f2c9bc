"""The memory of graphs, at its peak, by operator and by tensor, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from timeline.analysis.rank_facts import RankFacts
from timeline.figures.table import Table

__all__ = [
    "MEMORY_GRAPHS",
    "MEMORY_OPERATORS",
    "MEMORY_TENSORS",
    "memory_graph_table",
    "memory_operator_table",
    "memory_tensor_table",
]

MEMORY_GRAPHS: Mapping[str, type] = {
    "rank": int,
    "graph": int,
    "static_bytes": int,
    "peak_bytes": int,
    "peak_node": int,
    "peak_operator": object,
    "capacity_bytes": int,
    "nodes": int,
    "tensors": int,
    "fp_start": object,
    "bp_end": object,
}
MEMORY_OPERATORS: Mapping[str, type] = {
    "rank": int,
    "graph": int,
    "node": int,
    "name": object,
    "use_bytes": int,
    "size_bytes": int,
    "change_bytes": int,
}
MEMORY_TENSORS: Mapping[str, type] = {
    "rank": int,
    "graph": int,
    "tensor": int,
    "type": object,
    "size_bytes": int,
    "first": int,
    "last": int,
    "operator": object,
    "at_peak": object,
}


def memory_graph_table(facts: Sequence[RankFacts]) -> Table:
    """A row per rank and graph: what it holds at most, and where."""
    return Table.of_rows(MEMORY_GRAPHS, ())


def memory_operator_table(facts: Sequence[RankFacts]) -> Table:
    """A row per rank, graph and node, in the order in which they run."""
    return Table.of_rows(MEMORY_OPERATORS, ())


def memory_tensor_table(facts: Sequence[RankFacts]) -> Table:
    """A row per rank, graph and tensor: at which nodes it lives, and whether at the peak."""
    return Table.of_rows(MEMORY_TENSORS, ())
