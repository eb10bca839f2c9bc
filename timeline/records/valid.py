"""Turns records as read into records whose times make sense; what does not is counted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from timeline.records.clock import EARLIEST_WALL_NS
from timeline.records.columns import Bool
from timeline.records.tables import NO_TIME, Omission, Records, Spans

__all__ = ["valid"]


def valid(records: Records) -> Records:
    """Drop rows without a start, or that end before they start, and count them.

    So are host events on a clock that counts from the start of the host, in a profile that
    otherwise has wall time: MindSpore exports CPU operators so, decades before everything else.
    """
    omissions = list(records.omissions)

    def check(table: Spans, noun: str) -> Bool:
        known = (table.start_ns != NO_TIME) & (table.end_ns != NO_TIME)
        return counted(known & (table.end_ns >= table.start_ns), noun)

    def counted(good: Bool, noun: str) -> Bool:
        bad = int(np.count_nonzero(~good))
        if bad:
            omissions.append(Omission(f"{noun} without a valid time", bad, records.rank, loss=True))
        return good

    kept = records.kept(
        tasks=check(records.tasks, "device tasks"),
        planes=check(records.planes, "HCCL tasks"),
        ops=check(records.ops, "communication ops"),
        steps=check(records.steps, "steps"),
        parts=check(records.parts, "step parts"),
        host=check(records.host, "host events") & _on_the_clock(records, omissions),
        samples=counted(
            (records.samples.time_ns != NO_TIME) & np.isfinite(records.samples.value),
            "counter samples",
        ),
    )
    cut_flows = kept.omissions[len(records.omissions) :]
    return replace(kept, omissions=(*omissions, *cut_flows))


def _on_the_clock(records: Records, omissions: list[Omission]) -> Bool:
    """Host events that are on the clock of the device records."""
    host_ns = records.host.start_ns
    device = [table.start_ns for table in (records.tasks, records.ops, records.steps) if len(table)]
    if not device or max(int(starts.max()) for starts in device) < EARLIEST_WALL_NS:
        return np.ones(len(host_ns), np.bool_)
    good: Bool = (host_ns >= EARLIEST_WALL_NS) | (host_ns == NO_TIME)
    if not good.all():
        reason = "host events on a clock that nothing relates to the rest"
        omissions.append(Omission(reason, int((~good).sum()), records.rank, loss=True))
    return good
