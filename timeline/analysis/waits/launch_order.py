"""Collectives of several ranks that their order alone tells apart, matched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from timeline.analysis.waits.collectives import (
    NO_SIGN,
    Collectives,
    RankCollectives,
    kind_numbers,
    mix_hashes,
)
from timeline.columns.columns import Bool, Int64, Rows, column
from timeline.columns.distinct import distinct, rows_by_value
from timeline.frozen import dataclass
from timeline.records.collective_kinds import POINT_TO_POINT
from timeline.records.not_given import NO_ID
from timeline.records.tables import Spans

__all__ = ["match_by_order"]

ALIKE = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast")
"""Kinds in which every rank puts in as much as any other."""
FROM_OR_TO_ONE = ("Broadcast", "Reduce", "Gather", "Scatter")
"""Kinds in which a rank may have left before another comes."""
NEAR = 12
"""Shifts around a likely one that are tried too."""
PROBES = 16
"""Ops whose nearest end on the other rank says where its order may begin."""
MOST_ROWS = 1 << 12
"""Pairs by which an order is judged."""
LEAST_PAIRS = 3
"""So many ops two ranks must share before their ends say anything."""
CLOSE = 0.1
"""In the right order ends are apart by less than this share of the time from one to the next."""
NOT_FAR = 0.5
"""In the right order ends are apart by less than this share, where ends need not tell alone."""
MANY_PAIRS = 6
"""So many agree by chance in no wrong order."""
LEAST_HALF = 6
"""An order of fewer ops is not looked at in halves."""
WORST = 0.9
"""This share of the ends must be apart by what they are apart by in the middle."""
CLEARER = 4.0
"""An order is wrong if another makes ends agree so many times better."""
FINEST_NS = 5_000.0
"""Ends that are this much apart agree as well as any."""
NO_POSITION = np.iinfo(np.int64).min
"""Position of an op of which nothing tells where in the longest order it stands."""


def match_by_order(ranks: Sequence[RankCollectives]) -> tuple[RankCollectives, ...]:
    """Give the same key to ops without one that are one collective.

    All ranks of a communicator run its collectives in one order, of which a profile holds a part
    that begins and ends anywhere: ops that were running when it began have no launch, and ranks
    hold different numbers of them. So two orders differ by how many places one is shifted against
    the other. It is found by all that pairs of ops must agree in: their number where the source
    counts them, what they do and how much, the step that launched them; and by their ends, which
    are apart by the same time (the clocks differ by it) in the right order alone. Where two orders
    agree equally well, the first launched op of both is taken for one; where that cannot be,
    nothing is matched.
    """
    ops_by_rank = [rank.ops for rank in ranks]
    keys = [ops.key.copy() for ops in ops_by_rank]
    for rows in _orders(ops_by_rank):
        for at, key in _keys(ops_by_rank, rows):
            keys[at][rows[at]] = key
    return tuple(
        rank if (key == rank.ops.key).all() else replace(rank, ops=replace(rank.ops, key=key))
        for rank, key in zip(ranks, keys, strict=True)
    )


def _orders(ops_by_rank: Sequence[Collectives]) -> Iterator[dict[int, Rows]]:
    """For each communicator the ranks that have it, and their ops of it in order."""
    open_rows = [
        np.flatnonzero((ops.key == NO_ID) & ~np.isin(ops.kind, kind_numbers(POINT_TO_POINT)))
        for ops in ops_by_rank
    ]
    parts = [ops.communicator[rows] for ops, rows in zip(ops_by_rank, open_rows, strict=True)]
    found: dict[int, dict[int, Rows]] = {}
    for at, (rows, part) in enumerate(zip(open_rows, parts, strict=True)):
        for communicator, its in rows_by_value(part):
            found.setdefault(communicator, {})[at] = rows[its]
    for communicator in sorted(found):
        if len(found[communicator]) > 1:
            yield found[communicator]


def _keys(ops_by_rank: Sequence[Collectives], rows: dict[int, Rows]) -> Iterator[tuple[int, Int64]]:
    """The key of each op, by rank, given the rows of one communicator's ops.

    All are compared with the rank that has most of them.
    """
    orders = {at: _Order.of_ops(ops_by_rank[at].take(its_rows)) for at, its_rows in rows.items()}
    longest = max(orders, key=lambda at: len(orders[at]))
    positions = {
        at: np.arange(len(order)) if at == longest else _positions(orders[longest], order)
        for at, order in orders.items()
    }
    unlike = _unlike(list(orders.values()), list(positions.values()))
    base = ops_by_rank[longest].communicator[rows[longest][:1]].astype(np.uint64)
    for at, position in positions.items():
        key = mix_hashes(base, position)
        yield at, np.where((position == NO_POSITION) | np.isin(position, unlike), NO_ID, key)


class _Order(Spans):
    """The ops that one rank ran on one communicator, in order.

    sign: what each does; bytes: what each rank puts in where that is the same on all; sequence:
    how the source counts it; step: in which it was launched; all may be unknown. meets: whether
    nobody leaves before the last has come.
    """

    sign: Int64 = column(np.int64)
    bytes: Int64 = column(np.int64)
    sequence: Int64 = column(np.int64)
    step: Int64 = column(np.int64)
    launched: Bool = column(np.bool_)
    meets: Bool = column(np.bool_)

    @classmethod
    def of_ops(cls, ops: Collectives) -> _Order:
        return cls(
            ops.start_ns,
            ops.end_ns,
            ops.sign,
            np.where(np.isin(ops.kind, kind_numbers(ALIKE)), ops.size_bytes, NO_ID),
            ops.sequence,
            np.where(ops.launched, ops.iteration, NO_ID),
            ops.launched,
            ~np.isin(ops.kind, kind_numbers(FROM_OR_TO_ONE)),
        )

    def first_launched(self) -> int | None:
        """The position of the first op whose launch is in the profile."""
        launched = np.flatnonzero(self.launched)
        return int(launched[0]) if len(launched) else None

    def close_ns(self, share: float) -> float:
        """A share of the mean time from one end to the next, as far as clocks tell it."""
        between_ns = float(np.ptp(self.end_ns)) / max(len(self) - 1, 1)
        return max(CLEARER * FINEST_NS, share * between_ns)


_KNOWN = (("sequence", NO_ID), ("sign", NO_SIGN), ("bytes", NO_ID), ("step", NO_ID))
"""What ops that are one collective have in common, as far as it is known."""


def _unlike(orders: Sequence[_Order], positions: Sequence[Int64]) -> Int64:
    """The positions at which ranks do different things, so that these cannot be one collective."""
    position = np.concatenate(positions)
    found = [np.empty(0, np.int64)]
    for name, nothing in _KNOWN:
        values = np.concatenate([getattr(order, name) for order in orders])
        known = np.flatnonzero(values != nothing)
        known = known[np.lexsort((values[known], position[known]))]
        differs = (np.diff(position[known]) == 0) & (np.diff(values[known]) != 0)
        found.append(position[known][1:][differs])
    return distinct(np.concatenate(found))


def _positions(order: _Order, shorter: _Order) -> Int64:
    """Where in another order each op of an order stands, NO_POSITION where that is not known.

    If no shift fits the whole, records may be lost in between: then its halves are looked at.
    """
    fit = _best_fit(order, shorter, _by_launch(order, shorter))
    return _positions_of_halves(order, shorter) if fit is None else _shifted(order, shorter, fit)


def _positions_of_halves(order: _Order, shorter: _Order) -> Int64:
    if len(shorter) < 2 * LEAST_HALF:
        return np.full(len(shorter), NO_POSITION)
    middle = len(shorter) // 2
    positions = []
    for half in (shorter[:middle], shorter[middle:]):
        fit = _best_fit(order, half, None)
        positions.append(
            _positions_of_halves(order, half) if fit is None else _shifted(order, half, fit)
        )
    return np.concatenate(positions)


def _shifted(order: _Order, shorter: _Order, fit: _Fit) -> Int64:
    """The positions of all ops by one shift, but for those that ended with another op.

    A record that is lost near an end of the order shifts the few behind it.
    """
    positions = np.arange(len(shorter)) + fit.shift
    by_end = np.argsort(order.end_ns, kind="stable")
    end_ns = shorter.end_ns - round(fit.offset_ns)
    after = np.searchsorted(order.end_ns, end_ns, sorter=by_end)
    inside = (positions >= 0) & (positions < len(order))
    partner = np.clip(positions, 0, len(order) - 1)
    close_ns = CLEARER * max(fit.apart_ns, FINEST_NS)
    far = inside & (np.abs(order.end_ns[partner] - end_ns) > close_ns)
    other = np.zeros(len(shorter), np.bool_)
    for at in (after - 1, after):
        near = by_end[np.clip(at, 0, len(order) - 1)]
        alike = shorter.sign == order.sign[near]
        other |= alike & (near != positions) & (np.abs(order.end_ns[near] - end_ns) <= close_ns)
    return np.where(far & other, NO_POSITION, positions)


@dataclass(frozen=True)
class _Fit:
    """How well the ends of two orders agree with one shifted against the other.

    apart_ns: how far most of their ends are from being apart by `offset_ns`, in which clocks may
    differ.
    """

    shift: int
    pairs: int
    offset_ns: float
    apart_ns: float


def _best_fit(order: _Order, shorter: _Order, by_launch: int | None) -> _Fit | None:
    """The shift in which two orders agree, None where that cannot be told.

    by_launch: the shift that makes the first launched ops of both one collective. Where ends do
    not tell it from others, it stands if both launched as many ops, and so the same.
    """
    fits = [
        fit for shift in _likely(order, shorter, by_launch) if (fit := _fit(order, shorter, shift))
    ]
    if not fits:
        return None
    chosen = next((fit for fit in fits if fit.shift == by_launch), None)
    as_many = np.count_nonzero(order.launched) == np.count_nonzero(shorter.launched)
    most = max(fit.pairs for fit in fits)
    judged = [fit for fit in fits if fit.pairs >= min(MANY_PAIRS, max(LEAST_PAIRS, most / 2))]
    if not judged:  # too few ops to tell anything by their ends
        return chosen if as_many else None
    best = min(judged, key=lambda fit: (max(fit.apart_ns, FINEST_NS), abs(fit.offset_ns)))
    as_good = CLEARER * max(best.apart_ns, FINEST_NS)
    as_close = [fit for fit in judged if fit is not best and fit.apart_ns <= as_good]
    if not as_close and best.apart_ns <= order.close_ns(CLOSE):
        return best
    if chosen is None or not as_many or chosen.apart_ns > order.close_ns(NOT_FAR):
        return None
    return chosen if chosen is best or chosen in as_close else None


def _by_launch(order: _Order, shorter: _Order) -> int | None:
    """The shift that makes the first launched ops of both one collective."""
    first, other = order.first_launched(), shorter.first_launched()
    return None if first is None or other is None else first - other


def _likely(order: _Order, shorter: _Order, by_launch: int | None) -> list[int]:
    """Shifts to try: those by which something fits, and those around."""
    likely = {0, len(order) - len(shorter)} | ({by_launch} if by_launch is not None else set())
    for name in ("sequence", "step"):
        likely |= _shifts_of_equals(getattr(shorter, name), getattr(order, name))
    at = np.unique(np.linspace(0, len(shorter) - 1, PROBES).astype(np.intp))
    found = np.searchsorted(np.maximum.accumulate(order.end_ns), shorter.end_ns[at])
    likely |= set((found - at).tolist())
    around = {shift + near for shift in likely for near in range(-NEAR, NEAR + 1)}
    return sorted(shift for shift in around if -len(shorter) < shift < len(order))


def _shifts_of_equals(mine: Int64, theirs: Int64) -> set[int]:
    """The shifts that put the first rows of equal values on each other."""
    values, first = np.unique(mine, return_index=True)
    others, other_first = np.unique(theirs, return_index=True)
    both, at, other_at = np.intersect1d(values, others, return_indices=True)
    shifts = other_first[other_at] - first[at]
    return set(shifts[both != NO_ID][:PROBES].tolist())


def _fit(order: _Order, shorter: _Order, shift: int) -> _Fit | None:
    """How well ends agree; None if pairs differ in what is known of both, or do not meet."""
    first, stop = max(0, -shift), min(len(shorter), len(order) - shift)
    mine = shorter[first:stop]
    theirs = order[first + shift : stop + shift]
    for name, nothing in _KNOWN:
        one, other = getattr(mine, name), getattr(theirs, name)
        if ((one != other) & (one != nothing) & (other != nothing)).any():
            return None
    if len(mine) > MOST_ROWS:
        some = np.linspace(0, len(mine) - 1, MOST_ROWS).astype(np.intp)
        mine, theirs = mine.take(some), theirs.take(some)
    between_ns = mine.end_ns - theirs.end_ns
    offset_ns = int(np.median(between_ns))
    apart_ns = float(np.quantile(np.abs(between_ns - offset_ns), WORST, method="higher"))
    meet = np.minimum(mine.end_ns - offset_ns, theirs.end_ns) + round(FINEST_NS) >= np.maximum(
        mine.start_ns - offset_ns, theirs.start_ns
    )
    meets = mine.meets & theirs.meets
    if meets.any() and np.mean(meet[meets]) < WORST:
        return None
    return _Fit(shift, stop - first, float(offset_ns), apart_ns)
