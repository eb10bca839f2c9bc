"""What is known of a capture's clock, and records moved by a constant."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from timeline.records.columns import Int64
from timeline.records.tables import NO_TIME, Records

__all__ = ["Clock", "shifted"]


@dataclass(frozen=True)
class Clock:
    """How a capture's times relate to those of other captures.

    `host` names the machine, empty where the capture does not; captures of one machine share a
    clock. `wall_offset_ns` turns its monotonic clock into wall time, where that is known.
    """

    host: str = ""
    wall_offset_ns: int | None = None


def shifted(records: Records, offset_ns: int) -> Records:
    """All times of all tables moved by the same constant; absent times stay absent."""
    if not offset_ns:
        return records

    def moved(times_ns: Int64) -> Int64:
        made: Int64 = np.where(times_ns == NO_TIME, NO_TIME, times_ns + offset_ns)
        return made

    def span(table):  # type: ignore[no-untyped-def]
        return {"start_ns": moved(table.start_ns), "end_ns": moved(table.end_ns)}

    tasks, planes, ops, steps = records.tasks, records.planes, records.ops, records.steps
    return replace(
        records,
        tasks=replace(tasks, **span(tasks), launch_ns=moved(tasks.launch_ns)),
        planes=replace(planes, **span(planes), launch_ns=moved(planes.launch_ns)),
        ops=replace(ops, **span(ops), launch_ns=moved(ops.launch_ns)),
        steps=replace(steps, **span(steps), fp_start_ns=moved(steps.fp_start_ns),
                      bp_end_ns=moved(steps.bp_end_ns)),
        parts=replace(records.parts, **span(records.parts)),
        host=replace(records.host, **span(records.host)),
        samples=replace(records.samples, time_ns=moved(records.samples.time_ns)),
    )
