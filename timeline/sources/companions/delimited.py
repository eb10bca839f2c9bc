"""Reading delimited text as rows and columns, and collecting the tables of a rank."""

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
from timeline.sources.common.losses import LossLog, LostRows
from timeline.sources.companions.file_kinds import NumberedFile, NumberedFiles
from timeline.sources.decoders.csv_blocks import read_lines

_Table = TypeVar("_Table", bound=ColumnTable)

UNREADABLE = "rows with a cell that cannot be read"


def table_of_rows(kind: type[_Table], rows: Sequence[tuple[int | None, ...]]) -> _Table:
    """Build a table from rows of integers in the order of its columns; the last may be left out."""
    names = [*kind.empty().columns()][: len(rows[0]) if rows else None]
    columns = np.array(rows, np.int64).reshape(-1, len(names)).T
    return kind.of(len(rows), dict(zip(names, columns, strict=True)))


class TablesBuilder(LostRows):
    """Collector of the tables of one rank while its files are read.

    before: tables to which rows are added. `strings` holds the strings of all tables, whose columns
    are codes; `step_numbers` are the steps of the step trace, in its order.
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
        """Return whether a table has been added, even an empty one."""
        return kind in self._parts

    def of(self, kind: type[_Table]) -> _Table:
        """Return the rows of a table so far."""
        return kind.concat(self._parts.get(kind, []))  # type: ignore[arg-type]

    def read_files(self, files: NumberedFiles, readers: Mapping[NumberedFile, TableReader]) -> None:
        """Read the files of each kind, in order of the readers; count files that cannot be read."""
        for kind, read in readers.items():
            for path in files.get(kind, ()):
                with self.reading(path) as losses:
                    read(path, losses, self)

    def build(self) -> tuple[ProfilerTables, tuple[Omission, ...]]:
        """Return all tables, and omissions of their files."""
        tables = {kind: kind.concat(parts) for kind, parts in self._parts.items()}
        return ProfilerTables(self.strings, tables, self.step_numbers), tuple(self.omissions)


TableReader = Callable[[Path, LossLog, TablesBuilder], None]
"""A function that reads a file into tables and logs damage."""
MOST = 1 << 48
"""The largest plausible length in ns, size in bytes or count: three days, or 280 terabytes.

Sums of tens of thousands of such values fit 64 bits."""
MOST_TIME_NS = (1 << 62) - 1
"""The latest time, so that the difference between two times fits 64 bits."""
NOT_GIVEN = frozenset({"", "-", "N/A", "NA", "None", "null", "nan"})
_MOST_INTEGER = (1 << 63) - 1
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,9})?", re.ASCII)
"""A decimal number; Decimal() itself also accepts 1_000, inf, nan and digits of other scripts."""
_MOST_DIGITS = 19
"""The most digits before the point of a number that fits 64 bits."""


class Unit(enum.Enum):
    """The content of a cell: a string, or a number in a unit.

    factor: converts it to the unit of the column; names distinguish units with the same factor.
    """

    TEXT = "text", None
    NUMBER = "number", 1
    NANOSECONDS = "ns", 1
    MICROSECONDS = "us", 1_000
    MILLISECONDS = "ms", 1_000_000
    MILLISECONDS_AS_PS = "ms as ps", 1_000_000_000
    """Milliseconds, converted to picoseconds for exact sums of means."""
    PERCENT = "%", "0.01"
    MEGA = "MFLOP", 1_000_000
    """MFLOP, converted to FLOP."""
    GIGA = "GFLOP/s", 1_000_000_000
    """GFLOP/s, converted to FLOP/s."""

    def __init__(self, _: str, factor: int | str | None) -> None:
        self.factor = None if factor is None else Decimal(factor)


_UNITS_IN_HEADERS = {
    unit.value[0]: unit for unit in (Unit.NANOSECONDS, Unit.MICROSECONDS, Unit.MILLISECONDS)
}


@dataclass(frozen=True)
class Cell:
    """The declaration of a column of a file.

    names: its possible names in headers, in lower case; the first that a header has is used.
    absent: the value of a row without the cell; None if such a row is damaged. least, most: limits
    of numbers, in the unit of the column; a row beyond them is damaged.
    """

    names: tuple[str, ...]
    unit: Unit = Unit.TEXT
    absent: float | None = None
    least: int = 0
    most: int = MOST


def cell(*names: str, unit: Unit = Unit.TEXT, absent: float | None = None, **limits: int) -> Any:
    """Declare a column of a table for `read_table`; arguments are those of `Cell`."""
    dtype = {Unit.TEXT: np.int32, Unit.PERCENT: np.float64}.get(unit, np.int64)
    cell_metadata = {"cell": Cell(names, unit, absent, **limits)}
    return field(metadata={**column(dtype, absent).metadata, **cell_metadata})


@dataclass(frozen=True)
class Row:
    """The stripped cells of a line, and its number."""

    line: int
    cells: tuple[str, ...]

    def text(self, place: int) -> str:
        """Return the cell at a place, empty if the row has none."""
        return self.cells[place] if 0 <= place < len(self.cells) else ""


def read_rows(path: Path, losses: LossLog, delimiter: str | None = ",") -> Iterator[Row]:
    """Yield the rows of a file that are not blank; delimiters within quotes do not split cells.

    delimiter: None for any run of blanks.

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
    except csv.Error:  # a carriage return or NUL in the line: keep it whole, which is damaged
        return [text]


