"""Counters from the CSV tables of samples that lie beside a capture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from pathlib import Path

import numpy as np

from timeline.columns.columns import Bool, Codes, Float64, Int64
from timeline.columns.group_by import group_by
from timeline.errors import SourceError
from timeline.frozen import dataclass
from timeline.patterns import compile_late
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import Omission, OmissionCode
from timeline.sources.common.counter_tables import CounterTable
from timeline.sources.common.counters import (
    CounterBuilder,
    Labels,
    column_name,
    column_unit,
    whole_bytes,
)
from timeline.sources.common.decimals import moments_ns
from timeline.sources.common.losses import LossLog, counted_losses
from timeline.sources.decoders.csv_blocks import Block, RowShape, read_blocks

__all__ = ["read_sample_table", "select_device_rows"]

_TIMES = ("Timestamp(us)", "timestamp(us)", "Start Time(us)")
DEVICES = ("Device_id", "Device Type", "Device")
_DEVICE = compile_late(r"(?:NPU:)?([0-9]{1,9})")


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
            time = _first_of(_TIMES, block)
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
            device = block.positions(_first_of(DEVICES, block), self.devices)
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


def _first_of(names: Sequence[str], block: Block) -> str:
    return next((name for name in names if name in block), "")


def select_device_rows(block: Block, device: int | None) -> Bool:
    """Rows of a device, all of them without one; a row that names none belongs to all."""
    where = _first_of(DEVICES, block)
    if device is None or not where:
        return np.ones(len(block), np.bool_)
    seen: dict[str, int] = {}
    positions = block.positions(where, seen)
    of_device: Bool = np.isin(
        positions, [at for text, at in seen.items() if _device(text) in (device, NO_ID)]
    )
    return of_device


def _device(text: str) -> int:
    match = _DEVICE.fullmatch(text)
    return int(match[1]) if match else NO_ID


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
