"""Arrows between rows of tables: from flow events, launches, and forward to backward calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from timeline.columns.chunks import rows_where
from timeline.columns.columns import (
    Bool,
    Codes,
    ColumnTable,
    Int64,
    Rows,
    TableBuilder,
    column,
    take,
)
from timeline.columns.distinct import distinct_as_met, distinct_pairs, distinct_values
from timeline.columns.nesting import innermost
from timeline.columns.strings import Interner, StringPool
from timeline.records.not_given import NO_ID
from timeline.records.tables import (
    FORWARD_BACKWARD,
    FRAMEWORK_LAUNCH,
    CommunicationOps,
    FlowEnd,
    Flows,
    Tasks,
)
from timeline.sources.decoders.joins import pairs_by_key, rows_in

if TYPE_CHECKING:
    from timeline.sources.decoders.event_columns import EventColumns, LaneKey


class ArrowTargets:
    """The tasks and communication ops to which arrows lead.

    The tasks of a communication op share its connection, but the arrow leads to the op alone. A
    connection that no op or task has leads nowhere, and is not counted.
    """

    def __init__(self, strings: StringPool, tasks: Tasks, ops: CommunicationOps) -> None:
        self._strings = strings
        self._op_connection = ops.connection
        others = np.append(ops.connection, NO_ID)
        self._task_rows = rows_in(tasks.connection, others, invert=True)
        self._task_connection = take(tasks.connection, self._task_rows)

    def arrows(self, category: str, connection: Int64, host_row: Rows) -> list[Flows]:
        """Return an arrow from each host call to each op or task of the same connection.

        Args:
            connection, host_row: (n,) the connection, or NO_ID, and the row of each host call.
        """
        connected = connection != NO_ID
        if not connected.all():
            connection, host_row = connection[connected], host_row[connected]
        source, op = pairs_by_key(connection, self._op_connection)
        caller, task = pairs_by_key(connection, self._task_connection)
        return [
            build_arrows(self._strings, category, FlowEnd.OP, host_row[source], op),
            build_arrows(
                self._strings, category, FlowEnd.TASK, host_row[caller], self._task_rows[task]
            ),
        ]


def build_arrows(
    strings: StringPool, category: str, kind: FlowEnd, source: Rows, target: Rows
) -> Flows:
    """Return arrows from rows of the host's calls to rows of one other table."""
    count = len(source)
    return Flows.of(
        count,
        category=strings.code(category),
        source_kind=FlowEnd.HOST,
        source_row=source,
        target_kind=kind,
        target_row=target,
    )


def gradient_arrows(
    strings: StringPool, host_row: Rows, start_ns: Int64, number: Int64, forward_thread: Int64
) -> Flows:
    """Return arrows from forward to backward calls, for profiles that hold only sequence numbers.

    A forward call and the calls that compute its gradient share a number. As in PyTorch's traces,
    the arrow leads from the innermost forward call, which starts last, to the first backward call.

    Args:
        strings: strings of the rank.
        host_row: (n,) the row of each call in the host table.
        start_ns: (n,) starts of the calls.
        number: (n,) sequence numbers, at most 0 for none.
        forward_thread: (n,) the thread of the forward call, which only backward calls have; else at
            most 0.
    """
    numbered = rows_where(lambda some: some > 0, number)
    is_backward = forward_thread[numbered] > 0
    backward = numbered[is_backward]
    backward = _firsts(backward, number[backward], start_ns[backward])
    forward = numbered[~is_backward]
    # Most forward calls have no backward call: those of inference have none at all.
    forward = forward[np.isin(number[forward], number[backward])]
    forward = _firsts(forward, number[forward], -start_ns[forward])
    source, target = pairs_by_key(number[forward], number[backward])
    return build_arrows(
        strings,
        FORWARD_BACKWARD,
        FlowEnd.HOST,
        host_row[forward[source]],
        host_row[backward[target]],
    )


def _firsts(rows: Rows, number: Int64, key: Int64) -> Rows:
    """Return the row with the least key of each number, in order of number."""
    order = np.lexsort((key, number))
    ordered = number[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)])
    return rows[order[first]]


# -- flow events -----------------------------------------------------------------------------------


LAUNCH_CATEGORIES = frozenset({"HostToDevice", FRAMEWORK_LAUNCH, "MsTx"})
"""Categories of arrows that start when the host launched a task."""
NOT_BOUND = -1
"""The row of an end that is missing, or outside all rows."""


@dataclass(frozen=True)
class LaneRows:
    """The rows of one table that come from the events of one lane, and their intervals."""

    kind: FlowEnd
    rows: Rows
    start_ns: Int64
    end_ns: Int64


@dataclass(frozen=True)
class Launches:
    """The times at which the host launched rows of tables: kind of table, row and time."""

    kind: Int64
    row: Int64
    time_ns: Int64


@dataclass(frozen=True)
class ResolvedFlows:
    """Arrows, launch times, and incomplete arrows, whose missing ends are NOT_BOUND."""

    flows: Flows
    launches: Launches
    lacking: Flows


class _Ends(ColumnTable):
    """The ends of flows in file order; category and `id` identify a flow."""

    lane: Int64 = column(np.int64)
    category: Codes = column(np.int32)
    id: Int64 = column(np.int64)
    time_ns: Int64 = column(np.int64)
    is_start: Bool = column(np.bool_)