def quantity(text: str, unit: Unit) -> int | float | None:
    """Parse a number and convert it to the unit of its column; None if it is not a number.

    Also None if it does not fit 64 bits. Percentages become floats, 1.0 for 100 %; numbers in other
    units become exact integers.
    """
    if unit.factor is None or not _NUMBER.fullmatch(text):
        return None
    number = Decimal(text)
    if number.adjusted() >= _MOST_DIGITS:  # a product could exceed the largest Decimal
        return None
    number *= unit.factor
    if abs(number) > _MOST_INTEGER:
        return None
    return float(number) if unit is Unit.PERCENT else int(number.to_integral_value())


def scale(value: object, factor: int) -> int | None:
    """Return a JSON number times a factor, rounded; None unless it is a number from 0 to MOST."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return round(value * factor) if 0 <= value * factor <= MOST else None


def parse_json(text: str) -> Any:
    """Parse a cell that holds JSON; None if it is not valid."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def read_table(path: Path, kind: type[_Table], into: TablesBuilder) -> _Table:
    """Read a file with a header as a table whose columns are declared by `cell`; count damage.

    A header may give the unit of times, as in `total_time(us)`.

    into: takes strings and damage; the table itself is only returned, for the caller to add.
    """
    cells = {column.metadata["cell"]: column.name for column in fields(kind)}
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
    """Yield the declared cells of each row as strings, in order of `cells`; empty if absent.

    For files whose cells hold more than a number or a name.

    Raises:
        SourceError: the file cannot be read.
    """
    rows = read_rows(path, losses)
    if places := _find_cells(rows, cells, losses):
        indices = [places[cell][0] if cell in places else -1 for cell in cells]
        for row in rows:
            yield Row(row.line, tuple(map(row.text, indices)))


def _find_cells(
    rows: Iterator[Row], cells: Sequence[Cell], losses: LossLog
) -> dict[Cell, tuple[int, Unit]]:
    """Return the place in rows and the unit of each cell by the header, the first row.

    Empty if there is no header, or if it lacks a cell without a default.
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
        if name := next(filter(columns.__contains__, cell.names), ""):
            places[cell] = columns[name], units.get(name, cell.unit)
        elif cell.absent is None:
            losses.add(f"headers without {cell.names[0]}, with all rows", f"line {header.line}")
            return {}
    return places


def _value(cell: Cell, text: str, unit: Unit, into: TablesBuilder) -> int | float | None:
    """Return the value of a cell, a code for a string; None if the row is damaged."""
    if cell.unit is Unit.TEXT:
        return into.strings.code(text)
    value = quantity(text, unit)
    if value is None:
        return cell.absent if text in NOT_GIVEN else None
    return value if cell.least <= value <= cell.most else None
