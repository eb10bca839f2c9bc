"""Counters, allocations and reserved memory from the CSV tables beside a capture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from timeline.columns.columns import Bool, Codes, Float64, Int64
from timeline.columns.group_by import group_by
from timeline.columns.strings import StringPool
from timeline.errors import SourceError
from timeline.frozen import dataclass
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
from timeline.sources.common.decimals import interval_ns, moments_ns
from timeline.sources.common.losses import LossLog, counted_losses, unreadable_file
from timeline.sources.decoders.csv_blocks import NOT_GIVEN, Block, RowShape, read_blocks
from timeline.sources.source import ReadRequest

if TYPE_CHECKING:
    from timeline.sources.decoders.sqlite import Database

_TIMES = ("Timestamp(us)", "timestamp(us)", "Start Time(us)")


@dataclass(frozen=True)
class _Part:
    """Some rows: label and device are positions among those seen, values are by column."""

    time_ns: Int64
    label: Codes
    device: Codes
    values: dict[str, Float64]


@dataclass
class _Reading:
    """What is found while the slices of one table are read."""

    table: CounterTable
    device: int | None
    twins: frozenset[str]
    """Labels whose rows are already drawn from the capture."""
    labels: dict[str, int] = field(default_factory=dict)
    devices: dict[str, int] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    repeated: int = 0

    def parts(self, damage: LossLog) -> Iterator[_Part]:
        """The rows of one file that are of the device, each with a time."""
        for block in read_blocks(damage.path, None, (), damage, RowShape.FULL):
            time = first_of(_TIMES, block)
            if not time:
                raise SourceError(damage.path, f"has no column {_TIMES[0]}.")
            time_ns = moments_ns(block.cells(time))
            wanted = select_device_rows(block, self.device)
            label = block.positions(self.table.ids[0], self.labels)
            twins = [self.labels[text] for text in self.twins if text in self.labels]
            repeated = wanted & np.isin(label, twins)
            self.repeated += int(np.count_nonzero(repeated))
            wanted &= ~repeated
            timed = wanted & (time_ns != NO_TIME)
            damage.add_lines("rows without a valid time", block.lines[wanted & ~timed])
            device = block.positions(first_of(DEVICES, block), self.devices)
            values = self._values(block, wanted, damage)
            yield _Part(
                time_ns[timed],
                label[timed],
                device[timed],
                {name: column[timed] for name, column in values.items()},
            )

    def _values(self, block: Block, wanted: Bool, damage: LossLog) -> dict[str, Float64]:
        """The columns of samples, NaN where there is none."""
        columns = {column_name(column): column for column in block.header}
        values = {}
        for name in self.table.values:
            if name in columns:
                self.units.setdefault(name, column_unit(columns[name]))
                values[name], given = block.reals(columns[name])
                bad = wanted & given & ~np.isfinite(values[name])
                damage.add_lines("values that are no numbers", block.lines[bad])
        return values

    def join(self, parts: Sequence[_Part]) -> _Part:
        """All rows; a column that a slice lacks was not given there."""

        def values(part: _Part, name: str) -> Float64:
            return part.values.get(name, np.full(len(part.time_ns), np.nan))

        return _Part(
            np.concatenate([part.time_ns for part in parts]),
            np.concatenate([part.label for part in parts]),
            np.concatenate([part.device for part in parts]),
            {name: np.concatenate([values(part, name) for part in parts]) for name in self.units},
        )

    def series_labels(self, rows: _Part) -> Labels:
        """What is put into and behind the names of series: labels, and devices of several."""
        groups = group_by(len(rows.time_ns), [rows.label, rows.device])
        label, device = [*self.labels], [*self.devices]
        endings: list[str] = []
        if self.device is None and len(self.devices) > 1:
            names = (device[at] for at in rows.device[groups.first].tolist())
            endings = [f", {name}" if name else "" for name in names]
        texts = [label[at] for at in rows.label[groups.first].tolist()]
        return Labels(texts, groups.group, endings)


def read_sample_table(
    table: CounterTable,
    paths: Sequence[Path],
    drawn: frozenset[str],
    device: int | None,
    rank: int,
    counters: CounterBuilder,
) -> list[Omission]:
    """Read all slices of a table; with a device, only its rows.

    Args:
        drawn: groups that the capture itself has; their series are not drawn again.

    Returns:
        What was left out, and why.

    Raises:
        SourceError: a file cannot be read, or has no times.
    """
    if table.group in drawn:
        return _drawn_elsewhere(paths, rank)
    omissions: list[Omission] = []
    twins = frozenset(label for label, group in table.twins.items() if group in drawn)
    reading = _Reading(table, device, twins)
    parts: list[_Part] = []
    for path in paths:
        damage = LossLog(path)
        parts += reading.parts(damage)
        omissions += damage.omissions(rank)
    if not parts:
        return omissions
    idle = _draw(reading, reading.join(parts), counters)
    still = {f"samples of {paths[0].name} that stay zero all along": idle}
    return [
        *omissions,
        *_count_repeated(paths[0], reading.repeated, rank),
        *counted_losses(still, rank, OmissionCode.IDLE_COUNTER, loss=False),
    ]


def _drawn_elsewhere(paths: Sequence[Path], rank: int) -> list[Omission]:
    """The rows of a table that the capture has as counters of its own."""
    omissions: list[Omission] = []
    rows = 0
    for path in paths:
        damage = LossLog(path)
        rows += sum(map(len, read_blocks(path, None, (), damage, RowShape.FULL)))
        omissions += damage.omissions(rank)
    return [*omissions, *(_count_repeated(paths[0], rows, rank) if rows else ())]


def _count_repeated(path: Path, rows: int, rank: int) -> tuple[Omission, ...]:
    reason = f"rows of {path.name} already drawn from the capture"
    return counted_losses({reason: rows}, rank, OmissionCode.REPEATED, loss=False)


def _draw(reading: _Reading, rows: _Part, counters: CounterBuilder) -> int:
    """Add the series of a table; returns the samples of those that stay zero and are left out."""
    labels, idle = reading.series_labels(rows), 0
    for column, values in rows.values.items():
        sizes, unit = whole_bytes(values, reading.units[column])
        given = np.isfinite(values)
        those = replace(labels, which=labels.which[given])
        idle += counters.add_column(
            reading.table, column, those, rows.time_ns[given], sizes[given], unit
        )
    return idle


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
    """Read OP_MEMORY of a database, which says the same as operator_memory.csv.

    Args:
        device: the one whose rows are wanted; None is all.
        codes: of the names behind string ids.
    """
    if not database.has(_TABLE, "size", *_TABLE_TIMES):
        database.note_unread(_TABLE, "size", *_TABLE_TIMES)
        return Allocations.empty(), []
    where = database.where(_TABLE, "deviceId", device)
    rows = database.integers(_TABLE, {**_TABLE_TIMES, "name": NO_ID}, where)
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
    counters.add(ALLOCATIONS_GROUP, ALLOCATIONS_NAME, "B", times_ns[last], sums[last])


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


_RESERVED = "Total Reserved"


def with_csv_counters(
    records: Records,
    files: Mapping[str, tuple[Path, ...]],
    device: int | None,
    wanted: ReadRequest,
) -> Records:
    """Records with the counters, allocations and reserved memory that they do not hold themselves.

    A table that cannot be read at all is left out and counted: the capture itself is whole.

    Args:
        files: by plain name without a stamp.
        device: the one whose rows are wanted; None is all.
    """
    rank, omissions = records.rank, list[Omission]()
    counting = Layer.COUNTERS in wanted.layers
    drawn = {records.strings[code] for code in set(records.series.group.tolist())}
    counters = CounterBuilder()
    for table in csv_tables() if counting else ():
        before = len(counters)
        paths = files.get(f"{table.table}.csv", ())
        try:
            omissions += read_sample_table(table, paths, frozenset(drawn), device, rank, counters)
        except SourceError as error:
            omissions.append(unreadable_file(error, rank))
        drawn |= {table.group} if len(counters) > before else set()
    draws = counting and ALLOCATIONS_GROUP not in drawn
    lists = wanted.with_allocations and not len(records.allocations)
    paths = files.get(f"{OPERATOR_MEMORY}.csv", ())
    if paths and (draws or lists):
        try:
            found, lost = read_allocations(paths, device, rank, records.strings)
        except SourceError as error:
            found, lost = Allocations.empty(), [unreadable_file(error, rank)]
        omissions += lost
        if draws:
            add_allocations(found, counters)
        if lists:
            records = replace(records, allocations=found)
    paths = files.get("memory_record.csv", ())
    if paths and wanted.memory and records.reserved_bytes == NO_ID:
        try:
            reserved_bytes, lost = _most_reserved(paths, device, rank)
        except SourceError as error:
            reserved_bytes, lost = NO_ID, [unreadable_file(error, rank)]
        omissions += [] if counting else lost
        records = replace(records, reserved_bytes=reserved_bytes)
    series, samples = counters.tables(records.strings)
    extra = Records(
        rank, records.strings, series=series, samples=samples, omissions=tuple(omissions)
    )
    return join_records([records, extra])


def _most_reserved(
    paths: Sequence[Path], device: int | None, rank: int
) -> tuple[int, list[Omission]]:
    """The most bytes that any component reserved, NO_ID without any; and what was left out."""
    most, omissions = NO_ID, list[Omission]()
    for path in paths:
        damage = LossLog(path)
        for block in read_blocks(path, None, (), damage, RowShape.FULL):
            columns = {column_name(column): column for column in block.header}
            if _RESERVED not in columns:
                raise SourceError(path, f"has no column {_RESERVED}.")
            values, given = block.reals(columns[_RESERVED])
            wanted = select_device_rows(block, device)
            good = wanted & np.isfinite(values)
            damage.add_lines("values that are no numbers", block.lines[wanted & given & ~good])
            if good.any():
                factor = SIZES.get(column_unit(columns[_RESERVED]), 1)
                most = max(most, round(float(values[good].max()) * factor))
        omissions += damage.omissions(rank)
    return most, omissions
