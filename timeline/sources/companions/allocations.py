"""Memory that operators allocate and release, as a list and as a counter of what they hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from timeline.columns.columns import Bool, Codes, Float64, Int64
from timeline.columns.strings import StringPool
from timeline.errors import SourceError
from timeline.ranges import MOST_BYTES
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import Allocations, Omission, OmissionCode
from timeline.sources.common.counters import SIZES, CounterBuilder, column_name, column_unit
from timeline.sources.common.decimals import interval_ns, moments_ns
from timeline.sources.common.losses import LossLog, counted_losses
from timeline.sources.companions.sample_tables import select_device_rows
from timeline.sources.decoders.csv_blocks import NOT_GIVEN, Block, RowShape, read_blocks

if TYPE_CHECKING:
    from timeline.sources.decoders.sqlite import Database

__all__ = ["GROUP", "add_allocations", "are_sound", "read_allocation_table", "read_allocations"]

GROUP, NAME = "Operator Memory", "Held by Operators"
_UNSOUND = "without a valid time or size of the allocation"
_NOT_GIVEN_SIZE = float("inf")
"""A size that the database leaves empty."""
_TABLE = "OP_MEMORY"
_TIMES = {"allocationTime": NO_TIME, "releaseTime": NO_TIME}
_NAME = "Name"
_ALLOCATED, _RELEASED, _DURATION = "Allocation Time(us)", "Release Time(us)", "Duration(us)"


def read_allocation_table(
    database: Database, device: int | None, rank: int, codes: Callable[[Int64], Codes]
) -> tuple[Allocations, list[Omission]]:
    """Read OP_MEMORY of a database, which says the same as operator_memory.csv.

    Args:
        device: the one whose rows are wanted; None is all.
        codes: of the names behind string ids.
    """
    if not database.has(_TABLE, "size", *_TIMES):
        database.note_unread(_TABLE, "size", *_TIMES)
        return Allocations.empty(), []
    where = database.where(_TABLE, "deviceId", device)
    rows = database.integers(_TABLE, {**_TIMES, "name": NO_ID}, where)
    size_bytes = database.floats(_TABLE, {"size": _NOT_GIVEN_SIZE}, where)["size"]
    allocated_ns, released_ns = rows["allocationTime"], rows["releaseTime"]
    good = are_sound(size_bytes, allocated_ns, released_ns)
    found = Allocations(
        allocated_ns[good],
        released_ns[good],
        codes(rows["name"][good]),
        np.round(size_bytes[good]).astype(np.int64),
    )
    unsound = {f"rows of {_TABLE} {_UNSOUND}": int((~good).sum())}
    return found, [*counted_losses(unsound, rank, OmissionCode.NO_TIME)]


def add_allocations(allocations: Allocations, counters: CounterBuilder) -> None:
    """Add the running sum of allocations that are not yet released, from zero at the beginning."""
    released = allocations.take(allocations.end_ns != NO_TIME)
    times_ns = np.concatenate([allocations.start_ns, released.end_ns])
    changes = np.concatenate([allocations.size_bytes, -released.size_bytes])
    order = np.argsort(times_ns, kind="stable")
    times_ns, sums = times_ns[order], np.cumsum(changes[order]).astype(np.float64)
    last = np.append(times_ns[1:] != times_ns[:-1], True)[: len(times_ns)]
    counters.add(GROUP, NAME, "B", times_ns[last], sums[last])


def are_sound(size_bytes: Float64, allocated_ns: Int64, released_ns: Int64) -> Bool:
    """Which have a size that a memory can hold, and a time, and were not released before that."""
    known = (allocated_ns != NO_TIME) & (np.abs(size_bytes) < MOST_BYTES)
    sound: Bool = known & ((released_ns == NO_TIME) | (released_ns >= allocated_ns))
    return sound


def read_allocations(
    paths: Sequence[Path], device: int | None, rank: int, strings: StringPool
) -> tuple[Allocations, list[Omission]]:
    """Each allocation in all slices of operator_memory.csv; with a device, only its rows.

    The totals beside each allocation are those of memory_record.csv at the same time, and not read.

    Raises:
        SourceError: a file cannot be read, or lacks a column.
    """
    omissions: list[Omission] = []
    parts: list[Allocations] = []
    for path in paths:
        damage = LossLog(path)
        blocks = read_blocks(path, None, (_ALLOCATED,), damage, RowShape.FULL)
        parts += [_of_block(block, device, damage, strings) for block in blocks]
        omissions += damage.omissions(rank)
    return Allocations.concat(parts), omissions


def _of_block(
    block: Block, device: int | None, damage: LossLog, strings: StringPool
) -> Allocations:
    """The allocations of the device that have a size and times; others are noted.

    Older exports give how long the memory was held instead of when it was released.
    """
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
    damage.add_lines(f"rows {_UNSOUND}", block.lines[wanted & ~good])
    wanted &= good
    return Allocations(
        allocated_ns[wanted],
        released_ns[wanted],
        block.codes(_NAME, strings, str)[wanted],
        np.round(size_bytes[wanted]).astype(np.int64),
    )
