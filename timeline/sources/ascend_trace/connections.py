"""Launch times and arrows that the connection ids of an Ascend trace tell."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np

from timeline.columns.columns import ColumnTable, Int64, column
from timeline.columns.constant import constant
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import FlowEnd, Flows, HostEvents, Records, Tasks
from timeline.sources.ascend_trace.lanes import LaneEvents
from timeline.sources.common.flow_events import ArrowTargets, Launches, ResolvedFlows
from timeline.sources.decoders.joins import are_in

CALLS = "CANN"
CONNECTION_LAUNCH = "HostToDevice"
_Connected = TypeVar("_Connected", Tasks, HostEvents)


class Calls(ColumnTable):
    """Host calls that launched something: their connection, and when they began."""

    connection: Int64 = column(np.int64)
    start_ns: Int64 = column(np.int64)

    @classmethod
    def of_host(cls, host: HostEvents) -> Calls:
        """The calls among host events."""
        rows = host.connection != NO_ID
        return cls(host.connection[rows], host.start_ns[rows])

    @classmethod
    def of_lanes(cls, lanes: LaneEvents) -> Calls:
        """The calls among events that do not become host events."""
        connection = lanes.ids(NO_ID, "connection")
        rows = np.flatnonzero(connection != NO_ID)
        return cls(connection[rows], lanes.spans(rows)["start_ns"])


def with_launches(records: Records, calls: Calls, launches: Launches) -> Records:
    """Note when tasks and ops were launched: the host call of the same connection, else a flow.

    Of several calls with one connection the latest counts.
    """
    order = np.lexsort((calls.start_ns, calls.connection))
    connection, called_ns = calls.connection[order], calls.start_ns[order]

    def launch_ns(kind: FlowEnd, wanted: Int64) -> Int64:
        made = np.full(len(wanted), NO_TIME, np.int64)
        of_kind = launches.kind == kind
        np.maximum.at(made, launches.row[of_kind], launches.time_ns[of_kind])
        at = np.searchsorted(connection, wanted, side="right") - 1
        found = (at >= 0) & (wanted != NO_ID)
        found[found] = connection[at[found]] == wanted[found]
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


def connected_flows(records: Records, resolved: ResolvedFlows) -> tuple[Flows, int]:
    """The arrows of a trace, those that connections add, and how many still lack an end.

    Some exporters write one end of an arrow only, or neither, although the call and the task share
    a connection. A database holds connections alone, and its arrows are these.
    """
    host, strings = records.host, records.strings
    rows = np.flatnonzero(host.layer == strings.code(CALLS))
    device = ArrowTargets(strings, records.tasks, records.ops)
    found = Flows.concat(device.arrows(CONNECTION_LAUNCH, host.connection[rows], rows))
    drawn = resolved.flows.take(resolved.flows.category == strings.code(CONNECTION_LAUNCH))
    found = found.take(~are_in(_targets(found), _targets(drawn)))
    lacking = resolved.lacking
    completed = are_in(_targets(lacking), _targets(found))
    completed |= are_in(_sources(lacking), _sources(found))
    return Flows.concat([resolved.flows, found]), int(np.count_nonzero(~completed))


def _targets(flows: Flows) -> Int64:
    """One number for each target, negative where there is none."""
    return flows.target_row * len(FlowEnd) + flows.target_kind


def _sources(flows: Flows) -> Int64:
    """One number for each source, negative where there is none."""
    return flows.source_row * len(FlowEnd) + flows.source_kind
