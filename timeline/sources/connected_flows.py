"""Adds arrows that a trace leaves out to those it has: from calls to tasks of one connection."""

from __future__ import annotations

import numpy as np

from timeline.columns.columns import Int64
from timeline.records.tables import FlowEnd, Flows, Records
from timeline.sources.common.launch_arrows import DeviceRecords
from timeline.sources.trace_flows import ResolvedFlows

__all__ = ["connected_flows"]

CALLS = "CANN"
LAUNCH = "HostToDevice"


def connected_flows(records: Records, resolved: ResolvedFlows) -> tuple[Flows, int]:
    """The arrows of a trace, those that connections add, and how many still lack an end.

    Some exporters write one end of an arrow only, or neither, although the call and the task share
    a connection. A database holds connections alone, and its arrows are these.
    """
    host, strings = records.host, records.strings
    rows = np.flatnonzero(host.layer == strings.code(CALLS))
    device = DeviceRecords(strings, records.tasks, records.ops)
    found = Flows.concat(device.arrows(LAUNCH, host.connection[rows], rows))
    drawn = resolved.flows.take(resolved.flows.category == strings.code(LAUNCH))
    found = found.take(~np.isin(_targets(found), _targets(drawn)))
    lacking = resolved.lacking
    completed = np.isin(_targets(lacking), _targets(found))
    completed |= np.isin(_sources(lacking), _sources(found))
    return Flows.concat([resolved.flows, found]), int(np.count_nonzero(~completed))


def _targets(flows: Flows) -> Int64:
    """One number for each target, negative where there is none."""
    return flows.target_row * len(FlowEnd) + flows.target_kind


def _sources(flows: Flows) -> Int64:
    """The same for each source."""
    return flows.source_row * len(FlowEnd) + flows.source_kind
