"""Tables of collectives, links, waits of ranks for each other, and the critical path."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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
from timeline.analysis.waits.waiting import Waits
from timeline.columns.columns import Int64
from timeline.columns.group_by import group_by
from timeline.columns.strings import NO_NAME
from timeline.records.not_given import NO_GRAPH, NO_ID, NO_TIME
from timeline.records.profiler_tables import CollectiveSums
from timeline.records.task_kinds import KINDS
from timeline.tables.table import (
    Columns,
    Json,
    Method,
    Run,
    Spec,
    Table,
    given,
    sum_rows,
    texts_or_none,
)

COLLECTIVES = Spec(
    "collectives",
    "rank, kind and group of collectives",
    """
    rank
    label kind = Kind: such as AllReduce
    label group = Group
    count
    size_bytes: the input of the rank
    moved_bytes = Moved: sent over links, by communication.json or analysis.db
    total_ns = Time
    waited_ns: until the last rank arrived
    transfer_ns = Transfer: after the last rank arrived
    real bandwidth_gb_s: of the bus
    """,
    lambda run: _of_ranks(run, _collectives),
    Json("collectives"),
    Method("collectives", by="kind"),
    note="Sums are over known values, and masked if none is known. For a rank without single ops "
    "they come from `hccl_raw`, without a group. For a rank with step tables alone, waited_ns and "
    "transfer_ns come from `communication.json` if other ranks do not show them",
)
COLLECTIVE_GROUPS: Spec = Spec(
    "collective_groups",
    "rank and group of collectives, summed over kinds",
    """
    rank
    label group = Group
    count
    size_bytes: the input of the rank
    moved_bytes = Moved: sent over links, by communication.json or analysis.db
    total_ns = Time
    waited_ns: until the last rank arrived
    transfer_ns = Transfer: after the last rank arrived
    """,
    lambda run: sum_rows(run["collectives"], ("rank", "group"), [*COLLECTIVE_GROUPS.kinds][2:]),
    method=Method("collectives", by="group"),
)
OPS = Spec(
    "ops",
    "communication op, in order of start",
    """
    rank
    text kind: such as AllReduce
    text name, group
    graph, step
    start_ns: on the clock that all ranks share
    duration_ns
    size_bytes: the input of the rank
    waited_ns: until the last rank arrived
    last_rank: the rank that arrived last
    transfer_ns = Transfer: after it arrived
    """,
    lambda run: _of_ranks(run, _ops),
    method=Method("collectives", by="op", kept=False),
)
LONGEST_OPS = Spec(
    "longest_ops",
    "communication op, the 20 longest of each rank, longest first",
    """
    rank
    label name = Name, group = Group
    graph, step
    start_ns: on the clock that all ranks share
    duration_ns
    """,
    lambda run: map(_longest_ops, run.facts),
    method=Method("collectives", by="longest"),
)


def _of_ranks(run: Run, of_rank: Callable[[RankFacts, Waits], Columns]) -> Iterator[Columns]:
    """Return the columns of each rank, given its facts and its waits."""
    return map(of_rank, run.facts, run.rank_waiting.waits.by_rank(len(run.facts)))


def _collectives(facts: RankFacts, waits: Waits) -> Columns:
    every, strings = facts.collectives.ops, np.array(facts.collectives.strings, object)
    if not len(every):
        return _filed_collectives(facts)
    moved = np.zeros(len(every))
    complete = waits.take(waits.transfer_ns != NO_TIME)
    moved[complete.row] = np.nan_to_num(complete.bandwidth * complete.transfer_ns)
    rows, ops = np.flatnonzero(every.selected), _ops(facts, waits)
    of_ops = {
        **ops,
        "group": strings[every.group[rows]],
        "count": np.ones(len(rows), np.int64),
        "total_ns": ops["duration_ns"],
        "moved_bytes": given(every.moved_bytes[rows], NO_ID),
        "moved": moved[rows],
        "moving_ns": np.where(moved[rows] > 0, np.ma.filled(ops["transfer_ns"], 0), 0),
    }
    order = np.lexsort((every.group[rows], ops["kind"].astype(str)))
    names = ("count", "size_bytes", "moved_bytes", "total_ns", "waited_ns", "transfer_ns")
    sums = sum_rows(
        Table(of_ops).take(order), ("rank", "kind", "group"), (*names, "moved", "moving_ns")
    )
    from_file_ns = _times_in_files(facts, sums["kind"], sums["group"])
    unknown = [np.ma.getmaskarray(sums[name]) for name in ("waited_ns", "transfer_ns")]
    filled = from_file_ns.any(axis=1) & unknown[0] & unknown[1]
    columns = {
        **sums.columns,
        "bandwidth_gb_s": np.ma.masked_array(
            sums["moved"] / np.maximum(sums["moving_ns"], 1), sums["moving_ns"] == 0
        ),
    }
    for at, name in enumerate(("waited_ns", "transfer_ns")):
        columns[name] = np.ma.masked_array(
            np.where(filled, from_file_ns[:, at], np.ma.getdata(sums[name])), unknown[at] & ~filled
        )
    return columns


def _times_in_files(
    facts: RankFacts, kinds: npt.NDArray[Any], groups: npt.NDArray[Any]
) -> npt.NDArray[np.int64]:
    """Return the waiting and transfer time of each kind and group by a file, (n, 2), 0 for none."""
    sums, strings = facts.profiler_tables.of(CollectiveSums), facts.profiler_tables.strings
    sums_ns: dict[tuple[str, str], npt.NDArray[np.int64]] = {}
    times_ns = np.stack([sums.waited_ns, sums.transfer_ns], axis=1)
    by_group = group_by(len(sums), [sums.kind, sums.group])
    for at, row in enumerate(by_group.first.tolist()):
        key = strings[int(sums.kind[row])], strings[int(sums.group[row])]
        sums_ns[key] = times_ns[by_group.group == at].sum(axis=0)
    # Group labels have two words of their own; the program's name of the group may follow.
    keys = [(kind, " ".join(group.split()[:2])) for kind, group in zip(kinds, groups, strict=True)]
    absent = np.zeros(2, np.int64)
    return np.array([sums_ns.get(key, absent) for key in keys], np.int64).reshape(-1, 2)


def _filed_collectives(facts: RankFacts) -> Columns:
    """Return the sums in hccl_raw, which has neither start times nor sizes of single ops."""
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


def _kind_names(facts: RankFacts, rows: npt.NDArray[np.intp]) -> npt.NDArray[Any]:
    """Return the kind of each op, or its name if the kind is unknown."""
    ops = facts.collectives.ops
    kinds = np.array([*KINDS, ""], object)[ops.kind[rows]]
    names = np.array(facts.collectives.strings, object)[ops.name[rows]]
    return np.where(ops.kind[rows] == NO_KIND, names, kinds)


def _ops(facts: RankFacts, waits: Waits) -> Columns:
    every = facts.collectives.ops
    waited_ns, transfer_ns = np.full((2, len(every)), NO_TIME)
    last_rank = np.full(len(every), NO_ID, np.int64)
    waited_ns[waits.row], transfer_ns[waits.row] = waits.waited_ns, waits.transfer_ns
    last_rank[waits.row] = waits.last_rank
    rows = np.flatnonzero(every.selected)
    ops = every.take(rows)
    return OPS.part(
        facts.rank,
        ops,
        facts.collectives.strings,
        kind=_kind_names(facts, rows),
        graph=given(ops.graph, NO_GRAPH),
        step=given(ops.iteration, NO_ID),
        duration_ns=ops.end_ns - ops.start_ns,
        size_bytes=given(ops.size_bytes, NO_ID),
        waited_ns=given(waited_ns[rows], NO_TIME),
        last_rank=given(last_rank[rows], NO_ID),
        transfer_ns=given(transfer_ns[rows], NO_TIME),
    )


def _longest_ops(facts: RankFacts) -> Columns:
    ops = facts.operators.longest
    return LONGEST_OPS.part(
        facts.rank,
        ops,
        facts.operators.strings,
        graph=given(ops.graph, NO_GRAPH),
        step=given(ops.iteration, NO_ID),
        duration_ns=ops.end_ns - ops.start_ns,
    )


LINKS = Spec(
    "links",
    "rank and link",
    """
    rank, source_rank = From, target_rank = To
    label link: its kind, such as HCCS
    count: of tasks; masked in the profiler's sums
    size_bytes, total_ns = Time
    small_count: number of tasks that move less than 16 MB, or 1 MB over RDMA
    real bandwidth_gb_s: size / time
    text group = Group: within which ranks are numbered, if its members are not known
    text numbered_in: run or group: where both ranks have these numbers
    """,
    lambda run: map(_links, run.facts),
    Json("links"),
    Method("links"),
    note="From HCCL tasks, else from `communication_matrix.json` or `analysis.db`, else from "
    "MindSpore's `hccl_raw`",
)


def _links(facts: RankFacts) -> Columns:
    links, strings = facts.links.times, facts.links.strings
    in_group = (links.group != NO_NAME) | facts.links.in_groups
    return LINKS.part(
        facts.rank,
        links,
        strings,
        count=given(links.count, 0),
        small_count=np.ma.masked_array(links.small_count, links.count == 0),
        bandwidth_gb_s=links.size_bytes / np.maximum(links.total_ns, 1),
        numbered_in=np.where(in_group, "group", "run").astype(object),
    )


REFERENCE_GB_S: Mapping[str, float] = {"HCCS": 18.0, "RDMA": 12.5}
"""Bandwidth that a link of each kind reaches with large transfers."""


def bandwidth_table(links: Table) -> Table:
    """Return a row per kind of link that moved data between ranks, the longest time first.

    Columns: link, links (number of distinct ones, by their ends and group), size_bytes, total_ns,
    bandwidth_gb_s (total size / total time), slowest_gb_s and fastest_gb_s (of a single link),
    reference_gb_s (see `reference_gb_s`).

    links: rows of LINKS.
    """
    if not len(links):
        return links
    is_between_ranks = links["source_rank"] != links["target_rank"]
    moving = links.take(is_between_ranks & (links["size_bytes"] > 0) & (links["total_ns"] > 0))
    amounts = ("size_bytes", "total_ns")
    single = sum_rows(moving, ("link", "group", "source_rank", "target_rank"), amounts)
    speed = single["size_bytes"] / single["total_ns"]
    more = {"links": np.ones(len(single), np.int64), "slowest_gb_s": speed, "fastest_gb_s": speed}
    kinds = sum_rows(
        *(Table({**single.columns, **more}), ("link",), ("links", *amounts)),
        least=("slowest_gb_s",),
        largest=("fastest_gb_s",),
        by="total_ns",
    )
    ends = zip(kinds["link"].tolist(), kinds["fastest_gb_s"].tolist(), strict=True)
    return Table(
        {
            **kinds.columns,
            "bandwidth_gb_s": kinds["size_bytes"] / kinds["total_ns"],
            "reference_gb_s": np.array([reference_gb_s(*one) for one in ends], np.float64),
        }
    )


def reference_gb_s(kind: str, fastest_gb_s: float) -> float:
    """Return the bandwidth to compare links of a kind with: its reference, else the run's best."""
    return REFERENCE_GB_S.get(kind.upper(), fastest_gb_s)


