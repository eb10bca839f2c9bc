"""When the other ranks of a group came to each collective, by one rank's own HCCL tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

import numpy as np

from timeline.analysis.waits.group_members import RankGroup, find_groups
from timeline.columns.chunks import chunks
from timeline.columns.columns import Bool, ColumnTable, Int64, Rows, column
from timeline.columns.distinct import NO_ROWS, distinct, rows_by_value
from timeline.frozen import dataclass
from timeline.records.clock import ClockMove
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import CommunicationOps, PlaneTasks, Records

__all__ = ["AT_ONCE_NS", "Arrivals", "GroupView", "RankArrivals", "measure_arrivals"]

AT_ONCE_NS = 1_000
"""A wait that is no longer found the peer's notify there."""
_WAIT, _RECORD = "Notify_Wait", "Notify_Record"


class Arrivals(ColumnTable):
    """When peers came to each op: one row per op, in the order of the rank's collectives.

    A peer has come when its first notify is there, some 9 us after its op starts. One whose notify
    was there before it was asked for came at a time that is not known, before this rank went on.

    tasks: whether HCCL tasks of the op are in the profile. peers: of how many peers they tell that
    they came. other_rank: of those that are not read, the peer that came last, at
    other_ns; NO_ID and NO_TIME where none came later than this rank asked. read_rank and read_ns:
    the same of peers that are read. record_ns: when it had sent its own first notify to each peer
    (it does so one after another), NO_TIME for none.
    """

    tasks: Bool = column(np.bool_)
    peers: Int64 = column(np.int64, 0)
    other_rank: Int64 = column(np.int64, NO_ID)
    other_ns: Int64 = column(np.int64, NO_TIME)
    read_rank: Int64 = column(np.int64, NO_ID)
    read_ns: Int64 = column(np.int64, NO_TIME)
    record_ns: Int64 = column(np.int64, NO_TIME)


@dataclass(frozen=True)
class GroupView:
    """What one rank tells of a group: what is known of it, and whom its HCCL tasks talk to.

    own: its own number there, NO_ID where that is not told. peers: the numbers of the others,
    ascending.
    """

    group: RankGroup = field(default_factory=RankGroup)
    own: int = NO_ID
    peers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RankArrivals:
    """What one rank tells of the arrivals of others.

    views: its groups, by the position of their label. recorded: whether HCCL tasks were looked
    for, if there are any.
    """

    ops: Arrivals = field(default_factory=Arrivals.empty)
    views: Mapping[int, GroupView] = field(default_factory=dict)
    recorded: bool = True

    def moved(self, move: ClockMove) -> RankArrivals:
        """The same on another clock."""
        ops = self.ops
        moved = Arrivals(
            ops.tasks,
            ops.peers,
            ops.other_rank,
            move.of(ops.other_ns),
            ops.read_rank,
            move.of(ops.read_ns),
            move.of(ops.record_ns),
        )
        return RankArrivals(moved, self.views, self.recorded)


class _Notes(ColumnTable):
    """Notifies and transfers of ops: the op, the other rank, and when."""

    op: Int64 = column(np.int64)
    peer: Int64 = column(np.int64)
    start_ns: Int64 = column(np.int64)
    end_ns: Int64 = column(np.int64)

    def first(self, keys: tuple[Int64, ...]) -> _Notes:
        """The first by start of those that are equal in the keys (n,)."""
        order = np.lexsort((self.start_ns, *keys))
        opens = np.ones(len(order), np.bool_)
        opens[1:] = np.any([np.diff(key[order]) != 0 for key in keys], axis=0)
        return self.take(order[opens])


