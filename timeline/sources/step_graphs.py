"""Turns tasks that name their graphs, and steps that do not, into ones that agree."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np

from timeline.columns.columns import Int64
from timeline.records.tables import NO_GRAPH, NO_ID, CommunicationOps, PlaneTasks, Steps, Tasks

__all__ = ["main_graph", "with_iterations", "with_known_graphs"]

_Table = TypeVar("_Table", Tasks, CommunicationOps, PlaneTasks)


def main_graph(tasks: Tasks, steps: Steps) -> int:
    """The graph that a step trace is of: the one with most tasks inside its steps.

    NO_GRAPH where no task names a graph.
    """
    known = tasks.graph != NO_GRAPH
    inside = known & (_step_rows(tasks.start_ns, steps) >= 0)
    graphs, counts = np.unique(tasks.graph[inside if inside.any() else known], return_counts=True)
    return int(graphs[np.argmax(counts)]) if len(graphs) else NO_GRAPH


def with_iterations(tasks: Tasks, steps: Steps, main: int) -> Tasks:
    """The tasks, with the main graph where they name none.

    Those of other graphs get the number of the step in which they start, so they make steps of
    their own graph: a step of the training runs several graphs when it has control flow.
    """
    graph = np.where(tasks.graph == NO_GRAPH, main, tasks.graph)
    row = _step_rows(tasks.start_ns, steps)
    other = (graph != main) & (row >= 0)
    iteration = tasks.iteration.copy()
    iteration[other] = steps.iteration[row[other]]
    return replace(tasks, graph=graph, iteration=iteration)


def with_known_graphs(table: _Table, steps: Steps) -> _Table:
    """The rows, with the graph of the step in which they start where they name none."""
    row = _step_rows(table.start_ns, steps)
    found = (table.graph == NO_GRAPH) & (row >= 0)
    graph = table.graph.copy()
    graph[found] = steps.graph[row[found]]
    return replace(table, graph=graph)


def _step_rows(moments_ns: Int64, steps: Steps) -> Int64:
    """The step that began last at each moment, if it still goes on, else NO_ID."""
    if not len(steps):
        return np.full(len(moments_ns), NO_ID)
    order = np.argsort(steps.start_ns, kind="stable")
    at = np.searchsorted(steps.start_ns[order], moments_ns, side="right") - 1
    last = order[np.maximum(at, 0)]
    return np.where((at >= 0) & (moments_ns < steps.end_ns[last]), last, NO_ID)
