"""Delimited text as rows and columns, and the tables that files fill."""

from __future__ import annotations

import csv
import enum
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import orjson

from timeline.columns.columns import ColumnTable, column
from timeline.records.profiler_tables import ProfilerTables
from timeline.records.tables import Omission
from timeline.sources.beside.file_kinds import NumberedFile, NumberedFiles
from timeline.sources.common.losses import LossLog, LostRows
from timeline.sources.decoders.csv_blocks import read_lines

_Table = TypeVar("_Table", bound=ColumnTable)

UNREADABLE = "rows with a cell that cannot be read"


def table_of_rows(kind: type[_Table], rows: Sequence[tuple[int | None, ...]]) -> _Table:
    """Return a table of rows of integers in the order of its columns; the last may be missing."""
    names = [*kind.empty().columns()][: len(rows[0]) if rows else None]
    columns = np.array(rows, np.int64).reshape(-1, len(names)).T
    return kind.of(len(rows), dict(zip(names, columns, strict=True)))


class TablesBuilder(LostRows):
    """Collects the tables of one rank while its files are read.

    strings: of all tables, which hold their codes. before: tables that were read before, to which
    rows are added. step_numbers: those of the step trace, in its order.
    """

    def __init__(self, rank: int, before: ProfilerTables | None = None) -> None:
        super().__init__(rank)
        before = before or ProfilerTables()
        self.strings, self.step_numbers = before.strings, before.step_numbers
        self._parts = {kind: [table] for kind, table in before.tables.items()}

    def add(self, table: ColumnTable) -> None:
        """Add rows to the table of their class."""
        self._parts.setdefault(type(table), []).append(table)

    def holds(self, kind: type[ColumnTable]) -> bool:
        """Return whether the file of a table has been read, even if it holds no row."""
        return kind in self._parts

    def of(self, kind: type[_Table]) -> _Table:
        """Return all rows of a class so far."""
        return kind.concat(self._parts.get(kind, []))  # type: ignore[arg-type]

    def read_files(self, files: NumberedFiles, readers: Mapping[NumberedFile, TableReader]) -> None:
        """Read the files of each kind, in order of the readers; one that fails is counted."""
        for kind, read in readers.items():
            for path in files.get(kind, ()):
                with self.reading(path) as losses:
                    read(path, losses, self)

    def build(self) -> tuple[ProfilerTables, tuple[Omission, ...]]:
        """Return all tables, and what could not be read of their files."""
        tables = {kind: kind.concat(parts) for kind, parts in self._parts.items()}
        return ProfilerTables(self.strings, tables, self.step_numbers), tuple(self.omissions)


TableReader = Callable[[Path, LossLog, TablesBuilder], None]
"""Reads a file into tables; damage goes to the log."""
MOST = 1 << 48
"""No length in ns, size in bytes or count is larger: that is three days, and 280 terabytes.

Sums of tens of thousands fit 64 bits."""
MOST_MOMENT_NS = (1 << 62) - 1
"""So that 64 bits hold what lies between two moments."""
NOT_GIVEN = frozenset({"", "-", "N/A", "NA", "None", "null", "nan"})
_MOST_INTEGER = (1 << 63) - 1
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,9})?", re.ASCII)
"""Decimal itself also takes 1_000, inf, nan and digits of other scripts."""
_MOST_DIGITS = 19
"""Before the point of what 64 bits hold."""


class Unit(enum.Enum):
    """The content of a cell: a string, or a number in a unit.

    factor: to the unit of the column; names distinguish units of one factor.
    """

    TEXT = "text", None
    NUMBER = "number", 1
    NANOSECONDS = "ns", 1
    MICROSECONDS = "us", 1_000
    MILLISECONDS = "ms", 1_000_000
    MILLISECONDS_AS_PS = "ms as ps", 1_000_000_000
    """In picoseconds, for means."""
    PERCENT = "%", "0.01"
    MEGA = "MFLOP", 1_000_000
    """MFLOP, as FLOP."""
    GIGA = "GFLOP/s", 1_000_000_000
    """GFLOP/s, as FLOP/s."""

    def __init__(self, _: str, factor: int | str | None) -> None:
        self.factor = None if factor is None else Decimal(factor)


_UNITS_IN_HEADERS = {
    one.value[0]: one for one in (Unit.NANOSECONDS, Unit.MICROSECONDS, Unit.MILLISECONDS)
}


@dataclass(frozen=True)
class Cell:
    """A column of a file, by what headers call it.

    names: in small letters; of several in one header the first here is taken. absent: the value of
    a row without the cell, None if such a row is damaged. least, most: of numbers, in the unit
    of the column; a row with one beyond them is damaged.
    """

    names: tuple[str, ...]
    unit: Unit = Unit.TEXT
    absent: float | None = None
    least: int = 0
    most: int = MOST


