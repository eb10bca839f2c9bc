"""Communication ops shared by several ranks, and the rank that came last to each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from timeline.analysis.waits.collectives import (
    Arrivals,
    Collectives,
    GroupView,
    RankCollectives,
    kind_numbers,
    latest_peers,
    mix_hashes,
)
from timeline.columns.columns import Bool, ColumnTable, Float64, Int64, Rows, column, sort_rows
from timeline.columns.distinct import are_first, distinct, distinct_values
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.task_kinds import BATCH


@dataclass(frozen=True)
class SharedOps:
    """Participation of ranks in ops: one row per rank and op, ordered by op, then rank.

    parts: the collectives of each rank. rank: (n,) position of the rank. row: (n,) its row among
    that rank's collectives. op: (n,) number of the op from 0. group: (ops,) number of the set of
    ranks that take part. count: number of ops.
    """

    parts: Sequence[Collectives]
    rank: Rows
    row: Rows
    op: Rows
    group: Rows
    count: int

    @property
    def places(self) -> Rows:
        """Return the position of each row among the concatenated collectives of all ranks."""
        return np.cumsum([0, *map(len, self.parts)])[self.rank] + self.row

    def take(self, name: str) -> Int64:
        """Return a column of the ranks' collectives, for each row."""
        columns = (getattr(part, name) for part in self.parts)
        taken: Int64 = np.concatenate([np.empty(0, np.int64), *columns])[self.places]
        return taken

    def over(self, reduce: np.ufunc, values: Int64) -> Int64:
        """Reduce the values (n,) of each op to one, (ops,)."""
        if not self.count:
            return np.zeros(0, np.int64)
        reduced: Int64 = reduce.reduceat(values, self.first_rows())
        return reduced

    @property
    def joined(self) -> Int64:
        """Return the number of ranks that take part in each op, (ops,)."""
        return np.bincount(self.op, minlength=self.count)

    def first_rows(self) -> Rows:
        """Return the first row of each op."""
        return np.searchsorted(self.op, np.arange(self.count))

    def apart(self, ops: Bool) -> SharedOps:
        """Split the ops whose mask is true, so that each rank has an op of its own."""
        opens = ops[self.op]
        opens[self.first_rows()] = True
        groups = self.group[self.op[opens]]
        return replace(self, op=np.cumsum(opens) - 1, group=groups, count=len(groups))

    def rows_where(self, rows: Bool) -> SharedOps:
        """Return the rows whose mask is true, with the remaining ops renumbered."""
        left, op = np.unique(self.op[rows], return_inverse=True)
        rank, row, group = self.rank[rows], self.row[rows], self.group[left]
        return SharedOps(self.parts, rank, row, op, group, len(left))

    def of_islands(self, island: Rows) -> tuple[SharedOps, Rows, Rows]:
        """Return the ops with islands in place of ranks, without ops of a single island.

        Also return the order of rows by op and island, and the offset of each returned row in that
        order.
        """
        order = np.lexsort((island[self.rank], self.op))
        op, number = self.op[order], island[self.rank][order]
        opens = are_first(op, number)
        several = np.bincount(op[opens], minlength=self.count) > 1
        stays = several[op]
        order, first = order[stays], np.flatnonzero(opens[stays])
        rank, op = number[stays][first], (np.cumsum(several) - 1)[op[stays][first]]
        count = int(np.count_nonzero(several))
        groups = _groups(rank, op, count, len(island))
        return SharedOps((), rank, self.row[order[first]], op, groups, count), order, first


@dataclass(frozen=True)
class Islands:
    """Sets of ranks whose clocks agree, by the number of the island of each rank, (ranks,) int64.

    doubt_ns: (ranks,) how far the clock of a rank may be off from those of other islands.
    """

    number: Int64
    doubt_ns: Int64

    def between_ns(self, rank: Int64, other: Int64) -> Int64:
        """Return how far the clocks of ranks may be off from those of others; 0 on one island."""
        apart = self.number[rank] != self.number[other]
        return np.where(apart, np.maximum(self.doubt_ns[rank], self.doubt_ns[other]), 0)


