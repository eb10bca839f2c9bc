"""Runtime calls and operators that launched the device tasks of a PyTorch trace."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from timeline.columns.columns import Bool, Codes, ColumnTable, Int64, Rows, column, take
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
"""In place of the row of a call, for tasks that no call in the trace launched."""
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
        """Return the row of the innermost interval around each call, -1 for none.

        Calls that launch a graph have none, because the operators whose kernels it holds ran when
        it was captured. The middle of a call must be inside the interval, as their clocks may
        differ by microseconds, and some versions round times to microseconds.

        Args:
            call: (n,) rows of the calls, NOT_LAUNCHED for none.
            calls: all calls.
        """
        interval = np.full(len(call), -1, np.intp)
        sought = np.flatnonzero(call != NOT_LAUNCHED)
        sought = sought[~calls.graph[call[sought]]]
        sought_calls = calls.take(call[sought])
        _, lane = distinct_pairs(
            np.concatenate([self.process, sought_calls.process]),
            np.concatenate([self.thread, sought_calls.thread]),
        )
        interval_lane, call_lane = lane[: len(self)], lane[len(self) :]
        order = np.argsort(interval_lane, kind="stable")
        interval_lane = interval_lane[order]
        middle_ns = sought_calls.start_ns + (sought_calls.end_ns - sought_calls.start_ns) // 2
        for number, lane_calls in rows_by_value(call_lane):
            rows = order[slice(*np.searchsorted(interval_lane, [number, number + 1]))]
            at = latest_open(self.start_ns[rows], self.end_ns[rows], middle_ns[lane_calls])
            inside = at >= 0
            interval[sought[lane_calls[inside]]] = rows[at[inside]]
        return interval


class RuntimeCalls(ThreadIntervals):
    """Calls of the runtime.

    connection: the correlation id. row: the row in the host table, meaningless if that was not
    read. external: the External id, by which kernels refer to their call in some versions for ROCm.
    graph: whether the call launches a graph; launches: whether it launches kernels, alone or in a
    graph; copies: whether it copies or fills memory.
    """

    connection: Int64 = column(np.int64)
    row: Int64 = column(np.int64)
    external: Int64 = column(np.int64)
    graph: Bool = column(np.bool_)
    launches: Bool = column(np.bool_)
    copies: Bool = column(np.bool_)

    @classmethod
    def among(cls, events: EventRows, host: HostEvents, first_row: int) -> RuntimeCalls:
        """Read runtime calls from events that are in the host table from `first_row` on."""
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
        """Return the calls ordered by correlation, then start, as the other methods need them."""
        return self.take(np.lexsort((self.start_ns, self.connection)))

    def launching(self, connection: Int64) -> Rows:
        """Return the latest call of each correlation, which is the inner one of nested calls."""
        return last_rows(self.connection, connection)

    def starts_ns(self, call: Rows) -> Int64:
        """Return the start of each call, NO_TIME for NOT_LAUNCHED."""
        if not len(self):
            return constant(NO_TIME, len(call), np.int64)
        return np.where(call != NOT_LAUNCHED, self.start_ns[call], NO_TIME)

    def arrows(self, task_call: Rows, category: str, strings: StringPool) -> Flows:
        """Return arrows from calls to tasks, given the call of each task."""
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
"""Operators that only allocate memory or make a view, so a call inside one launches for another."""


def are_operators(events: EventRows) -> Bool:
    """Return which events of the host are operators, as opposed to frames or annotations."""
    return events.by_category(
        np.bool_, lambda category: bool({category, category.lower()} & _OPERATOR_CATEGORIES)
    )


class Operators(ThreadIntervals):
    """Operators that may launch tasks.

    number: the External id, by which tasks and other events refer to the operator.
    """

    number: Int64 = column(np.int64)
    name: Codes = column(np.int32)
    shapes: Codes = column(np.int32)

    @classmethod
    def among(cls, events: EventRows, host: HostEvents) -> Operators:
        """Read operators from events of the host, which are given as host events too."""
        never = events.by_name(np.bool_, _NEVER_LAUNCHING.__contains__)
        rows = np.flatnonzero(are_operators(events) & ~never)
        return cls(
            host.start_ns[rows],
            host.end_ns[rows],
            host.process[rows],
            host.thread[rows],
            events.at(rows).ids(NO_ID, "external", "external_small"),
            host.name[rows],
            take(host.shapes, rows),
        )

    def launching(
        self, external: Int64, call: Rows, calls: RuntimeCalls
    ) -> tuple[Codes, Codes, Rows]:
        """Return name and input shapes of the operator that launched each task, and its row.

        It is found by id, else by the time of the call.

        Tasks that a graph launched have no operator; theirs ran when the graph was captured.

        Args:
            external: (n,) the id of the operator, NO_ID if the task names none.
            call: (n,) the call that launched the task, NOT_LAUNCHED for none.
            calls: all calls.
        """
        row = Lookup({"number": self.number}, "number").find(external).copy()
        launched = np.flatnonzero(call != NOT_LAUNCHED)
        row[launched[calls.graph[call[launched]]]] = -1
        unnamed = np.flatnonzero(row < 0)
        row[unnamed] = self.around(call[unnamed], calls)
        return values_at(self.name, row, NO_NAME), values_at(self.shapes, row, NO_NAME), row


class AutogradOperators(ColumnTable):
    """Operators with a sequence number of autograd, by their row in the host table."""

    row: Int64 = column(np.int64)
    number: Int64 = column(np.int64)
    forward_thread: Int64 = column(np.int64)

    @classmethod
    def among(cls, events: EventRows, first_row: int) -> AutogradOperators:
        """Read them from events of the host, which are in the host table from `first_row` on."""
        number = events.ids(NO_ID, "gradient")
        rows = np.flatnonzero(number > 0)
        threads = events.at(rows).ids(NO_ID, "forward_thread")
        return cls(first_row + rows.astype(np.int64), number[rows], threads)

    def arrows(self, host: HostEvents, strings: StringPool) -> Flows:
        """Return arrows from forward operators to the backward operators of their gradients."""
        start_ns = host.start_ns[self.row]
        return gradient_arrows(strings, self.row, start_ns, self.number, self.forward_thread)


_HIGHEST = 1 << 62
"""Upper limit of ids after which new ids are numbered, so that they do not overflow."""


class ArrowEnds(ColumnTable):
    """Ends of the arrows from calls to the tasks that they launched, in file order.

    id: the correlation of the call and its tasks. is_start: whether the end is at the call.
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
        """Count ends of unused arrows: those without and those with an opposite end in the file.

        joined: the ids of arrows that are used, because both the call and its task are read.
        """
        unused = ~np.isin(self.id, joined)
        paired = np.intersect1d(self.id[unused & self.is_start], self.id[unused & ~self.is_start])
        whole = int(np.count_nonzero(np.isin(self.id, paired[paired != NO_ID])))
        return int(np.count_nonzero(unused)) - whole, whole


