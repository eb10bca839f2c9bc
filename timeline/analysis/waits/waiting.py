"""Waiting of ranks for each other in the collectives they share."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from timeline.analysis.waits.collectives import Collectives, RankCollectives, every_op, kind_numbers
from timeline.analysis.waits.pipeline import Pairs, match_sends
from timeline.analysis.waits.shared_ops import (
    Islands,
    LastArrivals,
    SharedOps,
    find_last_arrivals,
    find_shared_ops,
)
from timeline.columns.columns import Bool, Codes, ColumnTable, Float64, Int64, column
from timeline.columns.distinct import distinct, distinct_pairs
from timeline.columns.group_by import group_by, rows_before, sum_rows
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.task_kinds import BATCH, POINT_TO_POINT

NO_BANDWIDTH = float("nan")
RING_PASSES = {"AllReduce": 2, "AllGather": 1, "ReduceScatter": 1, "AlltoAll": 1, "AlltoAllV": 1}
"""Number of times a ring moves all but one rank's part of the data (bus bandwidth of nccl-tests).
"""
MOVES_ALL_ONCE = frozenset({"Broadcast", "Reduce"})
"""Kinds that move all of the data once."""
SIZE_IS_PER_RANK = frozenset({"AllGather", "ReduceScatter"})
"""Kinds whose reported size is one rank's part of the data."""


class Waits(ColumnTable):
    """Waits in collectives whose last arrival is known, one row per rank and collective.

    Ordered by rank, then row. rank: position of the rank; row: its row among the rank's
    collectives. last, last_row: position and row of the rank that came last, NO_ID if it is not
    among the ranks read; it came at last_ns. last_rank: its global rank, NO_ID if it is not
    identified or if the wait is within the clock uncertainty of two islands. last_profiled: whether
    it is among the ranks read. waited_ns: from the rank's own arrival to the last. after_first_ns:
    from the first arrival to its own, NO_TIME unless every member is read. transfer_ns: from the
    last arrival to its own end, NO_TIME unless every member's arrival is known. bandwidth: bytes
    per ns that each link of the group moved in that time, NaN if unknown. slack_ns: how far the
    clocks of the two ranks may be off.
    """

    rank: Int64 = column(np.int64)
    row: Int64 = column(np.int64)
    last: Int64 = column(np.int64)
    last_row: Int64 = column(np.int64)
    last_rank: Int64 = column(np.int64)
    last_profiled: Bool = column(np.bool_)
    last_ns: Int64 = column(np.int64)
    waited_ns: Int64 = column(np.int64)
    after_first_ns: Int64 = column(np.int64)
    transfer_ns: Int64 = column(np.int64)
    bandwidth: Float64 = column(np.float64, NO_BANDWIDTH)
    slack_ns: Int64 = column(np.int64, 0)

    def by_rank(self, ranks: int) -> list[Waits]:
        """Split the waits by rank, for ranks 0 to `ranks` - 1."""
        bounds = np.searchsorted(self.rank, np.arange(ranks + 1)).tolist()
        return [self[first:stop] for first, stop in pairwise(bounds)]


class Stragglers(ColumnTable):
    """Sums of the collectives of each rank, one row per rank, in order of rank.

    shared: collectives whose last arrival is known, from other ranks or from the rank's own HCCL
    tasks. It is unknown for the rest. unmatched: other ranks of the group have no op to compare, or
    the profile names no group and end times do not show its ranks. alone: no other rank of the
    group is in the selection. unknown: some are, but arrivals of others are not recorded. unnamed:
    the HCCL tasks have neither names nor ranks. shared_ns, unmatched_ns, ...: duration of these
    collectives; point_to_point_ns: duration of sends and receives. times_last: how often the rank
    came last. waited_ns: how long it waited. caused_ns: how long other ranks that are read waited
    for it. slowest_ns: longest time that it kept one rank waiting.
    """

    shared: Int64 = column(np.int64)
    unmatched: Int64 = column(np.int64)
    alone: Int64 = column(np.int64)
    shared_ns: Int64 = column(np.int64)
    unmatched_ns: Int64 = column(np.int64)
    alone_ns: Int64 = column(np.int64)
    point_to_point_ns: Int64 = column(np.int64)
    times_last: Int64 = column(np.int64)
    waited_ns: Int64 = column(np.int64)
    caused_ns: Int64 = column(np.int64)
    slowest_ns: Int64 = column(np.int64)
    unknown: Int64 = column(np.int64, 0)
    unnamed: Int64 = column(np.int64, 0)
    unknown_ns: Int64 = column(np.int64, 0)
    unnamed_ns: Int64 = column(np.int64, 0)