def find_shared_ops(
    ranks: Sequence[RankCollectives], wanted: Sequence[Bool], by: str = "key", *, least: int = 2
) -> SharedOps:
    """Find the ops that several ranks take part in.

    Args:
        wanted: for each rank, a mask of the collectives to consider.
        by: column that is the same on all ranks of an op, NO_ID if unknown.
        least: minimum number of ranks that take part.
    """
    parts = [rank.ops for rank in ranks]
    rows = [
        np.flatnonzero(is_wanted & (getattr(part, by) != NO_ID))
        for part, is_wanted in zip(parts, wanted, strict=True)
    ]
    rank = np.repeat(np.arange(len(parts)), [len(part_rows) for part_rows in rows])
    row = np.concatenate([np.empty(0, np.intp), *rows])
    keys = (getattr(part, by)[part_rows] for part, part_rows in zip(parts, rows, strict=True))
    key = np.concatenate([np.empty(0, np.int64), *keys])
    order = np.argsort(key, kind="stable")
    rank, row, key = rank[order], row[order], key[order]
    opens = are_first(key)
    op = np.cumsum(opens) - 1
    several = np.bincount(op)[op] >= least
    rank, row = rank[several], row[several]
    op = (np.cumsum(opens & several) - 1)[several]
    count = int(op[-1]) + 1 if len(op) else 0
    return SharedOps(parts, rank, row, op, _groups(rank, op, count, len(parts)), count)


def _groups(rank: Rows, op: Rows, count: int, ranks: int) -> Rows:
    """Return a number for each op's set of ranks, (ops,).

    Sets are distinguished by the sum of a scrambled number per rank.
    """
    sums = np.zeros(count, np.uint64)
    scrambled = mix_hashes(np.zeros(ranks, np.uint64), np.arange(1, ranks + 1))
    np.add.at(sums, op, scrambled.astype(np.uint64)[rank])
    return distinct_values(sums)[1]


class Segments:
    """Rows grouped by segment once, for several reductions.

    segment: (n,) number of the segment of each row, below `count`.
    """

    def __init__(self, segment: Rows, count: int) -> None:
        self._count = count
        self._order = np.argsort(segment, kind="stable")
        size = np.bincount(segment, minlength=count)
        first = np.cumsum(size) - size
        self._by_size = [
            (np.flatnonzero(size == length), first[size == length], length)
            for length in distinct(size[size > 0]).tolist()
        ]

    def medians(self, values: Float64) -> Float64:
        """Return the median of the values of each segment, 0 for an empty segment."""
        medians = np.zeros(self._count)
        ordered = values[self._order]
        for segments, first, size in self._by_size:
            medians[segments] = np.median(ordered[first[:, None] + np.arange(size)], axis=1)
        return medians


TIE_NS = 2_000
"""Minimum delay of a notify for a rank that is not read to count as later than one that is.

Different ranks see the same notify up to 1.5 us apart.
"""
LEAST_MESH = 4
"""Minimum members of a full mesh, a power of two, to be believed if only one rank shows it.

In a hierarchy, a rank sees a mesh and one rank more.
"""


class LastArrivals(ColumnTable):
    """Last arrivals at ops: one row per rank and op, in the order of `SharedOps`.

    known: whether any source shows the arrival. whole: whether it is the last of all members; if
    not, other members may have come later, and last_rank is NO_ID. unnamed: whether there are HCCL
    tasks that name neither themselves nor their peers. members: number of members, 0 if unknown.
    For the other columns see `Waits`.
    """

    known: Bool = column(np.bool_)
    whole: Bool = column(np.bool_)
    unnamed: Bool = column(np.bool_)
    members: Int64 = column(np.int64)
    last: Int64 = column(np.int64)
    last_row: Int64 = column(np.int64)
    last_rank: Int64 = column(np.int64)
    last_profiled: Bool = column(np.bool_)
    last_ns: Int64 = column(np.int64)


class _Views(ColumnTable):
    """View that each rank has of the group of an op: one row per rank and op.

    size: of the group, 0 if unknown. most: size of the run, 0 if unknown. seen: number of the set
    of ranks that it sees, including itself. mesh: size of that set, 0 if it has gaps. least:
    minimum number of members. is_global: 1 if its rank numbers are global. recorded: 1 if HCCL
    tasks were looked for.
    """

    size: Int64 = column(np.int64)
    most: Int64 = column(np.int64)
    seen: Int64 = column(np.int64)
    mesh: Int64 = column(np.int64)
    least: Int64 = column(np.int64)
    is_global: Int64 = column(np.int64)
    recorded: Int64 = column(np.int64)