class TaskOrigins(ColumnTable):
    """Fields of the events of tasks by which their launches are found, NO_ID if missing.

    process, thread: the lane of the event in the file. external: the External id. described: the
    row of its args in `Descriptions`.
    """

    process: Int64 = column(np.int64)
    thread: Int64 = column(np.int64)
    external: Int64 = column(np.int64, NO_ID)
    described: Int64 = column(np.int64, NO_ID)


@dataclass(frozen=True)
class Launches:
    """Tasks and runtime calls, with the same `connection` if one launched the other.

    calls: ordered as by `RuntimeCalls.in_order`. task_call: the row of the call of each task.
    names_calls: whether the External id of a task without a correlation is that of a runtime call
    instead of an operator.
    """

    tasks: Tasks
    calls: RuntimeCalls
    task_call: Rows
    names_calls: bool

    def are_replayed(self) -> Bool:
        """Return which tasks a graph launched or may have launched, as an (n,) mask.

        Without a recorded call, tasks that share a correlation are those of a graph. Tasks without
        a correlation may belong to a graph if the trace launches any.
        """
        connection = self.tasks.connection
        launched = self.task_call != NOT_LAUNCHED
        replayed: Bool = (connection == NO_ID) & self.calls.graph.any()
        replayed[launched] = self.calls.graph[self.task_call[launched]]
        alone = np.flatnonzero(~launched & (connection != NO_ID))
        _, group, count = np.unique(connection[alone], return_inverse=True, return_counts=True)
        replayed[alone] = count[group] > 1
        return replayed


