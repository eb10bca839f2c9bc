"""Delimited text as rows and columns, and the tables that files fill."""

from __future__ import annotations

import csv
import enum
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from timeline.columns.columns import ColumnTable
from timeline.frozen import dataclass
from timeline.patterns import compile_late
from timeline.records.profiler_tables import ProfilerTables
from timeline.records.tables import Omission
from timeline.sources.common.losses import LossLog, LostRows
from timeline.sources.decoders.text_lines import read_lines

_Table = TypeVar("_Table", bound=ColumnTable)


def table_of_rows(kind: type[_Table], rows: Sequence[tuple[int | None, ...]]) -> _Table:
    """A table of rows of whole numbers, each in the order of its columns; the last may lack."""
    names = [*kind.empty().columns()][: len(rows[0]) if rows else None]
    columns = np.array(rows, np.int64).reshape(-1, len(names)).T
    return kind.of(len(rows), dict(zip(names, columns, strict=True)))


class TablesBuilder(LostRows):
    """Collects the tables of one rank while its files are read.

    strings: of all tables, which hold their codes. known: tables that were read before, to which
    rows are added.
    """

    def __init__(self, rank: int, known: ProfilerTables | None = None) -> None:
        super().__init__(rank)
        known = known or ProfilerTables()
        self.strings = known.strings
        self._parts = {kind: [table] for kind, table in known.tables.items()}

    def add(self, kind: type[ColumnTable], count: int, columns: Mapping[str, Any]) -> None:
        """Add rows to a table; columns as for `ColumnTable.of`."""
        self._parts.setdefault(kind, []).append(kind.of(count, columns))

    def add_rows(self, kind: type[ColumnTable], rows: Sequence[tuple[int, ...]]) -> None:
        """Add rows of whole numbers to a table, each in the order of its columns."""
        self._parts.setdefault(kind, []).append(table_of_rows(kind, rows))

    def build(self) -> tuple[ProfilerTables, tuple[Omission, ...]]:
        """All tables, and what could not be read of their files."""
        tables = {kind: kind.concat(parts) for kind, parts in self._parts.items()}
        return ProfilerTables(self.strings, tables), tuple(self.omissions)


MOST = 1 << 48
"""No length in ns, size in bytes or count is larger: that is three days, and 280 terabytes.

Sums of tens of thousands fit 64 bits."""
MOST_MOMENT_NS = (1 << 62) - 1
"""So that 64 bits hold what lies between two moments."""
NOT_GIVEN = frozenset({"", "-", "N/A", "NA", "None", "null", "nan"})
_MOST_INTEGER = (1 << 63) - 1
_NUMBER = compile_late(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,9})?", re.ASCII)
"""Decimal itself also takes 1_000, inf, nan and digits of other scripts."""
_MOST_DIGITS = 19
"""Before the point of what 64 bits hold."""


class _Scale(NamedTuple):
    """A unit by its name, which keeps those of one factor apart, and the factor to the column's."""

    name: str
    factor: Decimal | None


class Unit(enum.Enum):
    """What a cell holds: a text, or a number in a unit that the column may not have."""

    TEXT = _Scale("text", None)
    NUMBER = _Scale("number", Decimal(1))
    NANOSECONDS = _Scale("ns", Decimal(1))
    MICROSECONDS = _Scale("us", Decimal(1_000))
    MILLISECONDS = _Scale("ms", Decimal(1_000_000))
    MILLISECONDS_AS_PS = _Scale("ms as ps", Decimal(1_000_000_000))
    """In picoseconds, for means."""
    PERCENT = _Scale("%", Decimal("0.01"))
    MEGA = _Scale("MFLOP", Decimal(1_000_000))
    """MFLOP, as FLOP."""
    GIGA = _Scale("GFLOP/s", Decimal(1_000_000_000))
    """GFLOP/s, as FLOP/s."""


_UNITS_IN_HEADERS = {
    "ns": Unit.NANOSECONDS,
    "us": Unit.MICROSECONDS,
    "ms": Unit.MILLISECONDS,
}


@dataclass(frozen=True)
class Cell:
    """A column of a file: the field of the table that it fills, and what headers call it.

    names: in small letters; of several in one header the first here is taken. required: whether a
    row without it is damaged. least, most: of numbers, in the unit of the column; a row with one
    beyond them is damaged.
    """

    field: str
    names: tuple[str, ...]
    unit: Unit = Unit.TEXT
    required: bool = True
    least: int = 0
    most: int = MOST


@dataclass(frozen=True)
class DelimitedTable:
    """A kind of file with a header: the table whose rows its lines are, and its columns."""

    fills: type[ColumnTable]
    cells: tuple[Cell, ...]
    delimiter: str | None = ","
    """None for any blanks."""


@dataclass(frozen=True)
class Row:
    """The cells of a line, without blanks around them."""

    line: int
    cells: tuple[str, ...]


def read_rows(path: Path, losses: LossLog, delimiter: str | None = ",") -> Iterator[Row]:
    """The rows of a delimited text that are not empty; delimiters in quotes are of a cell.

    Raises:
        SourceError: the file cannot be read.
    """
    for lines in read_lines(path, losses):
        for at, number in enumerate(lines.numbers.tolist()):
            text = lines.text(at).decode("utf-8", "replace").strip("\r")
            if not text.strip():
                continue
            cells = text.split() if delimiter is None else _split(text, delimiter)
            yield Row(number, tuple(cell.strip() for cell in cells))


