"""Which operator of PyTorch launched a task."""

from __future__ import annotations

import numpy as np

from timeline.columns.columns import Bool, Codes, ColumnTable, Int64, Rows, column
from timeline.columns.distinct import distinct_pairs
from timeline.columns.nesting import latest_open
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.not_given import NO_ID
from timeline.records.tables import Flows, HostEvents
from timeline.sources.common.flow_events import gradient_arrows
from timeline.sources.decoders.event_rows import EventRows
from timeline.sources.kineto.tables import NOT_LAUNCHED, RuntimeCalls, ThreadIntervals

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
    """Which events of the host are calls of operators, and no frames or annotations."""
    return events.by_category(
        np.bool_,
        lambda category: bool({category, category.lower()} & _OPERATOR_CATEGORIES),
    )


class Operators(ThreadIntervals):
    """Calls of operators that may launch, with the id by which others name them."""

    number: Int64 = column(np.int64)
    name: Codes = column(np.int32)

    @classmethod
    def among(cls, events: EventRows, host: HostEvents) -> Operators:
        """The operators among events of the host, given as rows too."""
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
        """The name of the operator that launched each task, by its id or by the time of the call.

        What a graph launches belongs to no operator: those that ran when it was captured are not
        in the trace.

        Args:
            external: (n,) the id of the operator, NO_ID where a task names none.
            call: (n,) the call that launched it, NOT_LAUNCHED for none.
            calls: all calls.
        """
        row = self._numbered(external)
        launched = call != NOT_LAUNCHED
        alone = launched.copy()
        alone[launched] = ~calls.graph[call[launched]]
        row[launched & ~alone] = -1
        asked = np.flatnonzero((row < 0) & alone)
        row[asked] = innermost_open_at(self, calls.take(call[asked]))
        found = np.full(len(row), NO_NAME, np.int32)
        found[row >= 0] = self.name[row[row >= 0]]
        return found

    def _numbered(self, external: Int64) -> Rows:
        """The operator of each id, -1 for none; of several with one id the first."""
        found = np.full(len(external), -1, np.intp)
        if not len(self) or not (external != NO_ID).any():
            return found
        order = np.argsort(self.number, kind="stable")
        at = np.searchsorted(self.number, external, sorter=order)
        rows = order[np.minimum(at, len(order) - 1)]
        known = (external != NO_ID) & (self.number[rows] == external)
        found[known] = rows[known]
        return found


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


def innermost_open_at(intervals: ThreadIntervals, calls: RuntimeCalls) -> Rows:
    """The innermost interval that is open on the thread of each call, -1 for none.

    It is looked for in the middle of the call, because the clocks of both differ by
    microseconds, to which some versions round as well.
    """
    found = np.full(len(calls), -1, np.intp)
    _, lane = distinct_pairs(
        np.concatenate([intervals.process, calls.process]),
        np.concatenate([intervals.thread, calls.thread]),
    )
    lane_of, asked = lane[: len(intervals)], lane[len(intervals) :]
    order, of_asked = np.argsort(lane_of, kind="stable"), np.argsort(asked, kind="stable")
    lane_of, asked = lane_of[order], asked[of_asked]
    middle_ns = calls.start_ns + (calls.end_ns - calls.start_ns) // 2
    for number in np.unique(asked).tolist():
        rows = order[slice(*np.searchsorted(lane_of, [number, number + 1]))]
        moments = of_asked[slice(*np.searchsorted(asked, [number, number + 1]))]
        at = latest_open(intervals.start_ns[rows], intervals.end_ns[rows], middle_ns[moments])
        inside = at >= 0
        found[moments[inside]] = rows[at[inside]]
    return found
