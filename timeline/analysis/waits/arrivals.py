"""When the other ranks of a group came to each collective, by one rank's own HCCL tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

import numpy as np

from timeline.analysis.waits.group_members import RankGroup, find_groups
from timeline.columns.chunks import chunks
from timeline.columns.columns import Bool, ColumnTable, Int64, Rows, column
from timeline.columns.distinct import NO_ROWS, are_first, distinct, rows_by_value
from timeline.frozen import dataclass
from timeline.records.clock import ClockMove
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import CommunicationOps, PlaneTasks, Records

__all__ = [
    "AT_ONCE_NS",
    "Arrivals",
    "GroupView",
    "RankArrivals",
    "latest_peers",
    "measure_arrivals",
]

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
        other_ns, read_ns = move.of(self.ops.other_ns), move.of(self.ops.read_ns)
        record_ns = move.of(self.ops.record_ns)
        moved = replace(self.ops, other_ns=other_ns, read_ns=read_ns, record_ns=record_ns)
        return replace(self, ops=moved)


class _Notes(ColumnTable):
    """Notifies and transfers of ops: the op, the other rank, and when."""

    op: Int64 = column(np.int64)
    peer: Int64 = column(np.int64)
    start_ns: Int64 = column(np.int64)
    end_ns: Int64 = column(np.int64)

    def first(self, keys: tuple[Int64, ...]) -> _Notes:
        """The first by start of those that are equal in the keys (n,)."""
        order = np.lexsort((self.start_ns, *keys))
        return self.take(order[are_first(*(key[order] for key in keys))])


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
    moved_ns = np.full(len(ops), np.iinfo(np.int64).max)
    np.minimum.at(moved_ns, moves.op, moves.end_ns)
    at_once = came.end_ns - came.start_ns <= AT_ONCE_NS
    is_first = came.start_ns <= moved_ns[came.op]
    waited = came.take(is_first & ~at_once)
    came = came.take(is_first | at_once)
    is_read = np.isin(waited.peer, np.fromiter(read_ranks, np.int64, len(read_ranks)))
    (other_rank, other_ns), (read_rank, read_ns) = (
        latest_peers(some.op, some.peer, some.end_ns, len(ops))
        for some in (waited.take(~is_read), waited.take(is_read))
    )
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
    ops_of_group = dict(rows_by_value(ops.group))
    found: list[list[_Notes]] = [[], [], []]
    tasks = np.zeros(len(ops), np.bool_)
    owns: dict[int, set[int]] = {}
    talked: dict[int, set[int]] = {}
    for chunk in chunks(len(planes)):
        part = planes[chunk]
        op = _ops_of_tasks(part, ops, ops_of_group)
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


def _ops_of_tasks(
    tasks: PlaneTasks, ops: CommunicationOps, ops_of_group: Mapping[int, Rows]
) -> Rows:
    """Find the op of each HCCL task, -1 for none: the one of its group that runs when it starts.

    Not every layout names the op.
    """
    found = np.full(len(tasks), -1, np.intp)
    for label, of_group in rows_by_value(tasks.group):
        rows = ops_of_group.get(label, NO_ROWS)
        if len(rows):
            start_ns = tasks.start_ns[of_group]
            at = np.searchsorted(ops.start_ns[rows], start_ns, side="right") - 1
            op = rows[np.maximum(at, 0)]
            runs = (at >= 0) & (start_ns <= ops.end_ns[op])
            found[of_group[runs]] = op[runs]
    return found


def latest_peers(op: Int64, peer: Int64, came_ns: Int64, count: int) -> tuple[Int64, Int64]:
    """Return the peer that came last to each of so many ops, and when; NO_ID, NO_TIME for none.

    op, peer, came_ns: (n,) what is known of peers.
    """
    last, last_ns = np.full(count, NO_ID, np.int64), np.full(count, NO_TIME)
    order = np.lexsort((-peer, came_ns, op))
    last[op[order]], last_ns[op[order]] = peer[order], came_ns[order]
    return last, last_ns
