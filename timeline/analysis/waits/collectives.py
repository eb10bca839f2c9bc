"""Communication ops of one rank, with keys that match them across ranks."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from timeline.analysis.waits.group_members import RankGroup, find_groups, group_in_name
from timeline.columns.chunks import chunks
from timeline.columns.columns import Bool, Codes, ColumnTable, Int64, Rows, column
from timeline.columns.distinct import NO_ROWS, are_first, distinct, distinct_pairs, rows_by_value
from timeline.columns.group_by import count_turns
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.clock import ClockMove
from timeline.records.not_given import NO_GRAPH, NO_ID, NO_TIME
from timeline.records.tables import CommunicationOps, PlaneTasks, Records, Spans
from timeline.records.task_kinds import KINDS, UNKNOWN_OP, collective_kind, element_bytes

AT_ONCE_NS = 1_000
"""A wait of at most this duration found the peer's notify already there."""
_WAIT, _RECORD = "Notify_Wait", "Notify_Record"


class Arrivals(ColumnTable):
    """Arrivals of peers at each op: one row per op, in the order of the rank's collectives.

    A peer has arrived when its first notify is there, some 9 us after its op starts. If the notify
    was there before it was asked for, the arrival time is unknown, but before this rank continued.

    tasks: whether HCCL tasks of the op are in the profile. peers: number of peers whose arrival the
    tasks show. other_rank, other_ns: last arrival among peers that are not read, NO_ID and NO_TIME
    if none came later than this rank asked. read_rank, read_ns: the same among peers that are read.
    record_ns: when it had sent its own first notify to each peer (one after another), NO_TIME for
    none.
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
    """View that one rank has of a group: the group itself, and the peers of its HCCL tasks.

    own: the rank's own number in the group, NO_ID if unknown. peers: numbers of the others,
    ascending.
    """

    group: RankGroup = field(default_factory=RankGroup)
    own: int = NO_ID
    peers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RankArrivals:
    """Arrivals of other ranks as recorded by one rank.

    views: its groups, by the position of their label. recorded: whether existing HCCL tasks were
    looked for.
    """

    ops: Arrivals = field(default_factory=Arrivals.empty)
    views: Mapping[int, GroupView] = field(default_factory=dict)
    recorded: bool = True

    def moved(self, move: ClockMove) -> RankArrivals:
        """Return the arrivals on another clock."""
        other_ns, read_ns = move.of(self.ops.other_ns), move.of(self.ops.read_ns)
        record_ns = move.of(self.ops.record_ns)
        moved = replace(self.ops, other_ns=other_ns, read_ns=read_ns, record_ns=record_ns)
        return replace(self, ops=moved)


class _PeerTasks(ColumnTable):
    """HCCL tasks that notify a peer, wait for one or move data: the op, the peer, the interval."""

    op: Int64 = column(np.int64)
    peer: Int64 = column(np.int64)
    start_ns: Int64 = column(np.int64)
    end_ns: Int64 = column(np.int64)

    def first(self, keys: tuple[Int64, ...]) -> _PeerTasks:
        """Return the first by start of the rows that are equal in the keys (n,)."""
        order = np.lexsort((self.start_ns, *keys))
        return self.take(order[are_first(*(key[order] for key in keys))])


def measure_arrivals(
    records: Records, ops: CommunicationOps, read_ranks: frozenset[int], *, recorded: bool
) -> RankArrivals:
    """Derive the arrivals of peers from the Notify_Wait tasks of a rank.

    The first wait of each op and peer counts, if it begins before the end of the rank's first
    transfer, as planes begin one after another; later waits belong to the transfer, such as those
    of the second level of a hierarchy. Takes O(n log n) in the tasks.

    Args:
        ops: the communication ops, in order of their start.
        read_ranks: the ranks that are read.
        recorded: whether HCCL tasks were read.
    """
    waits, sends, moves, tasks, views = _peer_tasks(records, ops)
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
    sent = sends.first((sends.peer, sends.op))
    sent = sent.take(sent.start_ns <= moved_ns[sent.op])
    record_ns = np.full(len(ops), NO_TIME)
    np.maximum.at(record_ns, sent.op, sent.end_ns)
    peers = np.bincount(came.op, minlength=len(ops)).astype(np.int64)
    arrivals = Arrivals(tasks, peers, other_rank, other_ns, read_rank, read_ns, record_ns)
    return RankArrivals(arrivals, views, recorded)


def _peer_tasks(
    records: Records, ops: CommunicationOps
) -> tuple[_PeerTasks, _PeerTasks, _PeerTasks, Bool, dict[int, GroupView]]:
    """Return waits, notifies and transfers of ops, a mask of ops with tasks, and group views."""
    planes, strings = records.planes, records.strings
    waiting, sending = (strings.find(name) for name in (_WAIT, _RECORD))
    ops_of_group = dict(rows_by_value(ops.group))
    peer_tasks: list[list[_PeerTasks]] = [[], [], []]
    tasks = np.zeros(len(ops), np.bool_)
    owns: dict[int, set[int]] = {}
    talked: dict[int, set[int]] = {}
    for chunk in chunks(len(planes)):
        part = planes[chunk]
        op = _ops_of_tasks(part, ops, ops_of_group)
        tasks[op[op >= 0]] = True
        has_peer = (part.target_rank != NO_ID) & (part.target_rank != part.source_rank) & (op >= 0)
        waits, sends = part.name == waiting, part.name == sending
        moves = (part.size_bytes > 0) & ~waits & ~sends
        for into, chosen in zip(peer_tasks, (waits, sends, moves), strict=True):
            rows = np.flatnonzero(has_peer & chosen)
            columns = (op, part.target_rank, part.start_ns, part.end_ns)
            into.append(_PeerTasks(*(values[rows] for values in columns)))
        with_peer = np.flatnonzero(has_peer)
        for label, at in rows_by_value(part.group[with_peer]):
            rows = with_peer[at]
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
    waited, sent, moved = (_PeerTasks.concat(parts) for parts in peer_tasks)
    return waited, sent, moved, tasks, views


def _ops_of_tasks(
    tasks: PlaneTasks, ops: CommunicationOps, ops_of_group: Mapping[int, Rows]
) -> Rows:
    """Find the op of each HCCL task, -1 for none: the op of its group that runs when it starts.

    Not every layout names the op.
    """
    op_of_task = np.full(len(tasks), -1, np.intp)
    for label, of_group in rows_by_value(tasks.group):
        rows = ops_of_group.get(label, NO_ROWS)
        if len(rows):
            start_ns = tasks.start_ns[of_group]
            at = np.searchsorted(ops.start_ns[rows], start_ns, side="right") - 1
            op = rows[np.maximum(at, 0)]
            runs = (at >= 0) & (start_ns <= ops.end_ns[op])
            op_of_task[of_group[runs]] = op[runs]
    return op_of_task


def latest_peers(op: Int64, peer: Int64, came_ns: Int64, count: int) -> tuple[Int64, Int64]:
    """Return the last peer of each of `count` ops and its arrival; NO_ID, NO_TIME for none.

    op, peer, came_ns: (n,) arrivals of peers.
    """
    last, last_ns = np.full(count, NO_ID, np.int64), np.full(count, NO_TIME)
    order = np.lexsort((-peer, came_ns, op))
    last[op[order]], last_ns[op[order]] = peer[order], came_ns[order]
    return last, last_ns


NO_KIND = -1
"""Kind of an op whose name does not identify it."""
NO_SIGN = -1
"""Sign of an op whose kind is unknown."""
_PAIRED = ("Send", "Receive")
_VERB = re.compile(r"send|receive|recv", re.IGNORECASE)
_STREAM = "stream_"
_OF_STREAM = re.compile(_STREAM + r"\d+_(?:parallel_)?\d+_(?=.)", re.ASCII)
"""Prefix of op names in step traces: a stream, which each rank numbers for itself."""

_Hashes = npt.NDArray[np.uint64]


class Collectives(Spans):
    """Communication ops of one rank, in order of their start.

    kind: position in KINDS, NO_KIND if the name does not identify it. key: number shared by the
    ranks that take part in the op, unique to it, NO_ID if unknown (see `match_by_order`). pair:
    number shared by a send and its receive, NO_ID for other ops. communicator: number shared by the
    ops of a group of ranks. named: whether that group is identified; a group without a name is
    identified only by matching. sign: number shared by ops that do the same, NO_SIGN if unknown.
    sequence: number among the ops of its communicator, NO_ID if the source does not count them.
    launched: whether its launch is in the profile. size_bytes: input of one rank (count times
    element size), NO_ID if unknown. moved_bytes: bytes it sends over links, as summed by the
    profiler, NO_ID if unknown. selected: whether it is drawn; clocks are aligned by all ops, so
    that a part of a profile lies where the whole does.
    """

    key: Int64 = column(np.int64)
    pair: Int64 = column(np.int64, NO_ID)
    communicator: Int64 = column(np.int64)
    named: Bool = column(np.bool_, 1)
    sign: Int64 = column(np.int64)
    sequence: Int64 = column(np.int64, NO_ID)
    launched: Bool = column(np.bool_, 0)
    kind: Codes = column(np.int32)
    name: Codes = column(np.int32)
    group: Codes = column(np.int32)
    graph: Int64 = column(np.int64, NO_GRAPH)
    iteration: Int64 = column(np.int64, NO_ID)
    size_bytes: Int64 = column(np.int64, NO_ID)
    moved_bytes: Int64 = column(np.int64, NO_ID)
    selected: Bool = column(np.bool_, 1)


@dataclass(frozen=True, slots=True)
class RankCollectives:
    """Collectives of one rank; codes are positions in `strings`."""

    strings: tuple[str, ...] = ("",)
    ops: Collectives = field(default_factory=Collectives.empty)
    rank: int = NO_ID
    """Global rank."""
    arrivals: RankArrivals = field(default_factory=RankArrivals)
    """Arrivals of peers at each op, from the rank's own HCCL tasks; empty if none were looked for.
    """

    def moved(self, move: ClockMove) -> RankCollectives:
        """Return the collectives on another clock; sums stay unchanged."""
        ops = self.ops
        start_ns, end_ns = move.of(ops.start_ns), move.of(ops.end_ns)
        return replace(
            self,
            ops=replace(ops, start_ns=start_ns, end_ns=end_ns),
            arrivals=self.arrivals.moved(move),
        )


def rank_collectives(
    records: Records,
    iterations: Int64,
    selected: Rows | None = None,
    *,
    read_ranks: frozenset[int] = frozenset(),
    recorded: bool = True,
) -> RankCollectives:
    """Return the collectives of a rank.

    An op has the same name on all ranks: HCCL numbers ops within their group
    (`hcom_allReduce__GROUP_INDEX_ITERATION`), and a graph has the same names on every rank. So an
    op is identified by its name without its stream, its group if the source has the group's own
    name, its step, and its turn among the ops of that name in the step. Labels of groups ("Group
    0") differ between ranks. Ops whose names only state their kind get no key yet.

    Args:
        records: all of the profile.
        iterations: (ops,) the step of each op, NO_ID for none.
        selected: rows of the ops that are drawn, None for all.
        read_ranks: the ranks that are read.
        recorded: whether existing HCCL tasks were read.
    """
    order = np.argsort(records.ops.start_ns, kind="stable")
    ops, iterations = records.ops.take(order), iterations[order]
    pool, strings = records.strings, StringPool()
    # The name of each op's group, or its label if there is no other name.
    labelled = (ops.group_name == NO_NAME) & (not records.numbered_ops)
    group = np.where(labelled, ops.group, ops.group_name)
    pairs, which = distinct_pairs(ops.name.astype(np.int64), group.astype(np.int64))
    names, groups = (pool.texts(codes) for codes in pairs.T)
    named = [
        (_OF_STREAM.sub("", name, 1) if _STREAM in name else name, group)
        for name, group in zip(names, groups, strict=True)
    ]
    kinds = [collective_kind(name) for name, _ in named]
    signs = np.where(np.isin(kinds, ("", UNKNOWN_OP)), NO_SIGN, mix_hashes(_hashed(kinds)))
    key = pair = np.full(len(ops), NO_ID, np.int64)
    if records.numbered_ops:
        key, pair = _keys_by_name(named, kinds, which, iterations)
    collectives = Collectives(
        ops.start_ns,
        ops.end_ns,
        key,
        pair,
        mix_hashes(_hashed(group or group_in_name(name) for name, group in named))[which],
        records.numbered_ops | (ops.group_name != NO_NAME),
        signs[which],
        ops.sequence,
        ops.launch_ns != NO_TIME,
        kind_numbers(kinds)[which],
        strings.translate(ops.name, pool),
        strings.translate(ops.group, pool),
        ops.graph,
        iterations,
        _sizes_bytes(ops, pool),
        ops.moved_bytes,
        np.ones(len(ops), np.bool_) if selected is None else np.isin(order, selected),
    )
    arrivals = measure_arrivals(records, ops, read_ranks, recorded=recorded)
    views = {strings.code(pool[label]): view for label, view in arrivals.views.items()}
    arrivals = replace(arrivals, views=views)
    return RankCollectives(tuple(strings), collectives, records.rank, arrivals)


def every_op(ranks: Sequence[RankCollectives]) -> tuple[Collectives, Int64, Int64]:
    """Return the ops of all ranks, concatenated by rank, and the rank and row of each."""
    counts = np.array([len(rank.ops) for rank in ranks], np.int64)
    first = np.repeat(np.cumsum(counts) - counts, counts)
    ops = Collectives.concat([rank.ops for rank in ranks])
    return ops, np.repeat(np.arange(len(ranks)), counts), np.arange(len(first)) - first


def _keys_by_name(
    named: Sequence[tuple[str, str]], kinds: Sequence[str], which: Rows, iterations: Int64
) -> tuple[Int64, Int64]:
    """Return keys of ops, and of sends with their receives, from distinct names and groups."""
    turn = count_turns(which, iterations)
    pairs = _hashed(
        f"{group}\0{_VERB.sub('', name)}" if kind in _PAIRED else ""
        for kind, (name, group) in zip(kinds, named, strict=True)
    )
    key = mix_hashes(_hashed(f"{group}\0{name}" for name, group in named)[which], iterations, turn)
    return key, np.where(pairs[which] == 0, NO_ID, mix_hashes(pairs[which], iterations, turn))


def kind_numbers(kinds: Iterable[str]) -> Codes:
    """Return the positions of kinds in KINDS, NO_KIND for others."""
    return np.array([KINDS.index(kind) if kind in KINDS else NO_KIND for kind in kinds], np.int32)


def _hashed(texts: Iterable[str]) -> _Hashes:
    """Return hashes that are the same in every process; 0 for an empty string."""
    digests = (hashlib.blake2b(text.encode(), digest_size=8) if text else None for text in texts)
    return np.fromiter(
        (int.from_bytes(digest.digest(), "little") if digest else 0 for digest in digests),
        np.uint64,
    )


def mix_hashes(hashes: _Hashes, *columns: Int64) -> Int64:
    """Mix hashes with columns of numbers into one number per row, never negative (SplitMix64)."""
    mixed = hashes
    for values in columns:
        mixed = mixed + values.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = mixed ^ (mixed >> np.uint64(31))
    return (mixed >> np.uint64(1)).astype(np.int64)


def _sizes_bytes(ops: CommunicationOps, pool: StringPool) -> Int64:
    """Return the element counts times the bytes of an element, NO_ID if unknown."""
    widths = np.full(len(pool), NO_ID, np.int64)
    for code in distinct(ops.data_type).tolist():
        widths[code] = element_bytes(pool[code]) or NO_ID
    width = widths[ops.data_type]
    known = (ops.count != NO_ID) & (width > 0)
    return np.where(known, ops.count * width, NO_ID)
