"""What graphs hold at each of their operators, as samples of counters where those have times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from timeline.analysis.memory_use import MemoryUse, memory_use, without_scope
from timeline.columns.columns import Int64, Rows
from timeline.columns.distinct import NO_ROWS, distinct, rows_by_value
from timeline.columns.strings import NO_NAME
from timeline.layers import Layer
from timeline.records.not_given import NO_GRAPH
from timeline.records.profiler_tables import MemoryGraphs
from timeline.records.tables import CounterSamples, CounterSeries, Omission, OmissionCode, Records

__all__ = ["MEMORY_OF_GRAPHS", "with_memory_of_graphs"]

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
