"""Turns tables of trace files into records that tell when their tasks were launched."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np

from timeline.columns.columns import Int64
from timeline.columns.constant import constant
from timeline.records.tables import (
    NO_ID,
    NO_TIME,
    FlowEnd,
    HostEvents,
    Records,
    Tasks,
)
from timeline.sources.trace_flows import Launches
from timeline.sources.trace_tables import Calls

__all__ = ["with_launches", "without_connections"]

_Connected = TypeVar("_Connected", Tasks, HostEvents)


def with_launches(records: Records, calls: Calls, launches: Launches) -> Records:
    """Note when tasks and ops were launched: the host call of the same connection, else a flow.

    Of several calls with one connection the latest counts.
    """
    order = np.lexsort((calls.start_ns, calls.connection))
    connection, called_ns = calls.connection[order], calls.start_ns[order]

    def launch_ns(kind: FlowEnd, own: Int64) -> Int64:
        made = np.full(len(own), NO_TIME, np.int64)
        of_kind = launches.kind == kind
        np.maximum.at(made, launches.row[of_kind], launches.time_ns[of_kind])
        at = np.searchsorted(connection, own, side="right") - 1
        found = (at >= 0) & (own != NO_ID)
        found[found] = connection[at[found]] == own[found]
        made[found] = called_ns[at[found]]
        return made

    tasks, ops = records.tasks, records.ops
    return replace(
        records,
        tasks=replace(tasks, launch_ns=launch_ns(FlowEnd.TASK, tasks.connection)),
        ops=replace(ops, launch_ns=launch_ns(FlowEnd.OP, ops.connection)),
    )


def without_connections(records: Records) -> Records:
    """Connections have told when tasks were launched; nothing else asks for them."""

    def without(table: _Connected) -> _Connected:
        return replace(table, connection=constant(NO_ID, len(table), np.int64))

    return replace(records, tasks=without(records.tasks), host=without(records.host))
