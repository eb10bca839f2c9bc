"""Replay: what a run would take if a rank computed as fast as the others, by playing it again.

An estimate: it holds as far as a run keeps to the rules below, which real ones do only about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from timeline.analysis.path.op_arrivals import OpArrivals
from timeline.analysis.path.path_items import PathKind
from timeline.analysis.path.replay_items import RankReplay, ReplayItems, Synchronisations
from timeline.analysis.waits.shared_ops import Segments
from timeline.columns.columns import Bool, Codes, Int64, Rows
from timeline.columns.group_by import group_by
from timeline.columns.strings import StringPool
from timeline.frozen import dataclass
from timeline.records.not_given import NO_ID, NO_TIME

__all__ = ["Replay", "ReplayedRank", "estimate_gain_ns"]

LEAST_LAG_NS = 3_000
"""What lies at most between the end of something and the start of what needs it, where something
else was later as recorded."""
_NEVER = -(1 << 62)


@dataclass(frozen=True)
class ReplayedRank:
    """One rank of a run: what it did, and who came last to its ops."""

    run: RankReplay
    arrivals: OpArrivals


def estimate_gain_ns(ranks: Sequence[ReplayedRank], faster: int) -> int | None:
    """How much earlier a run would end if a rank were as fast as the median of the others.

    Each compute task takes the median of what tasks of the same name and turn take on other ranks,
    if that is shorter, and so does what its host does between two launches. All else goes on by the
    rules of `Replay`.

    Args:
        ranks: on one clock.
        faster: position of the rank.

    Returns:
        None where a rank came last to some op that is not profiled: nothing tells when it would
        have come; and where there is no other rank.
    """
    if len(ranks) < 2 or any((rank.arrivals.last == NO_ID).any() for rank in ranks):
        return None
    replay = Replay(ranks)
    length_ns = replay.length_ns.copy()
    begin = int(replay.first[faster])
    own = slice(begin, begin + len(ranks[faster].run.items))
    matches = _Matches.of(ranks, faster)
    length_ns[own] = _lengths_like_others(ranks, matches)
    sooner = _launched_sooner(ranks, matches)
    ends_ns = replay.ends_ns(length_ns, faster, sooner)
    return int(replay.end_ns.max(initial=0)) - int(ends_ns.max(initial=0))


class Replay:
    """A run as a net of what waits for what, which can be played again with other lengths.

    An item starts when the item before it on the device has ended and its launch call has returned,
    at the lag that was recorded for the later of them and at LEAST_LAG_NS or less for the other. A
    collective ends on each rank as long after its last arrival as recorded. A host goes on at its
    own pace, from each call in which it waited for an item to end. With the recorded lengths the
    run ends as recorded, to the nanosecond.

    length_ns, end_ns: (n,) of the items of all ranks, one rank after the other; first: (ranks,) the
    first item of each.
    """

    def __init__(self, ranks: Sequence[ReplayedRank]) -> None:
        sizes = [len(rank.run.items) for rank in ranks]
        calls = [len(rank.run.waits) for rank in ranks]
        self.first = np.cumsum([0, *sizes])[:-1]
        self._first_call = first_call = np.cumsum([0, *calls])[:-1]
        items = ReplayItems.concat([rank.run.items for rank in ranks])
        waits = Synchronisations.concat([rank.run.waits for rank in ranks])
        self.end_ns = items.end_ns
        self.length_ns = items.end_ns - items.start_ns
        self._starts = _Starts.of(
            items,
            waits,
            _placed(items.before, np.repeat(self.first, sizes)),
            _placed(items.host_since, np.repeat(first_call, sizes)),
        )
        self._ends = _Ends.of(items, ranks, self.first)
        self._calls = _Calls.of(
            items,
            waits,
            _placed(waits.item, np.repeat(self.first, calls)),
            _placed(waits.before, np.repeat(first_call, calls)),
        )
        self._recorded_calls = waits.end_ns.tolist()
        self._events = self._in_order(items, waits)

    def _in_order(self, items: ReplayItems, waits: Synchronisations) -> list[int]:
        """What happens, in order of time: items that start, ops that end, calls that return.

        Numbered in this order; at one moment, ends come before what they let start.
        """
        ops = self._ends.items
        moments = np.concatenate([items.start_ns, self._ends.moments_ns, waits.end_ns])
        ends = np.where(self._ends.moments_ns > items.start_ns[ops], 0, 3)
        phase = np.concatenate([np.full(len(items), 2), ends, np.full(len(waits), 1, np.int64)])
        order: list[int] = np.lexsort((phase, moments)).tolist()
        return order

    def ends_ns(self, length_ns: Int64, faster: int = 0, sooner: _Sooner | None = None) -> Int64:
        """When the items end if each takes so long, (n,); ops take what their members make of it.

        length_ns: (n,). sooner: by how much less the host of the rank `faster` takes.
        """
        items, ops = len(length_ns), len(self._ends.items)
        lengths = length_ns.tolist()
        # Where a place is NO_ID, which is -1, the last element counts.
        ends = [*self.end_ns.tolist(), _NEVER]
        returned = [*self._recorded_calls, 0]
        came = [_NEVER] * self._ends.groups
        starts, calls = self._starts, self._calls
        if sooner is not None:
            starts = starts.sooner(int(self.first[faster]), sooner.launch_ns)
            calls = calls.sooner(int(self._first_call[faster]), sooner.call_ns)
        op_item, op_group = self._ends.items.tolist(), self._ends.group.tolist()
        transfers = self._ends.transfer_ns.tolist()
        group_of = self._ends.group_of_items(items)
        for event in self._events:
            if event < items:
                start = max(
                    ends[starts.before[event]] + starts.after_item[event],
                    returned[starts.since[event]] + starts.after_launch[event],
                )
                group = group_of[event]
                if group < 0:
                    ends[event] = start + lengths[event]
                elif start > came[group]:
                    came[group] = start
            elif event < items + ops:
                op = event - items
                ends[op_item[op]] = came[op_group[op]] + transfers[op]
            else:
                call = event - items - ops
                returned[call] = max(
                    returned[calls.before[call]] + calls.after_call[call],
                    ends[calls.item[call]] + calls.after_item[call],
                )
        return np.array(ends[:-1], np.int64)


def _placed(rows: Codes, first: Rows) -> Rows:
    """Rows of ranks as rows of all, NO_ID where there is none."""
    return np.where(rows != NO_ID, rows + first, NO_ID)


@dataclass(frozen=True)
class _Starts:
    """What each item starts after: the item before, and the last call that waited, and how long.

    What there is none of is at NO_ID; with no such call, after_launch is a moment.
    """

    before: list[int]
    after_item: list[int]
    since: list[int]
    after_launch: list[int]

    @classmethod
    def of(cls, items: ReplayItems, waits: Synchronisations, before: Rows, since: Rows) -> _Starts:
        has_launch = items.launched_ns != NO_TIME
        ready_ns = np.append(items.end_ns, _NEVER)[before]
        launched_ns = np.where(has_launch, items.launched_ns, _NEVER)
        later_ns = np.maximum(ready_ns, launched_ns)
        after_item, after_launch = (
            np.where(
                moment_ns == later_ns,
                items.start_ns - moment_ns,
                np.minimum(items.start_ns - moment_ns, LEAST_LAG_NS),
            )
            for moment_ns in (ready_ns, launched_ns)
        )
        since_ns = np.append(waits.end_ns, 0)[since]
        after_launch = np.where(has_launch, launched_ns - since_ns + after_launch, _NEVER)
        # What waits for nothing that is known starts when it did.
        free = ~has_launch & (before == NO_ID)
        after_launch = np.where(free, items.start_ns, after_launch)
        return cls(
            before.tolist(),
            np.where(before == NO_ID, 0, after_item).tolist(),
            since.tolist(),
            after_launch.tolist(),
        )

    def sooner(self, first: int, launch_ns: Int64) -> _Starts:
        """The same, with some items from `first` on launched so much sooner."""
        after = np.array(self.after_launch, np.int64)
        after[first : first + len(launch_ns)] -= launch_ns
        return replace(self, after_launch=after.tolist())


@dataclass(frozen=True)
class _Ends:
    """The ends of communication ops, (k,) each: the item, its op, and how long after all came.

    moments_ns: when all that the end depends on has happened. groups: how many ops there are.
    """

    items: Rows
    group: Rows
    transfer_ns: Int64
    moments_ns: Int64
    groups: int

    @classmethod
    def of(cls, items: ReplayItems, ranks: Sequence[ReplayedRank], first: Rows) -> _Ends:
        rows = np.flatnonzero(items.collective != NO_ID)
        arrivals = OpArrivals.concat(
            [
                rank.arrivals.take(rank.run.items.collective[rank.run.items.collective != NO_ID])
                for rank in ranks
            ]
        )
        # The members of an op have the same last one; of one that is not profiled nothing is known.
        own = np.searchsorted(first, rows, side="right") - 1
        known = arrivals.last != NO_ID
        last = np.where(known, arrivals.last, own)
        last_row = np.where(known, arrivals.last_row, items.collective[rows])
        groups = group_by(len(rows), [last, last_row])
        end_ns = items.end_ns[rows]
        came_ns = groups.greatest(items.start_ns[rows])[groups.group]
        return cls(
            rows,
            groups.group.astype(np.intp),
            end_ns - came_ns,
            np.maximum(end_ns, came_ns),
            len(groups.first),
        )

    def group_of_items(self, count: int) -> list[int]:
        """The op of each of so many items, NO_ID for what is none."""
        found = np.full(count, NO_ID)
        found[self.items] = self.group
        made: list[int] = found.tolist()
        return made


@dataclass(frozen=True)
class _Calls:
    """What each call that waited returned after: the call before, the item, and how long."""

    before: list[int]
    after_call: list[int]
    item: list[int]
    after_item: list[int]

    @classmethod
    def of(cls, items: ReplayItems, waits: Synchronisations, item: Rows, before: Rows) -> _Calls:
        before_ns = np.append(waits.end_ns, 0)[before]
        return cls(
            before.tolist(),
            (waits.start_ns - before_ns).tolist(),
            item.tolist(),
            (waits.end_ns - np.append(items.end_ns, 0)[item]).tolist(),
        )

    def sooner(self, first: int, call_ns: Int64) -> _Calls:
        """The same, with some calls from `first` on begun so much sooner."""
        after = np.array(self.after_call, np.int64)
        after[first : first + len(call_ns)] -= call_ns
        return replace(self, after_call=after.tolist())


@dataclass(frozen=True)
class _Sooner:
    """By how much less the host of a rank takes since it waited, to each launch and each call."""

    launch_ns: Int64
    call_ns: Int64


@dataclass(frozen=True)
class _Matches:
    """Items of all ranks, one rank after the other, by what they do: name and turn.

    group: (n,) the same for items of the same name and turn. owner: (n,) position of the rank.
    """

    group: Int64
    owner: Rows
    faster: int

    @classmethod
    def of(cls, ranks: Sequence[ReplayedRank], faster: int) -> _Matches:
        pool = StringPool()
        codes = [pool.codes(rank.run.strings)[rank.run.items.name] for rank in ranks]
        owner = np.repeat(np.arange(len(ranks)), [len(its) for its in codes])
        name = np.concatenate(codes)
        return cls(group_by(len(name), [name, _turns(owner, name)]).group, owner, faster)

    def beyond_others(self, times_ns: Int64, known: Bool) -> Int64:
        """By how much those of the rank exceed the median of the others', 0 where none is known.

        times_ns, known: (n,).
        """
        own = np.flatnonzero(self.owner == self.faster)
        others = np.flatnonzero((self.owner != self.faster) & known)
        count = int(self.group.max(initial=NO_ID)) + 1
        medians = Segments(self.group[others], count).medians(times_ns[others].astype(np.float64))
        group = self.group[own]
        compared = known[own] & (np.bincount(self.group[others], minlength=count)[group] > 0)
        beyond_ns: Int64 = np.maximum(times_ns[own] - medians[group].astype(np.int64), 0)
        beyond_ns[~compared] = 0
        return beyond_ns


def _lengths_like_others(ranks: Sequence[ReplayedRank], matches: _Matches) -> Int64:
    """How long the items of the rank take if its tasks take no longer than those of others."""
    items = ReplayItems.concat([rank.run.items for rank in ranks])
    length_ns = items.end_ns - items.start_ns
    beyond_ns = matches.beyond_others(length_ns, items.kind == PathKind.COMPUTING)
    own_ns: Int64 = length_ns[matches.owner == matches.faster]
    return own_ns - beyond_ns


def _launched_sooner(ranks: Sequence[ReplayedRank], matches: _Matches) -> _Sooner:
    """By how much less the host takes if what it does between launches takes no longer."""
    gaps_ns = [_since_launch_before(rank.run) for rank in ranks]
    known = np.concatenate([gap_ns != NO_TIME for gap_ns in gaps_ns])
    beyond_ns = matches.beyond_others(np.where(known, np.concatenate(gaps_ns), 0), known)
    run = ranks[matches.faster].run
    items, waits = run.items, run.waits
    order = np.lexsort((items.launched_ns, items.host_since))
    since = items.host_since[order]
    upto_ns = np.cumsum(beyond_ns[order])
    opens = np.searchsorted(since, since, side="left")
    before_ns = upto_ns - beyond_ns[order]
    launch_ns = np.empty(len(items), np.int64)
    launch_ns[order] = upto_ns - before_ns[opens]
    # Calls begin after launches of the same stretch of host time.
    at = _last_in_stretch(since, items.launched_ns[order], waits)
    call_ns = (
        np.where(at >= 0, launch_ns[order][at], 0) if len(order) else np.zeros(len(waits), np.int64)
    )
    return _Sooner(launch_ns, call_ns)


def _since_launch_before(run: RankReplay) -> Int64:
    """What the host did before each launch, since the one before or since it waited, (items,).

    NO_TIME for what has no launch, and for the first one where the host had not waited.
    """
    items, waits = run.items, run.waits
    order = np.lexsort((items.launched_ns, items.host_since))
    launched_ns, since = items.launched_ns[order], items.host_since[order]
    before_ns = np.append(waits.end_ns, NO_TIME)[since]
    same = since[1:] == since[:-1]
    before_ns[1:][same] = launched_ns[:-1][same]
    found = np.full(len(items), NO_TIME)
    given = (launched_ns != NO_TIME) & (before_ns != NO_TIME)
    found[order] = np.where(given, launched_ns - before_ns, NO_TIME)
    return found


def _last_in_stretch(since: Codes, launched_ns: Int64, waits: Synchronisations) -> Rows:
    """The last launch before each call in the same stretch of host time, NO_ID for none.

    since, launched_ns: in order of both.
    """
    found = np.full(len(waits), NO_ID)
    starts = np.concatenate([np.zeros(len(since), np.int64), np.ones(len(waits), np.int64)])
    stretch = np.concatenate([since, waits.before])
    moments = np.concatenate([launched_ns, waits.start_ns])
    order = np.lexsort((starts, moments, stretch))
    is_launch = order < len(since)
    last = np.maximum.accumulate(np.where(is_launch, order, NO_ID))
    calls = np.flatnonzero(~is_launch)
    row = last[calls]
    same = (row >= 0) & (stretch[row] == stretch[order[calls]])
    found[order[calls] - len(since)] = np.where(same, row, NO_ID)
    return found


def _turns(owner: Rows, name: Codes) -> Int64:
    """How many rows of the same owner and name come before each row."""
    order = np.lexsort((name, owner))
    opens = np.ones(len(order), np.bool_)
    opens[1:] = (np.diff(name[order]) != 0) | (np.diff(owner[order]) != 0)
    first = np.maximum.accumulate(np.where(opens, np.arange(len(order)), 0))
    turn = np.empty(len(order), np.int64)
    turn[order] = np.arange(len(order)) - first
    return turn
