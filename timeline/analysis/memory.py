"""Memory of a rank: peaks of counters, allocations of a framework, and what graphs hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from timeline.columns.columns import Bool, Codes, ColumnTable, Int64, Rows, column, sort_rows
from timeline.columns.distinct import NO_ROWS, distinct, rows_by_value
from timeline.columns.group_by import group_numbers
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
"""Units in which profilers count memory; what has another is no memory."""


class PeakTable(ColumnTable):
    """One row per series: the group of counters, its name there, and its largest sample."""

    group: Codes = column(np.int32)
    name: Codes = column(np.int32)
    peak_bytes: Int64 = column(np.int64)


@dataclass(frozen=True, slots=True)
class MemoryPeaks:
    """The peaks of one rank; codes are positions in `strings`.

    reserved_bytes: the most that was reserved, NO_ID where that is not recorded.
    """

    strings: tuple[str, ...] = ("",)
    table: PeakTable = field(default_factory=PeakTable.empty)
    reserved_bytes: int = NO_ID


def memory_peaks(records: Records) -> MemoryPeaks:
    """The peaks of all series of memory among the samples that were read, and what was reserved."""
    series, samples, pool = records.series, records.samples, records.strings
    if not len(samples):
        return MemoryPeaks(reserved_bytes=records.reserved_bytes)
    scales = np.array([BYTES_OF_UNIT.get(pool[unit], 0) for unit in series.unit.tolist()], np.int64)
    told = samples.value < MOST_BYTES / np.maximum(scales, 1)[samples.series]
    peaks = np.full(len(series), -1.0)
    np.maximum.at(peaks, samples.series[told], samples.value[told])
    rows: Rows = np.flatnonzero((scales > 0) & (peaks > 0))
    strings = StringPool()
    table = PeakTable(
        strings.translate(series.group[rows], pool),
        strings.translate(series.name[rows], pool),
        np.round(peaks[rows] * scales[rows]).astype(np.int64),
    )
    return MemoryPeaks(tuple(strings), table, records.reserved_bytes)


_TOTALS, _ALLOCATED = "Framework Memory", " Allocated"
"""The counters of what allocators hold: their group, and how their names end."""
_OF_OPERATORS = "Operator Memory"
"""The counter of what operators hold, which has a sample at each allocation."""


class HeldBytes(ColumnTable):
    """A row per allocation, in order of time."""

    name: Codes = column(np.int32, NO_NAME)
    size_bytes: Int64 = column(np.int64)
    use_bytes: Int64 = column(np.int64, NO_ID)
    """What all of the rank held from then on, NO_ID before anything tells."""
    at_peak: Bool = column(np.bool_, 0)


@dataclass(frozen=True, slots=True)
class AllocatedMemory:
    """What a rank allocated in a selection, where that was recorded; names are of `strings`.

    count: how many allocations there are, all of which or some are in `held`. peak_bytes: the most
    that was held at once, NO_ID where nothing tells. peak_name: the operator that allocated last
    before.
    """

    strings: tuple[str, ...] = ("",)
    held: HeldBytes = field(default_factory=HeldBytes.empty)
    count: int = 0
    peak_bytes: int = NO_ID
    peak_name: int = NO_NAME


def allocated_memory(records: Records, most: int) -> AllocatedMemory:
    """What the selected part of a rank allocated, of counters and allocations that were read.

    most: so many allocations are told one by one; of more, the largest that are held at the peak.

    What is held is what the allocators say, all of them together where they do; without them, the
    sum of all allocations that were not released yet.
    """
    time_ns, use_bytes = _use(records)
    if not len(time_ns):
        return AllocatedMemory()
    # Counters are on the clock that allocations were on before that of the host was fitted.
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
    """When how much was held by all allocators, or else by operators; in order of time."""
    time_ns, use_bytes = _samples(records, _TOTALS, _ALLOCATED)
    return (time_ns, use_bytes) if len(time_ns) else _samples(records, _OF_OPERATORS, "")


def _samples(records: Records, group: str, ending: str) -> tuple[Int64, Int64]:
    """The samples in bytes of a group's series whose name has the ending, in order of time.

    Of several series it is the one that is largest at its peak: that of all allocators together.
    What no memory can hold is no sample.
    """
    series, samples, pool = records.series, records.samples, records.strings
    best = np.zeros(0, np.int64), np.zeros(0, np.int64)
    code = pool.find(group)
    wanted = np.flatnonzero(series.group == (NO_ID if code is None else code))
    for row, its in rows_by_value(samples.series, wanted):
        unit = BYTES_OF_UNIT.get(pool[series.unit[row]], 0)
        if not unit or not pool[series.name[row]].endswith(ending):
            continue
        here = its[np.abs(samples.value[its]) < MOST_BYTES / unit]
        if len(here):
            here = here[np.argsort(samples.time_ns[here], kind="stable")]
            values = np.rint(samples.value[here] * unit).astype(np.int64)
            if values.max() > best[1].max(initial=-1):
                best = samples.time_ns[here], values
    return best


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


MEMORY_OF_GRAPHS = "Memory of Graphs"
"""The group of these counters."""


def with_memory_of_graphs(records: Records) -> Records:
    """The records with a counter for each graph: what it holds, from the start of each operator.

    Operators are the tasks of the graph with the name of one of its nodes, without scopes. Nodes
    of which there is no task are counted. Records without tasks stay as they are.
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
    made = {
        "group": strings.codes([MEMORY_OF_GRAPHS] * len(series)),
        "name": strings.codes(series),
        "unit": strings.codes(["B"] * len(series)),
    }
    reason = "operators of graphs whose memory is known and of which there is no task to draw it at"
    told = Omission(
        reason,
        absent,
        records.rank,
        code=OmissionCode.NO_TASK,
        layers=frozenset({Layer.COUNTERS}),
    )
    return replace(
        records,
        series=CounterSeries.concat([records.series, CounterSeries.of(len(series), made)]),
        samples=CounterSamples.concat([records.samples, *samples]),
        omissions=(*records.omissions, *([told] if absent else [])),
    )


def _tasks_by_graph(records: Records, graphs: Int64) -> Iterator[tuple[int, Rows]]:
    """The tasks of each graph, by its row.

    A single graph may have another number than its tasks: then all are its own.
    """
    tasks_of = dict(rows_by_value(records.tasks.graph))
    for row, graph in enumerate(graphs.tolist()):
        tasks = tasks_of.get(graph, NO_ROWS)
        yield row, tasks if len(tasks) or len(graphs) > 1 else np.arange(len(records.tasks))


def _nodes_of_tasks(records: Records, tasks: Rows, use: MemoryUse, nodes: Rows) -> Int64:
    """The node that has the name of each task, -1 where none has; (k,) for k tasks."""
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
