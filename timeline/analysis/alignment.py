"""Turns the ends of collectives that ranks share into how far the clock of each rank is off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from timeline.analysis.collectives import RankCollectives, kind_numbers
from timeline.analysis.matching import Segments, SharedOps, shared_ops
from timeline.records.columns import Bool, Float64, Int64, Rows
from timeline.units import spell_duration

__all__ = ["Alignment", "align"]

ENDING_TOGETHER = ("AllReduce", "AllGather", "Broadcast", "Barrier")
"""Kinds of collectives that end at nearly the same moment on every rank of the group; the ends of
others, and of point-to-point ops, differ by what they wait for."""
LEAST_OPS = 3
"""So many ops a rank must share before their spread means anything."""
WORST = 0.95
"""This share of all ends must lie closer together than the clocks."""
ROUNDS = 3
SIGMA_OF_MAD = 1.4826
"""A normal distribution's standard deviation over its median absolute deviation."""
HUBER = 1.5
FINEST_NS = 100.0
"""No op tells a clock's offset better than this."""
MOST_TURNS = 1000


@dataclass(frozen=True)
class Alignment:
    """How far the clock of each rank is ahead, by the ends of the collectives it shares.

    offsets_ns: (ranks,) int64, to be subtracted; 0 for a rank that cannot be corrected.
    spreads_ns: (ranks,) what is left between the ends of the rank's ops and those of others
    (standard deviation, from the median absolute deviation). ops: (ranks,) how many were matched.
    island: (ranks,) ranks with the same number are connected by shared ops; -1 for none. reasons:
    why some are not corrected.
    """

    offsets_ns: Int64
    spreads_ns: Int64
    ops: Int64
    island: Rows
    reasons: tuple[str, ...]

    @property
    def used(self) -> Bool:
        """Which ranks are on a common clock by their collectives."""
        return self.island >= 0


def align(ranks: Sequence[RankCollectives]) -> Alignment:
    """Find the offset of each rank's clock.

    The same collective ends at nearly the same moment on all ranks of its group. So for every
    group (set of ranks) and rank the median of its ends, less the median end of each op, is that
    rank's offset less the group's; one offset per rank solves all of these by least squares with
    Huber weights. Ranks that share no group are connected through others. The lowest rank of each
    island keeps its clock.
    """
    shared = _ending_together(ranks)
    island = _islands(shared, len(ranks))
    ends_ns = shared.taken([own.ops for own in ranks], "end_ns")
    base_ns = int(ends_ns.min()) if len(ends_ns) else 0
    ends = (ends_ns - base_ns).astype(np.float64)
    offsets = np.zeros(len(ranks))
    ops, edges = Segments(shared.op, shared.count), _Edges.of(shared, len(ranks))
    for _ in range(ROUNDS):
        own = ends - offsets[shared.rank]
        offsets += _solved(edges, own - ops.medians(own)[shared.op], len(ranks), island)
    own = ends - offsets[shared.rank]
    size = np.bincount(shared.op, minlength=shared.count)[shared.op]
    # The median of all ends holds each itself: without it they would lie further apart.
    left_ns = np.abs(own - ops.medians(own)[shared.op]) * size / np.maximum(size - 1, 1)
    return _trusted(shared, offsets, left_ns, island)


@dataclass(frozen=True)
class _Edges:
    """Which ranks take part in the ops of which group, and the rows of each of these pairs."""

    group: Rows
    rank: Rows
    of_row: Rows
    rows: Segments

    @classmethod
    def of(cls, shared: SharedOps, ranks: int) -> _Edges:
        pairs, of_row = np.unique(
            shared.group[shared.op] * ranks + shared.rank, return_inverse=True
        )
        of_row = of_row.reshape(-1)
        return cls(
            pairs // max(ranks, 1), pairs % max(ranks, 1), of_row, Segments(of_row, len(pairs))
        )

    def __len__(self) -> int:
        return len(self.group)


def _ending_together(ranks: Sequence[RankCollectives]) -> SharedOps:
    parts = [own.ops for own in ranks]
    wanted = [np.isin(own.kind, kind_numbers(ENDING_TOGETHER)) for own in parts]
    shared = shared_ops(parts, wanted)
    often = np.bincount(shared.rank, minlength=len(ranks)) >= LEAST_OPS
    return shared_ops(parts, [own & held for own, held in zip(wanted, often, strict=True)])


