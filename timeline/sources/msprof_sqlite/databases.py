"""Access to databases that msprof parsed, and to tables with missing columns or odd cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from timeline.columns.columns import Bool, Codes, ColumnTable, Float64, Int64
from timeline.columns.constant import constant
from timeline.columns.strings import NO_NAME, StringPool
from timeline.errors import SourceError
from timeline.records.joining import IDS
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import Omission, OmissionCode
from timeline.sources.common.losses import counted_losses
from timeline.sources.decoders.sqlite import Database, open_database
from timeline.sources.msprof_sqlite import TASKS

_Table = TypeVar("_Table", bound=ColumnTable)
UNREADABLE = np.iinfo(np.int64).min + 1
"""Result of the SQL of `_integer_cell` for a cell that does not hold a 64-bit integer."""
LARGEST_REAL = "9.2e18"
"""Magnitude up to which reals fit into 64-bit integers."""
_NOT_GIVEN = "'', 'N/A', 'NA', 'NULL', 'None'"
"""Strings that msprof writes in place of unknown numbers."""


class LooseTable:
    """A table that may lack columns, and whose cells may hold values of any type.

    SQLite does not enforce declared types. An empty cell is read as the default. So is a cell that
    does not hold a number, which is also counted in `unreadable` by column. Rows are in order of
    rowid in all columns. A missing table has no rows.
    """

    def __init__(
        self, database: Database | None, name: str, where: Mapping[str, int] | None = None
    ) -> None:
        self._database, self.name = database, name
        self._there = database is not None and database.has(name)
        conditions = [
            f'"{column}" = {number}' for column, number in (where or {}).items() if self.has(column)
        ]
        self._where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        self.unreadable: dict[str, int] = {}

    def has(self, *columns: str) -> bool:
        """Return whether the table exists and has all these columns."""
        return self._database is not None and self._database.has(self.name, *columns)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns."""
        return () if self._database is None else self._database.columns_of(self.name)

    def __len__(self) -> int:
        if not self._there or self._database is None:
            return 0
        ((count,),) = self._database.rows(f'SELECT COUNT(*) FROM "{self.name}" {self._where}')
        return int(count)

    def integers(self, columns: Mapping[str, int]) -> dict[str, Int64]:
        """Read integer columns, given by name with their defaults; round reals."""
        return self._read_integers(columns, "ROUND")

    def intervals(self, start: str, length: str) -> tuple[Int64, Int64]:
        """Read the start and end of each row; NO_TIME if they are missing.

        Both are rounded down to whole numbers, as msprof does when it exports them.
        """
        raw = self._read_integers({start: NO_TIME, length: NO_TIME}, "")
        start_ns, length_ns = raw[start], raw[length]
        is_known = (start_ns != NO_TIME) & (length_ns != NO_TIME)
        fraction_ns = np.zeros(len(start_ns))
        if self.has(start, length) and self._database is not None:
            cells = [_fraction_cell(name) for name in (start, length)]
            fractions_ns = self._database.numbers(self.name, cells, self._where, np.float64)
            fraction_ns = sum(fractions_ns, fraction_ns)
        end_ns = (
            start_ns + np.where(is_known, length_ns, 0) + np.floor(fraction_ns).astype(np.int64)
        )
        return start_ns, np.where(is_known, end_ns, NO_TIME)

    def _read_integers(self, columns: Mapping[str, int], rounding: str) -> dict[str, Int64]:
        present = [name for name in columns if self.has(name)]
        values_by_name: dict[str, Int64] = {}
        if present and self._database is not None:
            cells = [_integer_cell(name, columns[name], rounding) for name in present]
            read = self._database.numbers(self.name, cells, self._where, np.int64)
            for name, values in zip(present, read, strict=True):
                values_by_name[name] = self._replace_unreadable(
                    name, values, values == UNREADABLE, columns[name]
                )
        absent = [name for name in columns if name not in values_by_name]
        count = len(values_by_name[present[0]]) if present else len(self)
        return values_by_name | {name: constant(columns[name], count, np.int64) for name in absent}

    def reals(self, columns: Sequence[str]) -> dict[str, Float64]:
        """Read real columns by name, NaN for a cell without a number; omit absent columns."""
        present = [name for name in columns if self.has(name)]
        if not present or self._database is None:
            return {}
        cells = [_real_cell(name) for name in present]
        read = self._database.numbers(self.name, cells, self._where, np.float64)
        return {
            name: np.where(np.isinf(values), np.nan, values)
            for name, values in zip(present, read, strict=True)
        }

    def codes(self, columns: Sequence[str], strings: StringPool) -> dict[str, Codes]:
        """Read text columns by name, as codes of the pool; replace bytes that are not UTF-8."""
        present = [name for name in columns if self.has(name)]
        codes_by_name: dict[str, Codes] = {}
        if present and self._database is not None:
            code_of = _CodesByCell(strings)
            cells = [f"IFNULL(CAST(\"{name}\" AS BLOB), x'')" for name in present]
            rows = self._database.blobs(self.name, cells, self._where)
            flat = np.fromiter(map(code_of.__getitem__, chain.from_iterable(rows)), np.int32)
            for name, codes in zip(present, flat.reshape(-1, len(present)).T, strict=True):
                codes_by_name[name] = np.ascontiguousarray(codes)
        absent = [name for name in columns if name not in codes_by_name]
        count = len(codes_by_name[present[0]]) if present else len(self)
        return codes_by_name | {name: constant(NO_NAME, count, np.int32) for name in absent}

    def read(
        self,
        kind: type[_Table],
        columns: Mapping[str, str],
        strings: StringPool | None = None,
        **computed: Any,
    ) -> _Table:
        """Read the table as records.

        A missing value is read as the default of the record column, or as NO_ID or NO_TIME if that
        has none.

        Args:
            kind: the class of records.
            columns: column names of this table by those of the records.
            strings: the pool for columns of names.
            computed: further record columns, as arrays, or as a number for all rows.
        """
        declared = {field.name: field.metadata for field in fields(kind) if field.name in columns}
        names = [name for name, column in declared.items() if column["dtype"] == np.int32]
        reals = [name for name, column in declared.items() if column["dtype"] == np.float64]
        defaults = {
            columns[name]: (int(NO_TIME) if name.endswith("_ns") else NO_ID)
            if column["default"] is None
            else column["default"]
            for name, column in declared.items()
            if name not in (*names, *reals)
        }
        cells: dict[str, Any] = self.integers(defaults)
        if strings is not None and names:
            cells |= self.codes([columns[name] for name in names], strings)
        cells |= self.reals([columns[name] for name in reals])
        records = {name: cells[source] for name, source in columns.items() if source in cells}
        for name in {"graph", "connection"} & records.keys():
            records[name] = IDS[name].normalise(records[name])
        count = len(next(iter(records.values())))
        for name, values in computed.items():
            records[name] = np.full(count, values) if isinstance(values, int) else values
        return kind.of(count, records)

    def _replace_unreadable(self, name: str, values: Int64, mask: Bool, default: int) -> Int64:
        count = int(np.count_nonzero(mask))
        if not count:
            return values
        self.unreadable[name] = count
        return np.where(mask, default, values)


