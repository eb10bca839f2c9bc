"""Who waited for whom, how long, and what determined each step, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

import numpy as np

from timeline.analysis.path.critical_path import CriticalPath, PathKind
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.waits.exposed_waiting import ExposedParts
from timeline.analysis.waits.waiting import Stragglers, WaitedFor
from timeline.columns.columns import Bool, Int64
from timeline.columns.group_by import group_by
from timeline.figures.table import Table
from timeline.records.not_given import NO_GRAPH, NO_ID

_COUNTED = frozenset(
    {
        "shared",
        "unmatched",
        "alone",
        "shared_ns",
        "unmatched_ns",
        "alone_ns",
        "point_to_point_ns",
        "unknown",
        "unnamed",
        "unknown_ns",
        "unnamed_ns",
    }
)
"""Columns of `waiting` that say what it stands on, and are known even where nothing of it is."""


def waiting_table(facts: Sequence[RankFacts], stragglers: Stragglers) -> Table:
    """See `Figures.waiting`."""
    ranks = np.array([rank.rank for rank in facts], np.int64)
    columns = {field.name: getattr(stragglers, field.name) for field in fields(stragglers)}
    others = ("alone", "unmatched", "unknown", "unnamed")
    rest = sum(columns[name] for name in others)
    unknown = (columns["shared"] == 0) & (rest > 0)
    shown = {
        name: values if name in _COUNTED else np.ma.masked_array(values, unknown)
        for name, values in columns.items()
    }
    return Table({"rank": ranks, **shown})


def waited_for_table(facts: Sequence[RankFacts], waited_for: WaitedFor) -> Table:
    """See `Figures.waited_for`."""
    ranks = np.array([rank.rank for rank in facts], np.int64)
    return Table(
        {
            "rank": ranks[waited_for.rank],
            "waited_for_rank": np.ma.masked_equal(waited_for.last_rank, NO_ID),
            "profiled": waited_for.profiled.astype(object),
            "times": waited_for.times,
            "waited_ns": waited_for.waited_ns,
        }
    )


def exposed_tables(
    facts: Sequence[RankFacts],
    of_ranks: ExposedParts,
    parts: ExposedParts,
    ordinary: Sequence[Bool],
) -> tuple[Table, Table]:
    """See `Figures.exposed` and `Figures.exposed_steps`.

    of_ranks, parts: of ranks and of their steps, see `split_exposed`. ordinary: which steps of each
    rank are ordinary.
    """
    chosen = np.concatenate([np.zeros(0, np.bool_), *ordinary])
    if chosen.any():
        owner = np.repeat(np.arange(len(facts)), [len(rank.steps) for rank in facts])
        sums = np.zeros((3, len(facts)), np.int64)
        for row, values in enumerate((parts.exposed_ns, parts.waiting_ns, parts.transfer_ns)):
            np.add.at(sums[row], owner[chosen], values[chosen])
        of_ranks = ExposedParts(*sums)
    ranks = {"rank": np.array([rank.rank for rank in facts], np.int64)}
    known = (parts.waiting_ns > 0) | (parts.transfer_ns > 0)
    # The step's own sum is what is drawn: ops that belong to no step are not in it.
    whole_ns = np.concatenate(
        [np.zeros(0, np.int64), *(rank.step_totals.not_overlapped_ns for rank in facts)]
    )
    waiting_ns = np.minimum(parts.waiting_ns, whole_ns)
    transfer_ns = np.minimum(parts.transfer_ns, whole_ns - waiting_ns)
    return (
        Table(ranks | {field.name: getattr(of_ranks, field.name) for field in fields(of_ranks)}),
        Table(
            {
                "waiting_ns": np.ma.masked_array(waiting_ns, ~known),
                "transfer_ns": np.ma.masked_array(transfer_ns, ~known),
            }
        ),
    )


def waiting_dicts(waiting: Table, waited_for: Table) -> list[dict[str, Any]]:
    """Return the rows of `Figures.waiting`, each with its rows of `Figures.waited_for`."""
    by_rank: dict[int, list[dict[str, Any]]] = {}
    for row in waited_for.to_dicts():
        by_rank.setdefault(row.pop("rank"), []).append(
            {"rank": row.pop("waited_for_rank"), **row},
        )
    return [row | {"waited_for": by_rank.get(row["rank"], [])} for row in waiting.to_dicts()]


@dataclass(frozen=True)
class WaitMatrix:
    """The time that each rank (row) waited in collectives for each other (column).

    ranks: (R,), those that are read. awaited: (C,), those and all that any of them waited for, at
    the end NO_ID where it is not known of all waiting for whom it was. waited_ns: (R, C).
    """

    ranks: Int64
    awaited: Int64
    waited_ns: Int64

    @classmethod
    def of(cls, waiting: Table, waited_for: Table) -> WaitMatrix | None:
        """Return the matrix of `Figures.waiting` and `waited_for`, None if nobody waited."""
        if not len(waited_for) or not waited_for["waited_ns"].any():
            return None
        ranks = np.unique(np.asarray(waiting["rank"], np.int64))
        whom = np.ma.filled(waited_for["waited_for_rank"], NO_ID).astype(np.int64)
        awaited = np.union1d(ranks, whom[whom != NO_ID])
        if (whom == NO_ID).any():
            awaited = np.append(awaited, NO_ID)
        column = np.searchsorted(awaited, whom, sorter=np.argsort(awaited, kind="stable"))
        column = np.argsort(awaited, kind="stable")[column]
        row = np.searchsorted(ranks, waited_for["rank"])
        waited_ns = np.zeros((len(ranks), len(awaited)), np.int64)
        np.add.at(waited_ns, (row, column), waited_for["waited_ns"])
        return cls(ranks, awaited, waited_ns)

    @property
    def caused_ns(self) -> Int64:
        """Return how long others waited for each rank, (C,)."""
        sums: Int64 = self.waited_ns.sum(axis=0)
        return sums

    def labels(self) -> list[str]:
        """Return the titles of the columns."""
        return ["?" if rank == NO_ID else str(rank) for rank in self.awaited.tolist()]


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
    """Return the share of each rank and kind in each step's path, by step, the largest first.

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
    """Return the number of the path of each row: consecutive rows of one step."""
    step, graph = (np.ma.filled(table[name], NO_ID) for name in ("step", "graph"))
    changes = (step[1:] != step[:-1]) | (graph[1:] != graph[:-1])
    return np.cumsum(np.concatenate([[0], changes])).astype(np.int64)


def path_rows(table: Table) -> Iterator[dict[str, Any]]:
    """Yield the critical path for programs: step, graph, path_ns and its parts.

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