WAITING = Spec(
    "waiting",
    "rank, its waits in collectives; masked if nothing is known about any of them",
    """
    rank
    shared: number of collectives whose last rank is known
    unmatched: number of collectives without counterparts on other ranks of the group
    alone: number of collectives of groups of which no other rank is selected
    shared_ns: the duration of these collectives, as the next two
    unmatched_ns, alone_ns
    point_to_point_ns: the duration of sends and receives
    times_last = Times last: how often it came last
    waited_ns = Time it waited: how long it waited
    caused_ns = Wait caused: how long other ranks that are read waited for it
    slowest_ns = Longest: the longest wait for it
    unknown: number of collectives whose last rank is unknown, as members are not read
    unnamed: number of collectives whose last rank is unknown, as HCCL tasks have neither names \
        nor ranks
    unknown_ns, unnamed_ns
    """,
    lambda run: [_waiting(run)],
    Json(
        "waiting",
        lambda run, table: _with_waited_for(table, run["waited_for"]),
        more="; `waited_for`, longest first: `rank` (`null` if it is unknown which rank came "
        "last), whether it is read (`profiled`), `times` and `waited_ns`",
    ),
    Method("waiting", by="rank"),
)
WAITED_FOR = Spec(
    "waited_for",
    "pair of ranks of which one waited for the other, longest first",
    """
    rank
    waited_for_rank: masked if it is unknown which rank came last
    text profiled: whether that rank is read
    times, waited_ns = Time it waited
    """,
    lambda run: [_waited_for(run)],
    method=Method("waiting", by="pair"),
)
EXPOSED = Spec(
    "exposed",
    "rank, its communication while nothing computes, in ordinary steps, or in the whole selection "
    "if there are none",
    """
    rank, exposed_ns
    waiting_ns: known part of it
    transfer_ns: known part of it
    """,
    lambda run: [_exposed(run)],
)
EXPOSED_STEPS = Spec(
    "exposed_steps",
    "row of `steps`, the parts of its exposed communication; masked if neither is known",
    """
    waiting_ns, transfer_ns
    """,
    lambda run: [_exposed_steps(run)],
)