class _CodesByCell(dict[bytes, int]):
    """Codes of text cells, each decoded once."""

    def __init__(self, strings: StringPool) -> None:
        super().__init__({b"": NO_NAME})
        self._strings = strings

    def __missing__(self, cell: bytes) -> int:
        code = self[cell] = self._strings.code(cell.decode("utf-8", "replace"))
        return code


def _integer_cell(name: str, default: int, rounding: str) -> str:
    """Return SQL that yields an integer for every cell of a column.

    rounding: the SQL function that rounds a real; if empty, its fraction is cut off.
    """
    column = f'"{name}"'
    text = f"TRIM({column})"
    digits = f"LTRIM({text}, '-')"
    return (
        f"CASE TYPEOF({column}) WHEN 'integer' THEN {column} WHEN 'null' THEN {default} "
        f"WHEN 'real' THEN CASE WHEN ABS({column}) < {LARGEST_REAL} "
        f"THEN CAST({rounding}({column}) AS INTEGER) ELSE {UNREADABLE} END "
        f"WHEN 'text' THEN CASE WHEN {text} IN ({_NOT_GIVEN}) THEN {default} "
        f"WHEN {digits} <> '' AND {digits} NOT GLOB '*[^0-9]*' AND LENGTH({digits}) < 19 "
        f"THEN CAST({text} AS INTEGER) ELSE {UNREADABLE} END ELSE {UNREADABLE} END"
    )


