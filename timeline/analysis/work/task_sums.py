"""Sums of HCCL tasks and copies, by kind of task and by link."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from timeline.analysis.steps import ops_of_planes
from timeline.analysis.waits.group_members import unknown_groups
from timeline.columns.chunks import chunks
from timeline.columns.columns import Bool, Codes, ColumnTable, Int64, column
from timeline.columns.distinct import distinct
from timeline.columns.group_by import group_numbers, sum_rows
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.not_given import NO_ID
from timeline.records.profiler_tables import LinkSums
from timeline.records.tables import PlaneTasks, Records, Tasks
from timeline.records.task_kinds import collective_kind


class TaskTimes(ColumnTable):
    """Sums of device tasks that move, reduce or notify, one row per kind.

    hccl: True for HCCL tasks, False for copies or fills of memory. collective: kind of the
    collective of an HCCL task, NO_NAME if unknown. task: name, such as Notify_Wait. size_bytes:
    bytes moved, of tasks with a known size.
    """

    hccl: Bool = column(np.bool_)
    collective: Codes = column(np.int32, NO_NAME)
    task: Codes = column(np.int32)
    count: Int64 = column(np.int64)
    total_ns: Int64 = column(np.int64)
    size_bytes: Int64 = column(np.int64)


@dataclass(frozen=True)
class TaskSums:
    """HCCL tasks and copies of one rank; codes are positions in `strings`."""

    strings: tuple[str, ...] = ("",)
    times: TaskTimes = field(default_factory=TaskTimes.empty)


def sum_tasks(records: Records) -> TaskSums:
    """Sum HCCL tasks by kind of collective and name, and copies by name."""
    strings = StringPool()
    times = TaskTimes.concat([_hccl_times(records, strings), _copy_times(records, strings)])
    return TaskSums(tuple(strings), times)


def _hccl_times(records: Records, strings: StringPool) -> TaskTimes:
    planes = records.planes
    return _summed(
        strings.translate(_op_names(records), records.strings, collective_kind),
        strings.translate(planes.name, records.strings),
        planes.end_ns - planes.start_ns,
        planes.size_bytes,
        hccl=True,
    )


def _copy_times(records: Records, strings: StringPool) -> TaskTimes:
    copies = records.tasks.take(records.tasks.copy)
    copies = copies.take(~are_hccl_tasks(copies, records.planes))
    named = np.where(copies.name == NO_NAME, copies.task_type, copies.name)
    return _summed(
        np.full(len(copies), NO_NAME, np.int32),
        strings.translate(named, records.strings),
        copies.end_ns - copies.start_ns,
        copies.size_bytes,
        hccl=False,
    )


def are_hccl_tasks(tasks: Tasks, planes: PlaneTasks) -> Bool:
    """Return a mask of the tasks that duplicate HCCL tasks, with the same interval."""
    start_ns = np.concatenate([planes.start_ns, tasks.start_ns])
    end_ns = np.concatenate([planes.end_ns, tasks.end_ns])
    interval = group_numbers(len(start_ns), [start_ns, end_ns])
    are_duplicates: Bool = np.isin(interval[len(planes) :], interval[: len(planes)])
    return are_duplicates


def _summed(
    collective: Codes, task: Codes, lengths_ns: Int64, size_bytes: Int64, *, hccl: bool
) -> TaskTimes:
    sizes_bytes = np.where(size_bytes == NO_ID, 0, size_bytes)
    count = len(task)
    of_kind, once = np.full(count, hccl), np.ones(count, np.int64)
    every = TaskTimes(of_kind, collective, task, once, lengths_ns, sizes_bytes)
    return sum_rows(every, ("collective", "task"), ("count", "total_ns", "size_bytes"))[0]


def _op_names(records: Records) -> Codes:
    """Return the op name of each HCCL task: as given, else of the op of its group running then."""
    planes, ops = records.planes, records.ops
    names = planes.op.copy()
    without = np.flatnonzero(names == NO_NAME)
    names[without] = np.append(ops.name, np.int32(NO_NAME))[ops_of_planes(records, without)]
    return names


class LinkTimes(ColumnTable):
    """Sums of tasks that move data, one row per link: source, target and kind of link.

    count: 0 if only sums are known. group: group within which ranks are numbered, if there are
    several groups with unknown members; NO_NAME if ranks are global. small_count: number of tasks
    that move less than LARGE_BYTES, or LARGE_RDMA_BYTES over a network.
    """

    source_rank: Int64 = column(np.int64)
    target_rank: Int64 = column(np.int64)
    link: Codes = column(np.int32)
    count: Int64 = column(np.int64)
    size_bytes: Int64 = column(np.int64)
    total_ns: Int64 = column(np.int64)
    group: Codes = column(np.int32, NO_NAME)
    small_count: Int64 = column(np.int64, 0)


LARGE_BYTES, LARGE_RDMA_BYTES = 16_000_000, 1_000_000
"""Sizes from which a transfer uses the bandwidth of a link, within a machine and over a network."""
_NETWORK = re.compile(r"RDMA|RoCE", re.I)
"""Names of links over a network."""


@dataclass(frozen=True, slots=True)
class RankLinks:
    """Links used by one rank; codes are positions in `strings`.

    in_groups: whether ranks are numbered within unnamed groups. If so, equal numbers on several
    ranks do not mean the same link, and a link may seem to lead from a rank to itself.
    """

    strings: tuple[str, ...] = ("",)
    times: LinkTimes = field(default_factory=LinkTimes.empty)
    in_groups: bool = False


def rank_links(records: Records, steps: frozenset[int] | None, *, whole: bool) -> RankLinks:
    """Sum the HCCL tasks that move data between ranks.

    If there are none, the profiler's own sums are used: the link matrix beside a trace, or else
    MindSpore's hccl_raw.

    Args:
        steps: selected steps, None for all.
        whole: whether whole steps are selected, as in the profiler's sums.
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
        np.zeros(len(links), np.int64),
    )
    return RankLinks(tuple(strings), _sum_links(times), in_groups=True)