def _waiting(run: Run) -> Columns:
    stragglers = run.rank_waiting.stragglers
    of_waits = ("times_last", "waited_ns", "caused_ns", "slowest_ns")
    others = ("alone", "unmatched", "unknown", "unnamed")
    unknown = (stragglers.shared == 0) & (sum(getattr(stragglers, name) for name in others) > 0)
    columns = {one.name: getattr(stragglers, one.name) for one in fields(stragglers)}
    known = {
        name: np.ma.masked_array(values, unknown) if name in of_waits else values
        for name, values in columns.items()
    }
    return {"rank": _ranks(run), **known}


def _ranks(run: Run) -> Int64:
    return np.array([rank.rank for rank in run.facts], np.int64)


def _waited_for(run: Run) -> Columns:
    waited_for = run.rank_waiting.waited_for
    return {
        "rank": _ranks(run)[waited_for.rank],
        "waited_for_rank": given(waited_for.last_rank, NO_ID),
        "profiled": waited_for.profiled.astype(object),
        "times": waited_for.times,
        "waited_ns": waited_for.waited_ns,
    }


def _exposed(run: Run) -> Columns:
    of_ranks, of_steps = run.exposed_parts
    chosen = np.concatenate([np.zeros(0, np.bool_), *run.ordinary])
    if chosen.any():
        owner = np.repeat(np.arange(len(run.facts)), [len(rank.steps) for rank in run.facts])
        sums = np.zeros((3, len(run.facts)), np.int64)
        for row, one in enumerate(fields(of_steps)):
            np.add.at(sums[row], owner[chosen], getattr(of_steps, one.name)[chosen])
        of_ranks = ExposedParts(*sums)
    return {
        "rank": _ranks(run),
        **{one.name: getattr(of_ranks, one.name) for one in fields(of_ranks)},
    }