def _fraction_cell(name: str) -> str:
    """Return SQL that yields the fraction of a column's reals, 0 for any other cell."""
    column = f'"{name}"'
    return (
        f"CASE WHEN TYPEOF({column}) = 'real' AND ABS({column}) < {LARGEST_REAL} "
        f"THEN {column} - CAST({column} AS INTEGER) ELSE 0.0 END"
    )


def _real_cell(name: str) -> str:
    """Return SQL that yields a real for every cell of a column, infinite if not a number."""
    column = f'"{name}"'
    text = f"TRIM({column})"
    return (
        f"CASE WHEN TYPEOF({column}) IN ('integer', 'real') THEN CAST({column} AS REAL) "
        f"WHEN TYPEOF({column}) = 'text' AND {text} GLOB '*[0-9]*' "
        f"AND {text} NOT GLOB '*[^0-9.eE+-]*' THEN CAST({text} AS REAL) ELSE 9e999 END"
    )


class ParsedDatabases:
    """The databases of one device and of its host, each opened on first use."""

    def __init__(self, device: Path, host: Path, stack: ExitStack) -> None:
        self.device, self.host, self._stack = device, host, stack
        self._opened: dict[Path, Database | None] = {}
        self._tables: list[tuple[Path, LooseTable]] = []

    def device_table(self, file: str, *names: str) -> LooseTable:
        """Return the first of several tables that exists, as versions of msprof rename tables.

        Raises:
            SourceError: the file is not a SQLite database.
        """
        return self._table(self.device / file, names, None)

    def host_table(
        self, file: str, *names: str, where: Mapping[str, int] | None = None
    ) -> LooseTable:
        """Return the first of several tables of the host that exists.

        where: numbers by column that rows must have; columns that the table lacks are ignored.

        Raises:
            SourceError: the file is not a SQLite database.
        """
        return self._table(self.host / file, names, where)

    def _table(
        self, path: Path, names: tuple[str, ...], where: Mapping[str, int] | None
    ) -> LooseTable:
        if path not in self._opened:
            # msprof creates files before it has rows, so a file of zero bytes has none.
            exists = path.is_file() and (path.name == TASKS or path.stat().st_size > 0)
            self._opened[path] = self._stack.enter_context(open_database(path)) if exists else None
        database = self._opened[path]
        present = [name for name in names if database is not None and database.has(name)]
        table = LooseTable(database, present[0] if present else names[0], where)
        self._tables.append((path, table))
        return table

    def omissions(self, rank: int) -> Iterator[Omission]:
        """Yield damage of the tables read so far, and counts of cells that lack a number."""
        for database in self._opened.values():
            if database is not None:
                yield from database.damage.omissions(rank)
        for path, table in self._tables:
            cells = {
                f"{path.name}: cells of {table.name}.{column} that hold no number": count
                for column, count in table.unreadable.items()
            }
            yield from counted_losses(cells, rank, OmissionCode.DAMAGED)


@contextmanager
def open_parsed_databases(device: Path, host: Path) -> Iterator[ParsedDatabases]:
    """Open the databases of a device and its host on demand; close them at the end.

    Raises:
        SourceError: the device has none.
    """
    if not device.is_dir():
        raise SourceError(device, "is not a directory of databases.")
    with ExitStack() as stack:
        yield ParsedDatabases(device, host, stack)
