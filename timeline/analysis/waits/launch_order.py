"""Matching of collectives that have no common name on several ranks, by number, then by time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from timeline.analysis.waits.collectives import (
    NO_SIGN,
    Collectives,
    RankCollectives,
    kind_numbers,
    mix_hashes,
)
from timeline.columns.columns import Bool, Float64, Int64, Rows, ascending, column
from timeline.columns.distinct import NO_ROWS, distinct, distinct_pairs, rows_by_value
from timeline.columns.group_by import count_turns
from timeline.records.not_given import NO_ID
from timeline.records.tables import Spans
from timeline.records.task_kinds import POINT_TO_POINT

ALIKE = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast")
"""Kinds in which every rank puts in as much as any other."""
FROM_OR_TO_ONE = ("Broadcast", "Reduce", "Gather", "Scatter")
"""Kinds in which a rank may leave before another arrives."""
PROBES = 12
"""Number of consecutive ops used to estimate a clock offset."""
LEAST_PAIRS = 3
"""Minimum number of shared ops for the ends of two ranks to be compared."""
CANDIDATES = 6
"""Number of likely clock offsets that are tried on all ops."""
CLOSE = 0.1
"""Maximum distance of ends on the right clock, as a share of the mean time between ends."""
NOT_FAR = 0.5
"""The same limit if other evidence supports the clock."""
MANY_PAIRS = 6
"""Number of pairs that never agree by chance on a wrong clock."""
DRIFT_PAIRS = 20
"""Minimum number of pairs to estimate the drift of clocks."""
WORST = 0.9
"""Quantile of the distances between ends that must be close."""
MOST = 0.8
"""Minimum share of pairs among the ops that two ranks run at a time, relative to the best clock."""
CLEARER = 4.0
"""A clock is wrong if another one makes ends agree this many times better."""
FINEST_NS = 5_000.0
"""Ends closer than this agree perfectly."""
MORE_TRIES = 64
"""Failed comparisons allowed beyond the number of lanes; each takes milliseconds."""
NO_POSITION = np.iinfo(np.int64).min
"""Position of an op whose place in the group is unknown."""


def match_by_order(ranks: Sequence[RankCollectives]) -> tuple[RankCollectives, ...]:
    """Assign the same key to ops without one that are one collective.

    Ops that the program numbers are paired by kind, number and turn among those with that number,
    if their ends agree on one clock. All others are paired by time: on one clock they ran
    simultaneously. The clock offset is the distance between most ends of two ranks, on which ends
    must agree better than on any other; if several do equally well, the first launched ops must be
    one collective. If a profile names no groups, streams of ranks whose ops end together are taken
    to be one group.
    """
    ops_by_rank = [rank.ops for rank in ranks]
    keys = [ops.key.copy() for ops in ops_by_rank]
    communicators = [ops.communicator.copy() for ops in ops_by_rank]
    named_ops = [ops.named.copy() for ops in ops_by_rank]
    for named, pool in _pools(ops_by_rank):
        for number, group in enumerate(_groups(pool, named=named)):
            at, rows = group[0][0].at, group[0][0].rows
            base = ops_by_rank[at].communicator[rows[:1]].astype(np.uint64)
            if number or not named:
                base = mix_hashes(base, np.array([at + 1]), np.array([number])).astype(np.uint64)
            for lane, place in group:
                key = np.where(place == NO_POSITION, NO_ID, mix_hashes(base, place))
                keys[lane.at][lane.rows] = key
                communicators[lane.at][lane.rows] = base.astype(np.int64)
                named_ops[lane.at][lane.rows] = True
    return tuple(
        rank
        if (key == rank.ops.key).all()
        else replace(rank, ops=replace(rank.ops, key=key, communicator=group, named=is_named))
        for rank, key, group, is_named in zip(ranks, keys, communicators, named_ops, strict=True)
    )


@dataclass(frozen=True)
class _Lane:
    """Ops that one rank ran in one group, in order: position of the rank, and rows of its ops."""

    at: int
    rows: Rows
    order: _Order


def _pools(ops_by_rank: Sequence[Collectives]) -> Iterator[tuple[bool, list[_Lane]]]:
    """Yield lanes that may form a group, and whether it is named.

    Lanes of one communicator belong together, and so do all lanes of unnamed groups.
    """
    lanes: dict[int, list[_Lane]] = {}
    unnamed: list[_Lane] = []
    for at, ops in enumerate(ops_by_rank):
        rows = np.flatnonzero((ops.key == NO_ID) & ~np.isin(ops.kind, kind_numbers(POINT_TO_POINT)))
        for communicator, positions in rows_by_value(ops.communicator[rows]):
            lane = _Lane(at, rows[positions], _Order.of_ops(ops.take(rows[positions])))
            named = bool(ops.named[lane.rows[0]])
            (lanes.setdefault(communicator, []) if named else unnamed).append(lane)
    for communicator in sorted(lanes):
        yield True, lanes[communicator]
    yield False, unnamed


def _groups(lanes: Sequence[_Lane], *, named: bool) -> Iterator[list[tuple[_Lane, Int64]]]:
    """Yield groups of lanes with the position of each of their ops.

    All lanes are compared with the longest; those that do not match, with the longest of the rest.
    After many failures, only lanes that end together as recorded are compared.
    """
    left = sorted(lanes, key=lambda lane: -len(lane.order))
    tries = len(left) + MORE_TRIES
    while len(left) > 1:
        first, *others = left
        fits: dict[int, tuple[_Lane, _Fit]] = {}
        for lane in others:
            if lane.at == first.at or not (tries > 0 or _end_at_once(first.order, lane.order)):
                continue
            fit = _best_fit(first.order, lane.order)
            if fit is None or not (named or fit.share >= MOST):
                tries -= 1
            elif lane.at not in fits or fit.apart_ns < fits[lane.at][1].apart_ns:
                fits[lane.at] = lane, fit
        if fits:
            yield _with_positions(first, list(fits.values()))
        joined = {id(lane) for lane, _ in fits.values()}
        left = [lane for lane in others if id(lane) not in joined]


def _end_at_once(order: _Order, other: _Order) -> bool:
    """Return whether most sampled ops of a lane end, as recorded, when any op of the other does."""
    some = np.linspace(0, len(order) - 1, PROBES).astype(np.intp)
    ends_ns, near_ns = ascending(other.end_ns), round(CLEARER * FINEST_NS)
    first = np.searchsorted(ends_ns, order.end_ns[some] - near_ns)
    stop = np.searchsorted(ends_ns, order.end_ns[some] + near_ns, side="right")
    return bool(2 * np.count_nonzero(stop > first) > len(some))


def _with_positions(first: _Lane, fits: Sequence[tuple[_Lane, _Fit]]) -> list[tuple[_Lane, Int64]]:
    """Return the position of each op of a group: its place in the first lane, or after it."""
    group = [(first, np.arange(len(first.order)))]
    parts, clocks_ns = [], []
    for lane, fit in fits:
        position = np.full(len(lane.order), NO_POSITION)
        position[fit.rows] = fit.places
        group.append((lane, position))
        parts.append(np.flatnonzero(position == NO_POSITION))
        clocks_ns.append(fit.clock_ns(lane.order.end_ns[parts[-1]]))
    # Others may have ops that the first lane lost: they overlap too.
    number = np.repeat(np.arange(1, len(group)), [len(rows) for rows in parts])
    left = _Order.concat(
        [lane.order.take(rows) for (lane, _), rows in zip(group[1:], parts, strict=True)]
    )
    clock_ns = np.concatenate(clocks_ns)
    start_ns, end_ns = left.start_ns - clock_ns, left.end_ns - clock_ns
    by_end = np.lexsort((number, end_ns))
    one, other = by_end[:-1], by_end[1:]
    opens = (start_ns[other] > end_ns[one]) | ~_alike(left, one, left, other)
    cluster = np.zeros(len(by_end), np.int64)
    cluster[other] = np.cumsum(opens)
    pairs, which = distinct_pairs(cluster, number)
    twice = cluster[np.bincount(which, minlength=len(pairs))[which] > 1]
    place = np.where(np.isin(cluster, twice), NO_POSITION, len(first.order) + cluster)
    for at, rows in enumerate(parts, 1):
        group[at][1][rows] = place[number == at]
    return group


class _Order(Spans):
    """Ops that one rank ran in one group, in order.

    sign: kind of op. bytes: input of each rank if that is the same on all. sequence: number given
    by the source. step: step in which it was launched. All of these may be unknown. meets: whether
    no rank leaves before the last has arrived.
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

    def close_ns(self, share: float) -> float:
        """Return a share of the mean time between ends, at least the precision of clocks."""
        between_ns = float(np.ptp(self.end_ns)) / max(len(self) - 1, 1)
        return max(CLEARER * FINEST_NS, share * between_ns)