def find_last_arrivals(
    ranks: Sequence[RankCollectives], shared: SharedOps, slack_ns: Int64
) -> LastArrivals:
    """Find the last rank of each op from the ops of ranks and from the waits of their HCCL tasks.

    A rank that is not read came last if its notify came more than `TIE_NS` after the arrivals of
    all that are, as one rank saw them. Unless every member is read or was waited for, the last rank
    is not identified, and without HCCL tasks the arrival is unknown.

    Args:
        ranks: on one clock.
        shared: their ops, including ops of a single rank.
        slack_ns: (ops,) how far the clocks of their ranks may be off.
    """
    if not shared.count:
        return LastArrivals.empty()
    of = shared.op
    numbers = np.array([rank.rank for rank in ranks], np.int64)
    start_ns = shared.take("start_ns")
    last_start_ns = shared.over(np.maximum, start_ns)[of]
    last, last_row = np.zeros((2, shared.count), np.int64)
    rows = np.flatnonzero(start_ns == last_start_ns)[::-1]  # the first of several stays
    last[of[rows]], last_row[of[rows]] = shared.rank[rows], shared.row[rows]

    views, arrivals = _views(ranks, shared), _arrivals(ranks, shared)
    seen_rank, seen_ns, before_ns = _latest_seen(arrivals, shared, numbers, start_ns)
    is_unnamed = arrivals.tasks & (arrivals.peers == 0)
    members, whole = _members(ranks, views, arrivals, is_unnamed, shared)
    kind = shared.take("kind")[shared.first_rows()]
    of_pair = (kind == kind_numbers([BATCH])[0]) & (shared.joined == 2)
    members, whole = np.where(of_pair, 2, members), whole | of_pair
    lead_ns = np.maximum(arrivals.record_ns, start_ns) - start_ns
    is_later = (
        whole[of]
        & (views.is_global == 1)  # else the tasks number ranks within the group
        & (seen_ns > before_ns + TIE_NS)
        & (seen_ns > last_start_ns + lead_ns + TIE_NS - slack_ns[of])
    )
    other, other_ns = latest_peers(
        of[is_later], seen_rank[is_later], seen_ns[is_later], shared.count
    )
    by_tasks, is_whole = (other != NO_ID)[of], whole[of]
    by_ops = is_whole & ~by_tasks
    own_ns = np.where(seen_ns != NO_TIME, seen_ns, other_ns[of])
    any_ns = np.maximum(start_ns, np.maximum(arrivals.other_ns, arrivals.read_ns))
    return LastArrivals(
        is_whole | (arrivals.peers > 0),
        is_whole,
        is_unnamed,
        members[of],
        np.where(by_ops, last[of], NO_ID),
        np.where(by_ops, last_row[of], NO_ID),
        np.where(by_ops, numbers[last[of]], np.where(by_tasks, other[of], NO_ID)),
        by_ops | (by_tasks & np.isin(other, numbers)[of]),
        np.where(by_ops, last_start_ns, np.where(by_tasks, own_ns, any_ns)),
    )


def _arrivals(ranks: Sequence[RankCollectives], shared: SharedOps) -> Arrivals:
    """Return the arrivals recorded by the tasks of each rank, empty if none were looked for."""
    parts = [
        rank.arrivals.ops
        if len(rank.arrivals.ops) == len(rank.ops)
        else Arrivals.of(len(rank.ops), {"tasks": np.zeros(len(rank.ops), np.bool_)})
        for rank in ranks
    ]
    return Arrivals.concat(parts).take(shared.places)


def _views(ranks: Sequence[RankCollectives], shared: SharedOps) -> _Views:
    """Return each rank's view of the group of each op."""
    sets: dict[tuple[int, ...], int] = {}
    parts = []
    for rank in ranks:
        views = rank.arrivals.views
        only = sum(1 for view in views.values() if view.peers) == 1
        labels, which = distinct_values(rank.ops.group)
        rows = [_view(views.get(label, GroupView()), rank, only, sets) for label in labels.tolist()]
        parts.append(np.array(rows, np.int64).reshape(-1, len(fields(_Views)))[which])
    return _Views(*np.concatenate(parts)[shared.places].T)


