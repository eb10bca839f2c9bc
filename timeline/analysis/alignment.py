"""Alignment of the clocks of ranks by the ends of collectives that they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from timeline.analysis.waits.collectives import RankCollectives, kind_numbers
from timeline.analysis.waits.shared_ops import Segments, SharedOps, find_shared_ops
from timeline.columns.columns import Bool, Float64, Int64, Rows
from timeline.columns.distinct import distinct, distinct_values
from timeline.records.task_kinds import KINDS, POINT_TO_POINT
from timeline.units import format_duration

ENDING_TOGETHER = ("AllReduce", "AllGather", "Broadcast", "Barrier")
"""Kinds of collectives that end almost simultaneously on every rank of the group."""
ENDING_ALONE = ("Broadcast", "Reduce", "Gather", "Scatter", *POINT_TO_POINT)
"""Kinds of ops that a rank may end before another one arrives: they do not bound clocks."""
SKEW_NS = 40_000
"""Distance on one host between the ends of collectives that need not end together."""
EXCEPTIONS = 10
"""One op in this many, and always one, does not bound a clock: a rank without data does not
wait.
"""
LEAST_OPS = 3
"""Minimum number of shared ops of a rank for their spread to be meaningful."""
WORST = 0.95
"""Quantile of the distances of ends that must be below the clock difference."""
DRIFT_OPS = 20
"""Minimum number of shared ops of each rank for a drift to be fitted."""
DRIFT_GAIN = 0.7
"""Maximum remaining distance between ends with a drift, as a share of that without."""
RESOLUTIONS = 2
"""Start and length of an op are both rounded, so ends differ by up to this many resolutions."""
SURE = 2.0
"""Factor by which clocks on one host must differ more than the ends of collectives."""
WORSE = 1.5
"""Factor by which ends that were not fitted may be further apart by chance after moving clocks."""
ROUNDS = 3
"""Number of refits, each starting from the residuals of the previous one."""
SIGMA_OF_MAD = 1.4826
"""Standard deviation of a normal distribution divided by its median absolute deviation."""
HUBER = 1.5
"""Values beyond this many standard deviations get less weight (Huber weights)."""
FINEST_NS = 100.0
"""Best precision of a clock offset from an op."""
MOST_ITERATIONS = 1000
"""Maximum number of conjugate gradient iterations."""


@dataclass(frozen=True)
class Alignment:
    """Clock offsets of ranks, from the ends of the collectives they share.

    offsets_ns: (ranks,) int64, how far each clock is ahead, to be subtracted; 0 for a rank that
    cannot be corrected. drifts_ppb: (ranks,) int64, additional ns per second, counted from
    origin_ns; 0 if no drift is seen. spreads_ns: (ranks,) remaining distance between the ends of
    the rank's ops and those of others (standard deviation, from the median absolute deviation).
    ops: (ranks,) number of matched ops. island: (ranks,) ranks with the same number are connected
    by shared ops; -1 for none. joint: (ranks,) ranks with the same number have clocks that agree,
    by such ops or as those of one host; doubt_ns: (ranks,) how far they may be off from others, 0
    if unknown. reasons: why some are not corrected.
    """

    offsets_ns: Int64
    drifts_ppb: Int64
    origin_ns: int
    spreads_ns: Int64
    ops: Int64
    island: Rows
    joint: Rows
    doubt_ns: Int64
    reasons: tuple[str, ...]

    @property
    def used(self) -> Bool:
        """Return a mask of the ranks that are on a common clock by their collectives."""
        return self.island >= 0


def align(ranks: Sequence[RankCollectives], hosts: Sequence[str] = ()) -> Alignment:
    """Find the offset of each rank's clock.

    The same collective ends almost simultaneously on all ranks of its group. So for every group
    (set of ranks) and rank, the median of its ends minus the median end of each op is that rank's
    offset minus the group's; one offset per rank solves all of these by least squares with Huber
    weights. Ranks that share no group are connected through others. The lowest rank of each island
    keeps its clock.

    A drift is fitted only if it leaves the ends much closer together than offsets alone. Clocks are
    moved only by more than the uncertainty of ends: the distance that remains between them after
    the fit, scaled up if there are few ends per clock, and the rounding of times. Other
    collectives, which were not fitted, must not end further apart then. Ranks of one host have one
    clock, so more evidence is required to move them.

    Islands are joined by other collectives that they share: no rank ends before the last has
    arrived, which bounds the offset, and within the bounds the ends estimate it as above. That is
    less certain, so it is used only if it exceeds the distance of such ends on one host.

    Args:
        hosts: (ranks,) the host of each rank, empty if unknown.
    """
    shared = _ending_together(ranks)
    ends_ns = shared.take("end_ns")
    origin_ns = int(ends_ns.min()) if len(ends_ns) else 0
    fit = _Fit(shared, (ends_ns - origin_ns).astype(np.float64), len(ranks))
    plain = fit.clocks(with_drift=False)
    clocks = _with_drift_where_seen(fit, plain)
    hosts = hosts or [""] * len(ranks)
    alignment = _trusted(fit, origin_ns, clocks, ranks, hosts)
    return _across_islands(ranks, replace(alignment, joint=_joint(fit.island, alignment, hosts)))


@dataclass(frozen=True)
class _Clocks:
    """Offsets of the ranks' clocks, and their drifts per ns; (ranks,) each.

    left_ns: (rows,) remaining distance of each end from those of the others.
    """

    offsets: Float64
    drifts: Float64
    left_ns: Float64


class _Fit:
    """Ends of shared ops, counted from the first, to which clocks are fitted."""

    def __init__(self, shared: SharedOps, ends: Float64, ranks: int) -> None:
        self.shared, self.ends, self.ranks = shared, ends, ranks
        self.island = _islands(shared, ranks)
        self._ops = Segments(shared.op, shared.count)
        self._edges = _Edges.of(shared, ranks)
        self._size = np.bincount(shared.op, minlength=shared.count)[shared.op]

    def clocks(self, *, with_drift: bool) -> _Clocks:
        """Fit offsets, and optionally drifts."""
        offsets, drifts = np.zeros(self.ranks), np.zeros(self.ranks)
        for _ in range(ROUNDS if self.shared.count else 0):
            deviations = self._deviations(offsets, drifts)
            offsets += _solve_offsets(self._edges, deviations, self.ranks, self.island)
            if with_drift:
                deviations = self._deviations(offsets, drifts)
                drifts += _solve_drifts(self._edges, deviations, self.ends, self.ranks, self.island)
        return _Clocks(offsets, drifts, self.left_ns(offsets, drifts))

    def left_ns(self, offsets: Float64, drifts: Float64) -> Float64:
        """Return the distance of each end from the others.

        The factor corrects for the median including the end itself.
        """
        apart = np.abs(self._deviations(offsets, drifts))
        return apart * self._size / np.maximum(self._size - 1, 1)

    def _deviations(self, offsets: Float64, drifts: Float64) -> Float64:
        """Return how far each end is behind the median of its op."""
        rank = self.shared.rank
        corrected = self.ends - offsets[rank] - drifts[rank] * self.ends
        deviations: Float64 = corrected - self._ops.medians(corrected)[self.shared.op]
        return deviations


def _with_drift_where_seen(fit: _Fit, plain: _Clocks) -> _Clocks:
    """Return clocks with a drift on islands with many ops that agree much better with one."""
    ops = np.bincount(fit.shared.rank, minlength=fit.ranks)
    drifting = np.zeros(fit.ranks, np.bool_)
    many = [low for low in _lowest(fit.island) if ops[fit.island == low].min() >= DRIFT_OPS]
    if not many:
        return plain
    drifted = fit.clocks(with_drift=True)
    for lowest in many:
        on_island = fit.island == lowest
        rows = on_island[fit.shared.rank]
        before, after = (float(np.median(one.left_ns[rows])) for one in (plain, drifted))
        drifting |= on_island & (after <= DRIFT_GAIN * before)
    rows = drifting[fit.shared.rank]
    return _Clocks(
        np.where(drifting, drifted.offsets, plain.offsets),
        np.where(drifting, drifted.drifts, 0.0),
        np.where(rows, drifted.left_ns, plain.left_ns),
    )


def _lowest(island: Rows) -> list[int]:
    lowest: list[int] = distinct(island[island >= 0]).tolist()
    return lowest


@dataclass(frozen=True)
class _Edges:
    """Pairs of a group and a rank that takes part in its ops, and the rows of each pair."""

    group: Rows
    rank: Rows
    of_row: Rows
    rows: Segments

    @classmethod
    def of(cls, shared: SharedOps, ranks: int) -> _Edges:
        pairs, of_row = distinct_values(shared.group[shared.op] * ranks + shared.rank)
        return cls(
            pairs // max(ranks, 1), pairs % max(ranks, 1), of_row, Segments(of_row, len(pairs))
        )


def _ending_together(ranks: Sequence[RankCollectives]) -> SharedOps:
    wanted = [np.isin(rank.ops.kind, kind_numbers(ENDING_TOGETHER)) for rank in ranks]
    shared = find_shared_ops(ranks, wanted)
    often = np.bincount(shared.rank, minlength=len(ranks)) >= LEAST_OPS
    return find_shared_ops(
        ranks, [ends_together & enough for ends_together, enough in zip(wanted, often, strict=True)]
    )


def _islands(shared: SharedOps, ranks: int) -> Rows:
    """Return the lowest rank connected to each one through shared ops; -1 without any."""
    island = np.arange(ranks)
    while shared.count:
        lowest = shared.over(np.minimum, island[shared.rank])
        joined = island.copy()
        np.minimum.at(joined, shared.rank, lowest[shared.op])
        if (joined == island).all():
            break
        island = joined
    alone = np.bincount(shared.rank, minlength=ranks) == 0
    island[alone] = -1
    return island


def _solve_offsets(edges: _Edges, deviations: Float64, ranks: int, island: Rows) -> Float64:
    """Solve for one offset per rank from the deviations; 0 for the lowest of each island."""
    group, rank = edges.group, edges.rank
    medians = edges.rows.medians(deviations)
    spread = edges.rows.medians(np.abs(deviations - medians[edges.of_row])) * SIGMA_OF_MAD
    weights = np.bincount(edges.of_row) / (spread**2 + FINEST_NS**2)
    offsets = np.zeros(ranks)
    sure = np.ones(len(group))
    for _ in range(ROUNDS):
        offsets = _least_squares(group, rank, medians, weights * sure, ranks)
        level = _weighted_means(medians - offsets[rank], weights * sure, group)
        left = np.abs(medians - offsets[rank] - level[group])
        scale = max(float(np.median(left)) * SIGMA_OF_MAD, FINEST_NS)
        sure = 1 / np.maximum(1.0, left / (HUBER * scale))
    aligned = island >= 0
    offsets[aligned] -= offsets[island[aligned]]
    return offsets


def _solve_drifts(
    edges: _Edges, deviations: Float64, ends: Float64, ranks: int, island: Rows
) -> Float64:
    """Solve for one drift per rank from growing deviations; 0 for the lowest of each island."""
    count, row = len(edges.group), edges.of_row
    rows = _sums(row, np.ones(len(row)), count)
    spread = edges.rows.medians(np.abs(deviations - edges.rows.medians(deviations)[row]))
    scale = np.maximum(spread * SIGMA_OF_MAD, FINEST_NS)
    time = ends - (_sums(row, ends, count) / rows)[row]
    centred = deviations - (_sums(row, deviations, count) / rows)[row]
    sure = 1 / np.maximum(1.0, np.abs(centred) / (HUBER * scale[row]))
    square = np.maximum(_sums(row, sure * time * time, count), 1e-300)
    slopes = _sums(row, sure * time * centred, count) / square
    drifts = _least_squares(edges.group, edges.rank, slopes, square / scale**2, ranks)
    aligned = island >= 0
    drifts[aligned] -= drifts[island[aligned]]
    return drifts


def _weighted_means(values: Float64, weights: Float64, group: Rows) -> Float64:
    count = int(group.max()) + 1
    return _sums(group, weights * values, count) / _sums(group, weights, count)


def _sums(bins: Rows, weights: Float64, count: int) -> Float64:
    return np.bincount(bins, weights, count).astype(np.float64)


def _least_squares(
    group: Rows, rank: Rows, values: Float64, weights: Float64, ranks: int
) -> Float64:
    """Return the rank offsets x that minimise sum(w * (x[rank] + m[group] - value)^2) over x and m.

    The group levels m are eliminated, and the rest is solved by conjugate gradients, which need
    only the edges and not a matrix of ranks by ranks.
    """

    def normal(x: Float64) -> Float64:
        """Return the derivative of half the sum by x, with the best levels."""
        bare = x[rank] - _weighted_means(x[rank], weights, group)[group]
        return _sums(rank, weights * bare, ranks)

    scale = np.sqrt(np.maximum(_sums(rank, weights, ranks), 1e-300))
    centred = values - _weighted_means(values, weights, group)[group]
    x = np.zeros(ranks)
    rest = _sums(rank, weights * centred, ranks) / scale
    step = rest.copy()
    size = float(rest @ rest)
    goal = size * 1e-24
    for _ in range(MOST_ITERATIONS):
        along = normal(step / scale) / scale
        steepness = float(step @ along)
        if size <= goal or steepness <= 0:
            break
        length = size / steepness
        x += length * step
        rest -= length * along
        size, before = float(rest @ rest), size
        step = rest + size / before * step
    return x / scale


def _ends_apart(
    shared: SharedOps, ends: Float64, members: Bool, clocks: _Clocks
) -> tuple[float, float]:
    """Return the distance of unfitted ends of an island, before and after moving clocks.

    members: mask of the ranks of the island.
    """
    rows = members[shared.rank]
    if np.count_nonzero(rows) < LEAST_OPS:
        return 0.0, 0.0
    moved = ends - clocks.offsets[shared.rank] - clocks.drifts[shared.rank] * ends
    ops = Segments(shared.op, shared.count)
    before, after = (
        float(np.median(np.abs(times_ns - ops.medians(times_ns)[shared.op])[rows]))
        for times_ns in (ends, moved)
    )
    return before, after


def _other_ends(ranks: Sequence[RankCollectives]) -> SharedOps:
    kinds = kind_numbers((*ENDING_TOGETHER, *POINT_TO_POINT))
    return find_shared_ops(ranks, [~np.isin(rank.ops.kind, kinds) for rank in ranks])


def _resolution_ns(ends_ns: Sequence[Int64]) -> int:
    """Return the largest power of ten, up to 1 us, of which all times of a rank are multiples."""
    between_ns = np.concatenate(
        [np.empty(0, np.int64), *(of_rank_ns - of_rank_ns[:1] for of_rank_ns in ends_ns)]
    )
    return next(step_ns for step_ns in (1000, 100, 10, 1) if not (between_ns % step_ns).any())


def _left_ns(fit: _Fit, clocks: _Clocks, members: Bool) -> float:
    """Return the remaining distance of most ends of an island, corrected for few ends.

    A clock fitted to few ends leaves less between them than there is.
    """
    shared = fit.shared
    rows = members[shared.rank]
    free = int(np.count_nonzero(rows)) - len(distinct(shared.op[rows]))
    fitted = (int(np.count_nonzero(members)) - 1) * (2 if clocks.drifts[members].any() else 1)
    worst_ns = float(np.quantile(clocks.left_ns[rows], WORST, method="higher"))
    return worst_ns * float(np.sqrt(free / max(free - fitted, 1)))


def _trusted(
    fit: _Fit,
    origin_ns: int,
    clocks: _Clocks,
    ranks: Sequence[RankCollectives],
    hosts: Sequence[str],
) -> Alignment:
    """Return the alignment without islands whose ops differ more than their clocks do."""
    others = _other_ends(ranks)
    other_ends = (others.take("end_ns") - origin_ns).astype(np.float64)
    resolution_ns = _resolution_ns([rank.ops.end_ns for rank in ranks])
    shared, island = fit.shared, fit.island
    ops = np.bincount(shared.rank, minlength=fit.ranks)
    span = float(fit.ends.max()) if len(fit.ends) else 0.0
    kept, reasons = island, list[str]()
    if not shared.count:
        reasons.append(f"no two ranks share {LEAST_OPS} collectives that end together")
    for lowest in _lowest(island):
        members = island == lowest
        moved_ns = np.abs(clocks.offsets[members]) + np.abs(clocks.drifts[members]) * span
        corrected_ns = float(moved_ns.max())
        doubt_ns = _left_ns(fit, clocks, members) + RESOLUTIONS * resolution_ns
        on_hosts = {hosts[rank] for rank in np.flatnonzero(members).tolist()}
        if len(on_hosts) == 1 and "" not in on_hosts:
            doubt_ns *= SURE
        before_ns, after_ns = _ends_apart(others, other_ends, members, clocks)
        if doubt_ns >= corrected_ns:
            reasons.append(
                f"the ends of shared collectives differ by up to "
                f"{format_duration(round(doubt_ns))}, no less than the clocks "
                f"({format_duration(round(corrected_ns))})"
            )
        elif after_ns > WORSE * before_ns + resolution_ns:
            reasons.append(
                f"other collectives would end {format_duration(round(after_ns))} apart instead of "
                f"{format_duration(round(before_ns))}"
            )
        else:
            continue
        kept = np.where(members, -1, kept)
    used = kept >= 0
    still = np.zeros(fit.ranks)
    left_ns = np.where(used[shared.rank], clocks.left_ns, fit.left_ns(still, still))
    spreads = Segments(shared.rank, fit.ranks).medians(left_ns) * SIGMA_OF_MAD
    return Alignment(
        np.where(used, np.round(clocks.offsets), 0).astype(np.int64),
        np.where(used, np.round(clocks.drifts * 1e9), 0).astype(np.int64),
        origin_ns,
        np.round(spreads).astype(np.int64),
        ops,
        kept,
        island,
        np.zeros(fit.ranks, np.int64),
        tuple(dict.fromkeys(reasons)),
    )


# -- islands ---------------------------------------------------------------------------------------


def _joint(island: Rows, alignment: Alignment, hosts: Sequence[str]) -> Rows:
    """Return each rank's island, joined for ranks of one host whose clocks were not moved."""
    joint = np.where(island < 0, np.arange(len(island)), island)
    still = (alignment.offsets_ns == 0) & (alignment.drifts_ppb == 0)
    lowest: dict[str, int] = {}
    for at in np.flatnonzero(still).tolist():
        if hosts[at]:
            joint[joint == joint[at]] = lowest.setdefault(hosts[at], joint[at])
    return joint