class WaitedFor(ColumnTable):
    """Waits summed by the rank waited for, one row per pair of ranks.

    Ordered by rank, the longest waits first. rank: position of the rank that waited. last_rank:
    global rank of the one that came last, NO_ID if not identified. profiled: whether that one is
    among the ranks read. times: number of collectives. waited_ns: duration of the waits.
    """

    rank: Int64 = column(np.int64)
    last_rank: Int64 = column(np.int64)
    profiled: Bool = column(np.bool_)
    times: Int64 = column(np.int64)
    waited_ns: Int64 = column(np.int64)


@dataclass(frozen=True)
class Basis:
    """Share of communication that was compared.

    compared: collectives compared, out of `collectives`. compared_ns: their duration on all ranks,
    out of communication_ns for all ops.
    """

    compared: int = 0
    collectives: int = 0
    compared_ns: int = 0
    communication_ns: int = 0

    @property
    def share(self) -> float:
        """Return the share of communication time that was compared."""
        return self.compared_ns / self.communication_ns if self.communication_ns else 0.0


@dataclass(frozen=True)
class Waiting:
    """Waiting between ranks.

    mismatched: ops that look alike on several ranks but cannot be one op, since one had ended on
    one rank before it began on another.
    """

    waits: Waits
    stragglers: Stragglers
    pairs: Pairs
    mismatched: int
    basis: Basis = field(default_factory=Basis)
    waited_for: WaitedFor = field(default_factory=WaitedFor.empty)


def measure_waiting(
    ranks: Sequence[RankCollectives], slack_ns: int = 0, islands: Islands | None = None
) -> Waiting:
    """Compare the arrivals at every selected collective.

    No rank leaves a collective before the last has arrived. Ops with equal keys that contradict
    this are not one op.

    Args:
        ranks: on one clock.
        slack_ns: how far the clocks of one island may be off.
        islands: of the ranks; one island if None.
    """
    islands = islands or Islands(*np.zeros((2, len(ranks)), np.int64))
    joint = _joint(ranks, slack_ns)
    shared = find_shared_ops(ranks, joint, least=1)
    start_ns, end_ns = shared.take("start_ns"), shared.take("end_ns")
    last_start_ns = shared.over(np.maximum, start_ns)
    op_slack_ns = _slack_ns(shared, slack_ns, islands)
    met = last_start_ns <= shared.over(np.minimum, end_ns) + op_slack_ns
    mismatched = int(np.count_nonzero(~met))
    if mismatched:  # each rank's own tasks may still show the last arrival
        shared = shared.apart(~met)
    arrivals = find_last_arrivals(ranks, shared, _slack_ns(shared, slack_ns, islands))
    waits = _waits(shared, arrivals, slack_ns, islands)
    compared = shared.rows_where(arrivals.known)
    ops, rank, _ = every_op(ranks)
    party = _parties(ops, rank, np.concatenate([np.zeros(0, np.bool_), *joint]), shared, arrivals)
    took_part, took_ns = np.zeros((2, len(_Party), len(ranks)), np.int64)
    np.add.at(took_part, (party, rank), 1)
    np.add.at(took_ns, (party, rank), ops.end_ns - ops.start_ns)
    order = np.lexsort((waits.row, waits.rank))
    return Waiting(
        waits.take(order),
        _stragglers(compared, waits, took_part, took_ns),
        _pairs(ranks, int(islands.doubt_ns.max(initial=slack_ns))),
        mismatched,
        _basis(ops, rank, party, compared.count),
        _waited_for(waits),
    )


