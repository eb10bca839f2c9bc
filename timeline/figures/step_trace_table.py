"""The step trace as a table, with the means that MindInsight shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from timeline.analysis.rank_facts import RankFacts
from timeline.columns.columns import Int64, Rows, sort_rows
from timeline.columns.distinct import distinct_values
from timeline.figures.table import Table, join_parts, masked_if_needed
from timeline.records.not_given import NO_GRAPH, NO_TIME
from timeline.records.profiler_tables import StepPoints, StepTraceMeans

__all__ = ["OF_FILE", "OF_STEPS", "STEP_TRACE", "mean_time_ns", "step_trace_table"]

STEP_TRACE: Mapping[str, type] = {
    "rank": int,
    "graph": int,
    "step": int,
    "of": object,
    "start_ns": int,
    "total_ns": int,
    "interval_ns": int,
    "fp_bp_ns": int,
    "tail_ns": int,
    "fp_start": object,
    "bp_end": object,
}
OF_STEPS, OF_FILE = "steps", "file"
"""What a mean is of: the steps of the table, and what the file of the profiler says it is."""
PARTS = ("total_ns", "interval_ns", "fp_bp_ns", "tail_ns")


def step_trace_table(facts: Sequence[RankFacts]) -> Table:
    """A row per rank, graph and step that the step trace tells, and the means of each graph.

    A step lasts from the end of the step before it: total_ns = interval_ns + fp_bp_ns + tail_ns.
    The first step of a graph has no interval and is in no mean. Means have no step; `of` is steps
    for that of the selected steps, where there are two at least, and file for the profiler's own.
    fp_start, bp_end: the operators at which forward begins and backward ends.
    """
    parts = (part for rank in facts for part in _parts(rank))
    columns = join_parts(parts, STEP_TRACE)
    if not columns:
        return Table.of_rows(STEP_TRACE, ())
    return Table({name: masked_if_needed(column) for name, column in columns.items()})


def _parts(facts: RankFacts) -> Iterator[Mapping[str, npt.NDArray[Any]]]:
    """The rows of a rank: of its steps, then means."""
    steps, trace = facts.steps, facts.step_trace
    rows = np.flatnonzero(~steps.host) if len(trace) else np.zeros(0, np.int64)
    rows = rows[sort_rows(steps.graph[rows], steps.iteration[rows], steps.start_ns[rows])]
    graphs, which = distinct_values(steps.graph[rows])
    points = {graph: _points(facts, graph) for graph in graphs.tolist()}
    if len(rows):
        fp_start, bp_end = np.array([*points.values()], object)[which].T
        yield {
            "rank": np.full(len(rows), facts.rank, np.int64),
            "graph": _given(steps.graph[rows], NO_GRAPH),
            "step": steps.iteration[rows],
            "of": np.full(len(rows), None, object),
            "start_ns": _given(steps.start_ns[rows] - trace.lead_ns[rows], NO_TIME),
            **{part: _given(getattr(trace, part)[rows], NO_TIME) for part in PARTS},
            "fp_start": fp_start,
            "bp_end": bp_end,
        }
    means = [*_means(facts, rows, points)]
    if means:
        yield Table.of_rows(STEP_TRACE, means).columns


_Points: TypeAlias = tuple[str | None, str | None]


def _means(
    facts: RankFacts, rows: Rows, points: Mapping[int, _Points]
) -> Iterator[tuple[object, ...]]:
    """The means of the steps of each graph, and those of the file.

    rows: those of the steps that the step trace tells. points: see `_points`, by graph.
    """
    steps, trace = facts.steps, facts.step_trace
    for graph in points:
        its = rows[steps.graph[rows] == graph]
        if len(its) > 1:
            means_ns = (
                mean_time_ns(getattr(trace, part)[its[~trace.first[its]]]) for part in PARTS
            )
            yield facts.rank, _graph(graph), None, OF_STEPS, None, *means_ns, *points[graph]
    graph = next(iter(points)) if len(points) == 1 else NO_GRAPH
    means = facts.profiler_tables.of(StepTraceMeans)
    for row in range(len(means)):
        its_ns = (int(getattr(means, part)[row]) for part in PARTS)
        given_ns = (None if time_ns == NO_TIME else time_ns for time_ns in its_ns)
        yield facts.rank, _graph(graph), None, OF_FILE, None, *given_ns, *_points(facts, graph)


def _points(facts: RankFacts, graph: int) -> _Points:
    """Where forward begins and backward ends in a graph; files may tell it of all together."""
    strings, points = facts.profiler_tables.strings, facts.profiler_tables.of(StepPoints)
    for row in np.flatnonzero((points.graph == graph) | (points.graph == NO_GRAPH)).tolist():
        return strings[points.fp_start[row]] or None, strings[points.bp_end[row]] or None
    return None, None


def _graph(graph: int) -> int | None:
    return None if graph == NO_GRAPH else graph


def _given(values: Int64, absent: int) -> npt.NDArray[Any]:
    """The values, masked where they are not given."""
    not_given = values == absent
    return np.ma.masked_array(np.where(not_given, 0, values), not_given)


def mean_time_ns(times_ns: Int64) -> int | None:
    """The mean of the times that are known, to the nearest nanosecond, halves up."""
    known_ns = times_ns[times_ns != NO_TIME]
    if not len(known_ns):
        return None
    return (2 * int(known_ns.sum()) + len(known_ns)) // (2 * len(known_ns))