def _across_islands(ranks: Sequence[RankCollectives], alignment: Alignment) -> Alignment:
    """Align the clocks of islands by shared collectives that need not end together."""
    lowest, island = np.unique(alignment.joint, return_inverse=True)
    count = len(lowest)
    if count < 2:
        return alignment
    meeting = kind_numbers([kind for kind in KINDS if kind not in ENDING_ALONE])
    ops = find_shared_ops(ranks, [np.isin(rank.ops.kind, meeting) for rank in ranks])
    shared, order, first = ops.of_islands(island)
    often = np.bincount(shared.rank, minlength=count)[shared.rank] >= LEAST_OPS
    often &= np.bincount(shared.op[often], minlength=shared.count)[shared.op] > 1
    if not often.any():
        return alignment
    origin_ns = alignment.origin_ns or int(ops.take("end_ns").min())
    start, end = (
        (ops.take(name) - origin_ns).astype(np.float64)[order] for name in ("start_ns", "end_ns")
    )
    own, drift = alignment.offsets_ns[ops.rank[order]], alignment.drifts_ppb[ops.rank[order]] / 1e9
    start, end = start - own - drift * start, end - own - drift * end
    came, left = np.maximum.reduceat(start, first)[often], np.minimum.reduceat(end, first)[often]
    mean = (np.add.reduceat(end, first) / np.diff([*first, len(order)]))[often]
    shared = shared.rows_where(often)
    fit = _Fit(shared, mean, count)
    clocks = _with_drift_where_seen(fit, fit.clocks(with_drift=False))
    at = shared.rank
    ahead = clocks.offsets[at] + clocks.drifts[at] * mean
    most = _bounds(left - ahead - _greatest_other(came - ahead, shared), at, count)
    least = -_bounds(ahead - came - _greatest_other(ahead - left, shared), at, count)
    spread = Segments(at, count).medians(clocks.left_ns) * SIGMA_OF_MAD
    many = np.bincount(at, minlength=count)
    # The lowest of the joined islands keeps its clock.
    moves = (fit.island >= 0) & (fit.island != np.arange(count))
    offsets = clocks.offsets + np.where(moves & (least <= most), np.clip(0, least, most), 0)
    moved = np.abs(offsets) + np.abs(clocks.drifts) * np.abs(mean).max()
    sure = np.maximum(SKEW_NS, SURE * spread / np.sqrt(np.maximum(many, 1)))
    moves &= (moved > sure) | (-clocks.offsets < least) | (-clocks.offsets > most)
    offsets, drifts = np.where(moves, offsets, 0.0), np.where(moves, clocks.drifts, 0.0)
    doubt = np.maximum(np.maximum(SKEW_NS, spread), np.abs(most - least) / 2)
    joined = np.isin(fit.island, fit.island[moves])[island]
    ahead_ns = alignment.offsets_ns * (1 - drifts[island]) + offsets[island]
    return replace(
        alignment,
        offsets_ns=np.round(ahead_ns).astype(np.int64),
        drifts_ppb=alignment.drifts_ppb + np.round(drifts * 1e9).astype(np.int64)[island],
        origin_ns=origin_ns,
        island=np.where(joined, lowest[fit.island[island]], alignment.island),
        doubt_ns=np.where(fit.island >= 0, np.round(doubt), 0).astype(np.int64)[island],
    )


def _greatest_other(values: Float64, shared: SharedOps) -> Float64:
    """Return for each row the greatest value of the other ranks of its op, at least one."""
    order = np.lexsort((values, shared.op))
    last = np.append(shared.first_rows()[1:], len(order)) - 1
    others: Float64 = values[order[last]][shared.op]
    others[order[last]] = values[order[last - 1]]
    return others


def _bounds(values: Float64, segment: Rows, count: int) -> Float64:
    """Return the smallest value of each segment, apart from exceptions.

    0 for a segment of fewer than two values.
    """
    size = np.bincount(segment, minlength=count)
    order = np.lexsort((values, segment))
    at = np.cumsum(size) - size + np.maximum(size // EXCEPTIONS, 1)
    bounds = np.zeros(count)
    bounds[size > 1] = values[order][at[size > 1]]
    return bounds
