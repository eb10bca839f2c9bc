"""The rank whose links are much slower than others of the same kind, and what that costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from timeline.analysis.waits.links import LinkTimes, RankLinks
from timeline.columns.columns import Bool, Codes
from timeline.columns.distinct import distinct
from timeline.columns.strings import StringPool

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
    apart = times.source_rank != times.target_rank
    found = [
        _toward(times, int(rank), kind, int(code), strings)
        for code in distinct(kind[apart].astype(np.int64)).tolist()
        for rank in distinct(times.target_rank[apart & (kind == code)]).tolist()
    ]
    slow = [one for one in found if one is not None]
    return max(slow, key=lambda one: (one.total_ns, -one.rank), default=None)


def _toward(
    times: LinkTimes, rank: int, kind: Codes, code: int, strings: StringPool
) -> SlowLink | None:
    """The links of a kind toward a rank, if they are slow."""
    alike = (kind == code) & (times.source_rank != times.target_rank) & (times.size_bytes > 0)
    toward = alike & (times.target_rank == rank)
    others = alike & (times.target_rank != rank) & (times.source_rank != rank)
    if not toward.any() or not others.any() or not _have_like_sizes(times, toward, others):
        return None
    bandwidth, usual = (_bandwidth(times, rows) for rows in (toward, others))
    if bandwidth * MUCH_SLOWER > usual:
        return None
    excess_ns = times.total_ns[toward] - np.rint(times.size_bytes[toward] / usual).astype(np.int64)
    sources = times.source_rank[toward]
    by_source = tuple(
        (source, int(excess_ns[sources == source].sum())) for source in distinct(sources).tolist()
    )
    return SlowLink(rank, strings[code], bandwidth, usual, by_source)


def _bandwidth(times: LinkTimes, rows: Bool) -> float:
    return float(times.size_bytes[rows].sum() / max(int(times.total_ns[rows].sum()), 1))


def _have_like_sizes(times: LinkTimes, some: Bool, others: Bool) -> bool:
    """Whether tasks move about as much; where nobody counted them, it is taken for granted."""
    sizes = []
    for rows in (some, others):
        count = int(times.count[rows].sum())
        if not count:
            return True
        sizes.append(times.size_bytes[rows].sum() / count)
    return bool(max(sizes) <= LIKE_SIZE * min(sizes))