_KNOWN = (("sequence", NO_ID), ("sign", NO_SIGN), ("bytes", NO_ID), ("step", NO_ID))
"""Columns in which the ops of one collective agree as far as they are known, with the unknown
value.
"""


def _alike(order: _Order, places: Rows, other: _Order, rows: Rows) -> Bool:
    """Return a mask of pairs of ops that agree in all that is known of both."""
    alike = np.ones(len(rows), np.bool_)
    for name, nothing in _KNOWN:
        mine, theirs = getattr(other, name)[rows], getattr(order, name)[places]
        alike &= (mine == theirs) | (mine == nothing) | (theirs == nothing)
    return alike


@dataclass(frozen=True)
class _Fit:
    """Pairs of ops of two lanes: rows of one, their places in the other, and the clock difference.

    offset_ns: how far the clock of the first is ahead at middle_ns on that clock; drift: additional
    difference per ns. apart_ns: distance of most pairs of ends from that.
    """

    rows: Rows
    places: Rows
    offset_ns: float = 0.0
    drift: float = 0.0
    middle_ns: int = 0
    apart_ns: float = 0.0

    @property
    def share(self) -> float:
        """Return the share of pairs among the ops between the first pair and the last."""
        held = max(int(np.ptp(self.rows)), int(np.ptp(self.places))) + 1
        return len(self.rows) / max(held, LEAST_PAIRS)

    def clock_ns(self, times_ns: Int64) -> Int64:
        """Return how far the clock is ahead at some of its times."""
        after_ns = (times_ns - self.middle_ns).astype(np.float64)
        return np.rint(self.offset_ns + self.drift * after_ns).astype(np.int64)


