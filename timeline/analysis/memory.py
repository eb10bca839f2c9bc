"""Memory of a rank: peaks of counters, allocations of a framework, and memory of graphs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from timeline.columns.columns import Bool, Codes, ColumnTable, Int64, Rows, column, sort_rows
from timeline.columns.distinct import NO_ROWS, distinct, rows_by_value
from timeline.columns.group_by import group_numbers, sum_by
from timeline.columns.strings import NO_NAME, StringPool
from timeline.layers import Layer
from timeline.ranges import MOST_BYTES
from timeline.records.not_given import NO_GRAPH, NO_ID, NO_TIME
from timeline.records.profiler_tables import (
    Life,
    MemoryGraphs,
    MemoryNodes,
    MemoryTensors,
    NodeTensors,
    ProfilerTables,
)
from timeline.records.tables import CounterSamples, CounterSeries, Omission, OmissionCode, Records

BYTES_OF_UNIT = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
"""Units in which profilers count memory; series with other units are not memory."""


class PeakTable(ColumnTable):
    """Peak of each series: the group of counters, its name there, and its largest sample."""

    group: Codes = column(np.int32)
    name: Codes = column(np.int32)
    peak_bytes: Int64 = column(np.int64)


@dataclass(frozen=True, slots=True)
class MemoryPeaks:
    """Peaks of one rank; codes are positions in `strings`.

    reserved_bytes: maximum reserved memory, NO_ID if not recorded.
    """

    strings: tuple[str, ...] = ("",)
    table: PeakTable = field(default_factory=PeakTable.empty)
    reserved_bytes: int = NO_ID


def memory_peaks(records: Records) -> MemoryPeaks:
    """Return the peaks of all memory series among the samples, and the reserved memory."""
    series, samples, pool = records.series, records.samples, records.strings
    if not len(samples):
        return MemoryPeaks(reserved_bytes=records.reserved_bytes)
    scales = np.array([BYTES_OF_UNIT.get(pool[unit], 0) for unit in series.unit.tolist()], np.int64)
    plausible = samples.value < MOST_BYTES / np.maximum(scales, 1)[samples.series]
    peaks = np.full(len(series), -1.0)
    np.maximum.at(peaks, samples.series[plausible], samples.value[plausible])
    rows: Rows = np.flatnonzero((scales > 0) & (peaks > 0))
    strings = StringPool()
    table = PeakTable(
        strings.translate(series.group[rows], pool),
        strings.translate(series.name[rows], pool),
        np.round(peaks[rows] * scales[rows]).astype(np.int64),
    )
    return MemoryPeaks(tuple(strings), table, records.reserved_bytes)


_TOTALS, _ALLOCATED = "Framework Memory", " Allocated"
"""Group of the counters of allocators, and the suffix of their names."""
_OF_OPERATORS = "Operator Memory"
"""Counter of memory held by operators, with a sample at each allocation."""


class HeldBytes(ColumnTable):
    """Allocations, one row each, in order of time."""

    name: Codes = column(np.int32, NO_NAME)
    size_bytes: Int64 = column(np.int64)
    use_bytes: Int64 = column(np.int64, NO_ID)
    """Memory held by the whole rank from then on, NO_ID if unknown."""
    at_peak: Bool = column(np.bool_, 0)


@dataclass(frozen=True, slots=True)
class AllocatedMemory:
    """Recorded allocations of a rank in a selection; names are codes of `strings`.

    count: number of allocations, some or all of which are in `held`. peak_bytes: maximum memory
    held at once, NO_ID if unknown. peak_name: operator of the last allocation before the peak.
    """

    strings: tuple[str, ...] = ("",)
    held: HeldBytes = field(default_factory=HeldBytes.empty)
    count: int = 0
    peak_bytes: int = NO_ID
    peak_name: int = NO_NAME


def allocated_memory(records: Records, most: int) -> AllocatedMemory:
    """Return the allocations of the selected part of a rank, from counters and allocations.

    most: maximum number of allocations listed; of more, the largest held at the peak.

    Held memory is the total of all allocators if recorded; otherwise the sum of all allocations not
    yet released.
    """
    time_ns, use_bytes = _use(records)
    if not len(time_ns):
        return AllocatedMemory()
    # Counters are on the clock of allocations before the host clock was fitted.
    allocations = records.allocations.shifted(-records.host_offset_ns)
    starts_ns = allocations.start_ns
    rows: Rows = np.flatnonzero(np.isin(starts_ns, _samples(records, _OF_OPERATORS, "")[0]))
    rows = rows[np.argsort(starts_ns[rows], kind="stable")]
    starts_ns, ends_ns = starts_ns[rows], allocations.end_ns[rows]
    sample = np.searchsorted(time_ns, starts_ns, side="right") - 1
    peak = int(np.argmax(use_bytes))
    peak_ns = int(time_ns[peak])
    before = int(np.searchsorted(starts_ns, peak_ns, side="right"))
    strings = StringPool()
    names = strings.translate(allocations.name[rows], records.strings)
    held = HeldBytes(
        names,
        allocations.size_bytes[rows],
        np.where(sample >= 0, use_bytes[sample], NO_ID),
        (starts_ns <= peak_ns) & ((ends_ns == NO_TIME) | (ends_ns > peak_ns)),
    )
    peak_name = int(names[before - 1]) if before else NO_NAME
    if len(rows) > most:
        kept = np.flatnonzero(held.at_peak)
        kept = kept[np.argsort(-held.size_bytes[kept], kind="stable")[:most]]
        held = held.take(np.sort(kept))
    return AllocatedMemory(tuple(strings), held, len(rows), int(use_bytes[peak]), peak_name)


def _use(records: Records) -> tuple[Int64, Int64]:
    """Return timestamps and the memory held then by all allocators, else by operators."""
    time_ns, use_bytes = _samples(records, _TOTALS, _ALLOCATED)
    return (time_ns, use_bytes) if len(time_ns) else _samples(records, _OF_OPERATORS, "")


def _samples(records: Records, group: str, ending: str) -> tuple[Int64, Int64]:
    """Return the samples in bytes of a group's series whose name has an ending, in order of time.

    If there are several series, the one with the largest peak is used, which is that of all
    allocators together. Samples above any possible memory are ignored.
    """
    series, samples, pool = records.series, records.samples, records.strings
    best = np.zeros(0, np.int64), np.zeros(0, np.int64)
    code = pool.find(group)
    wanted = np.flatnonzero(series.group == (NO_ID if code is None else code))
    for row, of_series in rows_by_value(samples.series, wanted):
        unit = BYTES_OF_UNIT.get(pool[series.unit[row]], 0)
        if not unit or not pool[series.name[row]].endswith(ending):
            continue
        here = of_series[np.abs(samples.value[of_series]) < MOST_BYTES / unit]
        if len(here):
            here = here[np.argsort(samples.time_ns[here], kind="stable")]
            values = np.rint(samples.value[here] * unit).astype(np.int64)
            if values.max() > best[1].max(initial=-1):
                best = samples.time_ns[here], values
    return best


NO_NODE = -1
"""Absence of a node."""

_Table = TypeVar("_Table", MemoryNodes, MemoryTensors, NodeTensors)


@dataclass(frozen=True)
class MemoryUse:
    """Memory of the graphs of a rank.

    graphs: (g,) ascending; nodes: (n,) by graph, then in the order in which they run; tensors: (t,)
    by graph, then in the order of their file. Nodes and graphs are identified by their rows.
    """

    graphs: MemoryGraphs
    nodes: MemoryNodes
    tensors: MemoryTensors
    first_node: Int64
    """(g + 1,) offset of the nodes of each graph, and the end of the last."""
    node_count: Int64
    tensor_count: Int64
    use_bytes: Int64
    """(n,) memory held by the graph at each node."""
    size_bytes: Int64
    """(n,) output and workspace of each node."""
    change_bytes: Int64
    """(n,) increase over the previous node; at the first node, over the static memory."""
    peak_bytes: Int64
    """(g,) maximum memory of each graph."""
    peak_node: Int64
    """(g,) first node at the peak; NO_NODE in a graph without nodes."""
    first: Int64
    """(t,) first node of each tensor's lifetime, and last: its last node; as in the file for a
    tensor that never lives.
    """
    last: Int64
    maker: Int64
    """(t,) first node with the tensor as output or workspace; NO_NODE for none."""
    at_peak: Bool
    """(t,) whether each lives at the first peak of its graph."""


def memory_use(tables: ProfilerTables) -> MemoryUse:
    """Return the memory of graphs, from the lifetimes of their tensors.

    A graph holds static memory, and each tensor from its first node to its last, both included.
    """
    unsorted = tables.of(MemoryGraphs)
    graphs = unsorted.take(sort_rows(unsorted.graph))
    nodes, of_node = _by_graph(tables.of(MemoryNodes), graphs.graph)
    tensors, of_tensor = _by_graph(tables.of(MemoryTensors), graphs.graph)
    count = np.bincount(of_node, minlength=len(graphs))
    first_node = np.concatenate([[0], np.cumsum(count)])
    first, last, lives = _lives(tensors, count[of_tensor])

    # Each graph has one place more than nodes, where tensors that live to its end are released.
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
    maker, node_bytes = _makers(
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
    """Return the node of each graph, (g,), at which the step trace marks forward or backward.

    points: names of the operators there. Names of points and nodes are compared without scopes.
    last: whether to return the last of several nodes, instead of the first.
    """
    wanted = {without_scope(strings[code]) for code in points.tolist() if code != NO_NAME}
    node = np.full(len(use.graphs), NO_NODE)
    if wanted:
        names = strings.codes_where(without_scope(text) in wanted for text in strings)
        rows: Rows = np.flatnonzero(np.isin(use.nodes.name, names))
        rows = rows if last else rows[::-1]
        node[np.searchsorted(use.first_node, rows, side="right") - 1] = rows
    return node


def without_scope(name: str) -> str:
    """Return the name of an operator without its scopes."""
    return name.rpartition("/")[2]


def _by_graph(table: _Table, graphs: Int64) -> tuple[_Table, Int64]:
    """Return the rows of a table ordered by graph, and the position of each row's graph."""
    which = np.searchsorted(graphs, table.graph)
    order = sort_rows(which)
    return table.take(order), which[order]