def _exposed_steps(run: Run) -> Columns:
    parts = run.exposed_parts[1]
    unknown = (parts.waiting_ns == 0) & (parts.transfer_ns == 0)
    # Limit the parts to the exposed communication of the step, which excludes ops in no step.
    whole_ns = np.concatenate(
        [np.zeros(0, np.int64), *(rank.step_totals.not_overlapped_ns for rank in run.facts)]
    )
    waiting_ns = np.minimum(parts.waiting_ns, whole_ns)
    transfer_ns = np.minimum(parts.transfer_ns, whole_ns - waiting_ns)
    return {
        "waiting_ns": np.ma.masked_array(waiting_ns, unknown),
        "transfer_ns": np.ma.masked_array(transfer_ns, unknown),
    }


def _with_waited_for(waiting: Table, waited_for: Table) -> list[dict[str, Any]]:
    """Return the row of each rank for JSON, with a list of the ranks it waited for."""
    by_rank: dict[int, list[dict[str, Any]]] = {}
    for row in waited_for.to_dicts():
        by_rank.setdefault(row.pop("rank"), []).append(
            {"rank": row.pop("waited_for_rank"), **row},
        )
    return [row | {"waited_for": by_rank.get(row["rank"], [])} for row in waiting.to_dicts()]


@dataclass(frozen=True)
class WaitMatrix:
    """The time that each rank (row) waited in collectives for each other (column).

    ranks: (R,), ranks that are read. awaited: (C,), these and all other ranks that were waited for,
    and NO_ID at the end if some waiting is for unknown ranks. waited_ns: (R, C).
    """

    ranks: Int64
    awaited: Int64
    waited_ns: Int64

    @classmethod
    def of(cls, waiting: Table, waited_for: Table) -> WaitMatrix | None:
        """Return the matrix of the tables WAITING and WAITED_FOR, None if no rank waited."""
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
        """Return the labels of the columns."""
        return ["?" if rank == NO_ID else str(rank) for rank in self.awaited.tolist()]


