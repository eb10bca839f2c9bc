"""How much memory graphs hold at each of their nodes, and which tensors at their peaks."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from timeline.columns.columns import Bool, Codes, Int64, Rows, sort_rows
from timeline.columns.group_by import group_numbers
from timeline.columns.strings import NO_NAME, StringPool
from timeline.frozen import dataclass
from timeline.records.profiler_tables import (
    Life,
    MemoryGraphs,
    MemoryNodes,
    MemoryTensors,
    NodeTensors,
    ProfilerTables,
)

__all__ = ["NO_NODE", "MemoryUse", "find_node", "memory_use", "without_scope"]

NO_NODE = -1
"""Where no node is meant."""

_Table = TypeVar("_Table", MemoryNodes, MemoryTensors, NodeTensors)


@dataclass(frozen=True)
class MemoryUse:
    """What the graphs of a rank hold.

    graphs: (g,) ascending; nodes: (n,) in the order of graphs, then in which they run; tensors:
    (t,) in the order of graphs, then of their file. Nodes and graphs are meant by their rows.
    """

    graphs: MemoryGraphs
    nodes: MemoryNodes
    tensors: MemoryTensors
    first_node: Int64
    """(g + 1,) where the nodes of each graph begin, and where the last end."""
    node_count: Int64
    tensor_count: Int64
    use_bytes: Int64
    """(n,) what the graph holds at each node."""
    size_bytes: Int64
    """(n,) what each node puts out and works in."""
    change_bytes: Int64
    """(n,) how much more that is than at the node before; at the first, than without any tensor."""
    peak_bytes: Int64
    """(g,) the most that each holds."""
    peak_node: Int64
    """(g,) the first node at which it does; NO_NODE in a graph without nodes."""
    first: Int64
    """(t,) the place of the first node at which each lives, and of the last; of one that never
    lives, as the file gives them."""
    last: Int64
    maker: Int64
    """(t,) the first node that puts each out or works in it; NO_NODE where none does."""
    at_peak: Bool
    """(t,) whether each lives at the first peak of its graph."""


def memory_use(tables: ProfilerTables) -> MemoryUse:
    """What graphs hold, from how long each of their tensors lives.

    A graph holds what is static, and each tensor from its first node to its last, both included.
    """
    found = tables.of(MemoryGraphs)
    graphs = found.take(sort_rows(found.graph))
    nodes, of_node = _by_graph(tables.of(MemoryNodes), graphs.graph)
    tensors, of_tensor = _by_graph(tables.of(MemoryTensors), graphs.graph)
    count = np.bincount(of_node, minlength=len(graphs))
    first_node = np.concatenate([[0], np.cumsum(count)])
    first, last, lives = _lives(tensors, count[of_tensor])

    # Each graph has a place more than nodes, where what lives to its end is given back.
    changes = np.zeros(len(nodes) + len(graphs), np.int64)
    begin = first_node[of_tensor] + of_tensor
    size_bytes = tensors.size_bytes
    np.add.at(changes, (begin + first)[lives], size_bytes[lives])
    np.subtract.at(changes, (begin + last + 1)[lives], size_bytes[lives])
    use_bytes = np.cumsum(changes)[np.arange(len(nodes)) + of_node] + graphs.static_bytes[of_node]
    change_bytes = np.diff(use_bytes, prepend=0)
    has_nodes = count > 0
    firsts = first_node[:-1][has_nodes]
    change_bytes[firsts] = use_bytes[firsts] - graphs.static_bytes[has_nodes]

    peak_bytes, peak_node = graphs.static_bytes.copy(), np.full(len(graphs), NO_NODE)
    if len(firsts):
        peak_bytes[has_nodes] = np.maximum.reduceat(use_bytes, firsts)
        at_peak = np.flatnonzero(use_bytes == peak_bytes[of_node])
        peak_node[of_node[at_peak[::-1]]] = at_peak[::-1]
    place = (peak_node - first_node[:-1])[of_tensor]
    maker, node_bytes = _made(
        *_by_graph(tables.of(NodeTensors), graphs.graph), tensors, of_tensor, first_node
    )
    return MemoryUse(
        graphs,
        nodes,
        tensors,
        first_node,
        count,
        np.bincount(of_tensor, minlength=len(graphs)),
        use_bytes,
        node_bytes,
        change_bytes,
        peak_bytes,
        peak_node,
        np.where(lives, first, tensors.first),
        np.where(lives, last, tensors.last),
        maker,
        lives & (first <= place) & (place <= last),
    )


def find_node(use: MemoryUse, strings: StringPool, points: Codes, *, last: bool) -> Int64:
    """The node of each graph, (g,), at which the step trace sets one of its points.

    points: what it calls the operators there. Of those, and of nodes, the name without its scope
    counts. last: whether the last of several nodes is meant, and not the first.
    """
    wanted = {without_scope(strings[code]) for code in points.tolist() if code != NO_NAME}
    found = np.full(len(use.graphs), NO_NODE)
    if wanted:
        names = strings.codes_where(without_scope(text) in wanted for text in strings)
        rows: Rows = np.flatnonzero(np.isin(use.nodes.name, names))
        rows = rows if last else rows[::-1]
        found[np.searchsorted(use.first_node, rows, side="right") - 1] = rows
    return found


def without_scope(name: str) -> str:
    """The name of an operator, which is behind the scopes that it lies in."""
    return name.rpartition("/")[2]


def _by_graph(table: _Table, graphs: Int64) -> tuple[_Table, Int64]:
    """The rows of a table in the order of graphs, ascending, and which graph each is of."""
    which = np.searchsorted(graphs, table.graph)
    order = sort_rows(which)
    return table.take(order), which[order]


def _lives(tensors: MemoryTensors, nodes: Int64) -> tuple[Int64, Int64, Bool]:
    """The first and the last node at which each tensor lives, and whether it lives at any.

    nodes: (t,) how many the graph of each has.
    """
    from_start = np.isin(tensors.life, (Life.GRAPH, Life.GRAPH_START))
    to_end = np.isin(tensors.life, (Life.GRAPH, Life.GRAPH_END))
    first = np.where(from_start, 0, np.maximum(tensors.first, 0))
    last = np.where(to_end, nodes - 1, np.minimum(tensors.last, nodes - 1))
    return first, last, (first <= last) & (tensors.life != Life.NOT_KNOWN)


def _made(
    made: NodeTensors, of_made: Int64, tensors: MemoryTensors, of_tensor: Int64, first_node: Int64
) -> tuple[Int64, Int64]:
    """The first node, (t,), that has each tensor, and the sizes of all that each node has, (n,)."""
    ids = np.concatenate([tensors.tensor, made.tensor])
    number = group_numbers(len(ids), [np.concatenate([of_tensor, of_made]), ids])
    row_of = np.full(int(number.max(initial=-1)) + 1, -1)
    row_of[number[: len(tensors)]] = np.arange(len(tensors))
    tensor = row_of[number[len(tensors) :]]
    known = tensor >= 0
    node, tensor = (first_node[of_made] + made.node)[known], tensor[known]
    # A node that works in what it puts out holds it once.
    pairs = np.unique(node * max(1, len(tensors)) + tensor)
    node, tensor = np.divmod(pairs, max(1, len(tensors)))
    maker = np.full(len(tensors), NO_NODE)
    maker[tensor[::-1]] = node[::-1]
    size_bytes = np.zeros(int(first_node[-1]), np.int64)
    np.add.at(size_bytes, node, tensors.size_bytes[tensor])
    return maker, size_bytes