def _of_profiler(records: Records, steps: frozenset[int] | None) -> RankLinks:
    links, strings = records.vendor_links, StringPool()
    if steps is not None:
        links = links.take(np.isin(links.step, np.fromiter(steps, np.int64)))
    group = _ambiguous_groups(unknown_groups(records, links.group), links.group)
    times = LinkTimes(
        links.source_rank,
        links.target_rank,
        strings.translate(links.link, records.strings),
        np.zeros(len(links), np.int64),
        links.size_bytes,
        links.total_ns,
        strings.translate(group, records.strings),
        np.zeros(len(links), np.int64),
    )
    return RankLinks(tuple(strings), _sum_links(times))


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
        # The name of the link if given, else of its transport.
        named, carrier = planes.link[rows], planes.transport[rows]
        link = strings.translate(np.where(named != NO_NAME, named, carrier), records.strings)
        networks = [code for code in distinct(link).tolist() if _NETWORK.search(strings[code])]
        large_bytes = np.where(np.isin(link, networks), LARGE_RDMA_BYTES, LARGE_BYTES)
        parts.append(
            _sum_links(
                LinkTimes(
                    planes.source_rank[rows],
                    planes.target_rank[rows],
                    link,
                    np.ones(len(rows), np.int64),
                    planes.size_bytes[rows],
                    planes.end_ns[rows] - planes.start_ns[rows],
                    strings.translate(
                        _ambiguous_groups(unknown, planes.group[rows]), records.strings
                    ),
                    (planes.size_bytes[rows] < large_bytes).astype(np.int64),
                )
            )
        )
    return RankLinks(tuple(strings), _sum_links(LinkTimes.concat(parts)))


def _ambiguous_groups(unknown: Codes, group: Codes) -> Codes:
    """Return the group of each row if there are several groups of unknown members, else NO_NAME."""
    return np.where(np.isin(group, unknown) & (len(unknown) > 1), group, np.int32(NO_NAME))


def _sum_links(times: LinkTimes) -> LinkTimes:
    keys = ("source_rank", "target_rank", "link", "group")
    return sum_rows(times, keys, ("count", "size_bytes", "total_ns", "small_count"))[0]