def _slack_ns(shared: SharedOps, slack_ns: int, islands: Islands) -> Int64:
    """Return how far the clocks of the ranks of each op may be off, (ops,)."""
    lowest = shared.rank[shared.first_rows()][shared.op]
    between_ns = islands.between_ns(shared.rank, lowest)
    return np.maximum(shared.over(np.maximum, between_ns), slack_ns)


def _waits(shared: SharedOps, arrivals: LastArrivals, slack_ns: int, islands: Islands) -> Waits:
    """Return the waits of each rank in ops with a known last arrival, in the order of `shared`."""
    start_ns, end_ns = shared.take("start_ns"), shared.take("end_ns")
    last_ns, whole = arrivals.last_ns, arrivals.whole
    joined = shared.joined[shared.op]
    all_read = whole & (joined >= arrivals.members)
    first_ns = shared.over(np.minimum, start_ns)[shared.op]
    transfer_ns = np.where(whole, np.maximum(end_ns - last_ns, 0), NO_TIME)
    waited_ns = np.maximum(np.minimum(last_ns, end_ns) - start_ns, 0)
    by_clock = arrivals.last != NO_ID
    between_ns = islands.between_ns(shared.rank, np.where(by_clock, arrivals.last, shared.rank))
    is_unclear = (waited_ns > 0) & (waited_ns <= between_ns)
    return Waits(
        shared.rank.astype(np.int64),
        shared.row.astype(np.int64),
        arrivals.last,
        arrivals.last_row,
        np.where(is_unclear, NO_ID, arrivals.last_rank),
        arrivals.last_profiled,
        last_ns,
        waited_ns,
        np.where(all_read, start_ns - first_ns, NO_TIME),
        transfer_ns,
        _bandwidths(shared, arrivals.members, transfer_ns),
        np.maximum(between_ns, slack_ns),
    ).take(arrivals.known)


def _waited_for(waits: Waits) -> WaitedFor:
    """Sum the waits by rank and by the rank waited for."""
    waited = waits.take(waits.waited_ns > 0)
    once = np.ones(len(waited), np.int64)
    every = WaitedFor(waited.rank, waited.last_rank, waited.last_profiled, once, waited.waited_ns)
    rows, _ = sum_rows(every, ("rank", "last_rank"), ("times", "waited_ns"))
    return rows.take(np.lexsort((rows.last_rank, -rows.waited_ns, rows.rank)))


def _joint(ranks: Sequence[RankCollectives], slack_ns: int) -> list[Bool]:
    """Return the selected ops of each rank whose members wait for each other.

    These are the ops that a whole group joins, and batches of sends and receives that exactly two
    ranks run under one name at one time: neither leaves before the other has come.
    """
    parts = [rank.ops for rank in ranks]
    joint = [ops.selected & ~np.isin(ops.kind, kind_numbers(POINT_TO_POINT)) for ops in parts]
    batches = [ops.selected & (ops.kind == kind_numbers([BATCH])[0]) for ops in parts]
    shared = find_shared_ops(ranks, batches)
    start_ns, end_ns = shared.take("start_ns"), shared.take("end_ns")
    met = shared.over(np.maximum, start_ns) <= shared.over(np.minimum, end_ns) + slack_ns
    met &= shared.joined == 2
    met_rows = met[shared.op]
    for rank, row in zip(shared.rank[met_rows], shared.row[met_rows], strict=True):
        joint[rank][row] = True
    return joint


class _Party(enum.IntEnum):
    """Participation of other ranks in an op, as far as known."""

    NOT_SELECTED = 0
    """The op itself is not selected."""
    POINT_TO_POINT = 1
    SHARED = 2
    """The last arrival is known."""
    UNMATCHED = 3
    ALONE = 4
    UNKNOWN = 5
    """Other ranks have it too, but not all members, and the arrivals of the rest are unknown."""
    UNNAMED = 6
    """Its HCCL tasks name neither themselves nor their peers."""


