"""Collectives, the longest ops of communication, links and their bandwidths, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.analysis.path.critical_path import CriticalPath
from timeline.analysis.path.rank_path import PathKind
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.waits.collectives import NO_KIND
from timeline.analysis.waits.exposed_waiting import ExposedParts
from timeline.analysis.waits.waiting import Stragglers, WaitedFor, Waits
from timeline.columns.columns import Bool, Int64
from timeline.columns.distinct import distinct_pairs
from timeline.columns.group_by import group_by
from timeline.records.not_given import NO_GRAPH, NO_ID, NO_TIME
from timeline.records.profiler_tables import CollectiveSums
from timeline.records.task_kinds import KINDS
from timeline.tables.table import Table, join_tables

_OF_GROUPS = (
    *("rank", "group", "count", "size_bytes", "moved_bytes"),
    *("total_ns", "waited_ns", "transfer_ns"),
)
"""Columns of collectives that are sums, and what they are of."""


def collective_table(facts: Sequence[RankFacts], waits: Waits) -> Table:
    """See `Figures.collectives`; waits: those of all ranks, in their order."""
    of_ranks = zip(facts, waits.by_rank(len(facts)), strict=True)
    return join_tables(_collectives(rank, its) for rank, its in of_ranks)


def _collectives(facts: RankFacts, waits: Waits) -> dict[str, npt.NDArray[Any]]:
    ops, strings = facts.collectives.ops, np.array(facts.collectives.strings, object)
    if not len(ops):
        return _filed_collectives(facts)
    nothing = np.zeros(len(ops), np.int64)
    waited_ns, transfer_ns, moved = nothing.copy(), nothing.copy(), np.zeros(len(ops))
    known, transferred = nothing.copy(), nothing.copy()
    whole = waits.take(waits.transfer_ns != NO_TIME)
    known[waits.row] = 1
    transferred[whole.row] = 1
    waited_ns[waits.row] = waits.waited_ns
    transfer_ns[whole.row] = whole.transfer_ns
    moved[whole.row] = np.nan_to_num(whole.bandwidth * whole.transfer_ns)
    timed_ns = np.where(moved > 0, transfer_ns, 0)
    rows = np.flatnonzero(ops.selected)
    kinds, kind = np.unique(kind_names(facts, rows), return_inverse=True)
    pairs, which = distinct_pairs(kind.reshape(-1), ops.group[rows].astype(np.int64))
    which = which.reshape(-1)

    def total(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        summed = np.zeros(len(pairs), values.dtype)
        np.add.at(summed, which, values[rows])
        return summed

    def total_known(values: Int64) -> npt.NDArray[Any]:
        none = total((values != NO_ID).astype(np.int64)) == 0
        return np.ma.masked_array(total(np.where(values == NO_ID, 0, values)), none)

    carried, over_ns = total(moved), total(timed_ns)
    unknown, not_whole = total(known) == 0, total(transferred) == 0
    noted = _noted(facts, kinds[pairs[:, 0]], strings[pairs[:, 1]])
    filled = noted.any(axis=1) & unknown & not_whole
    return {
        "rank": np.full(len(pairs), facts.rank, np.int64),
        "kind": kinds[pairs[:, 0]],
        "group": strings[pairs[:, 1]],
        "count": total(nothing + 1),
        "size_bytes": total_known(ops.size_bytes),
        "moved_bytes": total_known(ops.moved_bytes),
        "total_ns": total(ops.end_ns - ops.start_ns),
        "waited_ns": np.ma.masked_array(
            np.where(filled, noted[:, 0], total(waited_ns)), unknown & ~filled
        ),
        "transfer_ns": np.ma.masked_array(
            np.where(filled, noted[:, 1], total(transfer_ns)), not_whole & ~filled
        ),
        "bandwidth_gb_s": np.ma.masked_array(carried / np.maximum(over_ns, 1), over_ns == 0),
    }


def _noted(
    facts: RankFacts, kinds: npt.NDArray[Any], groups: npt.NDArray[Any]
) -> npt.NDArray[np.int64]:
    """Return what a file says that tasks of each kind and group waited and moved data, (n, 2)."""
    sums, strings = facts.profiler_tables.of(CollectiveSums), facts.profiler_tables.strings
    noted: dict[tuple[str, str], npt.NDArray[np.int64]] = {}
    times_ns = np.stack([sums.waited_ns, sums.transfer_ns], axis=1)
    found = group_by(len(sums), [sums.kind, sums.group])
    for at, row in enumerate(found.first.tolist()):
        key = strings[int(sums.kind[row])], strings[int(sums.group[row])]
        noted[key] = times_ns[found.group == at].sum(axis=0)
    # Labels may have the program's name of the group behind their own two words.
    keys = [(kind, " ".join(group.split()[:2])) for kind, group in zip(kinds, groups, strict=True)]
    nothing = np.zeros(2, np.int64)
    return np.array([noted.get(key, nothing) for key in keys], np.int64).reshape(-1, 2)


def _filed_collectives(facts: RankFacts) -> dict[str, npt.NDArray[Any]]:
    """Return the sums of hccl_raw, which has neither times nor sizes of single ops."""
    sums = facts.profiler_tables.of(CollectiveSums)
    kinds = group_by(len(sums), [sums.kind])
    names = [facts.profiler_tables.strings[code] for code in sums.kind[kinds.first].tolist()]
    waited_ns, transfer_ns = kinds.sum(sums.waited_ns), kinds.sum(sums.transfer_ns)
    absent = np.ma.masked_equal(np.full(len(names), NO_ID), NO_ID)
    return {
        "rank": np.full(len(names), facts.rank, np.int64),
        "kind": np.array(names, object),
        "group": np.full(len(names), "", object),
        "count": kinds.sum(sums.count),
        "size_bytes": absent,
        "moved_bytes": absent,
        "total_ns": waited_ns + transfer_ns,
        "waited_ns": waited_ns,
        "transfer_ns": transfer_ns,
        "bandwidth_gb_s": absent.astype(np.float64),
    }


def kind_names(facts: RankFacts, rows: npt.NDArray[np.intp]) -> npt.NDArray[Any]:
    """Return the kind of each op, or its name where the kind is not known."""
    ops = facts.collectives.ops
    kinds = np.array([*KINDS, ""], object)[ops.kind[rows]]
    names = np.array(facts.collectives.strings, object)[ops.name[rows]]
    return np.where(ops.kind[rows] == NO_KIND, names, kinds)


def group_table(collectives: Table) -> Table:
    """Sum the rows of a table of collectives over kinds: a row per rank and group."""
    if not len(collectives):
        return Table(
            {name: collectives[name] for name in _OF_GROUPS if name in collectives.columns}
        )
    _, number = np.unique(collectives["group"].astype(str), return_inverse=True)
    summed = group_by(len(collectives), [collectives["rank"], number.reshape(-1)])
    columns = {name: collectives[name][summed.first] for name in ("rank", "group")}
    for name in _OF_GROUPS[2:]:
        values = collectives[name]
        known = summed.sum((~np.ma.getmaskarray(values)).astype(np.int64))
        sums = summed.sum(np.ma.filled(values, 0))
        columns[name] = np.ma.masked_array(sums, known == 0) if (known == 0).any() else sums
    return Table(columns)


def longest_op_table(facts: Sequence[RankFacts]) -> Table:
    """See `Figures.longest_ops`."""
    return join_tables(map(_longest_ops, facts))


def _longest_ops(facts: RankFacts) -> dict[str, npt.NDArray[Any]]:
    ops = facts.operators.longest
    strings = np.array(facts.operators.strings, object)
    return {
        "rank": np.full(len(ops), facts.rank, np.int64),
        "name": strings[ops.name],
        "group": strings[ops.group],
        "graph": np.ma.masked_equal(ops.graph, NO_GRAPH),
        "step": np.ma.masked_equal(ops.iteration, NO_ID),
        "start_ns": ops.start_ns,
        "duration_ns": ops.end_ns - ops.start_ns,
    }


def link_table(facts: Sequence[RankFacts]) -> Table:
    """See `Figures.links`."""
    return join_tables(map(_links, facts))


def _links(facts: RankFacts) -> dict[str, npt.NDArray[Any]]:
    times = facts.links.times
    groups = [facts.links.strings[code] or None for code in times.group]
    inside = [facts.links.in_groups or group is not None for group in groups]
    return {
        "rank": np.full(len(times), facts.rank, np.int64),
        "source_rank": times.source_rank,
        "target_rank": times.target_rank,
        "link": np.array(facts.links.strings, object)[times.link],
        "count": np.ma.masked_equal(times.count, 0),
        "size_bytes": times.size_bytes,
        "total_ns": times.total_ns,
        "bandwidth_gb_s": times.size_bytes / np.maximum(times.total_ns, 1),
        "group": np.array(groups, object),
        "numbered_in": np.array(["group" if one else "run" for one in inside], object),
    }


REFERENCE_GB_S: Mapping[str, float] = {"HCCS": 18.0, "RDMA": 12.5}
"""What a link of each kind reaches with large transfers."""
BANDWIDTH: Mapping[str, type] = {
    "link": object,
    "links": int,
    "size_bytes": int,
    "total_ns": int,
    "bandwidth_gb_s": float,
    "slowest_gb_s": float,
    "fastest_gb_s": float,
    "reference_gb_s": float,
}


def bandwidth_table(links: Table) -> Table:
    """Return a row per kind of link that moved data between ranks, the longest first.

    links: how many there are, by their ends and group; bandwidth_gb_s: all of their data by all of
    their time; slowest_gb_s and fastest_gb_s: of a single one; reference_gb_s: see there.

    links: as `Figures.links`.
    """
    if not len(links):
        return Table.of_rows(BANDWIDTH, ())
    moving = (
        (links["source_rank"] != links["target_rank"])
        & (links["size_bytes"] > 0)
        & (links["total_ns"] > 0)
    )
    its = links.take(moving)
    kinds, kind = np.unique(its["link"].astype(str), return_inverse=True)
    _, group = np.unique(its["group"].astype(str), return_inverse=True)
    ends = (np.asarray(its["source_rank"]), np.asarray(its["target_rank"]))
    one = group_by(len(its), (kind.astype(np.int64), group.astype(np.int64), *ends))
    kind_of_one = kind[one.first]
    size_bytes, total_ns = one.sum(its["size_bytes"]), one.sum(its["total_ns"])
    speeds = size_bytes / total_ns
    rows = []
    for code, name in enumerate(kinds.tolist()):
        of_kind = kind_of_one == code
        size, time_ns = int(size_bytes[of_kind].sum()), int(total_ns[of_kind].sum())
        slowest, fastest = float(speeds[of_kind].min()), float(speeds[of_kind].max())
        rows.append(
            (
                name,
                int(of_kind.sum()),
                size,
                time_ns,
                size / time_ns,
                slowest,
                fastest,
                reference_gb_s(name, fastest),
            )
        )
    rows.sort(key=lambda row: (-row[3], row[0]))
    return Table.of_rows(BANDWIDTH, rows)


def reference_gb_s(kind: str, fastest_gb_s: float) -> float:
    """Return the bandwidth to compare links of a kind with: a known peak, else the run's best."""
    return REFERENCE_GB_S.get(kind.upper(), fastest_gb_s)


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
