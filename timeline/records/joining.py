"""Records of one rank from several files, joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from timeline.records.counting_rules import FreeRule
from timeline.records.tables import (
    Allocations,
    CommunicationOps,
    CounterSamples,
    CounterSeries,
    FlowEnd,
    Flows,
    GroupMembers,
    HostEvents,
    PlaneTasks,
    Records,
    StepParts,
    Steps,
    Tasks,
)
from timeline.records.vendor import VendorFigures, VendorLinks


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
        notes=tuple(note for part in parts for note in part.notes),
        vendor=VendorFigures.concat(part.vendor for part in parts),
        vendor_links=VendorLinks.concat(part.vendor_links for part in parts),
        unused=tuple(unused for part in parts for unused in part.unused),
        hardware=parts[0].hardware,
        tells_copies=all(part.tells_copies for part in parts),
        tells_free=all(part.tells_free for part in parts),
        free_rule=FreeRule.join([part.free_rule for part in parts]),
        communication_rule=parts[0].communication_rule,
        members=GroupMembers.concat(part.members for part in parts),
        allocations=Allocations.concat(part.allocations for part in parts),
        reserved_bytes=max(part.reserved_bytes for part in parts),
        tables_only=parts[0].tables_only,
    )


def _shifted_samples(parts: Sequence[Records]) -> list[CounterSamples]:
    shifted, first = [], 0
    for part in parts:
        shifted.append(replace(part.samples, series=part.samples.series + first))
        first += len(part.series)
    return shifted