def _split(text: str, delimiter: str) -> list[str]:
    if '"' not in text:
        return text.split(delimiter)
    csv.field_size_limit(max(csv.field_size_limit(), len(text) + 1))
    try:
        return next(csv.reader([text], delimiter=delimiter, skipinitialspace=True), [])
    except csv.Error:  # a carriage return or NUL within: one cell, which no column takes
        return [text]


def quantity(text: str, unit: Unit) -> int | float | None:
    """The number in a text in the unit of the column; None where there is none.

    Whole units are exact integers, rounded to the nearest; percents are floats from 0 to 1.
    """
    if unit.value.factor is None or not _NUMBER.fullmatch(text):
        return None
    number = Decimal(text)
    if number.adjusted() >= _MOST_DIGITS:  # a product of such may be too large to be made
        return None
    number *= unit.value.factor
    if abs(number) > _MOST_INTEGER:
        return None
    return float(number) if unit is Unit.PERCENT else int(number.to_integral_value())


def read_columns(
    path: Path, declared: DelimitedTable, into: TablesBuilder
) -> tuple[int, dict[str, list[int | float]]]:
    """How many rows a file with a header has, and its columns by field; damage is counted.

    A header may tell the unit of its times, as in `total_time(us)`. Texts are codes.
    """
    columns: dict[str, list[int | float]] = {}
    count = 0
    with into.reading(path) as losses:
        rows = read_rows(path, losses, declared.delimiter)
        header = _header(rows, declared.cells, losses)
        if header is None:
            return _nothing(declared)
        places, units = header
        columns = {field: [] for field in places}
        absent = {one.name: one.metadata["default"] for one in fields(declared.fills)}
        for row in rows:
            found = _values(declared.cells, places, units, row, absent, into)
            if found is None:
                losses.add("rows with a cell that cannot be read", f"line {row.line}")
                continue
            count += 1
            for field, value in found.items():
                columns[field].append(value)
    return (count, columns) if count else _nothing(declared)


def read_texts(path: Path, cells: Sequence[Cell], losses: LossLog) -> Iterator[Row]:
    """The texts of declared cells of each row, in their order; empty where a row has none.

    For files whose cells hold more than a number or a name.

    Raises:
        SourceError: the file cannot be read.
    """
    rows = read_rows(path, losses)
    header = _header(rows, cells, losses)
    if header is None:
        return
    places = [header[0].get(cell.field) for cell in cells]
    for row in rows:
        have = len(row.cells)
        texts = (row.cells[at] if at is not None and at < have else "" for at in places)
        yield Row(row.line, tuple(texts))


def _header(
    rows: Iterator[Row], cells: Sequence[Cell], losses: LossLog
) -> tuple[dict[str, int], dict[str, Unit]] | None:
    """`_places` in the first row; None where there is none, or where a needed one is missing."""
    header = next(rows, None)
    if header is None:
        return None
    places, units = _places(cells, header.cells)
    missing = [one for one in cells if one.required and one.field not in places]
    if missing:
        losses.add(f"headers without {missing[0].names[0]}, with all rows", f"line {header.line}")
        return None
    return places, units


def _nothing(declared: DelimitedTable) -> tuple[int, dict[str, list[int | float]]]:
    return 0, {cell.field: [] for cell in declared.cells}


def _places(cells: Sequence[Cell], header: Sequence[str]) -> tuple[dict[str, int], dict[str, Unit]]:
    """Where the cell of each field lies in a row, and its unit where the header tells that."""
    known, told = dict[str, int](), dict[str, Unit]()
    for at, spelled in reversed(list(enumerate(header))):
        name, _, unit = spelled.strip().lower().partition("(")
        if unit.rstrip(")") in _UNITS_IN_HEADERS:
            known[name.strip()] = at
            told[name.strip()] = _UNITS_IN_HEADERS[unit.rstrip(")")]
        known[spelled.strip().lower()] = at
    found, units = dict[str, int](), dict[str, Unit]()
    for cell in cells:
        for name in cell.names:
            if name in known:
                found[cell.field] = known[name]
                units[cell.field] = told.get(name, cell.unit)
                break
    return found, units


def _values(
    cells: Sequence[Cell],
    places: dict[str, int],
    units: dict[str, Unit],
    row: Row,
    absent: dict[str, float],
    into: TablesBuilder,
) -> dict[str, int | float] | None:
    """The values of a row by field; None where a cell that must be there is not."""
    found: dict[str, int | float] = {}
    for cell in cells:
        place = places.get(cell.field)
        if place is None:
            continue
        text = row.cells[place] if place < len(row.cells) else ""
        if cell.unit is Unit.TEXT:
            found[cell.field] = into.strings.code(text)
            continue
        value = quantity(text, units[cell.field])
        if value is not None and not cell.least <= value <= cell.most:
            return None
        if value is None:
            if cell.required or text not in NOT_GIVEN:
                return None
            value = absent[cell.field]
        found[cell.field] = value
    return found
