"""Which rank came last to each collective, among those that are read and those that are not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from timeline.analysis.waits.arrivals import Arrivals, GroupView
from timeline.analysis.waits.collectives import RankCollectives, kind_numbers
from timeline.analysis.waits.shared_ops import SharedOps
from timeline.columns.columns import Bool, ColumnTable, Int64, Rows, ascending, column, sort_rows
from timeline.columns.distinct import distinct_values
from timeline.records.collective_kinds import BATCH
from timeline.records.not_given import NO_ID, NO_TIME

__all__ = ["LastArrivals", "find_last_arrivals", "first_of_op", "over_ops"]

TIE_NS = 2_000
"""A rank that is not read is later than one that is if its notify comes so much later: the same
notify is seen up to 1.5 us apart."""
LEAST_MESH = 4
"""Of a full mesh so many members, a power of two, are believed where one rank alone shows it: a
rank of a hierarchy sees a mesh and one rank more."""


class LastArrivals(ColumnTable):
    """Who came last to an op: one row per rank and op, in the order of `SharedOps`.

    known: whether anything tells that. whole: whether it is the last of all members; otherwise
    others that nothing is known of may have come later, and last_rank is NO_ID. unnamed: whether
    HCCL tasks are there that say neither what they are nor whom they talk to. members: how many
    there are, 0 where that is not known. The others are as in `Waits`.
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
    """What each rank's view of the group of an op tells: one row per rank and op.

    size: of the group, 0 where that is not known. most: of the run, likewise. seen: the number of
    the set of ranks that it sees, itself among them. mesh: how many those are, 0 if some between
    them are skipped. least: how many members there are at least. is_global: whether its numbers of
    ranks are those among all. recorded: whether HCCL tasks were looked for.
    """

    size: Int64 = column(np.int64)
    most: Int64 = column(np.int64)
    seen: Int64 = column(np.int64)
    mesh: Int64 = column(np.int64)
    least: Int64 = column(np.int64)
    is_global: Bool = column(np.bool_)
    recorded: Bool = column(np.bool_)


class _Candidates(ColumnTable):
    """The rank without an op to compare that came last by a rank's tasks: one row per rank and op.

    rank, moment_ns: NO_ID and NO_TIME for none. before_ns: when the last notify came of those that
    have an op, or was sent.
    """

    rank: Int64 = column(np.int64)
    moment_ns: Int64 = column(np.int64)
    before_ns: Int64 = column(np.int64)


