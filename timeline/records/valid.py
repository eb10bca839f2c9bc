"""Turns records as read into records whose times make sense; what does not is counted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from timeline.records.columns import Bool
from timeline.records.tables import NO_TIME, Omission, Records, Spans

__all__ = ["valid"]


def valid(records: Records) -> Records:
    """Drop rows without a start, or that end before they start, and count them."""
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
        host=check(records.host, "host events"),
        samples=counted(
            (records.samples.time_ns != NO_TIME) & np.isfinite(records.samples.value),
            "counter samples",
        ),
    )
    cut_flows = kept.omissions[len(records.omissions) :]
    return replace(kept, omissions=(*omissions, *cut_flows))