def _lives(tensors: MemoryTensors, nodes: Int64) -> tuple[Int64, Int64, Bool]:
    """Return the first and last node of each tensor's lifetime, and whether it lives at all.

    nodes: (t,) number of nodes of each tensor's graph.
    """
    from_start = np.isin(tensors.life, (Life.GRAPH, Life.GRAPH_START))
    to_end = np.isin(tensors.life, (Life.GRAPH, Life.GRAPH_END))
    first = np.where(from_start, 0, np.maximum(tensors.first, 0))
    last = np.where(to_end, nodes - 1, np.minimum(tensors.last, nodes - 1))
    return first, last, (first <= last) & (tensors.life != Life.NOT_KNOWN)


def _makers(
    node_tensors: NodeTensors,
    of_node_tensor: Int64,
    tensors: MemoryTensors,
    of_tensor: Int64,
    first_node: Int64,
) -> tuple[Int64, Int64]:
    """Return the first node with each tensor, (t,), and the size of each node's tensors, (n,)."""
    ids = np.concatenate([tensors.tensor, node_tensors.tensor])
    number = group_numbers(len(ids), [np.concatenate([of_tensor, of_node_tensor]), ids])
    row_of = np.full(int(number.max(initial=-1)) + 1, -1)
    row_of[number[: len(tensors)]] = np.arange(len(tensors))
    tensor = row_of[number[len(tensors) :]]
    known = tensor >= 0
    node, tensor = (first_node[of_node_tensor] + node_tensors.node)[known], tensor[known]
    # A tensor that is both output and workspace of a node counts once.
    pairs = np.unique(node * max(1, len(tensors)) + tensor)
    node, tensor = np.divmod(pairs, max(1, len(tensors)))
    maker = np.full(len(tensors), NO_NODE)
    maker[tensor[::-1]] = node[::-1]
    return maker, sum_by(node, tensors.size_bytes[tensor], int(first_node[-1]))