def _parties(
    ops: Collectives, rank: Int64, joint: Bool, shared: SharedOps, arrivals: LastArrivals
) -> Int64:
    """Return the `_Party` of each op of all ranks.

    joint: mask of the ops whose members wait for each other.
    """
    members, _ = distinct_pairs(ops.communicator[joint], rank[joint])
    groups, ranks_of = np.unique(members[:, 0], return_counts=True)
    joined, group = shared.joined[shared.op], shared.take("communicator")
    lost = (arrivals.members > 1) & (ranks_of[np.searchsorted(groups, group)] >= arrivals.members)
    of_shared = np.select(
        [arrivals.known, arrivals.unnamed, (joined > 1) & lost, joined > 1],
        [_Party.SHARED, _Party.UNNAMED, _Party.UNMATCHED, _Party.UNKNOWN],
        _Party.NOT_SELECTED,
    )
    ungrouped = ~ops.named & (len(distinct(rank[~ops.named])) > 1)
    grouped = np.isin(ops.communicator, groups[ranks_of > 1]) | ungrouped
    party: Int64 = np.select(
        [joint & grouped, joint, ops.selected],
        [_Party.UNMATCHED, _Party.ALONE, _Party.POINT_TO_POINT],
        _Party.NOT_SELECTED,
    ).astype(np.int64)
    rows = of_shared != _Party.NOT_SELECTED
    party[shared.places[rows]] = of_shared[rows]
    return party


_COMPARED = (_Party.SHARED, _Party.UNMATCHED, _Party.ALONE, _Party.UNKNOWN, _Party.UNNAMED)


def _basis(ops: Collectives, rank: Int64, party: Int64, compared: int) -> Basis:
    """Return the share of communication that was compared.

    Among ops that were not compared, a group counts as many collectives as its rank with most ops.
    """
    took_ns = ops.end_ns - ops.start_ns
    rest = np.isin(party, _COMPARED[1:])
    of_rank = group_by(int(np.count_nonzero(rest)), [ops.communicator[rest], rank[rest]])
    group = group_by(len(of_rank.first), [ops.communicator[rest][of_rank.first]])
    return Basis(
        compared,
        compared + int(group.greatest(of_rank.count()).sum()),
        int(took_ns[party == _Party.SHARED].sum()),
        int(took_ns[party != _Party.NOT_SELECTED].sum()),
    )


def _bandwidths(shared: SharedOps, members: Int64, transfer_ns: Int64) -> Float64:
    """Return the bus bandwidth of each op in bytes per ns, which is GB/s.

    members: number of members of each op's group, 0 if unknown.
    """
    size = shared.take("size_bytes")
    kind = shared.take("kind")
    moved = np.full(len(size), NO_BANDWIDTH)
    known = (size != NO_ID) & (transfer_ns > 0) & (members > 1)
    for name in (*RING_PASSES, *MOVES_ALL_ONCE):
        rows = np.flatnonzero(known & (kind == kind_numbers([name])[0]))
        count = members[rows]
        data = size[rows] * count if name in SIZE_IS_PER_RANK else size[rows]
        part = (count - 1) / count * RING_PASSES[name] if name in RING_PASSES else 1.0
        moved[rows] = data * part
    bandwidth = np.full(len(size), NO_BANDWIDTH)
    bandwidth[known] = moved[known] / transfer_ns[known]
    return bandwidth


def _stragglers(shared: SharedOps, waits: Waits, took_part: Int64, took_ns: Int64) -> Stragglers:
    """Sum the collectives of each rank.

    Args:
        shared: ops with a known last arrival.
        waits: in order of `shared`.
        took_part, took_ns: (parties, ranks) number and duration of the ops.
    """
    count = took_part.shape[1]
    is_last = (shared.rank == waits.last) & (shared.row == waits.last_row)
    waited_by_op = np.zeros(shared.count, np.int64)
    # No rank is named for a wait within clock uncertainty.
    is_unclear = (waits.last != NO_ID) & (waits.last_rank == NO_ID)
    clear_ns = np.where(is_unclear, 0, waits.waited_ns)
    np.add.at(waited_by_op, shared.op, clear_ns)
    longest_by_op = shared.over(np.maximum, clear_ns)
    op_unclear = shared.over(np.maximum, is_unclear.astype(np.int64)) > longest_by_op
    is_last &= ~op_unclear[shared.op]
    late_rank, late_op = shared.rank[is_last], shared.op[is_last]
    slowest_ns, waited_ns, caused_ns = np.zeros((3, count), np.int64)
    np.maximum.at(slowest_ns, late_rank, longest_by_op[late_op])
    np.add.at(waited_ns, shared.rank, waits.waited_ns)
    np.add.at(caused_ns, late_rank, waited_by_op[late_op])
    return Stragglers.of(
        count,
        {
            **{party.name.lower(): took_part[party] for party in _COMPARED},
            **{f"{party.name.lower()}_ns": took_ns[party] for party in _COMPARED},
            "point_to_point_ns": took_ns[_Party.POINT_TO_POINT],
            "times_last": np.bincount(late_rank, minlength=count),
            "waited_ns": waited_ns,
            "caused_ns": caused_ns,
            "slowest_ns": slowest_ns,
        },
    )


