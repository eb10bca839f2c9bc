"""Turns HCCL tasks into how much each link between two ranks moved, and how fast."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from timeline.records.columns import Bool, Codes, Columns, Int64, column
from timeline.records.strings import StringPool
from timeline.records.tables import NO_RANK, Records

__all__ = ["LinkTimes", "RankLinks", "rank_links"]


@dataclass(frozen=True)
class LinkTimes(Columns):
    """One row per link: from which rank to which, over what, and what its tasks moved."""

    source_rank: Int64 = column(np.int64)
    target_rank: Int64 = column(np.int64)
    link: Codes = column(np.int32)
    count: Int64 = column(np.int64)
    size_bytes: Int64 = column(np.int64)
    total_ns: Int64 = column(np.int64)


@dataclass(frozen=True)
class RankLinks:
    """The links that one rank used; codes are positions in `strings`."""

    strings: tuple[str, ...] = ("",)
    times: LinkTimes = field(default_factory=LinkTimes.empty)


def rank_links(records: Records) -> RankLinks:
    """Sum up the HCCL tasks that move data from one rank to another."""
    planes = records.planes
    moving = (
        (planes.size_bytes > 0)
        & _is_rank(planes.source_rank)
        & _is_rank(planes.target_rank)
        & (planes.source_rank != planes.target_rank)
    )
    own = planes.take(moving)
    if not len(own):
        return RankLinks()
    strings = StringPool()
    # The name of the link where it is given, else of what carries it.
    link = strings.translated(np.where(own.link != 0, own.link, own.transport), records.strings)
    keys = np.stack([own.source_rank, own.target_rank, link.astype(np.int64)])
    order = np.lexsort(keys[::-1])
    opens = np.ones(len(order), np.bool_)
    opens[1:] = (np.diff(keys[:, order], axis=1) != 0).any(axis=0)
    first = np.flatnonzero(opens)
    times = LinkTimes(
        own.source_rank[order][first],
        own.target_rank[order][first],
        link[order][first],
        np.diff(np.append(first, len(order))),
        np.add.reduceat(own.size_bytes[order], first),
        np.add.reduceat((own.end_ns - own.start_ns)[order], first),
    )
    return RankLinks(tuple(strings), times)


def _is_rank(ids: Int64) -> Bool:
    known: Bool = (ids >= 0) & (ids != NO_RANK)
    return known
