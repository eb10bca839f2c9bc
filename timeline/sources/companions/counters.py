"""Counters, allocations and reserved memory from CSV tables in the directory of a capture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from timeline.columns.columns import Bool, Codes, Float64, Int64
from timeline.columns.group_by import group_by
from timeline.columns.strings import StringPool
from timeline.errors import SourceError
from timeline.layers import Layer
from timeline.ranges import MOST_BYTES
from timeline.records.joining import join_records
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import Allocations, Omission, OmissionCode, Records
from timeline.sources.common.counter_tables import OPERATOR_MEMORY, CounterTable, csv_tables
from timeline.sources.common.counters import (
    DEVICES,
    SIZES,
    CounterBuilder,
    Labels,
    column_name,
    column_unit,
    first_of,
    select_device_rows,
    whole_bytes,
)
from timeline.sources.common.decimals import interval_ns, parse_times_ns
from timeline.sources.common.losses import LossLog, LostRows, counted_losses
from timeline.sources.decoders.csv_blocks import NOT_GIVEN, Block, RowShape, read_blocks
from timeline.sources.source import ReadRequest

if TYPE_CHECKING:
    from timeline.sources.decoders.sqlite import Database

_TIMES = ("Timestamp(us)", "timestamp(us)", "Start Time(us)")


def _read_blocks(
    paths: Sequence[Path], lost: LostRows, *required: str
) -> Iterator[tuple[Block, LossLog]]:
    """Yield the blocks of all slices of a table, each with the damage log of its file.

    Raises:
        SourceError: a file cannot be read, or lacks a column.
    """
    for path in paths:
        damage = LossLog(path)
        for block in read_blocks(path, None, required, damage, RowShape.FULL):
            yield block, damage
        lost.omissions += damage.omissions(lost.rank)


# -- samples ---------------------------------------------------------------------------------------


def read_sample_table(
    table: CounterTable,
    paths: Sequence[Path],
    drawn: Set[str],
    device: int | None,
    lost: LostRows,
    counters: CounterBuilder,
) -> None:
    """Read all slices of a table into counters; with a device, only its rows.

    drawn: groups that the capture itself has; samples that repeat them are left out.

    Raises:
        SourceError: a file cannot be read, or has no column of times.
    """
    labels, devices, units = dict[str, int](), dict[str, int](), dict[str, str]()
    parts: list[tuple[Int64, Codes, Codes, dict[str, Float64]]] = []
    drawn_labels = {label for label, group in table.duplicates.items() if group in drawn}
    repeated = 0
    for block, damage in _read_blocks(paths, lost):
        if table.group in drawn:
            repeated += len(block)
            continue
        time = first_of(_TIMES, block)
        if not time:
            raise SourceError(damage.path, f"has no column {_TIMES[0]}.")
        time_ns = parse_times_ns(block.cells(time))
        wanted = select_device_rows(block, device)
        label = block.positions(table.label, labels)
        again = wanted & np.isin(label, [labels[text] for text in drawn_labels & labels.keys()])
        repeated += int(np.count_nonzero(again))
        wanted &= ~again
        timed = wanted & (time_ns != NO_TIME)
        damage.add_lines("rows without a valid time", block.lines[wanted & ~timed])
        at = block.positions(first_of(DEVICES, block), devices)
        values = {}
        columns = {column_name(column): column for column in block.header}
        for name in (column for column in table.values if column in columns):
            units.setdefault(name, column_unit(columns[name]))
            values[name], is_given = block.reals(columns[name])
            bad = wanted & is_given & ~np.isfinite(values[name])
            damage.add_lines("values that are not numbers", block.lines[bad])
        values = {name: column[timed] for name, column in values.items()}
        parts.append((time_ns[timed], label[timed], at[timed], values))
    reason = f"rows of {paths[0].name} already drawn from the capture"
    lost.leave_out(reason, repeated, OmissionCode.REPEATED, loss=False)
    if not parts:
        return
    time_ns = np.concatenate([part[0] for part in parts])
    label, at = (np.concatenate([part[place] for part in parts]) for place in (1, 2))
    series = _label_series(label, at, [*labels], [*devices] if device is None else [])
    idle = 0
    for name, unit_of_file in units.items():
        absent = ((values, np.full(len(times), np.nan)) for times, *_, values in parts)
        samples = np.concatenate([values.get(name, none) for values, none in absent])
        sizes, unit = whole_bytes(samples, unit_of_file)
        is_given = np.isfinite(samples)
        of_column = replace(series, which=series.which[is_given])
        idle += counters.add_column(
            table, name, of_column, time_ns[is_given], sizes[is_given], unit
        )
    reason = f"samples of {paths[0].name} that stay zero all along"
    lost.leave_out(reason, idle, OmissionCode.IDLE_COUNTER, loss=False)


def _label_series(
    label: Codes, device: Codes, labels: Sequence[str], devices: Sequence[str]
) -> Labels:
    """Return the labels of series, and devices as endings of names if there are several.

    label, device: (n,) indices of `labels` and `devices`.
    """
    groups = group_by(len(label), [label, device])
    endings: list[str] = []
    if len(devices) > 1:
        names = (devices[at] for at in device[groups.first].tolist())
        endings = [f", {name}" if name else "" for name in names]
    return Labels([labels[at] for at in label[groups.first].tolist()], groups.group, endings)


# -- allocations -----------------------------------------------------------------------------------

ALLOCATIONS_GROUP, ALLOCATIONS_NAME = "Operator Memory", "Held by Operators"
_UNSOUND = "without a valid time or size of the allocation"
_NOT_GIVEN_SIZE = float("inf")
"""A size that the database leaves empty."""
_TABLE = "OP_MEMORY"
_TABLE_TIMES = {"allocationTime": NO_TIME, "releaseTime": NO_TIME}
_NAME = "Name"
_ALLOCATED, _RELEASED, _DURATION = "Allocation Time(us)", "Release Time(us)", "Duration(us)"


def read_allocation_table(
    database: Database, device: int | None, rank: int, codes: Callable[[Int64], Codes]
) -> tuple[Allocations, list[Omission]]:
    """Read OP_MEMORY of a database, which has the content of operator_memory.csv.

    Args:
        device: the device to read; None for all.
        codes: converts string ids of the database to codes.
    """
    if not database.has(_TABLE, "size", *_TABLE_TIMES):
        database.note_unread(_TABLE, "size", *_TABLE_TIMES)
        return Allocations.empty(), []
    where = database.where(_TABLE, "deviceId", device)
    rows = database.integers(_TABLE, {**_TABLE_TIMES, "name": NO_ID}, where)
    size_bytes = database.floats(_TABLE, {"size": _NOT_GIVEN_SIZE}, where)["size"]
    allocated_ns, released_ns = rows["allocationTime"], rows["releaseTime"]
    good = are_sound(size_bytes, allocated_ns, released_ns)
    unsound = {f"rows of {_TABLE} {_UNSOUND}": int((~good).sum())}
    names = codes(rows["name"])
    allocations = _allocations(good, allocated_ns, released_ns, names, size_bytes)
    return allocations, [*counted_losses(unsound, rank, OmissionCode.NO_TIME)]


def _allocations(
    rows: Bool, start_ns: Int64, end_ns: Int64, names: Codes, size_bytes: Float64
) -> Allocations:
    sizes = np.round(size_bytes[rows]).astype(np.int64)
    return Allocations(start_ns[rows], end_ns[rows], names[rows], sizes)


def add_allocations(allocations: Allocations, counters: CounterBuilder) -> None:
    """Add a counter of the bytes that are allocated and not yet released, starting from zero."""
    released = allocations.take(allocations.end_ns != NO_TIME)
    times_ns = np.concatenate([allocations.start_ns, released.end_ns])
    changes = np.concatenate([allocations.size_bytes, -released.size_bytes])
    order = np.argsort(times_ns, kind="stable")
    times_ns, sums = times_ns[order], np.cumsum(changes[order]).astype(np.float64)
    last = np.append(times_ns[1:] != times_ns[:-1], True)[: len(times_ns)]
    counters.add(ALLOCATIONS_GROUP, ALLOCATIONS_NAME, "B", times_ns[last], sums[last])


def are_sound(size_bytes: Float64, allocated_ns: Int64, released_ns: Int64) -> Bool:
    """Return a mask of allocations with a time, a plausible size and no earlier release."""
    valid = (allocated_ns != NO_TIME) & (np.abs(size_bytes) < MOST_BYTES)
    sound: Bool = valid & ((released_ns == NO_TIME) | (released_ns >= allocated_ns))
    return sound


def read_allocations(
    paths: Sequence[Path], device: int | None, strings: StringPool, lost: LostRows
) -> Allocations:
    """Read the allocations in all slices of operator_memory.csv; with a device, only its rows.

    The columns of totals repeat memory_record.csv and are skipped.

    Raises:
        SourceError: a file cannot be read, or lacks a column.
    """
    blocks = _read_blocks(paths, lost, _ALLOCATED)
    return Allocations.concat([_of_block(*block, device, strings) for block in blocks])


def _of_block(
    block: Block, damage: LossLog, device: int | None, strings: StringPool
) -> Allocations:
    """Return the allocations of the device with a size and times; count others as damage.

    Older exports hold the duration of the allocation instead of the time of its release.
    """
    size = next((column for column in block.header if column_name(column) == "Size"), "")
    if column_unit(size) not in SIZES:
        raise SourceError(damage.path, "has no column Size(KB).")
    taken = block.cells(_ALLOCATED)
    allocated_ns = parse_times_ns(taken)
    if _RELEASED in block:
        released_ns = parse_times_ns(block.cells(_RELEASED))
    else:
        lengths = [
            b"N/A" if cell in NOT_GIVEN else cell.encode() for cell in block.texts(_DURATION)
        ]
        _, released_ns = interval_ns(taken, lengths)
    size_bytes = block.reals(size)[0] * SIZES[column_unit(size)]
    wanted = select_device_rows(block, device)
    good = are_sound(size_bytes, allocated_ns, released_ns)
    damage.add_lines(f"rows {_UNSOUND}", block.lines[wanted & ~good])
    names = block.codes(_NAME, strings, str)
    return _allocations(wanted & good, allocated_ns, released_ns, names, size_bytes)


# -- all tables ------------------------------------------------------------------------------------

_RESERVED = "Total Reserved"


def with_csv_counters(
    records: Records,
    files: Mapping[str, tuple[Path, ...]],
    device: int | None,
    wanted: ReadRequest,
) -> Records:
    """Add the counters, allocations and reserved memory that records do not hold themselves.

    A table that cannot be read at all is left out and counted.

    Args:
        files: the slices of each table by the name of its kind.
        device: the device to read; None for all.
    """
    lost, counters = LostRows(records.rank), CounterBuilder()
    with_counters = Layer.COUNTERS in wanted.layers
    drawn = {records.strings[code] for code in set(records.series.group.tolist())}
    for table in csv_tables() if with_counters else ():
        before = len(counters)
        if paths := files.get(table.table, ()):
            with lost.reading(paths[0]):
                read_sample_table(table, paths, drawn, device, lost, counters)
        drawn |= {table.group} if len(counters) > before else set()
    draws = with_counters and ALLOCATIONS_GROUP not in drawn
    lists = wanted.with_allocations and not len(records.allocations)
    paths = files.get(OPERATOR_MEMORY, ())
    if paths and (draws or lists):
        allocations = Allocations.empty()
        with lost.reading(paths[0]):
            allocations = read_allocations(paths, device, records.strings, lost)
        if draws:
            add_allocations(allocations, counters)
        if lists:
            records = replace(records, allocations=allocations)
    paths = files.get("memory_record", ())
    if paths and wanted.memory and records.reserved_bytes == NO_ID:
        lost_again = LostRows(records.rank) if with_counters else lost
        with lost_again.reading(paths[0]):
            reserved_bytes = _most_reserved(paths, device, lost_again)
            records = replace(records, reserved_bytes=reserved_bytes)
    series, samples = counters.tables(records.strings)
    omissions = tuple(lost.omissions)
    extra = Records(
        records.rank, records.strings, series=series, samples=samples, omissions=omissions
    )
    return join_records([records, extra])


def _most_reserved(paths: Sequence[Path], device: int | None, lost: LostRows) -> int:
    """Return the peak of reserved memory in bytes, NO_ID if there is no sample."""
    most = NO_ID
    for block, damage in _read_blocks(paths, lost):
        columns = {column_name(column): column for column in block.header}
        if _RESERVED not in columns:
            raise SourceError(damage.path, f"has no column {_RESERVED}.")
        values, is_given = block.reals(columns[_RESERVED])
        wanted = select_device_rows(block, device)
        good = wanted & np.isfinite(values)
        damage.add_lines("values that are not numbers", block.lines[wanted & is_given & ~good])
        if good.any():
            factor = SIZES.get(column_unit(columns[_RESERVED]), 1)
            most = max(most, round(float(values[good].max()) * factor))
    return most
