"""Turns tables of trace files into records: with launches, and those of several files as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from timeline.records.columns import Int64, constant
from timeline.records.tables import (
    NO_ID,
    NO_TIME,
    CommunicationOps,
    CounterSamples,
    CounterSeries,
    FlowEnd,
    Flows,
    HostEvents,
    PlaneTasks,
    Records,
    StepParts,
    Steps,
    Tasks,
)
from timeline.sources.trace_flows import Launches
from timeline.sources.trace_tables import Calls

__all__ = ["join_records", "with_launches", "without_connections"]

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


def join_records(parts: Sequence[Records]) -> Records:
    """Join the records of several files of one rank; flows keep pointing at their rows."""
    flows, firsts = [], dict.fromkeys(FlowEnd, 0)
    for part in parts:
        shift = np.array([firsts[kind] for kind in FlowEnd])
        flows.append(
            replace(
                part.flows,
                source_row=part.flows.source_row + shift[part.flows.source_kind],
                target_row=part.flows.target_row + shift[part.flows.target_kind],
            )
        )
        for kind, table in (
            (FlowEnd.HOST, part.host),
            (FlowEnd.TASK, part.tasks),
            (FlowEnd.OP, part.ops),
            (FlowEnd.PLANE, part.planes),
        ):
            firsts[kind] += len(table)
    return Records(
        parts[0].rank,
        parts[0].strings,
        tasks=Tasks.concat(part.tasks for part in parts),
        planes=PlaneTasks.concat(part.planes for part in parts),
        ops=CommunicationOps.concat(part.ops for part in parts),
        steps=Steps.concat(part.steps for part in parts),
        parts=StepParts.concat(part.parts for part in parts),
        host=HostEvents.concat(part.host for part in parts),
        series=CounterSeries.concat(part.series for part in parts),
        samples=CounterSamples.concat(_shifted_samples(parts)),
        flows=Flows.concat(flows),
        omissions=tuple(omission for part in parts for omission in part.omissions),
        warnings=tuple(warning for part in parts for warning in part.warnings),
        hardware=parts[0].hardware,
    )


def _shifted_samples(parts: Sequence[Records]) -> list[CounterSamples]:
    shifted, first = [], 0
    for part in parts:
        shifted.append(replace(part.samples, series=part.samples.series + first))
        first += len(part.series)
    return shifted
