"""The critical path of each step as a table of segments, and its sums by rank and kind."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from timeline.analysis.path.critical_path import CriticalPath
from timeline.analysis.path.path_items import PathKind
from timeline.columns.columns import Int64
from timeline.columns.group_by import group_by
from timeline.figures.table import Table
from timeline.records.not_given import NO_GRAPH, NO_ID

__all__ = ["path_parts", "path_rows", "path_table"]

_KINDS = np.array([kind.label for kind in PathKind], object)
_NUMBERS = {kind.label: int(kind) for kind in PathKind}


def path_table(path: CriticalPath) -> Table:
    """See `Figures.critical_path`."""
    steps, segments = path.steps, path.segments
    on_host = segments.kind == PathKind.HOST
    return Table(
        {
            "step": np.ma.masked_equal(steps.step[segments.path], NO_ID),
            "graph": np.ma.masked_equal(steps.graph[segments.path], NO_GRAPH),
            "rank": np.ma.masked_equal(segments.rank, NO_ID),
            "profiled": segments.profiled.astype(object),
            "kind": _KINDS[segments.kind],
            "name": np.array(path.strings, object)[segments.name],
            "start_ns": segments.start_ns,
            "duration_ns": segments.end_ns - segments.start_ns,
            "call_ns": np.ma.masked_array(segments.call_ns, ~on_host),
        }
    )


def path_parts(table: Table) -> Table:
    """What each step's path has of each rank and kind, in the order of steps, the largest first.

    table: `Figures.critical_path`, or some of its rows. step, graph, rank, profiled, kind and
    total_ns; those of a step add up to its path.
    """
    if not len(table):
        return Table({})
    columns = {name: table[name] for name in ("step", "graph", "rank", "profiled", "kind")}
    path = _numbered_paths(table)
    kind = np.array([_NUMBERS[label] for label in table["kind"].tolist()], np.int64)
    known = np.ma.filled(table["rank"], NO_ID)
    groups = group_by(len(table), [path, known, table["profiled"].astype(np.int64), kind])
    total_ns = groups.sum(table["duration_ns"])
    order = np.lexsort((-total_ns, path[groups.first]))
    return Table(
        {name: column[groups.first[order]] for name, column in columns.items()}
        | {"total_ns": total_ns[order]}
    )


def _numbered_paths(table: Table) -> Int64:
    """The number of the path of each row: those of a path have the same step and follow."""
    step, graph = (np.ma.filled(table[name], NO_ID) for name in ("step", "graph"))
    changes = (step[1:] != step[:-1]) | (graph[1:] != graph[:-1])
    return np.cumsum(np.concatenate([[0], changes])).astype(np.int64)


def path_rows(table: Table) -> Iterator[dict[str, Any]]:
    """The critical path as programs get it: step, graph, path_ns and its parts.

    table: `Figures.critical_path`.
    """
    parts = path_parts(table)
    if not len(parts):
        return
    bounds = np.flatnonzero(np.diff(_numbered_paths(parts), prepend=NO_ID))
    for begin, end in pairwise([*bounds.tolist(), len(parts)]):
        its = parts.take(slice(begin, end))
        rows = its.to_dicts()
        yield {
            "step": rows[0]["step"],
            "graph": rows[0]["graph"],
            "path_ns": int(its["total_ns"].sum()),
            "parts": [
                {name: row[name] for name in ("rank", "profiled", "kind", "total_ns")}
                for row in rows
            ],
        }
