"""How much each link between two ranks moved, and how fast."""

from __future__ import annotations

from dataclasses import field, replace

import numpy as np

from timeline.analysis.waits.group_members import unknown_groups
from timeline.columns.chunks import chunks
from timeline.columns.columns import Codes, ColumnTable, Int64, column
from timeline.columns.group_by import group_by
from timeline.columns.strings import NO_NAME, StringPool
from timeline.frozen import dataclass
from timeline.records.not_given import NO_ID
from timeline.records.profiler_tables import LinkSums
from timeline.records.tables import Records

__all__ = ["LinkTimes", "RankLinks", "rank_links"]


class LinkTimes(ColumnTable):
    """One row per link: from which rank to which, over what, and what its tasks moved.

    count: 0 where only sums of them are known. group: that which ranks are numbers of, where there
    are several of unknown members; NO_NAME where ranks are numbers among all.
    """

    source_rank: Int64 = column(np.int64)
    target_rank: Int64 = column(np.int64)
    link: Codes = column(np.int32)
    count: Int64 = column(np.int64)
    size_bytes: Int64 = column(np.int64)
    total_ns: Int64 = column(np.int64)
    group: Codes = column(np.int32, NO_NAME)


@dataclass(frozen=True, slots=True)
class RankLinks:
    """The links that one rank used; codes are positions in `strings`.

    in_groups: whether ranks are numbers inside groups that nothing names, so that those of several
    ranks are not the same links, and a link from a rank to itself may be one.
    """

    strings: tuple[str, ...] = ("",)
    times: LinkTimes = field(default_factory=LinkTimes.empty)
    in_groups: bool = False


def rank_links(records: Records, steps: frozenset[int] | None, *, whole: bool) -> RankLinks:
    """Sum up the HCCL tasks that move data from one rank to another.

    Where there are none, the profiler's own sums stand for them: the matrix of links that it writes
    beside a trace, or else those of MindSpore's hccl_raw.

    Args:
        steps: those that are selected, None for all.
        whole: whether steps are selected as a whole, as the profiler sums them up.
    """
    links = _of_tasks(records)
    for read in (_of_profiler, _of_hccl_raw) if whole else ():
        links = links if len(links.times) else read(records, steps)
    return links


def _of_hccl_raw(records: Records, steps: frozenset[int] | None) -> RankLinks:
    tables, strings = records.profiler_tables.selected(steps, None), StringPool()
    links = tables.of(LinkSums)
    times = LinkTimes(
        links.source_rank,
        links.target_rank,
        strings.translate(links.link, tables.strings),
        np.zeros(len(links), np.int64),
        links.size_bytes,
        links.total_ns,
        np.full(len(links), NO_NAME, np.int32),
    )
    return RankLinks(tuple(strings), _summed(times), in_groups=True)


def _of_profiler(records: Records, steps: frozenset[int] | None) -> RankLinks:
    links, strings = records.vendor_links, StringPool()
    if steps is not None:
        links = links.take(np.isin(links.step, np.fromiter(steps, np.int64)))
    apart = _apart(unknown_groups(records, links.group), links.group)
    times = LinkTimes(
        links.source_rank,
        links.target_rank,
        strings.translate(links.link, records.strings),
        np.zeros(len(links), np.int64),
        links.size_bytes,
        links.total_ns,
        strings.translate(apart, records.strings),
    )
    return RankLinks(tuple(strings), _summed(times))


def _of_tasks(records: Records) -> RankLinks:
    planes, strings = records.planes, StringPool()
    unknown = unknown_groups(records, planes.group)
    parts = []
    for chunk in chunks(len(planes)):
        moving = (
            (planes.size_bytes[chunk] > 0)
            & (planes.source_rank[chunk] != NO_ID)
            & (planes.target_rank[chunk] != NO_ID)
            & (planes.source_rank[chunk] != planes.target_rank[chunk])
        )
        rows = np.flatnonzero(moving) + chunk.start
        # The name of the link where it is given, else of what carries it.
        named, carrier = planes.link[rows], planes.transport[rows]
        link = strings.translate(np.where(named != NO_NAME, named, carrier), records.strings)
        parts.append(
            _summed(
                LinkTimes(
                    planes.source_rank[rows],
                    planes.target_rank[rows],
                    link,
                    np.ones(len(rows), np.int64),
                    planes.size_bytes[rows],
                    planes.end_ns[rows] - planes.start_ns[rows],
                    strings.translate(_apart(unknown, planes.group[rows]), records.strings),
                )
            )
        )
    return RankLinks(tuple(strings), _summed(LinkTimes.concat(parts)))


def _apart(unknown: Codes, group: Codes) -> Codes:
    """The group of each row that must be told apart: of several groups of unknown members."""
    return np.where(np.isin(group, unknown) & (len(unknown) > 1), group, np.int32(NO_NAME))


def _summed(times: LinkTimes) -> LinkTimes:
    """Times of links, summed to one row for each link."""
    groups = group_by(len(times), [times.source_rank, times.target_rank, times.link, times.group])
    return replace(
        times.take(groups.first),
        count=groups.sum(times.count),
        size_bytes=groups.sum(times.size_bytes),
        total_ns=groups.sum(times.total_ns),
    )