def find_launches(
    tasks: Tasks, origins: TaskOrigins, calls: RuntimeCalls, ends: ArrowEnds
) -> Launches:
    """Find the call of each task: by correlation, else by the file's arrows, else by External id.

    Some versions for ROCm write no correlations. An External id is used only if exactly one call
    with it launches such tasks.
    """
    connection = tasks.connection.copy()
    rows = np.flatnonzero(connection == NO_ID)
    connection[rows] = _find_arrows(
        ends, origins.process[rows], origins.thread[rows], tasks.start_ns[rows]
    )
    calls = _connect_by_arrows(calls, ends)
    names_calls = bool((calls.external != NO_ID).any())
    rows = np.flatnonzero(connection == NO_ID)
    calls, connection[rows] = _connect_by_id(calls, origins.external[rows], tasks.copy[rows])
    calls = calls.take(calls.connection != NO_ID).in_order()
    tasks = replace(tasks, connection=connection)
    return Launches(tasks, calls, calls.launching(connection), names_calls)


def _connect_by_arrows(calls: RuntimeCalls, ends: ArrowEnds) -> RuntimeCalls:
    """Set the connection of calls without a correlation to the id of the arrow that ends there.

    If several calls start at once, a second pass considers only those that launch kernels.
    """
    connection = calls.connection.copy()
    for is_candidate in (np.ones(len(calls), np.bool_), calls.launches):
        rows = np.flatnonzero((connection == NO_ID) & is_candidate)
        connection[rows] = _find_arrows(
            ends, calls.process[rows], calls.thread[rows], calls.start_ns[rows]
        )
    return replace(calls, connection=connection)


def _find_arrows(ends: ArrowEnds, process: Int64, thread: Int64, start_ns: Int64) -> Int64:
    """Return the id of the arrow that ends at the start of each event, NO_ID for none.

    Several events that start at once on one thread are matched to arrows in file order if there
    are as many arrows, because writers put the ends of arrows after their events, in the same
    order.
    """
    arrow = np.full(len(start_ns), NO_ID)
    if not len(arrow) or not len(ends):
        return arrow
    _, lane = distinct_pairs(
        np.concatenate([ends.process, process]), np.concatenate([ends.thread, thread])
    )
    _, place = distinct_pairs(lane, np.concatenate([ends.start_ns, start_ns]))
    at_end, at_event = place[: len(ends)], place[len(ends) :]
    _, end = distinct_pairs(at_end, ends.id)
    single = np.sort(np.unique(end, return_index=True)[1])
    places = int(place.max()) + 1
    counts = [np.bincount(at, minlength=places) for at in (at_end[single], at_event)]
    equal = counts[0] == counts[1]
    single = single[np.argsort(at_end[single], kind="stable")]
    events = np.argsort(at_event, kind="stable")
    arrow[events[equal[at_event[events]]]] = ends.id[single[equal[at_end[single]]]]
    return arrow


def _connect_by_id(calls: RuntimeCalls, external: Int64, copy: Bool) -> tuple[RuntimeCalls, Int64]:
    """Connect tasks to the only call with their External id that launches their kind of task.

    Returns:
        The calls, of which those with such a task have a connection, and the connection of each
        task.
    """
    connection, task_connection = calls.connection.copy(), np.full(len(external), NO_ID)
    for copies, launching in ((False, calls.launches), (True, calls.copies)):
        rows = np.flatnonzero(launching & (calls.external != NO_ID))
        ids, first, count = np.unique(calls.external[rows], return_index=True, return_counts=True)
        rows, ids = rows[first[count == 1]], ids[count == 1]
        tasks = np.flatnonzero((copy == copies) & np.isin(external, ids))
        row = rows[np.searchsorted(ids, external[tasks])]
        unconnected = np.unique(row[connection[row] == NO_ID])
        highest = max(connection.max(initial=0), calls.external.max(initial=0))
        first_free = min(highest, _HIGHEST) + 1
        connection[unconnected] = first_free + np.arange(len(unconnected))
        task_connection[tasks] = connection[row]
    return replace(calls, connection=connection), task_connection
