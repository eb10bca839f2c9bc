"""Launches of the tasks of a PyTorch trace: the runtime call and the operator."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from timeline.columns.columns import Bool, Codes, ColumnTable, Int64, Rows, column
from timeline.columns.constant import constant
from timeline.columns.distinct import distinct_pairs, rows_by_value
from timeline.columns.nesting import latest_open
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import FlowEnd, Flows, HostEvents, Spans, Tasks
from timeline.sources.common.flow_events import build_arrows, gradient_arrows
from timeline.sources.decoders.event_columns import ARROW_START, EventColumns, EventRows
from timeline.sources.decoders.joins import Lookup, last_rows, values_at
from timeline.sources.kineto.tables import correlations, external_ids

NOT_LAUNCHED = -1
"""The call of what no call of the trace launched."""
_GRAPH_LAUNCH = re.compile(r"graphlaunch", re.I)
"""cudaGraphLaunch, cuGraphLaunch, hipGraphLaunch."""
_LAUNCH = re.compile(r"launch(?!.*host)", re.I)
"""Calls that launch kernels or graphs; cudaLaunchHostFunc runs on the host."""
_COPY = re.compile(r"mem(?:cpy|set)", re.I)


class ThreadIntervals(Spans):
    """Intervals on threads of the host."""

    process: Int64 = column(np.int64)
    thread: Int64 = column(np.int64)

    def around(self, call: Rows, calls: RuntimeCalls) -> Rows:
        """Return the innermost interval around each call, -1 for none.

        A call that launches a graph has none: what ran around the capture of the graph is not in
        the trace. An interval is looked for in the middle of the call, because the clocks of both
        differ by microseconds, to which some versions round as well.

        call: (n,) rows of the calls, NOT_LAUNCHED for none.
        """
        found = np.full(len(call), -1, np.intp)
        asked = np.flatnonzero(call != NOT_LAUNCHED)
        asked = asked[~calls.graph[call[asked]]]
        of_calls = calls.take(call[asked])
        _, lane = distinct_pairs(
            np.concatenate([self.process, of_calls.process]),
            np.concatenate([self.thread, of_calls.thread]),
        )
        lane_of, lane_asked = lane[: len(self)], lane[len(self) :]
        order = np.argsort(lane_of, kind="stable")
        lane_of = lane_of[order]
        middle_ns = of_calls.start_ns + (of_calls.end_ns - of_calls.start_ns) // 2
        for number, of_lane in rows_by_value(lane_asked):
            rows = order[slice(*np.searchsorted(lane_of, [number, number + 1]))]
            at = latest_open(self.start_ns[rows], self.end_ns[rows], middle_ns[of_lane])
            inside = at >= 0
            found[asked[of_lane[inside]]] = rows[at[inside]]
        return found


class RuntimeCalls(ThreadIntervals):
    """Calls of the runtime: their correlation, and their row in the host table.

    The row has no meaning where the host table was not read. external: the External id, by which
    some versions for ROCm name the call of a kernel. graph: whether the call launches a graph,
    which was captured before; launches: kernels, alone or in a graph; copies: a copy or a fill.
    """

    connection: Int64 = column(np.int64)
    row: Int64 = column(np.int64)
    external: Int64 = column(np.int64)
    graph: Bool = column(np.bool_)
    launches: Bool = column(np.bool_)
    copies: Bool = column(np.bool_)

    @classmethod
    def among(cls, events: EventRows, host: HostEvents, first_row: int) -> RuntimeCalls:
        """Those that are a part of the host table, which starts at a row."""
        return cls(
            host.start_ns,
            host.end_ns,
            host.process,
            host.thread,
            host.connection,
            first_row + np.arange(len(host)),
            external_ids(events),
            events.by_name(np.bool_, _GRAPH_LAUNCH.search),
            events.by_name(np.bool_, _LAUNCH.search),
            events.by_name(np.bool_, _COPY.search),
        )

    def in_order(self) -> RuntimeCalls:
        """Return the calls by correlation, then start, as the other methods need them."""
        return self.take(np.lexsort((self.start_ns, self.connection)))

    def launching(self, connection: Int64) -> Rows:
        """Return the latest call of each correlation: of a call inside another, the inner one."""
        return last_rows(self.connection, connection)

    def moments_ns(self, call: Rows) -> Int64:
        """Return when each call began, NO_TIME where there is none."""
        if not len(self):
            return constant(NO_TIME, len(call), np.int64)
        return np.where(call != NOT_LAUNCHED, self.start_ns[call], NO_TIME)

    def arrows(self, task_call: Rows, category: str, strings: StringPool) -> Flows:
        """Arrows from calls on the host to tasks, given the call of each task."""
        launched = np.flatnonzero(task_call != NOT_LAUNCHED)
        source = self.row[task_call[launched]]
        return build_arrows(strings, category, FlowEnd.TASK, source, launched)


_OPERATOR_CATEGORIES = frozenset({"cpu_op", "operator"})
_NEVER_LAUNCHING = frozenset(
    f"aten::{name}"
    for name in (
        *("empty", "empty_like", "empty_strided", "new_empty", "resize_", "set_", "result_type"),
        *("as_strided", "view", "_unsafe_view", "reshape", "_reshape_alias", "expand", "alias"),
        *("t", "transpose", "permute", "select", "slice", "narrow", "split", "chunk", "unbind"),
        *("squeeze", "unsqueeze", "detach", "detach_", "flatten", "unflatten", "lift_fresh"),
    )
)
"""What makes memory or a view of some runs on the host alone: next to it in time is no inside."""


def are_operators(events: EventRows) -> Bool:
    """Return which events of the host are calls of operators, and no frames or annotations."""
    return events.by_category(
        np.bool_, lambda category: bool({category, category.lower()} & _OPERATOR_CATEGORIES)
    )


class Operators(ThreadIntervals):
    """Calls of operators that may launch, with the id by which others name them."""

    number: Int64 = column(np.int64)
    name: Codes = column(np.int32)

    @classmethod
    def among(cls, events: EventRows, host: HostEvents) -> Operators:
        """Return the operators among events of the host, given as rows too."""
        never = events.by_name(np.bool_, _NEVER_LAUNCHING.__contains__)
        rows = np.flatnonzero(are_operators(events) & ~never)
        return cls(
            host.start_ns[rows],
            host.end_ns[rows],
            host.process[rows],
            host.thread[rows],
            events.at(rows).ids(NO_ID, "external", "external_small"),
            host.name[rows],
        )

    def launching(self, external: Int64, call: Rows, calls: RuntimeCalls) -> Codes:
        """Return the name of the operator that launched each task, by id or by time of the call.

        What a graph launches belongs to no operator: those that ran when it was captured are not
        in the trace.

        Args:
            external: (n,) the id of the operator, NO_ID where a task names none.
            call: (n,) the call that launched it, NOT_LAUNCHED for none.
            calls: all calls.
        """
        row = Lookup({"number": self.number}, "number").find(external).copy()
        launched = np.flatnonzero(call != NOT_LAUNCHED)
        row[launched[calls.graph[call[launched]]]] = -1
        unnamed = np.flatnonzero(row < 0)
        row[unnamed] = self.around(call[unnamed], calls)
        return values_at(self.name, row, NO_NAME)


class Numbered(ColumnTable):
    """Operators with a sequence number of autograd: their rows in the host table."""

    row: Int64 = column(np.int64)
    number: Int64 = column(np.int64)
    forward_thread: Int64 = column(np.int64)

    @classmethod
    def among(cls, events: EventRows, first_row: int) -> Numbered:
        """Those among events of the host that start at a row."""
        number = events.ids(NO_ID, "gradient")
        rows = np.flatnonzero(number > 0)
        threads = events.at(rows).ids(NO_ID, "forward_thread")
        return cls(first_row + rows.astype(np.int64), number[rows], threads)

    def arrows(self, host: HostEvents, strings: StringPool) -> Flows:
        """Arrows from forward operators to those that work out their gradients."""
        start_ns = host.start_ns[self.row]
        return gradient_arrows(strings, self.row, start_ns, self.number, self.forward_thread)


_HIGHEST = 1 << 62
"""Ids above this one are not numbers that a program counted."""


class ArrowEnds(ColumnTable):
    """Ends of the arrows from calls to what they launched, in file order.

    The id of an arrow is the correlation of the call and of what it launched.
    """

    id: Int64 = column(np.int64)
    process: Int64 = column(np.int64)
    thread: Int64 = column(np.int64)
    start_ns: Int64 = column(np.int64)
    is_start: Bool = column(np.bool_)

    @classmethod
    def among(cls, events: EventColumns, rows: Rows) -> ArrowEnds:
        """Read the ends at some rows of events."""
        lanes = EventRows(events, rows)
        ids = events.end_ns[rows]
        ids[ids < 0] = events.values.numbers(~ids[ids < 0], NO_ID)
        return cls(
            correlations(ids),
            lanes.processes(NO_ID),
            lanes.threads(NO_ID),
            events.start_ns[rows],
            events.phase[rows] == ARROW_START,
        )

    def count_half(self, joined: Int64) -> tuple[int, int]:
        """Count the ends of arrows that join nothing: those alone, and those that have a partner.

        joined: the ids of arrows that join a call and what it launched.
        """
        rest = ~np.isin(self.id, joined)
        paired = np.intersect1d(self.id[rest & self.is_start], self.id[rest & ~self.is_start])
        whole = int(np.count_nonzero(np.isin(self.id, paired[paired != NO_ID])))
        return int(np.count_nonzero(rest)) - whole, whole


class TaskOrigins(ColumnTable):
    """Origins of tasks by their events, NO_ID if unknown.

    process and thread: its lane in the file. external: its External id. described: the row of what
    its args say of a collective.
    """

    process: Int64 = column(np.int64)
    thread: Int64 = column(np.int64)
    external: Int64 = column(np.int64, NO_ID)
    described: Int64 = column(np.int64, NO_ID)


@dataclass(frozen=True)
class Launches:
    """Tasks and calls, numbered alike where one launched the other, and the call of each task.

    calls: in order, see `RuntimeCalls.in_order`. names_calls: whether the External id of a task
    without a correlation numbers a call of the runtime, and no operator.
    """

    tasks: Tasks
    calls: RuntimeCalls
    task_call: Rows
    names_calls: bool

    def are_replayed(self) -> Bool:
        """Return which tasks a graph launched, or may have, as an (n,) mask.

        Where the call is not recorded, tasks of a graph share a number; those without a number
        may be of any graph.
        """
        connection = self.tasks.connection
        launched = self.task_call != NOT_LAUNCHED
        replayed: Bool = (connection == NO_ID) & self.calls.graph.any()
        replayed[launched] = self.calls.graph[self.task_call[launched]]
        alone = np.flatnonzero(~launched & (connection != NO_ID))
        _, which, count = np.unique(connection[alone], return_inverse=True, return_counts=True)
        replayed[alone] = count[which] > 1
        return replayed


def find_launches(
    tasks: Tasks, origins: TaskOrigins, calls: RuntimeCalls, ends: ArrowEnds
) -> Launches:
    """Find the call of each task: by correlation, by the file's arrows, or by External id.

    ROCm leaves the correlation out in some versions. An External id counts only where exactly one
    call has it that launches such tasks, and only for tasks without a correlation and an arrow.
    """
    connection = tasks.connection.copy()
    rows = np.flatnonzero(connection == NO_ID)
    connection[rows] = _arrow_at(
        ends, origins.process[rows], origins.thread[rows], tasks.start_ns[rows]
    )
    calls = _with_arrows(calls, ends)
    names_calls = bool((calls.external != NO_ID).any())
    rows = np.flatnonzero(connection == NO_ID)
    calls, connection[rows] = _with_external(calls, origins.external[rows], tasks.copy[rows])
    calls = calls.take(calls.connection != NO_ID).in_order()
    numbered = replace(tasks, connection=connection)
    return Launches(numbered, calls, calls.launching(connection), names_calls)


def _with_arrows(calls: RuntimeCalls, ends: ArrowEnds) -> RuntimeCalls:
    """Give calls without a correlation the number of the arrow that ends at them."""
    connection = calls.connection.copy()
    for some in (np.ones(len(calls), np.bool_), calls.launches):
        rows = np.flatnonzero((connection == NO_ID) & some)
        connection[rows] = _arrow_at(
            ends, calls.process[rows], calls.thread[rows], calls.start_ns[rows]
        )
    return replace(calls, connection=connection)


def _arrow_at(ends: ArrowEnds, process: Int64, thread: Int64, start_ns: Int64) -> Int64:
    """Return the id of the arrow that ends where each event starts, NO_ID for none.

    Of several events that start at once on one thread, each has its arrow if there are as many:
    writers put the ends of arrows behind their events, in the same order.
    """
    found = np.full(len(start_ns), NO_ID)
    if not len(found) or not len(ends):
        return found
    _, lane = distinct_pairs(
        np.concatenate([ends.process, process]), np.concatenate([ends.thread, thread])
    )
    _, place = distinct_pairs(lane, np.concatenate([ends.start_ns, start_ns]))
    at_end, at_event = place[: len(ends)], place[len(ends) :]
    _, same = distinct_pairs(at_end, ends.id)
    single = np.sort(np.unique(same, return_index=True)[1])
    places = int(place.max()) + 1
    counts = [np.bincount(at, minlength=places) for at in (at_end[single], at_event)]
    equal = counts[0] == counts[1]
    single = single[np.argsort(at_end[single], kind="stable")]
    events = np.argsort(at_event, kind="stable")
    found[events[equal[at_event[events]]]] = ends.id[single[equal[at_end[single]]]]
    return found


def _with_external(calls: RuntimeCalls, external: Int64, copy: Bool) -> tuple[RuntimeCalls, Int64]:
    """Give tasks the number of the one call that has their External id and launches their kind.

    Returns:
        The calls, of which those with such a task have a number, and the number of each task.
    """
    connection, found = calls.connection.copy(), np.full(len(external), NO_ID)
    for copies, launching in ((False, calls.launches), (True, calls.copies)):
        rows = np.flatnonzero(launching & (calls.external != NO_ID))
        ids, first, count = np.unique(calls.external[rows], return_index=True, return_counts=True)
        rows, ids = rows[first[count == 1]], ids[count == 1]
        tasks = np.flatnonzero((copy == copies) & np.isin(external, ids))
        row = rows[np.searchsorted(ids, external[tasks])]
        fresh = np.unique(row[connection[row] == NO_ID])
        highest = max(connection.max(initial=0), calls.external.max(initial=0))
        first_free = min(highest, _HIGHEST) + 1
        connection[fresh] = first_free + np.arange(len(fresh))
        found[tasks] = connection[row]
    return replace(calls, connection=connection), found