def measure_arrivals(
    records: Records, ops: CommunicationOps, read_ranks: frozenset[int], *, recorded: bool
) -> RankArrivals:
    """What a rank's Notify_Waits tell of when its peers came.

    Of each op and peer the first wait counts, if it begins before the rank's first transfer is
    over, as planes begin one after another: what it waits for later belongs to the transfer, as
    the second level of a hierarchy does. n log n in the tasks.

    Args:
        ops: the communication ops, in order of their start.
        read_ranks: the ranks that are read.
        recorded: whether HCCL tasks were read.
    """
    waits, records_of, moves, tasks, views = _notes(records, ops)
    came = waits.first((waits.peer, waits.op))
    moved_ns = _least(moves.op, moves.end_ns, len(ops))
    at_once = came.end_ns - came.start_ns <= AT_ONCE_NS
    is_first = came.start_ns <= moved_ns[came.op]
    waited = came.take(is_first & ~at_once)
    came = came.take(is_first | at_once)
    is_read = np.isin(waited.peer, np.fromiter(read_ranks, np.int64, len(read_ranks)))
    other_rank, other_ns = _latest(waited.take(~is_read), len(ops))
    read_rank, read_ns = _latest(waited.take(is_read), len(ops))
    sent = records_of.first((records_of.peer, records_of.op))
    sent = sent.take(sent.start_ns <= moved_ns[sent.op])
    record_ns = np.full(len(ops), NO_TIME)
    np.maximum.at(record_ns, sent.op, sent.end_ns)
    peers = np.bincount(came.op, minlength=len(ops)).astype(np.int64)
    arrivals = Arrivals(tasks, peers, other_rank, other_ns, read_rank, read_ns, record_ns)
    return RankArrivals(arrivals, views, recorded)


def _notes(
    records: Records, ops: CommunicationOps
) -> tuple[_Notes, _Notes, _Notes, Bool, dict[int, GroupView]]:
    """Waits, records and transfers of ops; which ops have tasks; and the view of each group."""
    planes, strings = records.planes, records.strings
    waiting, sending = (strings.find(name) for name in (_WAIT, _RECORD))
    finder = _OpFinder(ops)
    found: list[list[_Notes]] = [[], [], []]
    tasks = np.zeros(len(ops), np.bool_)
    owns: dict[int, set[int]] = {}
    talked: dict[int, set[int]] = {}
    for chunk in chunks(len(planes)):
        part = planes[chunk]
        op = finder.find(part)
        tasks[op[op >= 0]] = True
        told = (part.target_rank != NO_ID) & (part.target_rank != part.source_rank) & (op >= 0)
        waits, sends = part.name == waiting, part.name == sending
        moves = (part.size_bytes > 0) & ~waits & ~sends
        for into, chosen in zip(found, (waits, sends, moves), strict=True):
            rows = np.flatnonzero(told & chosen)
            columns = (op, part.target_rank, part.start_ns, part.end_ns)
            into.append(_Notes(*(values[rows] for values in columns)))
        telling = np.flatnonzero(told)
        for label, at in rows_by_value(part.group[telling]):
            rows = telling[at]
            owns.setdefault(label, set()).update(distinct(part.source_rank[rows]).tolist())
            talked.setdefault(label, set()).update(distinct(part.target_rank[rows]).tolist())
    views = {
        label: GroupView(
            group,
            owns[label].pop() if len(owns.get(label, ())) == 1 else NO_ID,
            tuple(sorted(talked.get(label, ()))),
        )
        for label, group in find_groups(records).items()
    }
    waited, sent, moved = (_Notes.concat(parts) for parts in found)
    return waited, sent, moved, tasks, views


class _OpFinder:
    """Finds the op that each HCCL task is of: the one of its group that runs when it starts.

    Not every layout names the op.
    """

    def __init__(self, ops: CommunicationOps) -> None:
        self._of_group = dict(rows_by_value(ops.group))
        self._ops = ops

    def find(self, tasks: PlaneTasks) -> Rows:
        """The row of each task's op, -1 for none."""
        found = np.full(len(tasks), -1, np.intp)
        for label, its_tasks in rows_by_value(tasks.group):
            rows = self._of_group.get(label, NO_ROWS)
            if not len(rows):
                continue
            start_ns = tasks.start_ns[its_tasks]
            at = np.searchsorted(self._ops.start_ns[rows], start_ns, side="right") - 1
            op = rows[np.maximum(at, 0)]
            runs = (at >= 0) & (start_ns <= self._ops.end_ns[op])
            found[its_tasks[runs]] = op[runs]
        return found


def _least(op: Int64, times_ns: Int64, count: int) -> Int64:
    """The first time of each op, later than all where there is none."""
    found = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(found, op, times_ns)
    return found


def _latest(waited: _Notes, count: int) -> tuple[Int64, Int64]:
    """Of each op the peer that came last, and when."""
    rank, moment_ns = np.full(count, NO_ID, np.int64), np.full(count, NO_TIME)
    order = np.lexsort((-waited.peer, waited.end_ns, waited.op))
    ordered = waited.take(order)
    rank[ordered.op], moment_ns[ordered.op] = ordered.peer, ordered.end_ns
    return rank, moment_ns
