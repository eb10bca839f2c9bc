"""Contents of a rank as listed by --list, without the rest of the analysis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from timeline.analysis.cut import device_span_ns
from timeline.columns.distinct import NO_ROWS, distinct, rows_by_value
from timeline.records.clock import EARLIEST_WALL_NS, CommunicationRule, FreeRule
from timeline.records.not_given import NO_GRAPH
from timeline.records.tables import Records


@dataclass(frozen=True)
class RankContents:
    """Contents of a rank.

    steps: iterations by graph, graphs ascending; a graph without any is included only if all are.
    span_ns: from the first start to the last end of device work and steps. timed: whether any
    record has a time; if not, steps are those of the tables. monotonic: whether its clock counts
    from the start of its host. free_rule, communication_rule: rules for counting its device time.
    notes: from its reader.
    """

    steps: Mapping[int, tuple[int, ...]]
    tasks: int
    communication_ops: int
    span_ns: int
    timed: bool
    monotonic: bool
    free_rule: FreeRule
    communication_rule: CommunicationRule
    notes: tuple[str, ...] = ()


def describe_contents(records: Records) -> RankContents:
    """Return the contents of a rank with known steps."""
    return RankContents(
        _steps_by_graph(records),
        len(records.tasks),
        len(records.ops),
        _span_ns(records),
        records.timed,
        is_monotonic(records),
        records.free_rule,
        records.communication_rule,
        records.notes,
    )


def _steps_by_graph(records: Records) -> dict[int, tuple[int, ...]]:
    rows_of = dict(rows_by_value(records.steps.graph))
    steps = {
        graph: tuple(records.steps.iteration[rows_of.get(graph, NO_ROWS)].tolist())
        for graph in sorted(find_graphs(records))
    }
    return {graph: numbers for graph, numbers in steps.items() if numbers or len(steps) == 1} or {
        NO_GRAPH: tuple(sorted(find_steps(records)))
    }


def _span_ns(records: Records) -> int:
    spans = [span for span in [device_span_ns(records)] if span is not None]
    if len(records.steps):
        spans.append((int(records.steps.start_ns.min()), int(records.steps.end_ns.max())))
    return max((end for _, end in spans), default=0) - min((start for start, _ in spans), default=0)


def find_graphs(records: Records) -> frozenset[int]:
    """Return the graphs with tasks, ops or steps; with tables only, those of the tables."""
    if records.tables_only:
        return records.profiler_tables.graphs
    tables = (records.tasks.graph, records.ops.graph, records.steps.graph)
    return frozenset(graph for column in tables for graph in distinct(column).tolist())


def find_steps(records: Records) -> frozenset[int]:
    """Return the numbers of all steps; with tables only, those of the tables."""
    if records.tables_only and not len(records.steps):
        return records.profiler_tables.steps
    return frozenset(records.steps.iteration.tolist())


def is_monotonic(records: Records) -> bool:
    """Return whether the clock of the records counts from the start of its host."""
    for table in (records.tasks, records.ops, records.steps, records.host):
        if len(table):
            return bool(np.min(table.start_ns) < EARLIEST_WALL_NS)
    return False