_KINDS = np.array([kind.label for kind in PathKind], object)
_NUMBERS = {kind.label: int(kind) for kind in PathKind}


CRITICAL_PATH = Spec(
    "critical_path",
    "segment of the critical path of each step, in order of time; the segments of a step add up to "
    "the time from the last device end of the step before to its own",
    """
    step: masked if none are marked
    graph
    rank: masked if not known
    text profiled: whether the rank is read
    text kind: computing, transfer, copy, host, queued, launch, between_tasks or not_profiled
    label name: of the work that ran or was waited for; on the host of the call that took longest
    start_ns: on the clock that all ranks share
    duration_ns
    call_ns: the time of that call
    text line: of code that took most of a host segment, by call stacks; None if unknown
    line_ns: the time of that line
    """,
    lambda run: [_path(run.path)],
    Json(
        "critical_path",
        lambda _run, table: list(path_rows(table)),
        "per `step` (`null` without steps) and `graph`: `path_ns`, and its `parts`, which add up "
        "to it, by `rank` (`null` if unknown), whether that is `profiled`, and `kind` "
        "(`computing`, `transfer`, `copy`, `host`, `queued`, `launch`, `between_tasks`, "
        "`not_profiled`): `total_ns`",
    ),
    Method("critical_path"),
)


def _path(path: CriticalPath) -> Columns:
    steps, segments = path.steps, path.segments
    return {
        "step": given(steps.step[segments.path], NO_ID),
        "graph": given(steps.graph[segments.path], NO_GRAPH),
        "rank": given(segments.rank, NO_ID),
        "profiled": segments.profiled.astype(object),
        "kind": _KINDS[segments.kind],
        "name": np.array(path.strings, object)[segments.name],
        "start_ns": segments.start_ns,
        "duration_ns": segments.end_ns - segments.start_ns,
        "call_ns": np.ma.masked_array(segments.call_ns, segments.kind != PathKind.HOST),
        "line": texts_or_none(np.array(path.strings, object))[segments.line],
        "line_ns": np.ma.masked_array(segments.line_ns, segments.line == NO_NAME),
    }


def path_parts(table: Table) -> Table:
    """Return the time of each rank and kind on the path of each step, by step, the largest first.

    The columns are step, graph, rank, profiled, kind and total_ns, which adds up to the path.

    table: rows of CRITICAL_PATH.
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
    """Return a path number for each row; consecutive rows of one step and graph share it."""
    step, graph = (np.ma.filled(table[name], NO_ID) for name in ("step", "graph"))
    changes = (step[1:] != step[:-1]) | (graph[1:] != graph[:-1])
    return np.cumsum(np.concatenate([[0], changes])).astype(np.int64)


def path_rows(table: Table) -> Iterator[dict[str, Any]]:
    """Yield the critical path of each step for JSON: step, graph, path_ns and parts.

    table: rows of CRITICAL_PATH.
    """
    parts = path_parts(table)
    if not len(parts):
        return
    bounds = np.flatnonzero(np.diff(_numbered_paths(parts), prepend=NO_ID))
    for begin, end in pairwise([*bounds.tolist(), len(parts)]):
        path = parts.take(slice(begin, end))
        rows = path.to_dicts()
        yield {
            "step": rows[0]["step"],
            "graph": rows[0]["graph"],
            "path_ns": int(path["total_ns"].sum()),
            "parts": [
                {name: row[name] for name in ("rank", "profiled", "kind", "total_ns")}
                for row in rows
            ],
        }
