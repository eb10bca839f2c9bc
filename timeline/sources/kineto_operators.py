"""Turns operators and annotations of the host into what was open when tasks were launched."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timeline.records.columns import Codes, Int64, Rows, column
from timeline.records.distinct import distinct_pairs
from timeline.records.nesting import innermost
from timeline.records.tables import NO_ID, Spans

__all__ = ["NO_OPERATOR", "OPERATORS", "HostOperators", "TaskLaunches"]

NO_OPERATOR = -1
"""The row of what no operator launched."""
OPERATORS = frozenset({"cpu_op", "operator", "user_annotation"})
"""Categories of what launches; frames of Python are many, and around operators."""


@dataclass(frozen=True)
class TaskLaunches:
    """From which thread, and when, tasks were launched: (n,) each, of the tasks with a call."""

    process: Int64
    thread: Int64
    moment_ns: Int64


@dataclass(frozen=True)
class HostOperators(Spans):
    """Operators and annotations of the host.

    row: the row of what more is known of it in another table, NO_ID for nothing.
    """

    process: Int64 = column(np.int64)
    thread: Int64 = column(np.int64)
    name: Codes = column(np.int32)
    row: Int64 = column(np.int64, NO_ID)

    def innermost_of(self, launches: TaskLaunches) -> Rows:
        """The innermost one open at each launch, (n,) rows, NO_OPERATOR for none."""
        found = np.full(len(launches.moment_ns), NO_OPERATOR, np.intp)
        if not len(self) or not len(found):
            return found
        process = np.concatenate([self.process, launches.process])
        thread = np.concatenate([self.thread, launches.thread])
        _, lane = distinct_pairs(process, thread)
        ours, theirs = lane[: len(self)], lane[len(self) :]
        here, there = np.argsort(ours, kind="stable"), np.argsort(theirs, kind="stable")
        lanes = np.arange(int(lane.max()) + 2)
        first = np.searchsorted(ours[here], lanes)
        begin = np.searchsorted(theirs[there], lanes)
        for own in np.flatnonzero((np.diff(first) > 0) & (np.diff(begin) > 0)).tolist():
            rows = here[first[own] : first[own + 1]]
            wanted = there[begin[own] : begin[own + 1]]
            at = innermost(self.start_ns[rows], self.end_ns[rows], launches.moment_ns[wanted])
            found[wanted] = np.where(at >= 0, rows[at], NO_OPERATOR)
        return found