def find_last_arrivals(
    ranks: Sequence[RankCollectives], shared: SharedOps, slack_ns: Int64
) -> LastArrivals:
    """Find the last rank of each op, by the ops of ranks and by what their HCCL tasks waited for.

    A rank that is not read came last if its notify came more than `TIE_NS` after those of all that
    are, as one rank saw them. Where not every member is read or was waited for, it is only known
    that some rank came last, and nothing without HCCL tasks.

    Args:
        ranks: on one clock.
        shared: their ops, those of one rank too.
        slack_ns: (ops,) how far the clocks of their ranks may be off.
    """
    if not shared.count:
        return LastArrivals.empty()
    of = shared.op
    numbers = np.array([rank.rank for rank in ranks], np.int64)
    start_ns = shared.take([rank.ops for rank in ranks], "start_ns")
    last_start_ns = over_ops(np.maximum, start_ns, shared)[of]
    last, last_row = np.zeros((2, shared.count), np.int64)
    is_last = first_of_op(start_ns == last_start_ns, of)
    last[of[is_last]], last_row[of[is_last]] = shared.rank[is_last], shared.row[is_last]

    views, arrivals = _views(ranks, shared), _arrivals(ranks, shared)
    candidates = _candidates(arrivals, shared, numbers, start_ns)
    is_unnamed = arrivals.tasks & (arrivals.peers == 0)
    members, whole = _members(ranks, views, arrivals, is_unnamed, shared)
    kind = shared.take([rank.ops for rank in ranks], "kind")[shared.first_rows()]
    of_pair = (kind == kind_numbers([BATCH])[0]) & (np.bincount(of, minlength=shared.count) == 2)
    members, whole = np.where(of_pair, 2, members), whole | of_pair
    lead_ns = np.maximum(arrivals.record_ns, start_ns) - start_ns
    is_later = (
        whole[of]
        & (candidates.moment_ns > candidates.before_ns + TIE_NS)
        & (candidates.moment_ns > last_start_ns + lead_ns + TIE_NS - slack_ns[of])
    )
    other, other_ns = _latest(candidates, is_later, shared)
    by_tasks, is_whole = (other != NO_ID)[of], whole[of]
    by_ops = is_whole & ~by_tasks
    has_seen = candidates.moment_ns != NO_TIME
    own_ns = np.where(has_seen, candidates.moment_ns, other_ns[of])
    seen_ns = np.maximum(start_ns, np.maximum(arrivals.other_ns, arrivals.read_ns))
    return LastArrivals(
        is_whole | (arrivals.peers > 0),
        is_whole,
        is_unnamed,
        members[of],
        np.where(by_ops, last[of], NO_ID),
        np.where(by_ops, last_row[of], NO_ID),
        np.where(by_ops, numbers[last[of]], np.where(by_tasks, other[of], NO_ID)),
        by_ops | (by_tasks & np.isin(other, numbers)[of]),
        np.where(by_ops, last_start_ns, np.where(by_tasks, own_ns, seen_ns)),
    )


def over_ops(what: np.ufunc, values: Int64, shared: SharedOps) -> Int64:
    """The least or greatest value of each op."""
    if not shared.count:
        return np.zeros(0, np.int64)
    found: Int64 = what.reduceat(values, shared.first_rows())
    return found


def first_of_op(marked: Bool, op: Rows) -> Bool:
    """The first marked row of each op; rows are ordered by op."""
    rows = np.flatnonzero(marked)
    op_of_row = op[rows]
    opens = np.ones(len(rows), np.bool_)
    opens[1:] = op_of_row[1:] != op_of_row[:-1]
    first = np.zeros(len(marked), np.bool_)
    first[rows[opens]] = True
    return first


def _arrivals(ranks: Sequence[RankCollectives], shared: SharedOps) -> Arrivals:
    """What the tasks of each rank tell of its ops; nothing where nobody looked."""
    parts = []
    for rank in ranks:
        count = len(rank.ops)
        nothing = Arrivals.of(count, {"tasks": np.zeros(count, np.bool_)})
        parts.append(rank.arrivals.ops if len(rank.arrivals.ops) == count else nothing)
    bases = np.cumsum([0, *(len(part) for part in parts)])
    return Arrivals.concat(parts).take(bases[shared.rank] + shared.row)


def _views(ranks: Sequence[RankCollectives], shared: SharedOps) -> _Views:
    """What is known of the group of each op, as each of its ranks tells it."""
    sets: dict[tuple[int, ...], int] = {}
    parts = []
    for rank in ranks:
        if not len(rank.ops):
            parts.append(_Views.empty())
            continue
        talking = sum(1 for view in rank.arrivals.views.values() if view.peers)
        labels, which = distinct_values(rank.ops.group)
        rows = [
            _view(rank.arrivals.views.get(label), rank, talking == 1, sets)
            for label in labels.tolist()
        ]
        columns = zip(*rows, strict=True)
        names = ("size", "most", "seen", "mesh", "least", "is_global", "recorded")
        of_label = _Views.of(len(rows), dict(zip(names, columns, strict=True)))
        parts.append(of_label.take(which))
    bases = np.cumsum([0, *(len(part) for part in parts)])
    return _Views.concat(parts).take(bases[shared.rank] + shared.row)


