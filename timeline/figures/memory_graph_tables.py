"""The memory of graphs, at its peak, by operator and by tensor, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.analysis.memory_use import NO_NODE, MemoryUse, find_node, memory_use
from timeline.analysis.rank_facts import RankFacts
from timeline.columns.columns import Codes, Int64
from timeline.columns.strings import NO_NAME, StringPool
from timeline.figures.table import Table, join_columns
from timeline.records.not_given import NO_GRAPH, NO_ID
from timeline.records.profiler_tables.memory_graphs import MemoryGraphs
from timeline.records.profiler_tables.step_trace import StepPoints

__all__ = ["MEMORY_GRAPHS", "MEMORY_OPERATORS", "MEMORY_TENSORS", "MemoryTables", "memory_tables"]

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
_Columns = dict[str, npt.NDArray[Any]]
_Objects = np.ndarray[tuple[int], np.dtype[np.object_]]


@dataclass(frozen=True)
class MemoryTables:
    """What graphs hold.

    graphs: a row per rank and graph, what it holds at most, and where. operators: a row per rank,
    graph and node, in the order in which they run. tensors: a row per rank, graph and tensor, at
    which nodes it lives, and whether at the peak.
    """

    graphs: Table
    operators: Table
    tensors: Table


def memory_tables(facts: Sequence[RankFacts]) -> MemoryTables:
    """The memory of the graphs of all ranks."""
    graphs, operators, tensors = list[_Columns](), list[_Columns](), list[_Columns]()
    for rank in facts:
        tables = rank.profiler_tables
        if not len(tables.of(MemoryGraphs)):
            continue
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
    return MemoryTables(
        _joined(MEMORY_GRAPHS, graphs),
        _joined(MEMORY_OPERATORS, operators),
        _joined(MEMORY_TENSORS, tensors),
    )


class _Names:
    """Names as objects, None for those that are not given."""

    def __init__(self, strings: StringPool, use: MemoryUse) -> None:
        self._texts: _Objects = np.array([*strings], object)
        self._texts[NO_NAME] = None
        self._of_nodes = np.append(use.nodes.name, np.int32(NO_NAME))

    def of(self, codes: Codes) -> _Objects:
        """The strings of codes."""
        return np.take(self._texts, codes)

    def of_nodes(self, rows: Int64) -> _Objects:
        """What nodes are called, NO_NODE among them."""
        return self.of(self._of_nodes[rows])


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
        "peak_operator": names.of_nodes(use.peak_node),
        "capacity_bytes": np.ma.masked_equal(graphs.capacity_bytes, NO_ID),
        "nodes": use.node_count,
        "tensors": use.tensor_count,
        "fp_start": names.of_nodes(fp_start),
        "bp_end": names.of_nodes(bp_end),
    }


def _operators(rank: int, use: MemoryUse, names: _Names) -> _Columns:
    nodes = use.nodes
    return {
        "rank": np.full(len(nodes), rank),
        "graph": np.ma.masked_equal(nodes.graph, NO_GRAPH),
        "node": nodes.node,
        "name": names.of(nodes.name),
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
        "type": names.of(tensors.kind),
        "size_bytes": tensors.size_bytes,
        "first": use.first,
        "last": use.last,
        "operator": names.of_nodes(use.maker),
        "at_peak": use.at_peak.astype(object),
    }


def _joined(kinds: Mapping[str, type], parts: Sequence[_Columns]) -> Table:
    if not parts:
        return Table.of_rows(kinds, ())
    return Table({name: join_columns([part[name] for part in parts]) for name in kinds})