def _pairs(ranks: Sequence[RankCollectives], slack_ns: int) -> Pairs:
    """Match sends with receives."""
    paired = find_shared_ops(
        ranks, [rank.ops.selected & (rank.ops.pair != NO_ID) for rank in ranks], "pair"
    )
    sends = paired.take("kind") == kind_numbers(["Send"])[0]
    # A pair has one send and one receive; anything else is ignored.
    clear = (paired.joined == 2) & (np.bincount(paired.op[sends], minlength=paired.count) == 1)
    rows = clear[paired.op]
    send, receive = rows & sends, rows & ~sends
    pairs = Pairs(
        paired.rank[send].astype(np.int64),
        paired.row[send].astype(np.int64),
        paired.rank[receive].astype(np.int64),
        paired.row[receive].astype(np.int64),
    )
    every = Pairs.concat([pairs, match_sends(ranks, slack_ns)])
    return every.take(np.lexsort((every.send_row, every.sender)))


class OpArrivals(ColumnTable):
    """Last arrivals at the collectives of a rank, one row each, in their order.

    arrived_ns: when the last rank came. last: position of that rank among those read, the own one
    if nothing is known of others, NO_ID if it is not among them. last_row: its row among the
    collectives there. last_rank: its number, NO_ID if unknown. before: row of the previous op of
    the same group, NO_ID for the first.
    """

    arrived_ns: Int64 = column(np.int64)
    last: Codes = column(np.int32)
    last_row: Codes = column(np.int32)
    last_rank: Int64 = column(np.int64)
    before: Codes = column(np.int32)


def op_arrivals(ranks: Sequence[RankCollectives], waiting: Waiting) -> list[OpArrivals]:
    """Find the last arrival at each op of ranks on one clock.

    Of a send and its receive, the later one came last. Of an op with unknown arrivals, its own rank
    is taken to have come last.
    """
    every = Collectives.concat([rank.ops for rank in ranks])
    sizes = [len(rank.ops) for rank in ranks]
    first = np.cumsum([0, *sizes])
    arrived_ns = every.start_ns.copy()
    last = np.repeat(np.arange(len(ranks)), sizes)
    last_row = np.arange(len(every)) - first[last]
    last_rank = np.full(len(every), NO_ID, np.int64)
    pairs = waiting.pairs
    sent = first[pairs.sender] + pairs.send_row
    received = first[pairs.receiver] + pairs.receive_row
    later = np.where(every.start_ns[received] >= every.start_ns[sent], received, sent)
    later_rank, later_row = last[later], last_row[later]
    for rows in (sent, received):
        arrived_ns[rows] = every.start_ns[later]
        last[rows], last_row[rows] = later_rank, later_row
    waits = waiting.waits
    rows = first[waits.rank] + waits.row
    arrived_ns[rows] = waits.last_ns
    last[rows] = np.where(waits.last_profiled, waits.last, NO_ID)
    last_row[rows], last_rank[rows] = waits.last_row, waits.last_rank
    befores = [rows_before(rank.ops.communicator).astype(np.int32) for rank in ranks]
    whole = OpArrivals(
        arrived_ns,
        last.astype(np.int32),
        last_row.astype(np.int32),
        last_rank,
        np.concatenate([np.empty(0, np.int32), *befores]),
    )
    return [whole[begin:end] for begin, end in pairwise(first.tolist())]
