"""Turns the memory that operators took and gave back into a counter of what they hold."""

from __future__ import annotations

import numpy as np

from timeline.columns.columns import Bool, Float64, Int64
from timeline.records.tables import NO_TIME, Omission, OmissionCode
from timeline.sources.common.counters import SampleCollector
from timeline.sources.common.damage import left_out
from timeline.sources.decoders.sqlite import Database

__all__ = ["GROUP", "UNSOUND", "add_held", "are_sound", "read_operator_memory_table"]

GROUP, NAME = "Operator Memory", "Held by Operators"
UNSOUND = "without a valid time or size of the allocation"
NOT_SAMPLED = float("inf")
"""A size that the database leaves empty."""


def read_operator_memory_table(
    database: Database, device: int | None, rank: int, into: SampleCollector
) -> list[Omission]:
    """Read OP_MEMORY of a database, which says the same as operator_memory.csv."""
    if not database.has("OP_MEMORY", "size", "allocationTime", "releaseTime"):
        return []
    only = device is not None and database.has("OP_MEMORY", "deviceId")
    where = f'WHERE "deviceId" = {device}' if only else ""
    times = {"allocationTime": NO_TIME, "releaseTime": NO_TIME}
    held = database.integers("OP_MEMORY", times, where)
    sizes = database.floats("OP_MEMORY", {"size": NOT_SAMPLED}, where)["size"]
    return add_held(sizes, held["allocationTime"], held["releaseTime"], "OP_MEMORY", rank, into)


def add_held(
    size_bytes: Float64,
    taken_ns: Int64,
    given_back_ns: Int64,
    file: str,
    rank: int,
    into: SampleCollector,
) -> list[Omission]:
    """Add the running sum of what was taken and not yet given back, from zero at the beginning.

    Args:
        size_bytes, taken_ns, given_back_ns: (n,) one allocation each.
    """
    good = are_sound(size_bytes, taken_ns, given_back_ns)
    returned = good & (given_back_ns != NO_TIME)
    times_ns = np.concatenate([taken_ns[good], given_back_ns[returned]])
    changes = np.concatenate([size_bytes[good], -size_bytes[returned]])
    order = np.argsort(times_ns, kind="stable")
    times_ns, sums = times_ns[order], np.cumsum(changes[order])
    last = np.append(times_ns[1:] != times_ns[:-1], True) if len(times_ns) else np.empty(0, bool)
    into.add(GROUP, NAME, "B", times_ns[last], sums[last])
    unsound = {f"rows of {file} {UNSOUND}": int((~good).sum())}
    return [*left_out(unsound, rank, OmissionCode.NO_TIME)]


def are_sound(size_bytes: Float64, taken_ns: Int64, given_back_ns: Int64) -> Bool:
    """Which allocations have a size and a time, and were not given back before they were taken."""
    known = (taken_ns != NO_TIME) & np.isfinite(size_bytes)
    sound: Bool = known & ((given_back_ns == NO_TIME) | (given_back_ns >= taken_ns))
    return sound
