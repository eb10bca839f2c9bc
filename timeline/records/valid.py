"""Turns records as read into records whose times make sense; what does not is counted."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from timeline.records.columns import Bool, Int64
from timeline.records.copies import copies_in
from timeline.records.tables import NO_TIME, Omission, Records, Spans

__all__ = ["valid"]

MOST_APART_NS = 10 * 366 * 86_400 * 10**9
"""Ten years: no clock of one capture is that wrong."""


def valid(records: Records) -> Records:
    """Drop rows whose times make no sense, and count them.

    Those have no start, end before they start, or lie more than ten years from the others: a
    damaged time puts them there, and they would leave nothing of the picture to see. Host events
    do so where their clock counts from the start of the host in a profile that otherwise has wall
    time, as MindSpore's CPU operators do. Rows that are there twice are dropped too.
    """
    omissions = list(records.omissions)
    middle = _Middle.of(records)

    def check(table: Spans, noun: str, far: str = "more than ten years from the others") -> Bool:
        known = (table.start_ns != NO_TIME) & (table.end_ns != NO_TIME)
        timed = counted(known & (table.end_ns >= table.start_ns), f"{noun} without a valid time")
        near = middle.holds(table.start_ns) & middle.holds(table.end_ns)
        once = ~copies_in(table)
        counted(~timed | near, f"{noun} {far}")
        counted(~(timed & near) | once, f"{noun} that are there twice", loss=False)
        return timed & near & once

    def counted(good: Bool, reason: str, *, loss: bool = True) -> Bool:
        bad = int(np.count_nonzero(~good))
        if bad:
            omissions.append(Omission(reason, bad, records.rank, loss=loss))
        return good

    kept = records.kept(
        tasks=check(records.tasks, "device tasks"),
        planes=check(records.planes, "HCCL tasks"),
        ops=check(records.ops, "communication ops"),
        steps=check(records.steps, "steps"),
        parts=check(records.parts, "step parts"),
        host=check(records.host, "host events", "on a clock that nothing relates to the rest"),
        samples=counted(
            (records.samples.time_ns != NO_TIME)
            & np.isfinite(records.samples.value)
            & middle.holds(records.samples.time_ns),
            "counter samples without a valid time",
        ),
    )
    cut_flows = kept.omissions[len(records.omissions) :]
    return replace(kept, omissions=(*omissions, *cut_flows))


@dataclass(frozen=True)
class _Middle:
    """The middle of a profile in time, None where it has no records."""

    time_ns: int | None

    @classmethod
    def of(cls, records: Records) -> _Middle:
        """That of device records, else of host events."""
        device = [records.tasks.start_ns, records.ops.start_ns, records.steps.start_ns]
        for starts in (np.concatenate(device), records.host.start_ns, records.samples.time_ns):
            known = starts[starts != NO_TIME]
            if len(known):
                return cls(int(np.partition(known, len(known) // 2)[len(known) // 2]))
        return cls(None)

    def holds(self, times_ns: Int64) -> Bool:
        """Which times are within ten years of it."""
        if self.time_ns is None:
            return np.ones(len(times_ns), np.bool_)
        low, high = self.time_ns - MOST_APART_NS, self.time_ns + MOST_APART_NS
        good: Bool = (times_ns >= low) & (times_ns <= high)
        return good