def _view(
    view: GroupView | None, rank: RankCollectives, only: bool, sets: dict[tuple[int, ...], int]
) -> tuple[int, int, int, int, int, bool, bool]:
    """The row of `_Views` on one group.

    only: whether it is the only group that the rank's tasks talk to, which then is that of all.
    """
    view = view or GroupView()
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
    """How many members each op has, 0 where that is not known; and whether all are told of.

    All are if they are read, or if one rank that knows them by number waited for all others. Of a
    group whose size nothing tells, nor any task that it has others, those that are read are taken
    for all; if all ranks of the run are read, those are the most that ever join.
    """
    greatest = {
        name: over_ops(np.maximum, getattr(views, name), shared)
        for name in ("size", "most", "seen", "mesh", "least")
    }
    joined = np.bincount(shared.op, minlength=shared.count)
    communicator = shared.take([rank.ops for rank in ranks], "communicator")
    _, group = distinct_values(communicator[shared.first_rows()])
    most_joined = np.zeros(shared.count, np.int64)
    np.maximum.at(most_joined, group, joined)
    every = (greatest["most"] == len(ranks)) & (joined == most_joined[group])
    same = greatest["seen"] == over_ops(np.minimum, views.seen, shared)
    mesh = greatest["mesh"]
    is_mesh = (same & (mesh > 1)) & (
        (joined > 1) | ((mesh >= LEAST_MESH) & (mesh & (mesh - 1) == 0))
    )
    size = greatest["size"]
    size = np.where((size == 0) & is_mesh, mesh, size)
    size = np.where((size == 0) & (greatest["most"] == joined), joined, size)
    peers = over_ops(np.maximum, arrivals.peers, shared)
    is_global = over_ops(np.minimum, views.is_global.astype(np.int64), shared) == 1
    recorded = over_ops(np.minimum, views.recorded.astype(np.int64), shared) == 1
    unnamed = over_ops(np.maximum, is_unnamed.astype(np.int64), shared) == 1
    told = (size > 0) & ((joined >= size) | (is_global & (peers >= size - 1)))
    taken = (
        (size == 0)
        & (joined > 1)
        & ((greatest["most"] == 0) | every)
        & (greatest["least"] <= joined)
        & recorded
        & ~unnamed
    )
    return size, told | taken


def _candidates(
    arrivals: Arrivals, shared: SharedOps, numbers: Int64, start_ns: Int64
) -> _Candidates:
    """Who came last, as each rank's tasks tell, of the ranks that have no op to compare."""
    order = sort_rows(numbers)
    at = np.minimum(np.searchsorted(numbers, arrivals.read_rank, sorter=order), len(numbers) - 1)
    keys = ascending(shared.op * len(numbers) + shared.rank)
    key = shared.op * len(numbers) + order[at]
    has_op = keys[np.minimum(np.searchsorted(keys, key), len(keys) - 1)] == key
    is_missing = (arrivals.read_rank != NO_ID) & ~has_op
    is_read = is_missing & (arrivals.read_ns > arrivals.other_ns)
    before_ns = np.maximum(arrivals.record_ns, start_ns)
    return _Candidates(
        np.where(is_read, arrivals.read_rank, arrivals.other_rank),
        np.where(is_read, arrivals.read_ns, arrivals.other_ns),
        np.where(is_missing, before_ns, np.maximum(before_ns, arrivals.read_ns)),
    )


def _latest(candidates: _Candidates, chosen: Bool, shared: SharedOps) -> tuple[Int64, Int64]:
    """Of each op the latest of the chosen candidates, NO_ID and NO_TIME for none."""
    rank, moment_ns = np.full(shared.count, NO_ID, np.int64), np.full(shared.count, NO_TIME)
    rows = np.flatnonzero(chosen)
    rows = rows[np.lexsort((candidates.moment_ns[rows], shared.op[rows]))]
    rank[shared.op[rows]] = candidates.rank[rows]
    moment_ns[shared.op[rows]] = candidates.moment_ns[rows]
    return rank, moment_ns