@dataclass
class FlowReader:
    """Collector of flow events, which are bound to rows once all events are read."""

    strings: StringPool
    _lanes: Interner[LaneKey] = field(default_factory=Interner)
    _odd_ids: Interner[str] = field(default_factory=Interner)
    _ends: TableBuilder[_Ends] = field(default_factory=lambda: TableBuilder(_Ends))

    def add(self, events: EventColumns, rows: Rows) -> None:
        """Add the flow events at some rows."""
        from timeline.sources.decoders.event_columns import ARROW_START  # only traces need it

        groups, lane = distinct_values(events.group[rows])
        lanes = self._lanes.of([events.values.lane(group) for group in groups.tolist()])
        ids = events.end_ns[rows]
        codes, which = distinct_values(~ids[ids < 0])
        # Ids that are not decimals are strings, numbered from -1 downwards.
        ids[ids < 0] = ~self._odd_ids.of(events.values.texts(codes))[which]
        self._ends.add(
            _Ends(
                lanes[lane],
                events.values.names(events.category[rows]),
                ids,
                events.start_ns[rows],
                events.phase[rows] == ARROW_START,
            )
        )

    def resolve(
        self,
        lane_of: Callable[[LaneKey], LaneRows | None],
        is_read: Callable[[LaneKey], bool] = lambda _: True,
    ) -> ResolvedFlows:
        """Bind both ends of all flows to rows.

        A start is bound to the innermost call that is open at its time, an end to the row that
        starts at its time. `lane_of` returns the rows of a lane, `is_read` whether it belongs to
        this rank: a flow to another rank is not incomplete.
        """
        ends = self._ends.build()
        kind, row = self._bind(ends, lane_of)
        start, end = _pairs(ends)
        started, ended = start != NOT_BOUND, end != NOT_BOUND
        target = np.where(ended, row[end], NOT_BOUND) if len(row) else end
        source = np.where(started, row[start], NOT_BOUND) if len(row) else start
        category, launching = ends.category[start], np.zeros(len(start), np.bool_)
        for code in map(self.strings.find, LAUNCH_CATEGORIES):
            if code is not None:
                launching |= category == code
        launched = np.flatnonzero((target != NOT_BOUND) & started & launching)
        whole = (target != NOT_BOUND) & (source != NOT_BOUND)
        flows = Flows.of(
            len(whole),
            category=ends.category[np.where(started, start, end)],
            source_kind=np.where(started, kind[start], NOT_BOUND),
            source_row=source,
            target_kind=np.where(ended, kind[end], NOT_BOUND),
            target_row=target,
        )
        elsewhere = ~np.array([True, *map(is_read, self._lanes)], np.bool_)
        away = elsewhere[np.append(ends.lane, NOT_BOUND) + 1]  # False at NOT_BOUND
        lacking = ~whole & ~away[start] & ~away[end]
        launches = Launches(kind[end[launched]], target[launched], ends.time_ns[start[launched]])
        return ResolvedFlows(flows.take(whole), launches, flows.take(lacking))

    def _bind(
        self, ends: _Ends, lane_of: Callable[[LaneKey], LaneRows | None]
    ) -> tuple[Int64, Int64]:
        """Return the table and the row of each end, NOT_BOUND if it is in none."""
        kind, row = np.full(len(ends), NOT_BOUND), np.full(len(ends), NOT_BOUND)
        order = np.argsort(ends.lane, kind="stable")
        bounds = np.searchsorted(ends.lane[order], np.arange(len(self._lanes) + 1))
        for key, number in self._lanes.items():
            lane = lane_of(key)
            if lane is None:
                continue
            of_lane = order[bounds[number] : bounds[number + 1]]
            at = _starting_at(lane, ends.time_ns[of_lane])
            if lane.kind is FlowEnd.HOST:
                open_rows = innermost(lane.start_ns, lane.end_ns, ends.time_ns[of_lane])
                at = np.where(~ends.is_start[of_lane] & (at >= 0), at, open_rows)
            bound = at >= 0
            kind[of_lane[bound]], row[of_lane[bound]] = lane.kind, lane.rows[at[bound]]
        return kind, row


def _pairs(ends: _Ends) -> tuple[Rows, Rows]:
    """Pair starts and ends of flows, NOT_BOUND if one is missing.

    Within a flow, the first end is paired with the first start, and so on; surplus ends are paired
    with the last start.
    """
    _, which = distinct_pairs(ends.category.astype(np.int64), ends.id)
    _, flow = distinct_as_met(which)
    count = int(flow.max(initial=-1)) + 1
    starts, finishes = np.flatnonzero(ends.is_start), np.flatnonzero(~ends.is_start)
    starts = starts[np.argsort(flow[starts], kind="stable")]
    finishes = finishes[np.argsort(flow[finishes], kind="stable")]
    numbers = np.arange(count + 1)
    first_start = np.searchsorted(flow[starts], numbers)
    first_finish = np.searchsorted(flow[finishes], numbers)
    of_flow = flow[finishes]
    place = np.arange(len(finishes)) - first_finish[of_flow]
    last = first_start[of_flow + 1] - 1
    at = np.minimum(first_start[of_flow] + place, last)
    has_start = last >= first_start[of_flow]
    paired = np.full(len(finishes), NOT_BOUND)
    paired[has_start] = starts[at[has_start]]
    flow_of_start = flow[starts]
    place = np.arange(len(starts)) - first_start[flow_of_start]
    left = starts[place >= np.diff(first_finish)[flow_of_start]]
    return (
        np.concatenate([paired, left]),
        np.concatenate([finishes, np.full(len(left), NOT_BOUND)]),
    )


def _starting_at(lane: LaneRows, times_ns: Int64) -> Int64:
    """Return the row of the lane that starts at each timestamp, -1 for none."""
    if not len(lane.start_ns):
        return np.full(len(times_ns), -1, np.int64)
    order = np.argsort(lane.start_ns, kind="stable")
    ordered = lane.start_ns[order]
    at = np.minimum(np.searchsorted(ordered, times_ns), len(ordered) - 1)
    return np.where(ordered[at] == times_ns, order[at], -1)
