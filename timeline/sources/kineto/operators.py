"""Turns operators of PyTorch and calls of the runtime into which operator launched a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from timeline.columns.columns import Codes, Int64, Rows, column
from timeline.columns.distinct import distinct_pairs
from timeline.columns.nesting import latest_open
from timeline.columns.strings import NO_NAME
from timeline.records.tables import NO_ID, HostEvents, Spans
from timeline.sources.kineto.events import NO_ARGS, Activity
from timeline.sources.kineto.tables import NOT_LAUNCHED, RuntimeCalls
from timeline.sources.trace_json.event_fields import first_ids

__all__ = ["OnThreads", "Operators", "external_ids", "is_operator", "open_at"]

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


def is_operator(event: Activity) -> bool:
    """Whether an event of the host is a call of an operator, and no frame or annotation."""
    return event.cat in _OPERATOR_CATEGORIES or event.cat.lower() in _OPERATOR_CATEGORIES


def external_ids(events: Sequence[Activity]) -> Int64:
    """The operator that each event names as what it belongs to; the first versions spell it small.

    Versions from 2.0 to 2.1 write the correlation there, and it is no operator then.
    """
    args = [event.args or NO_ARGS for event in events]
    found = first_ids([arg.external for arg in args], [arg.external_small for arg in args], NO_ID)
    connection = first_ids([arg.correlation for arg in args], [None] * len(args), NO_ID)
    return np.where((found > 0) & (found != connection), found, NO_ID)


@dataclass(frozen=True)
class OnThreads(Spans):
    """Intervals on threads of the host."""

    process: Int64 = column(np.int64)
    thread: Int64 = column(np.int64)


@dataclass(frozen=True)
class Operators(OnThreads):
    """Calls of operators that may launch, with the id by which others name them."""

    number: Int64 = column(np.int64)
    name: Codes = column(np.int32)

    @classmethod
    def among(cls, events: Sequence[Activity], host: HostEvents) -> Operators:
        """The operators among events of the host, given as rows too."""
        launching = (is_operator(one) and one.name not in _NEVER_LAUNCHING for one in events)
        rows = np.flatnonzero(np.fromiter(launching, np.bool_, len(events)))
        args = [events[row].args or NO_ARGS for row in rows.tolist()]
        small = [arg.external_small for arg in args]
        return cls(
            host.start_ns[rows],
            host.end_ns[rows],
            host.process[rows],
            host.thread[rows],
            first_ids([arg.external for arg in args], small, NO_ID),
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
        row[asked] = open_at(self, calls.take(call[asked]))
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


def open_at(held: OnThreads, calls: RuntimeCalls) -> Rows:
    """The innermost interval that is open on the thread of each call, -1 for none.

    It is looked for in the middle of the call, because the clocks of both differ by
    microseconds, to which some versions round as well.
    """
    found = np.full(len(calls), -1, np.intp)
    _, lane = distinct_pairs(
        np.concatenate([held.process, calls.process]),
        np.concatenate([held.thread, calls.thread]),
    )
    own, asked = lane[: len(held)], lane[len(held) :]
    order, of_asked = np.argsort(own, kind="stable"), np.argsort(asked, kind="stable")
    own, asked = own[order], asked[of_asked]
    middle_ns = calls.start_ns + (calls.end_ns - calls.start_ns) // 2
    for number in np.unique(asked).tolist():
        rows = order[slice(*np.searchsorted(own, [number, number + 1]))]
        moments = of_asked[slice(*np.searchsorted(asked, [number, number + 1]))]
        at = latest_open(held.start_ns[rows], held.end_ns[rows], middle_ns[moments])
        inside = at >= 0
        found[moments[inside]] = rows[at[inside]]
    return found
