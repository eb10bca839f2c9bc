"""Records without what was read to tell causes and is not drawn."""

from __future__ import annotations

from dataclasses import replace

from timeline.analysis.host_offset import drop_early_arrows
from timeline.layers import HOST_LAYERS, Layer
from timeline.records.tables import CounterSamples, Flows, HostEvents, Omission, Records

__all__ = ["drawn_records", "omissions_of_drawn"]


def drawn_records(records: Records, drawn: frozenset[Layer]) -> Records:
    """Records without host calls, arrows and samples, unless a layer that is drawn needs them."""
    records = drop_early_arrows(records)
    needed = drawn & (HOST_LAYERS | {Layer.ARROWS})
    return replace(
        records,
        host=records.host if needed else HostEvents.empty(),
        samples=records.samples if Layer.COUNTERS in drawn else CounterSamples.empty(),
        flows=records.flows if Layer.ARROWS in drawn else Flows.empty(),
        omissions=omissions_of_drawn(records, drawn),
    )


def omissions_of_drawn(records: Records, drawn: frozenset[Layer]) -> tuple[Omission, ...]:
    """What is left out of layers that are drawn, and of what counts whatever is drawn."""
    if records.communication_rule.of_tasks:
        drawn |= {Layer.COMMUNICATION}
    return tuple(
        omission for omission in records.omissions if not omission.layers or omission.layers & drawn
    )
