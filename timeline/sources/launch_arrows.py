"""Turns connections into arrows from calls of the host to what they launched on the device."""

from __future__ import annotations

import numpy as np

from timeline.records.columns import Int64, Rows
from timeline.records.strings import StringPool
from timeline.records.tables import NO_ID, CommunicationOps, FlowEnd, Flows, Tasks
from timeline.sources.database_joins import pairs_by_key

__all__ = ["DeviceRecords", "arrows_between"]


class DeviceRecords:
    """Tasks and ops as ends of arrows.

    The tasks of a communication op share its connection; the arrow goes to the op alone.
    """

    def __init__(self, strings: StringPool, tasks: Tasks, ops: CommunicationOps) -> None:
        self._strings = strings
        self._op_connection = ops.connection
        of_op = np.isin(tasks.connection, ops.connection)
        self._task_rows = np.flatnonzero(~of_op & (tasks.connection != NO_ID))
        self._task_connection = tasks.connection[self._task_rows]

    def arrows(self, category: str, connection: Int64, host_row: Rows) -> list[Flows]:
        """One arrow per host call and device record of the same connection."""
        held = connection != NO_ID
        connection, host_row = connection[held], host_row[held]
        source, op = pairs_by_key(connection, self._op_connection)
        caller, task = pairs_by_key(connection, self._task_connection)
        return [
            arrows_between(self._strings, category, FlowEnd.OP, host_row[source], op),
            arrows_between(
                self._strings, category, FlowEnd.TASK, host_row[caller], self._task_rows[task]
            ),
        ]


def arrows_between(
    strings: StringPool, category: str, kind: FlowEnd, source: Rows, target: Rows
) -> Flows:
    """Arrows from rows of the host's calls to rows of one other table."""
    count = len(source)
    return Flows.of(
        count,
        {
            "category": np.full(count, strings.code(category)),
            "source_kind": np.full(count, FlowEnd.HOST),
            "source_row": source,
            "target_kind": np.full(count, kind),
            "target_row": target,
        },
    )
