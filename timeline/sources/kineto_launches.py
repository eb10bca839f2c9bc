"""Turns calls of a GPU's runtime into when tasks were launched, and into arrows to them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timeline.columns.columns import Bool, Columns, Int64, Rows, column
from timeline.columns.constant import constant
from timeline.columns.distinct import distinct
from timeline.columns.strings import StringPool
from timeline.records.tables import NO_ID, NO_TIME, FlowEnd, Flows, HostEvents

__all__ = ["NOT_LAUNCHED", "RuntimeCalls"]

NOT_LAUNCHED = -1
"""The call of what no call of the trace launched."""
_GRAPH_LAUNCH = "graphlaunch"
"""cudaGraphLaunch, cuGraphLaunch, hipGraphLaunch."""


@dataclass(frozen=True)
class RuntimeCalls(Columns):
    """Calls with a correlation: that, their times and thread, and their row in the host table.

    The row has no meaning where the host table was not read.
    """

    connection: Int64 = column(np.int64)
    start_ns: Int64 = column(np.int64)
    end_ns: Int64 = column(np.int64)
    row: Int64 = column(np.int64)
    process: Int64 = column(np.int64)
    thread: Int64 = column(np.int64)
    graph: Bool = column(np.bool_)
    """Whether it launches a graph, which was captured before."""

    @classmethod
    def among(cls, host: HostEvents, first_row: int, strings: StringPool) -> RuntimeCalls:
        """Those of a part of the host table that starts at a row."""
        graphs = [
            code for code in distinct(host.name).tolist() if _GRAPH_LAUNCH in strings[code].lower()
        ]
        calls = cls(
            host.connection,
            host.start_ns,
            host.end_ns,
            first_row + np.arange(len(host)),
            host.process,
            host.thread,
            np.isin(host.name, np.array(graphs, np.int32)),
        )
        return calls.take(calls.connection != NO_ID)

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
