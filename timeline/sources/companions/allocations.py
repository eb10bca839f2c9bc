"""A counter of the memory that operators hold, from their allocations and releases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from timeline.columns.columns import Bool, Codes, Float64, Int64
from timeline.columns.strings import NO_NAME, StringPool
from timeline.errors import SourceError
from timeline.frozen import dataclass
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

__all__ = [
    "GROUP",
    "UNSOUND",
    "add_allocations",
    "are_sound",
    "read_allocation_table",
    "read_allocations",
    "read_operator_memory",
    "read_operator_memory_table",
]

GROUP, NAME = "Operator Memory", "Held by Operators"
UNSOUND = "without a valid time or size of the allocation"
NOT_SAMPLED = float("inf")
"""A size that the database leaves empty."""


_TABLE = "OP_MEMORY"
_TIMES = {"allocationTime": NO_TIME, "releaseTime": NO_TIME}


def read_operator_memory_table(
    database: Database, device: int | None, rank: int, counters: CounterBuilder
) -> list[Omission]:
    """Read OP_MEMORY of a database, which says the same as operator_memory.csv."""
    if not database.has(_TABLE, "size", *_TIMES):
        database.note_unread(_TABLE, "size", *_TIMES)
        return []
    where = database.where(_TABLE, "deviceId", device)
    times_ns = database.integers(_TABLE, _TIMES, where)
    sizes = database.floats(_TABLE, {"size": NOT_SAMPLED}, where)["size"]
    return add_allocations(
        sizes, times_ns["allocationTime"], times_ns["releaseTime"], _TABLE, rank, counters
    )


def read_allocation_table(
    database: Database, device: int | None, rank: int, codes: Callable[[Int64], Codes]
) -> tuple[Allocations, list[Omission]]:
    """Read each row of OP_MEMORY of a database; with a device, only its rows.

    codes: of the names behind string ids.
    """
    if not database.has(_TABLE, "size", *_TIMES):
        return Allocations.empty(), []
    where = database.where(_TABLE, "deviceId", device)
    rows = database.integers(_TABLE, {**_TIMES, "name": NO_ID}, where)
    sizes = database.floats(_TABLE, {"size": NOT_SAMPLED}, where)["size"]
    allocated_ns, released_ns = rows["allocationTime"], rows["releaseTime"]
    good = are_sound(sizes, allocated_ns, released_ns)
    found = Allocations(
        allocated_ns[good],
        released_ns[good],
        codes(rows["name"][good]),
        np.round(sizes[good]).astype(np.int64),
    )
    unsound = {f"rows of {_TABLE} {UNSOUND}": int((~good).sum())}
    return found, [*counted_losses(unsound, rank, OmissionCode.NO_TIME)]


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
    """Which have a size that a memory can hold, and a time, and were not released before that."""
    known = (allocated_ns != NO_TIME) & (np.abs(size_bytes) < MOST_BYTES)
    sound: Bool = known & ((released_ns == NO_TIME) | (released_ns >= allocated_ns))
    return sound


_NAME = "Name"
_ALLOCATED, _RELEASED, _DURATION = "Allocation Time(us)", "Release Time(us)", "Duration(us)"


@dataclass(frozen=True)
class _Rows:
    """Rows of the file: sizes, times, NO_TIME where one was not released, and names."""

    size_bytes: Float64
    allocated_ns: Int64
    released_ns: Int64
    name: Codes


def read_operator_memory(
    paths: Sequence[Path], device: int | None, rank: int, counters: CounterBuilder
) -> list[Omission]:
    """Read all slices of operator_memory.csv; with a device, only its rows.

    The totals beside each allocation are those of memory_record.csv at the same time, and not read.

    Raises:
        SourceError: a file cannot be read, or lacks a column.
    """
    rows, omissions = _read_rows(paths, device, rank, None)
    if rows is not None:
        omissions += add_allocations(
            rows.size_bytes, rows.allocated_ns, rows.released_ns, paths[0].name, rank, counters
        )
    return omissions


def read_allocations(
    paths: Sequence[Path], device: int | None, rank: int, strings: StringPool
) -> tuple[Allocations, list[Omission]]:
    """Each allocation in all slices of operator_memory.csv; with a device, only its rows.

    Raises:
        SourceError: a file cannot be read, or lacks a column.
    """
    rows, omissions = _read_rows(paths, device, rank, strings)
    if rows is None:
        return Allocations.empty(), omissions
    size_bytes = np.round(rows.size_bytes).astype(np.int64)
    return Allocations(rows.allocated_ns, rows.released_ns, rows.name, size_bytes), omissions


def _read_rows(
    paths: Sequence[Path], device: int | None, rank: int, strings: StringPool | None
) -> tuple[_Rows | None, list[Omission]]:
    """The rows of all slices, with their names if those are wanted, and what was left out."""
    omissions: list[Omission] = []
    parts: list[_Rows] = []
    for path in paths:
        damage = LossLog(path)
        blocks = read_blocks(path, None, (_ALLOCATED,), damage, RowShape.FULL)
        parts += [_of_block(block, device, damage, strings) for block in blocks]
        omissions += damage.omissions(rank)
    if not parts:
        return None, omissions
    every = _Rows(
        np.concatenate([part.size_bytes for part in parts]),
        np.concatenate([part.allocated_ns for part in parts]),
        np.concatenate([part.released_ns for part in parts]),
        np.concatenate([part.name for part in parts]),
    )
    return every, omissions


def _of_block(
    block: Block, device: int | None, damage: LossLog, strings: StringPool | None
) -> _Rows:
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
    damage.add_lines(f"rows {UNSOUND}", block.lines[wanted & ~good])
    wanted &= good
    names = None if strings is None else block.codes(_NAME, strings, str)
    return _Rows(
        size_bytes[wanted],
        allocated_ns[wanted],
        released_ns[wanted],
        np.full(int(wanted.sum()), NO_NAME, np.int32) if names is None else names[wanted],
    )
