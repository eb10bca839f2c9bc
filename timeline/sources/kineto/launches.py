"""Which call launched each task: by correlation, by the file's own arrows, or by External id."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from timeline.columns.columns import Bool, ColumnTable, Int64, Rows, column
from timeline.columns.distinct import distinct_pairs
from timeline.records.not_given import NO_ID
from timeline.records.tables import Tasks
from timeline.sources.decoders.event_columns import ARROW_START, EventColumns
from timeline.sources.decoders.event_rows import EventRows
from timeline.sources.kineto.tables import NOT_LAUNCHED, RuntimeCalls, correlations

_HIGHEST = 1 << 62
"""Ids above this one are no numbers that a program counted."""


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
    """What the event of each task says of where it came from, NO_ID for nothing.

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
    """Number calls without a correlation by the arrow that ends at them."""
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
    """Number tasks as the one call that has their External id and launches what they are.

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