def cell(*names: str, unit: Unit = Unit.TEXT, absent: float | None = None, **limits: int) -> Any:
    """Declare a column of a table that `read_table` fills; arguments as for `Cell`."""
    dtype = {Unit.TEXT: np.int32, Unit.PERCENT: np.float64}.get(unit, np.int64)
    declared = {"cell": Cell(names, unit, absent, **limits)}
    return field(metadata={**column(dtype, absent).metadata, **declared})


@dataclass(frozen=True)
class Row:
    """The cells of a line, without blanks around them."""

    line: int
    cells: tuple[str, ...]

    def text(self, place: int) -> str:
        """Return the cell at a place, empty where the row has none."""
        return self.cells[place] if 0 <= place < len(self.cells) else ""


def read_rows(path: Path, losses: LossLog, delimiter: str | None = ",") -> Iterator[Row]:
    """Read the rows of a text that are not empty; delimiters in quotes are of a cell.

    delimiter: None for any blanks.

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
    """Return the number in a text in the unit of the column; None if there is none.

    Whole units are exact integers, rounded to the nearest; percents are floats from 0 to 1.
    """
    if unit.factor is None or not _NUMBER.fullmatch(text):
        return None
    number = Decimal(text)
    if number.adjusted() >= _MOST_DIGITS:  # a product of such may be too large to be made
        return None
    number *= unit.factor
    if abs(number) > _MOST_INTEGER:
        return None
    return float(number) if unit is Unit.PERCENT else int(number.to_integral_value())


def scale(value: object, factor: int) -> int | None:
    """Return a number of JSON times a factor, rounded; None if it is not one from 0 to MOST."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return round(value * factor) if 0 <= value * factor <= MOST else None


def parse_json(text: str) -> Any:
    """Return the value in a cell that holds JSON; None if it does not."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def read_table(path: Path, kind: type[_Table], into: TablesBuilder) -> _Table:
    """Read a file with a header as a table of `cell`s, a row for each line; damage is counted.

    A header may give the unit of its times, as in `total_time(us)`.
    """
    cells = {one.metadata["cell"]: one.name for one in fields(kind)}
    names, good = list[str](), list[list[int | float | None]]()
    with into.reading(path) as losses:
        rows = read_rows(path, losses)
        places = _find_cells(rows, [*cells], losses)
        names = [cells[cell] for cell in places]
        for row in rows if places else ():
            values = [_value(cell, row.text(at), unit, into) for cell, (at, unit) in places.items()]
            if None in values:
                losses.add(UNREADABLE, f"line {row.line}")
            else:
                good.append(values)
    columns = zip(*good, strict=True) if good else ((),) * len(names)
    return kind.of(len(good), dict(zip(names, columns, strict=True))) if names else kind.empty()


def read_texts(path: Path, cells: Sequence[Cell], losses: LossLog) -> Iterator[Row]:
    """Read the texts of declared cells of each row, in their order; empty where a row has none.

    For files whose cells hold more than a number or a name.

    Raises:
        SourceError: the file cannot be read.
    """
    rows = read_rows(path, losses)
    if held := _find_cells(rows, cells, losses):
        places = [held[cell][0] if cell in held else -1 for cell in cells]
        for row in rows:
            yield Row(row.line, tuple(map(row.text, places)))


def _find_cells(
    rows: Iterator[Row], cells: Sequence[Cell], losses: LossLog
) -> dict[Cell, tuple[int, Unit]]:
    """Find cells in the header: where each lies in a row, and its unit if the header gives one.

    Nothing is found where there is no header, or where it lacks a cell that is needed.
    """
    header = next(rows, None)
    if header is None:
        return {}
    columns, units = dict[str, int](), dict[str, Unit]()
    for at, text in reversed(list(enumerate(header.cells))):
        name, _, unit = text.lower().partition("(")
        if unit.rstrip(")") in _UNITS_IN_HEADERS:
            columns[name.strip()] = at
            units[name.strip()] = _UNITS_IN_HEADERS[unit.rstrip(")")]
        columns[text.lower()] = at
    places = {}
    for cell in cells:
        if name := next((one for one in cell.names if one in columns), ""):
            places[cell] = columns[name], units.get(name, cell.unit)
        elif cell.absent is None:
            losses.add(f"headers without {cell.names[0]}, with all rows", f"line {header.line}")
            return {}
    return places


def _value(cell: Cell, text: str, unit: Unit, into: TablesBuilder) -> int | float | None:
    """Return the value of a cell, None if one must be there and is not; texts are codes."""
    if cell.unit is Unit.TEXT:
        return into.strings.code(text)
    value = quantity(text, unit)
    if value is None:
        return cell.absent if text in NOT_GIVEN else None
    return value if cell.least <= value <= cell.most else None
