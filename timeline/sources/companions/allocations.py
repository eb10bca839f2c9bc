"""A counter of the memory that operators hold, from their allocations and releases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from timeline.columns.columns import Bool, Float64, Int64
from timeline.errors import SourceError
from timeline.records.tables import NO_TIME, Omission, OmissionCode
from timeline.sources.common.counters import SIZES, CounterBuilder, column_name, column_unit
from timeline.sources.common.decimals import interval_ns, moments_ns
from timeline.sources.common.losses import LossLog, counted_losses
from timeline.sources.companions.sample_tables import select_device_rows
from timeline.sources.decoders.csv_blocks import NOT_GIVEN, Block, RowShape, read_blocks
from timeline.sources.decoders.sqlite import Database

__all__ = [
    "GROUP",
    "UNSOUND",
    "add_allocations",
    "are_sound",
    "read_operator_memory",
    "read_operator_memory_table",
]

GROUP, NAME = "Operator Memory", "Held by Operators"
UNSOUND = "without a valid time or size of the allocation"
NOT_SAMPLED = float("inf")
"""A size that the database leaves empty."""


def read_operator_memory_table(
    database: Database, device: int | None, rank: int, counters: CounterBuilder
) -> list[Omission]:
    """Read OP_MEMORY of a database, which says the same as operator_memory.csv."""
    if not database.has("OP_MEMORY", "size", "allocationTime", "releaseTime"):
        return []
    only = device is not None and database.has("OP_MEMORY", "deviceId")
    where = f'WHERE "deviceId" = {device}' if only else ""
    times = {"allocationTime": NO_TIME, "releaseTime": NO_TIME}
    times_ns = database.integers("OP_MEMORY", times, where)
    sizes = database.floats("OP_MEMORY", {"size": NOT_SAMPLED}, where)["size"]
    return add_allocations(
        sizes, times_ns["allocationTime"], times_ns["releaseTime"], "OP_MEMORY", rank, counters
    )


def add_allocations(
    size_bytes: Float64,
    allocated_ns: Int64,
    released_ns: Int64,
    file: str,
    rank: int,
    counters: CounterBuilder,
) -> list[Omission]:
    """Add the running sum of allocations that are not yet released, from zero at the beginning.

    Args:
        size_bytes, allocated_ns, released_ns: (n,) one allocation each.
    """
    good = are_sound(size_bytes, allocated_ns, released_ns)
    released = good & (released_ns != NO_TIME)
    times_ns = np.concatenate([allocated_ns[good], released_ns[released]])
    changes = np.concatenate([size_bytes[good], -size_bytes[released]])
    order = np.argsort(times_ns, kind="stable")
    times_ns, sums = times_ns[order], np.cumsum(changes[order])
    last = np.append(times_ns[1:] != times_ns[:-1], True) if len(times_ns) else np.empty(0, bool)
    counters.add(GROUP, NAME, "B", times_ns[last], sums[last])
    unsound = {f"rows of {file} {UNSOUND}": int((~good).sum())}
    return [*counted_losses(unsound, rank, OmissionCode.NO_TIME)]


def are_sound(size_bytes: Float64, allocated_ns: Int64, released_ns: Int64) -> Bool:
    """Which allocations have a size and a time, and were not released before they were made."""
    known = (allocated_ns != NO_TIME) & np.isfinite(size_bytes)
    sound: Bool = known & ((released_ns == NO_TIME) | (released_ns >= allocated_ns))
    return sound


_ALLOCATED, _RELEASED, _DURATION = "Allocation Time(us)", "Release Time(us)", "Duration(us)"


@dataclass(frozen=True)
class _Allocations:
    """Memory by operator: a row per allocation, NO_TIME where it was not released."""

    size_bytes: Float64
    allocated_ns: Int64
    released_ns: Int64


def read_operator_memory(
    paths: Sequence[Path], device: int | None, rank: int, counters: CounterBuilder
) -> list[Omission]:
    """Read all slices of operator_memory.csv; with a device, only its rows.

    Older exports give how long the memory was held instead of when it was released. The totals
    beside each allocation are those of memory_record.csv at the same time, and not read.

    Raises:
        SourceError: a file cannot be read, or lacks a column.
    """
    omissions: list[Omission] = []
    parts: list[_Allocations] = []
    for path in paths:
        damage = LossLog(path)
        blocks = read_blocks(path, None, (_ALLOCATED,), damage, RowShape.FULL)
        parts += [_of_block(block, device, damage) for block in blocks]
        omissions += damage.omissions(rank)
    if parts:
        every = _Allocations(
            np.concatenate([part.size_bytes for part in parts]),
            np.concatenate([part.allocated_ns for part in parts]),
            np.concatenate([part.released_ns for part in parts]),
        )
        omissions += add_allocations(
            every.size_bytes, every.allocated_ns, every.released_ns, paths[0].name, rank, counters
        )
    return omissions


def _of_block(block: Block, device: int | None, damage: LossLog) -> _Allocations:
    """The allocations of the device that have a size and times; others are noted."""
    size = next((column for column in block.header if column_name(column) == "Size"), "")
    if column_unit(size) not in SIZES:
        raise SourceError(damage.path, "has no column Size(KB).")
    taken = block.cells(_ALLOCATED)
    allocated_ns = moments_ns(taken)
    if _RELEASED in block:
        released_ns = moments_ns(block.cells(_RELEASED))
    else:
        lengths = [
            b"N/A" if cell in NOT_GIVEN else cell.encode() for cell in block.texts(_DURATION)
        ]
        _, released_ns = interval_ns(taken, lengths)
    size_bytes = block.reals(size)[0] * SIZES[column_unit(size)]
    wanted = select_device_rows(block, device)
    good = are_sound(size_bytes, allocated_ns, released_ns)
    damage.add_lines(f"rows {UNSOUND}", block.lines[wanted & ~good])
    wanted &= good
    return _Allocations(size_bytes[wanted], allocated_ns[wanted], released_ns[wanted])
