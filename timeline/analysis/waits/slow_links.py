"""The rank whose links are much slower than others of the same kind, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from timeline.analysis.waits.links import LinkTimes, RankLinks
from timeline.columns.columns import Int64, Rows
from timeline.columns.distinct import rows_by_value
from timeline.columns.group_by import group_by
from timeline.columns.strings import StringPool
from timeline.frozen import dataclass

__all__ = ["SlowLink", "find_slow_link"]

MUCH_SLOWER = 1.5
"""So many times as long the same data take over a slow link."""
LIKE_SIZE = 4.0
"""Links are compared if their tasks move so many times as much at most: small ones are slower."""


@dataclass(frozen=True)
class SlowLink:
    """Links toward a rank, over which data take longer than between other ranks.

    rank: toward which they lead. link: their kind. bandwidth, usual: bytes per ns, which is GB/s,
    toward it and between others. excess_ns: by source rank, what it would have saved at the usual
    bandwidth.
    """

    rank: int
    link: str
    bandwidth: float
    usual: float
    excess_ns: tuple[tuple[int, int], ...]

    @property
    def total_ns(self) -> int:
        """What all its sources would have saved."""
        return sum(excess_ns for _, excess_ns in self.excess_ns)


def find_slow_link(ranks: Sequence[RankLinks]) -> SlowLink | None:
    """Find the rank toward which links are slow that costs most; None where no links are.

    Links are compared with those of the same kind between ranks that are none of their ends; those
    whose ends are numbers inside groups are left alone.
    """
    ranks, strings = [links for links in ranks if not links.in_groups], StringPool()
    kinds = [strings.codes(links.strings)[links.times.link] for links in ranks if len(links.times)]
    times = LinkTimes.concat([links.times for links in ranks])
    if not len(times):
        return None
    kind = np.concatenate(kinds)
    alike = np.flatnonzero((times.source_rank != times.target_rank) & (times.size_bytes > 0))
    slow = [
        one
        for code, rows in rows_by_value(kind[alike])
        for one in _slow_ones(times.take(alike[rows]), strings[code])
    ]
    return max(slow, key=lambda one: (one.total_ns, -one.rank), default=None)


def _slow_ones(times: LinkTimes, kind: str) -> Iterator[SlowLink]:
    """The ranks toward which the links of a kind are slow, ascending."""
    ones = np.ones(len(times), np.int64)
    columns = np.stack([times.size_bytes, times.total_ns, times.count, ones])
    every = columns.sum(axis=1)
    leaving = {
        rank: columns[:, rows].sum(axis=1) for rank, rows in rows_by_value(times.source_rank)
    }
    for rank, rows in rows_by_value(times.target_rank):
        toward = columns[:, rows].sum(axis=1)
        others = every - toward - leaving.get(rank, 0)
        if not others[-1] or not _have_like_sizes(toward, others):
            continue
        bandwidth, usual = (
            size / max(ns, 1) for size, ns, *_ in (toward.tolist(), others.tolist())
        )
        if bandwidth * MUCH_SLOWER <= usual:
            yield SlowLink(rank, kind, bandwidth, usual, _excess_ns(times, rows, usual))


def _have_like_sizes(some: Int64, others: Int64) -> bool:
    """Whether tasks move about as much; where nobody counted them, it is taken for granted.

    some, others: what links move, for how long, in how many tasks, and how many links they are.
    """
    if not some[2] or not others[2]:
        return True
    sizes = (some[0] / some[2], others[0] / others[2])
    return bool(max(sizes) <= LIKE_SIZE * min(sizes))


def _excess_ns(times: LinkTimes, rows: Rows, usual: float) -> tuple[tuple[int, int], ...]:
    """By source, what some links would have saved at the usual bandwidth."""
    excess_ns = times.total_ns[rows] - np.rint(times.size_bytes[rows] / usual).astype(np.int64)
    sources = times.source_rank[rows]
    by_source = group_by(len(rows), [sources])
    found = zip(sources[by_source.first].tolist(), by_source.sum(excess_ns).tolist(), strict=True)
    return tuple(found)
