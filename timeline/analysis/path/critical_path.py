"""Critical path: the chain of segments across ranks that determined the duration of each step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from timeline.analysis.path.rank_path import PathItems, PathKind, RankPath
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.waits.waiting import OpArrivals, Waiting, op_arrivals
from timeline.columns.columns import Bool, Codes, Int64, Rows, column
from timeline.columns.distinct import distinct
from timeline.columns.group_by import group_by
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.not_given import NO_GRAPH, NO_ID, NO_TIME
from timeline.records.tables import Spans

_BOUNDARIES = 6
"""Number of times at which the path of an item is cut, from its end to the end of its predecessor.
"""
_VISITS = 1 << 16
"""Number of items of paths processed at a time, unless one path has more."""


class PathSteps(Spans):
    """Periods with a path of their own, in order of time, without overlaps: steps, or the whole.

    start_ns: last device end of the previous step, or first device start of the first step. end_ns:
    its own last device end. graph is NO_GRAPH and step NO_ID if there is none.
    """

    graph: Int64 = column(np.int64, NO_GRAPH)
    step: Int64 = column(np.int64, NO_ID)


class Segments(Spans):
    """Segments of paths in order of path, then time; those of a path follow without a gap.

    path: row of PathSteps. rank: NO_ID if unknown. profiled: whether it is among the ranks read.
    kind: a PathKind. name: item that ran or was waited for, or, on the host, the call that took
    most of the time. call_ns: time of that call in a host segment. line, line_ns: the line of code
    that took most of a host segment, and its time.
    """

    path: Codes = column(np.int32)
    rank: Int64 = column(np.int64)
    profiled: Bool = column(np.bool_, 1)
    kind: Codes = column(np.int32)
    name: Codes = column(np.int32, NO_NAME)
    call_ns: Int64 = column(np.int64, 0)
    line: Codes = column(np.int32, NO_NAME)
    line_ns: Int64 = column(np.int64, 0)


@dataclass(frozen=True)
class CriticalPath:
    """Critical path of each step; codes are positions in `strings`.

    on_disk: the ranks of the profile, read or not.
    """

    steps: PathSteps = field(default_factory=PathSteps.empty)
    segments: Segments = field(default_factory=Segments.empty)
    strings: tuple[str, ...] = ("",)
    on_disk: frozenset[int] = frozenset()

    def total_ns(self) -> Int64:
        """Return the length of the path of each step, (steps,)."""
        return self.steps.end_ns - self.steps.start_ns


@dataclass(frozen=True)
class PathRank:
    """One rank of a path: its number, its items, and the last arrivals at its ops."""

    rank: int
    path: RankPath
    arrivals: OpArrivals


def find_critical_path(ranks: Sequence[PathRank], steps: PathSteps) -> CriticalPath:
    """Trace the path from the end of each step back to the end of the step before.

    From the end of an item the path goes back to its start, in a collective only to the arrival of
    the last rank, where it continues on that rank. From the start of an item it continues at the
    cause of the start: the host, if the task was launched after the device was ready for it, else
    the previous item. A last rank that is not profiled accounts for all the time since the previous
    collective of its group. The segments of a step add up to the length of its path exactly.

    Args:
        ranks: on one clock.
        steps: periods of the paths.
    """
    if not len(steps) or not ranks:
        return CriticalPath()
    strings = StringPool()
    gathered = _Gathered.of(ranks, strings)
    walk = _Walk(ranks)
    segments = Segments.concat(
        gathered.segments(steps, first, visits) for first, visits in walk.all(steps)
    )
    assert int((segments.end_ns - segments.start_ns).sum()) == int(
        (steps.end_ns - steps.start_ns).sum()
    ), "segments are cut from the whole of each path"
    return CriticalPath(steps, segments, tuple(strings))


_ON = 0
"""The path continues at what the item waited for."""
_LEAVES = 1
"""The path continues at the rank that came last to the op."""
_NOT_PROFILED = 2
"""The op of the rank that came last is not among those read."""


@dataclass(frozen=True)
class _Visits:
    """Items of a path, last first: (v,) position of the rank, row, and how the path continues."""

    rank: Rows
    item: Rows
    way: Rows


class _Walk:
    """Trace of paths along items and from rank to rank, with lookups prepared once."""

    def __init__(self, ranks: Sequence[PathRank]) -> None:
        self._start_ns = [rank.path.items.start_ns for rank in ranks]
        by_end = [np.argsort(rank.path.items.end_ns, kind="stable") for rank in ranks]
        self._by_end = by_end
        self._end_ns = [
            rank.path.items.end_ns[order] for rank, order in zip(ranks, by_end, strict=True)
        ]
        self._ends_ns = [rank.path.items.end_ns for rank in ranks]
        self._before: list[list[int]] = [rank.path.items.before.tolist() for rank in ranks]
        items = [_items_of_collectives(rank) for rank in ranks]
        self._others = [_others(at, rank, items) for at, rank in enumerate(ranks)]
        self._unprofiled = [
            _after_unprofiled(rank, rank_items)
            for rank, rank_items in zip(ranks, items, strict=True)
        ]

    def all(self, steps: PathSteps) -> Iterator[tuple[int, list[_Visits]]]:
        """Yield batches of the paths of consecutive steps, with the first step of each."""
        first, visits, count = 0, list[_Visits](), 0
        spans = zip(steps.start_ns.tolist(), steps.end_ns.tolist(), strict=True)
        for path, (start_ns, end_ns) in enumerate(spans):
            visits.append(self.back(start_ns, end_ns))
            count += len(visits[-1].item)
            if count >= _VISITS:
                yield first, visits
                first, visits, count = path + 1, [], 0
        if visits:
            yield first, visits

    def back(self, start_ns: int, end_ns: int) -> _Visits:
        """Return the items on the path from one time back to an earlier one.

        Within a rank the path only goes to earlier items, even when it returns to the rank, so that
        it ends regardless of the clocks.
        """
        at, item = self._last_item(end_ns)
        lowest = [len(items) for items in self._before]
        first = [int(np.searchsorted(rows, start_ns, side="right")) for rows in self._start_ns]
        ranks, items, ways = list[int](), list[int](), list[int]()

        def visit(way: int) -> None:
            lowest[at] = item
            ranks.append(at)
            items.append(item)
            ways.append(way)

        while item >= 0:
            other = self._others[at].get(item)
            if other is not None and other[1] < lowest[other[0]]:
                visit(_LEAVES)
                at, item = other
            elif item in self._unprofiled[at]:
                visit(_NOT_PROFILED)
                item = self._unprofiled[at][item]
                if item >= 0 and int(self._ends_ns[at][item]) <= start_ns:
                    break
                continue
            visit(_ON)
            if item < first[at]:
                break
            item = self._before[at][item]
        return _Visits(*(np.array(column, np.intp) for column in (ranks, items, ways)))

    def _last_item(self, end_ns: int) -> tuple[int, int]:
        """Return the rank and the row of the item that ended last by a time; NO_ID for none."""
        last, last_ns = (0, NO_ID), NO_TIME
        for at, (ends_ns, order) in enumerate(zip(self._end_ns, self._by_end, strict=True)):
            row = int(np.searchsorted(ends_ns, end_ns, side="right")) - 1
            if row >= 0 and int(ends_ns[row]) > last_ns:
                last, last_ns = (at, int(order[row])), int(ends_ns[row])
        return last


def _items_of_collectives(rank: PathRank) -> Rows:
    """Return the item of each collective of a rank, NO_ID for none."""
    collective = rank.path.items.collective
    item = np.full(len(rank.arrivals), NO_ID, np.intp)
    rows = np.flatnonzero(collective != NO_ID)
    item[collective[rows]] = rows
    return item


def _others(own: int, rank: PathRank, items: Sequence[Rows]) -> dict[int, tuple[int, int]]:
    """Map the item of each op that another rank came last to, to that rank and its item."""
    arrivals = rank.arrivals
    others = {}
    for row in np.flatnonzero((arrivals.last != NO_ID) & (arrivals.last != own)).tolist():
        at = int(arrivals.last[row])
        item, other = int(items[own][row]), int(items[at][arrivals.last_row[row]])
        if item >= 0 and other >= 0:
            others[item] = (at, other)
    return others


def _after_unprofiled(rank: PathRank, items: Rows) -> dict[int, int]:
    """Map the item of each op with an unprofiled last rank to the previous op of the group.

    NO_ID if there is none.
    """
    arrivals = rank.arrivals
    previous = {}
    for row in np.flatnonzero(arrivals.last == NO_ID).tolist():
        item, before = int(items[row]), int(arrivals.before[row])
        if item >= 0:
            earlier = int(items[before]) if before != NO_ID else NO_ID
            previous[item] = earlier if earlier < item else NO_ID
    return previous


@dataclass(frozen=True)
class _Gathered:
    """Concatenated items of all ranks, with names in one pool.

    first: (ranks,) offset of each rank; ranks: (ranks,) their numbers. For ops, arrived_ns is the
    arrival of the last rank, last_rank its number, and group_before_ns the end of the previous op
    of the group.
    """

    ranks: Int64
    first: Rows
    items: PathItems
    arrived_ns: Int64
    last_rank: Int64
    group_before_ns: Int64

    @classmethod
    def of(cls, ranks: Sequence[PathRank], strings: StringPool) -> _Gathered:
        sizes = [len(rank.path.items) for rank in ranks]
        every = PathItems.concat([_renamed(rank.path, strings) for rank in ranks])
        arrived_ns = every.start_ns.copy()
        last_rank = np.full(len(every), NO_ID, np.int64)
        group_before_ns = np.full(len(every), NO_TIME, np.int64)
        first = np.cumsum([0, *sizes[:-1]])
        for rank, begin in zip(ranks, first.tolist(), strict=True):
            items = _items_of_collectives(rank)
            ops = np.flatnonzero(items != NO_ID)
            rows, arrivals = begin + items[ops], rank.arrivals.take(ops)
            arrived_ns[rows] = arrivals.arrived_ns
            last_rank[rows] = arrivals.last_rank
            before = arrivals.before != NO_ID
            earlier = items[arrivals.before[before]]
            group_before_ns[rows[before]] = np.where(
                earlier != NO_ID, every.end_ns[begin + earlier], NO_TIME
            )
        numbers = np.array([rank.rank for rank in ranks], np.int64)
        return cls(numbers, first, every, arrived_ns, last_rank, group_before_ns)

    def segments(self, steps: PathSteps, first: int, visits: Sequence[_Visits]) -> Segments:
        """Cut the time of paths at the times at which their items change phase.

        first: step of the first path; the next ones follow.
        """
        counts = np.array([len(one.item) for one in visits], np.int64)
        paths = first + np.arange(len(visits))
        # From the last time of all back to the first.
        backwards = visits[::-1]
        rank = np.concatenate([one.rank for one in backwards])
        row = self.first[rank] + np.concatenate([one.item for one in backwards])
        way = np.concatenate([one.way for one in backwards])
        path = np.repeat(paths[::-1], counts[::-1])
        ends = np.cumsum(counts[::-1])
        begins = (ends - counts[::-1])[counts[::-1] > 0]
        items = self.items.take(row)
        cuts_ns, kinds = self._cuts_ns(row, way, items)
        start_ns, end_ns = steps.start_ns[path], steps.end_ns[path]
        # The part before the first cut of a path belongs to its first item.
        cuts_ns[:, 0] = end_ns
        cuts_ns[begins, 0] = items.end_ns[begins]
        np.clip(cuts_ns, start_ns[:, None], end_ns[:, None], out=cuts_ns)
        upto_ns = np.minimum.accumulate(cuts_ns.reshape(-1))
        from_ns = np.concatenate([end_ns[:1], upto_ns[:-1]])
        from_ns[begins * _BOUNDARIES] = end_ns[begins]
        kept = np.flatnonzero(from_ns > upto_ns)[::-1]
        visit = kept // _BOUNDARIES
        kind = kinds.reshape(-1)[kept].astype(np.int32)
        on_host, unknown = kind == PathKind.HOST, kind == PathKind.NOT_PROFILED
        length_ns = from_ns[kept] - upto_ns[kept]
        segments = Segments(
            upto_ns[kept],
            from_ns[kept],
            path[visit].astype(np.int32),
            np.where(unknown, self.last_rank[row[visit]], self.ranks[rank[visit]]),
            ~unknown | np.isin(self.last_rank[row[visit]], self.ranks),
            kind,
            np.where(on_host, items.call[visit], items.name[visit]),
            np.where(on_host, np.minimum(items.call_ns[visit], length_ns), 0),
            np.where(on_host, items.line[visit], np.int32(NO_NAME)),
            np.where(on_host, np.minimum(items.line_ns[visit], length_ns), 0),
        )
        if counts.all():
            return segments
        segments = Segments.concat([segments, self._unknown(steps, paths[counts == 0])])
        return segments.take(np.argsort(segments.path, kind="stable"))

    def _cuts_ns(
        self, row: Rows, way: Rows, items: PathItems
    ) -> tuple[Int64, npt.NDArray[np.int64]]:
        """Return the times at which each item's path is cut, and the PathKind before each.

        Both are (v, boundaries), times descending. If the path leaves an item earlier, the
        remaining times equal its last one.
        """
        has_before = items.before != NO_ID
        before = np.where(has_before, row - self._own(row) + items.before, 0)
        goes_on = way == _ON
        cuts_ns = np.empty((len(row), _BOUNDARIES), np.int64)
        arrived_ns = np.where(goes_on, items.start_ns, self.arrived_ns[row])
        cuts_ns[:, 0] = items.end_ns
        cuts_ns[:, 1] = arrived_ns
        cuts_ns[:, 2] = np.where(goes_on, items.launch_ns, arrived_ns)
        cuts_ns[:, 3] = np.where(goes_on, items.asked_ns, arrived_ns)
        cuts_ns[:, 4] = np.where(goes_on, items.host_ns, arrived_ns)
        before_ns = np.where(has_before, self.items.end_ns[before], NO_TIME)
        since_ns = np.where(way == _NOT_PROFILED, self.group_before_ns[row], arrived_ns)
        cuts_ns[:, 5] = np.where(goes_on, before_ns, since_ns)
        kinds = np.empty((len(row), _BOUNDARIES), np.int64)
        kinds[:, 0] = PathKind.BETWEEN_TASKS
        kinds[:, 1] = items.kind
        kinds[:, 2:5] = [PathKind.LAUNCH, PathKind.QUEUED, PathKind.HOST]
        kinds[:, 5] = np.where(goes_on, PathKind.BETWEEN_TASKS, PathKind.NOT_PROFILED)
        return cuts_ns, kinds

    def _own(self, row: Rows) -> Rows:
        rank = np.searchsorted(self.first, row, side="right") - 1
        own: Rows = row - self.first[rank]
        return own

    def _unknown(self, steps: PathSteps, paths: Rows) -> Segments:
        """Return the only segment of each path without any item."""
        some = paths[steps.end_ns[paths] > steps.start_ns[paths]]
        return Segments.of(
            len(some),
            {
                "start_ns": steps.start_ns[some],
                "end_ns": steps.end_ns[some],
                "path": some,
                "rank": np.full(len(some), self.ranks[0]),
                "kind": np.full(len(some), PathKind.BETWEEN_TASKS),
            },
        )


def _renamed(path: RankPath, strings: StringPool) -> PathItems:
    codes = strings.codes(path.strings)
    items = path.items
    columns = {name: getattr(items, name) for name in items.__dataclass_fields__}
    coded = {name: codes[columns[name]] for name in ("name", "call", "line")}
    return PathItems(**columns | coded)


def critical_path(facts: Sequence[RankFacts], waiting: Waiting) -> CriticalPath:
    """Return the critical path of each step of ranks on one clock."""
    arrivals = op_arrivals([rank.collectives for rank in facts], waiting)
    ranks = [
        PathRank(rank.rank, rank.path, own_arrivals)
        for rank, own_arrivals in zip(facts, arrivals, strict=True)
    ]
    return find_critical_path(ranks, path_steps(facts))


def path_steps(facts: Sequence[RankFacts]) -> PathSteps:
    """Return the periods of paths: each step with device tasks, or the whole if there are no steps.

    Steps are matched by number, and also by graph if a rank has several. The path of a step begins
    at the end of the step that ended before it. If it is the first, or the step before is not
    selected, it begins no earlier than its own first device start.
    """
    keys, start_ns, end_ns = _spans(facts)
    if not len(start_ns):
        return _whole(facts)
    groups = group_by(len(start_ns), keys)
    first_ns, last_ns = groups.least(start_ns), groups.greatest(end_ns)
    graph, step = keys[0][groups.first], keys[1][groups.first]
    order = np.lexsort((first_ns, last_ns))
    first_ns, last_ns, graph, step = first_ns[order], last_ns[order], graph[order], step[order]
    follows = _follows(facts, step)
    before_ns = np.concatenate([first_ns[:1], last_ns[:-1]])
    since_ns = np.where(follows, before_ns, np.maximum(before_ns, first_ns))
    return PathSteps(since_ns, last_ns, graph, step)


def _spans(facts: Sequence[RankFacts]) -> tuple[list[Int64], Int64, Int64]:
    nothing = [np.empty(0, np.int64)]
    several = any(len(distinct(rank.steps.graph)) > 1 for rank in facts)
    known = [rank.device_start_ns != NO_TIME for rank in facts]
    graphs, steps, start_ns, end_ns = (
        np.concatenate([nothing[0], *columns])
        for columns in (
            [rank.steps.graph[rows] for rank, rows in zip(facts, known, strict=True)],
            [rank.steps.iteration[rows] for rank, rows in zip(facts, known, strict=True)],
            [rank.device_start_ns[rows] for rank, rows in zip(facts, known, strict=True)],
            [rank.device_end_ns[rows] for rank, rows in zip(facts, known, strict=True)],
        )
    )
    if not several and len(distinct(graphs)) > 1:
        # Each rank numbers its graphs independently.
        graphs = np.full(len(graphs), NO_GRAPH, np.int64)
    return [graphs, steps], start_ns, end_ns


def _follows(facts: Sequence[RankFacts], step: Int64) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return a mask of steps whose preceding step, by number, is also selected."""
    every = np.array(sorted({number for rank in facts for number in rank.profile.steps}), np.int64)
    at = np.searchsorted(every, step)
    before = np.where(at > 0, every[np.maximum(at - 1, 0)], NO_ID) if len(every) else step
    follows: np.ndarray[tuple[int], np.dtype[np.bool_]] = np.isin(before, step)
    return follows


def _whole(facts: Sequence[RankFacts]) -> PathSteps:
    """Return one period from the first start to the last end of work on any device."""
    spans = [rank.path.span_ns for rank in facts if rank.path.span_ns is not None]
    if not spans:
        return PathSteps.empty()
    first_ns, last_ns = min(span[0] for span in spans), max(span[1] for span in spans)
    return PathSteps.of(1, {"start_ns": [first_ns], "end_ns": [last_ns]})
