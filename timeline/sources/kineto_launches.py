"""Turns calls of a GPU's runtime into when tasks were launched, and into arrows to them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timeline.records.columns import Columns, Int64, Rows, column
from timeline.records.constant import constant
from timeline.records.tables import NO_ID, NO_TIME, FlowEnd, Flows
from timeline.sources.kineto_operators import TaskLaunches

__all__ = ["NOT_LAUNCHED", "RuntimeCalls"]

NOT_LAUNCHED = -1
"""The call of what no call of the trace launched."""


@dataclass(frozen=True)
class RuntimeCalls(Columns):
    """Calls with a correlation: that, their start and thread, and their row in the host table.

    The row has no meaning where the host table was not read.
    """

    connection: Int64 = column(np.int64)
    start_ns: Int64 = column(np.int64)
    process: Int64 = column(np.int64)
    thread: Int64 = column(np.int64)
    row: Int64 = column(np.int64)

    def in_order(self) -> RuntimeCalls:
        """The same by correlation, then start, as the methods below need them."""
        return self.take(np.lexsort((self.start_ns, self.connection)))

    def launching(self, connection: Int64) -> Rows:
        """The latest call of each correlation: of a call inside another, the inner one."""
        at = np.searchsorted(self.connection, connection, side="right") - 1
        found = (at >= 0) & (connection != NO_ID)
        found[found] = self.connection[at[found]] == connection[found]
        return np.where(found, at, NOT_LAUNCHED)

    def moments_ns(self, call: Rows) -> Int64:
        """When each call began, NO_TIME where there is none."""
        if not len(self):
            return constant(NO_TIME, len(call), np.int64)
        return np.where(call != NOT_LAUNCHED, self.start_ns[call], NO_TIME)

    def launches(self, call: Rows) -> TaskLaunches:
        """From where the calls launched."""
        own = self.take(call)
        return TaskLaunches(own.process, own.thread, own.start_ns)

    def arrows(self, task_call: Rows, category: int) -> Flows:
        """Arrows from calls on the host to tasks, given the call of each task."""
        launched = np.flatnonzero(task_call != NOT_LAUNCHED)
        count = len(launched)
        return Flows.of(
            count,
            {
                "category": constant(category, count, np.int32),
                "source_kind": constant(FlowEnd.HOST, count, np.int64),
                "source_row": self.row[task_call[launched]],
                "target_kind": constant(FlowEnd.TASK, count, np.int64),
                "target_row": launched,
            },
        )