def _islands(shared: SharedOps, ranks: int) -> Rows:
    """The lowest rank that each is connected with through shared ops; -1 for a rank without any."""
    island = np.arange(ranks)
    first = shared.first_rows()
    while True:
        if not shared.count:
            break
        lowest = np.minimum.reduceat(island[shared.rank], first)
        joined = island.copy()
        np.minimum.at(joined, shared.rank, lowest[shared.op])
        if (joined == island).all():
            break
        island = joined
    alone = np.bincount(shared.rank, minlength=ranks) == 0
    island[alone] = -1
    return island


def _solved(edges: _Edges, deviations: Float64, ranks: int, island: Rows) -> Float64:
    """One offset per rank from the deviations of its ops: the lowest of each island has none."""
    if not len(edges):
        return np.zeros(ranks)
    group, rank = edges.group, edges.rank
    medians = edges.rows.medians(deviations)
    spread = edges.rows.medians(np.abs(deviations - medians[edges.of_row])) * SIGMA_OF_MAD
    weights = np.bincount(edges.of_row) / (spread**2 + FINEST_NS**2)
    offsets = np.zeros(ranks)
    sure = np.ones(len(edges))
    for _ in range(ROUNDS):
        offsets = _least_squares(group, rank, medians, weights * sure, ranks)
        level = _weighted_means(medians - offsets[rank], weights * sure, group)
        left = np.abs(medians - offsets[rank] - level[group])
        scale = max(float(np.median(left)) * SIGMA_OF_MAD, FINEST_NS)
        sure = 1 / np.maximum(1.0, left / (HUBER * scale))
    held = island >= 0
    offsets[held] -= offsets[island[held]]
    return offsets


def _weighted_means(values: Float64, weights: Float64, group: Rows) -> Float64:
    count = int(group.max()) + 1
    return _sums(group, weights * values, count) / _sums(group, weights, count)


def _sums(bins: Rows, weights: Float64, count: int) -> Float64:
    return np.bincount(bins, weights, count).astype(np.float64)


def _least_squares(
    group: Rows, rank: Rows, values: Float64, weights: Float64, ranks: int
) -> Float64:
    """Rank offsets x and group levels m that minimise sum(w * (x[rank] + m[group] - value)^2).

    The levels are eliminated, and what is left is solved by conjugate gradients, which need only
    the edges and not a matrix of ranks by ranks.
    """

    def normal(x: Float64) -> Float64:
        """The derivative of half the sum by x, with the best levels."""
        bare = x[rank] - _weighted_means(x[rank], weights, group)[group]
        return _sums(rank, weights * bare, ranks)

    scale = np.sqrt(np.maximum(_sums(rank, weights, ranks), 1e-300))
    centred = values - _weighted_means(values, weights, group)[group]
    x = np.zeros(ranks)
    rest = _sums(rank, weights * centred, ranks) / scale
    step = rest.copy()
    size = float(rest @ rest)
    goal = size * 1e-24
    for _ in range(MOST_TURNS):
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


def _trusted(shared: SharedOps, offsets: Float64, left_ns: Float64, island: Rows) -> Alignment:
    """Give up an island whose ops differ more among themselves than its clocks do."""
    ops = np.bincount(shared.rank, minlength=len(offsets))
    spreads = Segments(shared.rank, len(offsets)).medians(left_ns) * SIGMA_OF_MAD
    kept, reasons = island, list[str]()
    if not shared.count:
        reasons.append(f"no two ranks share {LEAST_OPS} collectives that end together")
    for lowest in np.unique(island[island >= 0]).tolist():
        own = island == lowest
        corrected_ns = float(np.abs(offsets[own]).max())
        worst_ns = float(np.quantile(left_ns[own[shared.rank]], WORST, method="higher"))
        if worst_ns >= corrected_ns:
            reasons.append(
                f"the ends of shared collectives differ by up to {spell_duration(round(worst_ns))},"
                f" no less than the clocks ({spell_duration(round(corrected_ns))})"
            )
            kept = np.where(own, -1, kept)
    return Alignment(
        np.where(kept >= 0, np.round(offsets), 0).astype(np.int64),
        np.round(spreads).astype(np.int64),
        ops,
        kept,
        tuple(dict.fromkeys(reasons)),
    )