MEMORY_OF_GRAPHS = "Memory of Graphs"
"""Group of these counters."""


def with_memory_of_graphs(records: Records) -> Records:
    """Return the records with a counter for each graph: its memory from the start of each operator.

    Operators are the tasks of the graph with the name of one of its nodes, without scopes. Nodes
    without a task are counted. Records without tasks stay as they are.
    """
    tables = records.profiler_tables
    if not len(records.tasks) or not len(tables.of(MemoryGraphs)):
        return records
    use, strings = memory_use(tables), records.strings
    series, samples, absent = list[str](), list[CounterSamples](), 0
    for graph, tasks in _tasks_by_graph(records, use.graphs.graph):
        nodes = np.arange(*use.first_node[graph : graph + 2])
        node_of = _nodes_of_tasks(records, tasks, use, nodes)
        placed = node_of >= 0
        absent += len(nodes) - len(distinct(node_of[placed]))
        if placed.any():
            columns = {
                "time_ns": records.tasks.start_ns[tasks[placed]],
                "series": np.full(int(placed.sum()), len(records.series) + len(series)),
                "value": use.use_bytes[node_of[placed]],
            }
            samples.append(CounterSamples.of(int(placed.sum()), columns))
            number = int(use.graphs.graph[graph])
            series.append("Graph" if number == NO_GRAPH else f"Graph {number}")
    columns_of_series = {
        "group": strings.codes([MEMORY_OF_GRAPHS] * len(series)),
        "name": strings.codes(series),
        "unit": strings.codes(["B"] * len(series)),
    }
    reason = "operators of graphs whose memory is known but which have no task to draw it at"
    omission = Omission(
        reason, absent, records.rank, code=OmissionCode.NO_TASK, layers=frozenset({Layer.COUNTERS})
    )
    return replace(
        records,
        series=CounterSeries.concat(
            [records.series, CounterSeries.of(len(series), columns_of_series)]
        ),
        samples=CounterSamples.concat([records.samples, *samples]),
        omissions=(*records.omissions, *([omission] if absent else [])),
    )


def _tasks_by_graph(records: Records, graphs: Int64) -> Iterator[tuple[int, Rows]]:
    """Yield the row of each graph and its tasks.

    If there is a single graph and no task has its number, all tasks belong to it.
    """
    tasks_of = dict(rows_by_value(records.tasks.graph))
    for row, graph in enumerate(graphs.tolist()):
        tasks = tasks_of.get(graph, NO_ROWS)
        yield row, tasks if len(tasks) or len(graphs) > 1 else np.arange(len(records.tasks))


def _nodes_of_tasks(records: Records, tasks: Rows, use: MemoryUse, nodes: Rows) -> Int64:
    """Return the node with the name of each task, -1 for none; (k,) for k tasks."""
    pool, strings = records.profiler_tables.strings, records.strings
    node_of_name = {
        without_scope(pool[code]): node
        for code, node in zip(use.nodes.name[nodes].tolist(), nodes.tolist(), strict=True)
        if code != NO_NAME
    }
    codes = records.tasks.name[tasks]
    node_of_code = np.full(len(strings), -1)
    for code in distinct(codes).tolist():
        node_of_code[code] = node_of_name.get(without_scope(strings[code]), -1)
    return node_of_code[codes]