def _best_fit(order: _Order, other: _Order) -> _Fit | None:
    """Return the pairs of two lanes with the best agreement of ends, None if undetermined.

    If others agree as well, the fit that makes the first launched ops of both one collective is
    used, provided both launched equally many ops, and so the same, or the recorded clocks agree
    with it.
    """
    counted = _by_sequence(order, other)
    if counted is not None:
        return counted
    offsets_ns = _likely_offsets(order, other)
    first, other_first = (np.flatnonzero(one.launched)[:1] for one in (order, other))
    if len(first) and len(other_first):
        offsets_ns += (other.end_ns[other_first] - order.end_ns[first]).astype(np.float64).tolist()
    fits = [fit for one_ns in offsets_ns if (fit := _by_time(order, other, one_ns))]
    if not fits:
        return None
    launched_first = ((fit, fit.places[np.isin(fit.rows, other_first)]) for fit in fits)
    by_launch = next((fit for fit, place in launched_first if np.isin(place, first).any()), None)
    as_many = np.count_nonzero(order.launched) == np.count_nonzero(other.launched)
    most = max(len(fit.rows) for fit in fits)
    least = min(MANY_PAIRS, max(LEAST_PAIRS, most / 2))
    share = MOST * max(fit.share for fit in fits)
    judged = [fit for fit in fits if len(fit.rows) >= least and fit.share >= share]
    if not judged:  # too few ops to compare their ends
        return by_launch if as_many else None
    best = min(judged, key=lambda fit: (max(fit.apart_ns, FINEST_NS), abs(fit.offset_ns)))
    as_good_ns = CLEARER * max(best.apart_ns, FINEST_NS)
    is_alone = not any(
        fit.apart_ns <= as_good_ns and abs(fit.offset_ns - best.offset_ns) > as_good_ns
        for fit in judged
    )
    if is_alone and best.apart_ns <= order.close_ns(CLOSE):
        return best
    if by_launch is None or by_launch.apart_ns > order.close_ns(NOT_FAR):
        return None
    is_good = len(by_launch.rows) >= least and by_launch.apart_ns <= as_good_ns
    is_recorded = abs(by_launch.offset_ns) <= CLEARER * FINEST_NS
    return by_launch if is_good and (as_many or is_recorded) else None


