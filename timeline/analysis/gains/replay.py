"""Replay: a run as a graph of dependencies, played again with some of its times changed.

A node is a point in time: the end of a task, the arrival at a communication op, the end of the op,
or a point of the host. It comes at the latest of up to two earlier nodes, each plus a fixed delay:

- An item starts after the item before it on the device and after its launch. The later of the two
  keeps its recorded lag; the other gets the lag that is usual where it is the later one, at most
  LEAST_LAG_NS.
- An op ends on each rank as long after its last arrival as recorded.
- The host takes the recorded time from point to point. A call that waits for an item returns as
  long after the end of that item as recorded, and at least LEAST_LAG_NS after it was called.

Without a change, each node comes when it was recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from timeline.analysis.gains.recording import DeviceWork, HostPoints, Recording
from timeline.columns.chunks import chunks
from timeline.columns.columns import Bool, Codes, ColumnTable, Int64, Rows, column
from timeline.columns.group_by import group_by, rows_before
from timeline.records.not_given import NO_ID

try:
    from timeline.analysis.gains import _replay
except ImportError:
    _replay = None  # type: ignore[assignment]

LEAST_LAG_NS = 3_000
"""Maximum lag from the end of a need that was not the latest to the start of the dependent node."""
_NEVER = -(1 << 62)
_ORIGIN = 0
"""Node at which the recording begins."""


class RankOps(ColumnTable):
    """Collectives of a rank, one row each, in their order.

    op: number shared by all ranks that take part. known: whether all members are recorded.
    arrived_ns: last arrival, as far as recorded or inferred. absent: number of the last rank if it
    is identified but not recorded, else NO_ID. like: code of kind, size and number of members,
    NO_ID if unknown. group: communicator. exposed_ns: time of the transfer in which nothing
    computed.
    """

    op: Int64 = column(np.int64)
    known: Bool = column(np.bool_)
    arrived_ns: Int64 = column(np.int64)
    absent: Int64 = column(np.int64)
    like: Int64 = column(np.int64)
    group: Int64 = column(np.int64)
    exposed_ns: Int64 = column(np.int64)


@dataclass(frozen=True)
class RecordedRank:
    """One rank of a run: its recording and the arrivals at its ops."""

    recording: Recording
    ops: RankOps

    def with_tables(self, **tables: Any) -> RecordedRank:
        """Return the rank with other tables in its recording, by their names."""
        return replace(self, recording=replace(self.recording, **tables))


@dataclass(frozen=True)
class Played:
    """The time of each node of a replay, (nodes,) in ns since the start of the recording."""

    times_ns: Int64

    @property
    def total_ns(self) -> int:
        """Return the duration of the run."""
        return int(self.times_ns.max())


def is_compiled() -> bool:
    """Return whether the compiled module is installed."""
    return _replay is not None


class Replay:
    """A run that can be played again.

    Nodes are numbered in the order in which they are played. item_start, item_end, point: nodes at
    which each item begins and ends (the same node unless it is an op) and nodes of the host points,
    one rank after the other. pinned: end nodes of ops that wait for a member that is not recorded.
    first_item, first_point: (ranks + 1,) offsets of the items and points of each rank. residual_ns:
    difference between the unchanged replay and the recording.

    Args:
        ranks: on one clock.
        start_ns: start of the recording.
    """

    def __init__(self, ranks: Sequence[RecordedRank], start_ns: int) -> None:
        works = [rank.recording.work for rank in ranks]
        hosts = [rank.recording.points for rank in ranks]
        self.first_item = np.cumsum([0, *map(len, works)])
        self.first_point = np.cumsum([0, *map(len, hosts)])
        self.work = DeviceWork.concat(works)
        self.host = HostPoints.concat(hosts)
        self.start_ns = start_ns
        net = _Net(self, ranks)
        self.item_start, self.item_end, self.point = net.item_start, net.item_end, net.point
        self._net = net
        self.pinned = net.pinned
        self.recorded_ns = net.recorded_ns
        unchanged = self.play()
        self.unchanged = unchanged
        self.residual_ns = abs(
            int(self.recorded_ns.max(initial=0)) - int(unchanged.times_ns.max(initial=0))
        )

    def play(self, sooner_ns: tuple[Int64, Int64] | None = None) -> Played:
        """Play the run.

        sooner_ns: (nodes,) each, how much less time a node takes after its first and its second
        need.
        """
        net = self._net
        delays_ns = self._delays_ns(sooner_ns)
        columns = (net.first, delays_ns[0], net.second, delays_ns[1], net.group)
        if _replay is None:
            return Played(_times_ns(columns, net.groups))
        packed = (np.asarray(column, np.int64).tobytes() for column in columns)
        return Played(np.frombuffer(_replay.play(net.groups, *packed), np.int64))

    def _delays_ns(self, sooner_ns: tuple[Int64, Int64] | None) -> tuple[Int64, Int64]:
        first_ns, second_ns = self._net.first_ns, self._net.second_ns
        if sooner_ns is None:
            return first_ns, second_ns
        return first_ns - sooner_ns[0], second_ns - sooner_ns[1]

    def path(self, played: Played, sooner_ns: tuple[Int64, Int64] | None = None) -> Rows:
        """Return the nodes on the critical path of a run that was played so, last first."""
        net, times_ns = self._net, played.times_ns
        first_ns, second_ns = self._delays_ns(sooner_ns)
        last_of_group = np.full(net.groups, NO_ID, np.intp)
        members = np.flatnonzero(net.group >= 0)
        members = members[np.argsort(times_ns[members], kind="stable")]
        last_of_group[net.group[members]] = members  # the last of several assignments stays
        needs = net.first.copy()
        ends = needs < 0
        needs[ends] = last_of_group[-1 - needs[ends]]
        by_second = (net.second >= 0) & (times_ns[net.second] + second_ns == times_ns)
        by_first = times_ns[needs] + first_ns == times_ns
        needs = np.where(by_second & ~by_first, net.second, needs).tolist()
        node, path = int(np.argmax(times_ns)), list[int]()
        while node != _ORIGIN:
            path.append(node)
            node = needs[node]
        return np.array(path, np.intp)


class _Net:
    """The nodes of a replay in order, and the nodes each one depends on.

    first, second: (nodes,) nodes that each one waits for; first is negative at the end of an op,
    which waits for all its arrivals, and second is NO_ID if there is no second need. first_ns,
    second_ns: delay after them. group: op that the node arrives at, NO_ID for others; groups:
    number of ops. recorded_ns: recorded time of each node. item_end, item_start, point: nodes of
    items and host points. An item that two others must precede has a gate, which opens after both.
    """

    def __init__(self, run: Replay, ranks: Sequence[RecordedRank]) -> None:
        work, host = run.work, run.host
        start_ns, end_ns = work.start_ns - run.start_ns, work.end_ns - run.start_ns
        point_ns = host.time_ns - run.start_ns
        ops = _Ops.of(work, ranks, run)
        # Node numbers before sorting.
        item = 1 + np.arange(len(work))
        point = 1 + len(work) + np.arange(len(host))
        op_end = 1 + len(work) + len(host) + np.arange(len(ops.rows))
        items_of, points_of = np.diff(run.first_item), np.diff(run.first_point)
        first_of_rank = np.repeat(run.first_item[:-1], items_of)
        has_ended = np.append(end_ns, _NEVER)[work.also + first_of_rank] <= start_ns
        gated = np.flatnonzero((work.also != NO_ID) & (work.before != NO_ID) & has_ended)
        gate = 1 + len(work) + len(host) + len(ops.rows) + np.arange(len(gated))
        item_end = item.copy()
        item_end[ops.rows] = op_end
        is_op = np.zeros(len(work), np.bool_)
        is_op[ops.rows] = True
        length_ns = np.where(is_op, 0, end_ns - start_ns)
        # An op that does not end before its arrivals sorts after all arrivals at the same time.
        op_last_ns = np.where(ops.joint, ops.came_ns, start_ns[ops.rows])
        needs_of_gate = (rows[gated] + first_of_rank[gated] for rows in (work.before, work.also))
        before, also = needs_of_gate
        gate_ns = np.maximum(end_ns[before], end_ns[also])
        node_ns = np.concatenate([[0], start_ns + length_ns, point_ns, end_ns[ops.rows], gate_ns])
        order = np.lexsort(
            (
                # At equal times, ends come before what they trigger, and items in their order.
                np.concatenate(
                    [
                        np.zeros(1, np.int64),
                        2 * item + 1,
                        np.ones(len(host), np.int64),
                        np.where(end_ns[ops.rows] > op_last_ns, 0, 2 * (len(work) + 1)),
                        2 * item[gated],
                    ]
                ),
                np.concatenate([[_NEVER], start_ns, point_ns, end_ns[ops.rows], gate_ns]),
            )
        )
        place = np.empty(len(order), np.intp)
        place[order] = np.arange(len(order))
        first, second = np.full((2, len(order)), NO_ID, np.intp)
        first[item] = _nodes(item_end, work.before, first_of_rank)
        first[item[gated]], first[gate], second[gate] = gate, item_end[before], item_end[also]
        second[item] = _nodes(point, work.launch, np.repeat(run.first_point[:-1], items_of))
        first[point] = np.maximum(point - 1, 0)
        first[point[run.first_point[:-1][points_of > 0]]] = _ORIGIN
        second[point] = _nodes(item_end, host.waits_for, np.repeat(run.first_item[:-1], points_of))
        first[op_end] = item[ops.rows]
        # A need recorded later than the node that waits for it triggered nothing.
        for needs in (first, second):
            needs[(needs != NO_ID) & (place[needs] >= place)] = NO_ID
        alone = first == NO_ID
        first, second = np.where(alone, second, first), np.where(alone, NO_ID, second)
        first[first == NO_ID] = _ORIGIN
        ready_ns = node_ns.copy()
        ready_ns[item] -= length_ns
        first_ns = ready_ns - node_ns[first]
        second_ns = np.where(second != NO_ID, ready_ns - node_ns[second], 0)
        for nodes in (item, point):
            rows = nodes[second[nodes] != NO_ID]
            first_ns[rows], second_ns[rows] = _least_lags(first_ns[rows], second_ns[rows])
        opens = gate[second[gate] != NO_ID]
        first_ns[opens] = second_ns[opens] = 0
        first_ns[item] += length_ns
        second_ns[item] += length_ns
        joint, pinned = ops.joint, ops.pinned
        first[op_end[joint]] = -1 - ops.group[joint]
        first_ns[op_end[joint]] = ops.transfer_ns[joint]
        since = _nodes(op_end, ops.before[pinned], np.zeros(len(pinned), np.intp))
        since[(since == NO_ID) | (place[since] >= place[op_end[pinned]])] = _ORIGIN
        second[op_end[pinned]] = since
        second_ns[op_end[pinned]] = end_ns[ops.rows[pinned]] - node_ns[since]
        group = np.full(len(order), NO_ID, np.intp)
        group[item[ops.rows[joint]]] = ops.group[joint]
        renumbered = (np.where(needs >= 0, place[needs], needs)[order] for needs in (first, second))
        self.first, self.second = renumbered
        self.first_ns, self.second_ns = first_ns[order], second_ns[order]
        self.group, self.groups = group[order], int(ops.group.max(initial=NO_ID)) + 1
        self.recorded_ns = node_ns[order]
        self.pinned = place[op_end[pinned]]
        self.item_end, self.item_start, self.point = place[item_end], place[item], place[point]


def _times_ns(columns: Sequence[Int64 | Rows], groups: int) -> Int64:
    """Return the time of each node, given first, first_ns, second, second_ns and group of all."""
    times = [0]
    came = [_NEVER] * groups
    for chunk in chunks(len(columns[0])):
        rows = slice(max(chunk.start, 1), chunk.stop)
        cells = (column[rows].tolist() for column in columns)
        for first, after, second, later, group in zip(*cells, strict=True):
            # A negative need means all arrivals of an op.
            time_ns = (times[first] if first >= 0 else came[-1 - first]) + after
            if second >= 0 and times[second] + later > time_ns:
                time_ns = times[second] + later
            times.append(time_ns)
            if group >= 0 and time_ns > came[group]:
                came[group] = time_ns
    return np.array(times, np.int64)


def _least_lags(first_ns: Int64, second_ns: Int64) -> tuple[Int64, Int64]:
    """Return the minimum delay after each of two needs, from the recorded delays.

    The need that triggered the node is the one whose delay is closest above the usual lag; it keeps
    its delay. The other gets the usual lag, or its own delay if that is shorter.
    """
    usual_ns = [LEAST_LAG_NS, LEAST_LAG_NS]
    for _ in range(2):
        by_first = first_ns - usual_ns[0] <= second_ns - usual_ns[1]
        usual_ns = [_usual_lag_ns(first_ns[by_first]), _usual_lag_ns(second_ns[~by_first])]
    by_first = first_ns - usual_ns[0] <= second_ns - usual_ns[1]
    return (
        np.where(by_first, first_ns, np.minimum(first_ns, usual_ns[0])),
        np.where(by_first, np.minimum(second_ns, usual_ns[1]), second_ns),
    )


def _usual_lag_ns(lags_ns: Int64) -> int:
    """Return the median of lags, between 0 and LEAST_LAG_NS."""
    if not len(lags_ns):
        return LEAST_LAG_NS
    return min(LEAST_LAG_NS, max(int(np.median(lags_ns)), 0))


def _nodes(nodes: Rows, rows: Rows | Codes, first: Rows) -> Rows:
    """Return the nodes of rows counted from the first row of each rank, NO_ID for NO_ID."""
    return np.where(rows != NO_ID, np.append(nodes, NO_ID)[rows + first], NO_ID)


@dataclass(frozen=True)
class _Ops:
    """The communication ops of all ranks, (k,) each.

    rows: their items. group: number shared by the members of an op. came_ns: last recorded arrival.
    transfer_ns: time from the last arrival of all members to the end. joint: whether the op ends
    after all members have arrived; a send may end before. pinned: rows of joint ops with a member
    that is not recorded, which arrives as long after the previous op of the group as recorded.
    before: row of that previous op here, NO_ID for the first.
    """

    rows: Rows
    group: Rows
    came_ns: Int64
    transfer_ns: Int64
    joint: Bool
    pinned: Rows
    before: Rows

    @classmethod
    def of(cls, work: DeviceWork, ranks: Sequence[RecordedRank], run: Replay) -> _Ops:
        rows = np.flatnonzero(work.collective != NO_ID)
        owner = np.repeat(np.arange(len(ranks)), [len(one.recording.work) for one in ranks])[rows]
        rank_ops = RankOps.concat(
            one.ops.take(one.recording.work.collective[one.recording.work.collective != NO_ID])
            for one in ranks
        )
        start_ns, end_ns = work.start_ns[rows], work.end_ns[rows]
        groups = group_by(len(rows), [rank_ops.op])
        came_ns = groups.greatest(start_ns)[groups.group] if len(rows) else start_ns
        arrived_ns = np.where(rank_ops.known, came_ns, np.maximum(came_ns, rank_ops.arrived_ns))
        joint = end_ns >= arrived_ns
        return cls(
            rows,
            groups.group.astype(np.intp),
            came_ns - run.start_ns,
            end_ns - arrived_ns,
            joint,
            np.flatnonzero(joint & ~rank_ops.known),
            rows_before(owner, rank_ops.group),
        )
