"""The memory of graphs, at its peak, by operator and by tensor, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.analysis.memory import NO_NODE, AllocatedMemory, MemoryUse, find_node, memory_use
from timeline.analysis.rank_facts import RankFacts
from timeline.columns.columns import Int64
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.not_given import NO_GRAPH, NO_ID
from timeline.records.profiler_tables import MemoryGraphs, StepPoints
from timeline.tables.table import Table, join_tables, no_numbers, texts_or_none

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
MOST_AT_PEAK = 50
"""So many tensors of those that are held at a peak are shown, the largest."""
_Columns = dict[str, npt.NDArray[Any]]


def memory_tables(facts: Sequence[RankFacts]) -> tuple[Table, Table, Table]:
    """Return what graphs of MindSpore hold, as planned, or operators of torch_npu allocated.

    Returns:
        a row per rank and graph: the most that it holds, and where; a row per rank, graph and node,
        in execution order: what the graph holds then; a row per rank, graph and tensor: at which
        nodes it lives, and whether at the peak. Allocations have no graph and no nodes: they have a
        row for the rank in the first table, and one each in the other two, in order of time.
    """
    graphs, operators, tensors = list[_Columns](), list[_Columns](), list[_Columns]()
    for rank in facts:
        tables = rank.profiler_tables
        if len(tables.of(MemoryGraphs)):
            use, points = memory_use(tables), tables.of(StepPoints)
            names = _Names(tables.strings, use)
            graphs.append(
                _graphs(
                    rank.rank,
                    use,
                    names,
                    find_node(use, tables.strings, points.fp_start, last=False),
                    find_node(use, tables.strings, points.bp_end, last=True),
                )
            )
            operators.append(_operators(rank.rank, use, names))
            tensors.append(_tensors(rank.rank, use, names))
        if rank.allocated.peak_bytes != NO_ID:
            graphs.append(_allocated(rank.rank, rank.allocated))
            operators.append(_allocations(rank.rank, rank.allocated))
            tensors.append(_held(rank.rank, rank.allocated))
    return (
        join_tables(graphs, MEMORY_GRAPHS),
        join_tables(operators, MEMORY_OPERATORS),
        join_tables(tensors, MEMORY_TENSORS),
    )


class _Names:
    """Names by code, and of nodes, as objects; None for those that are not given."""

    def __init__(self, strings: StringPool, use: MemoryUse) -> None:
        self.texts = texts_or_none(strings)
        self.of_nodes = self.texts[np.append(use.nodes.name, np.int32(NO_NAME))]


def _graphs(rank: int, use: MemoryUse, names: _Names, fp_start: Int64, bp_end: Int64) -> _Columns:
    graphs = use.graphs
    return {
        "rank": np.full(len(graphs), rank),
        "graph": np.ma.masked_equal(graphs.graph, NO_GRAPH),
        "static_bytes": graphs.static_bytes,
        "peak_bytes": use.peak_bytes,
        "peak_node": np.ma.masked_array(
            use.peak_node - use.first_node[:-1], use.peak_node == NO_NODE
        ),
        "peak_operator": names.of_nodes[use.peak_node],
        "capacity_bytes": np.ma.masked_equal(graphs.capacity_bytes, NO_ID),
        "nodes": use.node_count,
        "tensors": use.tensor_count,
        "fp_start": names.of_nodes[fp_start],
        "bp_end": names.of_nodes[bp_end],
    }


def _operators(rank: int, use: MemoryUse, names: _Names) -> _Columns:
    nodes = use.nodes
    return {
        "rank": np.full(len(nodes), rank),
        "graph": np.ma.masked_equal(nodes.graph, NO_GRAPH),
        "node": nodes.node,
        "name": names.texts[nodes.name],
        "use_bytes": use.use_bytes,
        "size_bytes": use.size_bytes,
        "change_bytes": use.change_bytes,
    }


def _tensors(rank: int, use: MemoryUse, names: _Names) -> _Columns:
    tensors = use.tensors
    return {
        "rank": np.full(len(tensors), rank),
        "graph": np.ma.masked_equal(tensors.graph, NO_GRAPH),
        "tensor": tensors.tensor,
        "type": names.texts[tensors.kind],
        "size_bytes": tensors.size_bytes,
        "first": use.first,
        "last": use.last,
        "operator": names.of_nodes[use.maker],
        "at_peak": use.at_peak.astype(object),
    }


def _allocated(rank: int, memory: AllocatedMemory) -> _Columns:
    row = {
        "rank": rank,
        "peak_bytes": memory.peak_bytes,
        "peak_operator": memory.strings[memory.peak_name] or None,
        "tensors": memory.count,
    }
    return dict(Table.of_rows(MEMORY_GRAPHS, [[*map(row.get, MEMORY_GRAPHS)]]).columns)


def _allocations(rank: int, memory: AllocatedMemory) -> _Columns:
    held = memory.held
    use_bytes = np.ma.masked_equal(held.use_bytes, NO_ID)
    change_bytes = np.ma.masked_array(
        np.diff(held.use_bytes, prepend=NO_ID),
        (held.use_bytes == NO_ID) | np.append(True, held.use_bytes == NO_ID)[:-1],
    )
    return {
        "rank": np.full(len(held), rank),
        "graph": no_numbers(len(held)),
        "node": no_numbers(len(held)),
        "name": texts_or_none(memory.strings)[held.name],
        "use_bytes": use_bytes,
        "size_bytes": held.size_bytes,
        "change_bytes": change_bytes,
    }


def _held(rank: int, memory: AllocatedMemory) -> _Columns:
    held = memory.held
    return {
        "rank": np.full(len(held), rank),
        "graph": no_numbers(len(held)),
        "tensor": np.arange(len(held)),
        "type": np.full(len(held), None, object),
        "size_bytes": held.size_bytes,
        "first": no_numbers(len(held)),
        "last": no_numbers(len(held)),
        "operator": texts_or_none(memory.strings)[held.name],
        "at_peak": held.at_peak.astype(object),
    }


def memory_table(facts: Sequence[RankFacts]) -> Table:
    """See `Figures.memory`."""
    rows = list[tuple[int, str | None, str, str, int]]()
    for rank in facts:
        memory = rank.memory
        if memory.reserved_bytes != NO_ID:
            rows.append((rank.rank, RESERVED, "", RESERVED, memory.reserved_bytes))
        columns = (memory.table.group, memory.table.name, memory.table.peak_bytes)
        for group, name, peak_bytes in zip(*(one.tolist() for one in columns), strict=True):
            rows.append((rank.rank, None, memory.strings[group], memory.strings[name], peak_bytes))
    return Table.of_rows(_MEMORY, rows)


RESERVED = "reserved"
"""What the most memory that was reserved is called among peaks."""
_MEMORY = {"rank": int, "metric": object, "group": object, "name": object, "peak_bytes": int}