def _by_sequence(order: _Order, other: _Order) -> _Fit | None:
    """Pair ops by kind, number, and turn among those with that number, if their ends agree."""
    mine, theirs = (np.flatnonzero(one.sequence != NO_ID) for one in (other, order))
    if not len(mine) or not len(theirs):
        return None
    _, which = distinct_pairs(
        np.concatenate([other.sequence[mine], order.sequence[theirs]]),
        np.concatenate([other.sign[mine], order.sign[theirs]]),
    )
    is_other = np.arange(len(which)) < len(mine)
    turn = count_turns(which, is_other.astype(np.int64))
    key = turn * len(which) + which
    _, at, other_at = np.intersect1d(
        key[is_other], key[~is_other], assume_unique=True, return_indices=True
    )
    rows, places = mine[at], theirs[other_at]
    fit = _fit(order, other, rows, places)
    if fit is None or len(rows) < LEAST_PAIRS:
        still = _Fit(rows, places)
        is_known = 0 < len(rows) < LEAST_PAIRS and _ran_at_once(order, other, still).all()
        return still if is_known else None
    if fit.apart_ns > order.close_ns(NOT_FAR):
        return None
    fit = _kept(order, other, fit)
    # A lost record shifts the turns of later ops with its number.
    rows, places = _overlapping(order, other, fit)
    more = ~np.isin(rows, fit.rows) & ~np.isin(places, fit.places)
    return replace(
        fit,
        rows=np.concatenate([fit.rows, rows[more]]),
        places=np.concatenate([fit.places, places[more]]),
    )


def _kept(order: _Order, other: _Order, fit: _Fit) -> _Fit:
    """Return a fit without impossible pairs, which neither ran nor ended together."""
    between_ns = other.end_ns[fit.rows] - order.end_ns[fit.places]
    rest_ns = np.abs(between_ns - fit.clock_ns(other.end_ns[fit.rows]))
    stays = _ran_at_once(order, other, fit) | (rest_ns <= order.close_ns(CLOSE))
    return replace(fit, rows=fit.rows[stays], places=fit.places[stays])


def _ran_at_once(order: _Order, other: _Order, fit: _Fit) -> Bool:
    """Return a mask of pairs that overlap, or of kinds that need not overlap."""
    clock_ns = fit.clock_ns(other.end_ns[fit.rows])
    start_ns, end_ns = other.start_ns[fit.rows] - clock_ns, other.end_ns[fit.rows] - clock_ns
    first_end_ns = np.minimum(end_ns, order.end_ns[fit.places])
    last_start_ns = np.maximum(start_ns, order.start_ns[fit.places])
    meets = other.meets[fit.rows] & order.meets[fit.places]
    at_once: Bool = ~meets | (last_start_ns <= first_end_ns + round(FINEST_NS))
    return at_once


def _fit(order: _Order, other: _Order, rows: Rows, places: Rows) -> _Fit | None:
    """Fit a clock to the ends of pairs; return None if too many pairs do not overlap."""
    if not len(rows):
        return None
    end_ns = other.end_ns[rows]
    between_ns = end_ns - order.end_ns[places]
    middle_ns, offset_ns = int(np.median(end_ns)), float(np.median(between_ns))
    after_ns = (end_ns - middle_ns).astype(np.float64)
    rest_ns, drift = between_ns.astype(np.float64) - offset_ns, 0.0
    late = after_ns > 0
    if len(rows) >= DRIFT_PAIRS and late.any():
        times_ns, ends_ns = (
            float(np.median(values[late]) - np.median(values[~late]))
            for values in (after_ns, rest_ns)
        )
        drift = ends_ns / times_ns if times_ns > 0 else 0.0
        drifted_ns = rest_ns - drift * after_ns
        centre_ns = float(np.median(drifted_ns))
        if _apart_ns(drifted_ns - centre_ns) < NOT_FAR * _apart_ns(rest_ns):
            rest_ns, offset_ns = drifted_ns - centre_ns, offset_ns + centre_ns
        else:
            drift = 0.0
    fit = _Fit(rows, places, offset_ns, drift, middle_ns, _apart_ns(rest_ns))
    meets = other.meets[rows] & order.meets[places]
    together = _ran_at_once(order, other, fit)[meets]
    return None if len(together) and np.mean(together) < WORST else fit


