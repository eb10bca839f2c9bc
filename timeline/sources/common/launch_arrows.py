"""Arrows from calls of the host to what they launched on the device, by connection."""

from __future__ import annotations

import numpy as np

from timeline.columns.columns import Int64, Rows, take
from timeline.columns.constant import constant
from timeline.columns.strings import StringPool
from timeline.records.not_given import NO_ID
from timeline.records.tables import CommunicationOps, FlowEnd, Flows, Tasks
from timeline.sources.decoders.joins import pairs_by_key, rows_in

__all__ = ["ArrowTargets", "build_arrows"]


class ArrowTargets:
    """Tasks and ops as ends of arrows.

    The tasks of a communication op share its connection; the arrow goes to the op alone.
    """

    def __init__(self, strings: StringPool, tasks: Tasks, ops: CommunicationOps) -> None:
        self._strings = strings
        self._op_connection = ops.connection
        others = np.append(ops.connection, NO_ID)
        self._task_rows = rows_in(tasks.connection, others, invert=True)
        self._task_connection = take(tasks.connection, self._task_rows)

    def arrows(self, category: str, connection: Int64, host_row: Rows) -> list[Flows]:
        """One arrow per host call and device record of the same connection."""
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
    """Arrows from rows of the host's calls to rows of one other table."""
    count = len(source)
    return Flows.of(
        count,
        {
            "category": constant(strings.code(category), count, np.int32),
            "source_kind": constant(FlowEnd.HOST, count, np.int64),
            "source_row": source,
            "target_kind": constant(kind, count, np.int64),
            "target_row": target,
        },
    )