def _view(
    view: GroupView, rank: RankCollectives, only: bool, sets: dict[tuple[int, ...], int]
) -> tuple[int, ...]:
    """Return the row of `_Views` for one group.

    only: whether it is the only group that the rank's tasks talk to; it is then the group of all
    ranks.
    """
    group = view.group
    seen = tuple(sorted({view.own, *view.peers})) if view.peers and view.own != NO_ID else ()
    mesh = len(seen) if seen == tuple(range(len(seen))) else 0
    is_global = bool(group.members) or not view.peers or (only and view.own == rank.rank)
    least = 0 if group.members or not view.peers else max(*view.peers, view.own) + 1
    number = sets.setdefault(seen, len(sets))
    recorded = rank.arrivals.recorded
    return group.size, group.most, number, mesh, least, is_global, recorded


def _members(
    ranks: Sequence[RankCollectives],
    views: _Views,
    arrivals: Arrivals,
    is_unnamed: Bool,
    shared: SharedOps,
) -> tuple[Int64, Bool]:
    """Return the number of members of each op, 0 if unknown, and whether all arrivals are known.

    They are if all members are read, or if one rank that numbers them globally waited for all
    others. If the size of a group is unknown and no task shows other members, the ranks read are
    taken for all members; if all ranks of the run are read, those are the largest set that ever
    joins.
    """
    greatest = {
        name: shared.over(np.maximum, getattr(views, name))
        for name in ("size", "most", "seen", "mesh", "least")
    }
    joined = shared.joined
    _, group = distinct_values(shared.take("communicator")[shared.first_rows()])
    most_joined = np.zeros(shared.count, np.int64)
    np.maximum.at(most_joined, group, joined)
    every = (greatest["most"] == len(ranks)) & (joined == most_joined[group])
    same = greatest["seen"] == shared.over(np.minimum, views.seen)
    mesh = greatest["mesh"]
    is_mesh = (same & (mesh > 1)) & (
        (joined > 1) | ((mesh >= LEAST_MESH) & (mesh & (mesh - 1) == 0))
    )
    size = greatest["size"]
    size = np.where((size == 0) & is_mesh, mesh, size)
    size = np.where((size == 0) & (greatest["most"] == joined), joined, size)
    peers = shared.over(np.maximum, arrivals.peers)
    is_global = shared.over(np.minimum, views.is_global) == 1
    recorded = shared.over(np.minimum, views.recorded) == 1
    unnamed = shared.over(np.maximum, is_unnamed.astype(np.int64)) == 1
    is_complete = (size > 0) & ((joined >= size) | (is_global & (peers >= size - 1)))
    is_assumed = (
        (size == 0)
        & (joined > 1)
        & ((greatest["most"] == 0) | every)
        & (greatest["least"] <= joined)
        & recorded
        & ~unnamed
    )
    return size, is_complete | is_assumed


def _latest_seen(
    arrivals: Arrivals, shared: SharedOps, numbers: Int64, start_ns: Int64
) -> tuple[Int64, Int64, Int64]:
    """Find the last arrival of ranks without a matching op, from the tasks of each rank.

    Returns:
        Per rank and op: the rank and when it came, NO_ID and NO_TIME for none; and when the last
        notify of ranks with an op came or was sent.
    """
    order = sort_rows(numbers)
    at = np.minimum(np.searchsorted(numbers, arrivals.read_rank, sorter=order), len(numbers) - 1)
    base = shared.op * len(numbers)
    has_op = np.isin(base + order[at], base + shared.rank)
    is_missing = (arrivals.read_rank != NO_ID) & ~has_op
    is_read = is_missing & (arrivals.read_ns > arrivals.other_ns)
    before_ns = np.maximum(arrivals.record_ns, start_ns)
    return (
        np.where(is_read, arrivals.read_rank, arrivals.other_rank),
        np.where(is_read, arrivals.read_ns, arrivals.other_ns),
        np.where(is_missing, before_ns, np.maximum(before_ns, arrivals.read_ns)),
    )