def _apart_ns(rest_ns: Float64) -> float:
    return float(np.quantile(np.abs(rest_ns), WORST, method="higher"))


def _by_time(order: _Order, other: _Order, offset_ns: float) -> _Fit | None:
    """Return the pairs of ops that ran simultaneously, given an estimated clock offset."""
    fit: _Fit | None = _Fit(NO_ROWS, NO_ROWS, offset_ns)
    for _ in range(2):
        fit = fit and _fit(order, other, *_overlapping(order, other, fit))
    fit = fit and _kept(order, other, fit)
    return fit if fit and len(fit.rows) else None


def _overlapping(order: _Order, other: _Order, fit: _Fit) -> tuple[Rows, Rows]:
    """Return rows of one lane and places in the other that overlap longest on their clocks.

    Between two pairs that are equally far apart in both lanes, all others are pairs too.
    """
    every = np.arange(len(other))
    clock_ns = fit.clock_ns(other.end_ns)
    start_ns, end_ns = other.start_ns - clock_ns, other.end_ns - clock_ns
    by_end = np.argsort(order.end_ns, kind="stable")
    near = np.searchsorted(order.end_ns, end_ns, sorter=by_end)
    partner, longest_ns = np.full(len(other), NO_ID), np.full(len(other), -round(FINEST_NS))
    for step in (-2, -1, 0, 1):
        place = by_end[np.clip(near + step, 0, len(order) - 1)]
        together_ns = np.minimum(end_ns, order.end_ns[place]) - np.maximum(
            start_ns, order.start_ns[place]
        )
        better = (together_ns > longest_ns) & _alike(order, place, other, every)
        partner = np.where(better, place, partner)
        longest_ns = np.where(better, together_ns, longest_ns)
    rows = np.flatnonzero(partner != NO_ID)
    rows = rows[np.argsort(-longest_ns[rows], kind="stable")]
    rows = np.sort(rows[np.unique(partner[rows], return_index=True)[1]])
    if not len(rows):
        return rows, rows
    shift = partner[rows] - rows
    before = np.maximum(np.searchsorted(rows, every, side="right") - 1, 0)
    after = np.minimum(np.searchsorted(rows, every), len(rows) - 1)
    place = every + shift[before]
    filled = (shift[before] == shift[after]) & (place >= 0) & (place < len(order))
    filled[filled] &= _alike(order, place[filled], other, every[filled])
    filled[rows] = True
    place[rows] = partner[rows]
    return every[filled], place[filled]


def _likely_offsets(order: _Order, other: _Order) -> list[float]:
    """Estimate clock offsets from the most frequent distances between the ends of some ops.

    The ops are consecutive, so that neither drift nor lost records spread the distances.
    """
    middles = len(other) // 3, 2 * len(other) // 3
    near = np.arange(PROBES) - PROBES // 2
    rows = distinct(np.concatenate([middle + near for middle in middles]))
    rows = rows[(rows >= 0) & (rows < len(other))]
    row, place = np.repeat(rows, len(order)), np.tile(np.arange(len(order)), len(rows))
    alike = _alike(order, place, other, row)
    between_ns = np.sort((other.end_ns[row] - order.end_ns[place])[alike])
    wide_ns = round(2 * order.close_ns(CLOSE))
    stop = np.searchsorted(between_ns, between_ns + wide_ns, side="right")
    within = stop - np.arange(len(between_ns))
    middle_ns = between_ns[np.arange(len(between_ns)) + within // 2]
    chosen: list[float] = []
    for at in np.lexsort((np.abs(middle_ns), -within)).tolist():
        if all(abs(middle_ns[at] - one) > wide_ns / 2 for one in chosen):
            chosen.append(float(middle_ns[at]))
        if len(chosen) == CANDIDATES:
            break
    return chosen
