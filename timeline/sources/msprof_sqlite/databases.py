"""The databases that msprof parsed, and their tables, whatever kind of value the cells hold."""

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
"""What SQL gives for a cell that holds no 64-bit integer."""
LARGEST_REAL = "9.2e18"
"""Reals beyond this are no 64-bit integers."""
_NOT_GIVEN = "'', 'N/A', 'NA', 'NULL', 'None'"
"""Text that msprof writes where a number is not known."""


class LooseTable:
    """One table, of which columns may be missing and cells may hold anything.

    SQLite does not hold a column to its declared type. A cell that is not given holds the default;
    one that holds no number does too, and is counted in `unreadable`, by column. Rows are in order
    of rowid in all columns. A table that is not there has no rows.
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
        """Return whether the table is there, with all these columns."""
        return self._database is not None and self._database.has(self.name, *columns)

    def __len__(self) -> int:
        if not self._there or self._database is None:
            return 0
        ((count,),) = self._database.rows(f'SELECT COUNT(*) FROM "{self.name}" {self._where}')
        return int(count)

    def integers(self, columns: Mapping[str, int]) -> dict[str, Int64]:
        """Integer columns by name, each with its default; reals are rounded."""
        return self._whole(columns, "ROUND")

    def intervals(self, start: str, length: str) -> tuple[Int64, Int64]:
        """Return the interval of each row, NO_TIME at both ends that are not given.

        Both ends are cut down to whole numbers, as msprof does when it writes a database of them.
        """
        raw = self._whole({start: NO_TIME, length: NO_TIME}, "")
        start_ns, length_ns = raw[start], raw[length]
        known = (start_ns != NO_TIME) & (length_ns != NO_TIME)
        over = np.zeros(len(start_ns))
        if self.has(start, length) and self._database is not None:
            cells = [_fraction_cell(name) for name in (start, length)]
            over = sum(self._database.numbers(self.name, cells, self._where, np.float64), over)
        end_ns = start_ns + np.where(known, length_ns, 0) + np.floor(over).astype(np.int64)
        return start_ns, np.where(known, end_ns, NO_TIME)

    def _whole(self, columns: Mapping[str, int], rounding: str) -> dict[str, Int64]:
        present = [name for name in columns if self.has(name)]
        made: dict[str, Int64] = {}
        if present and self._database is not None:
            cells = [_integer_cell(name, columns[name], rounding) for name in present]
            read = self._database.numbers(self.name, cells, self._where, np.int64)
            for name, values in zip(present, read, strict=True):
                made[name] = self._counted(name, values, values == UNREADABLE, columns[name])
        rest = [name for name in columns if name not in made]
        count = len(made[present[0]]) if present else len(self)
        return made | {name: constant(columns[name], count, np.int64) for name in rest}

    def reals(self, columns: Sequence[str]) -> dict[str, Float64]:
        """Real columns by name, NaN where a cell holds no number; absent columns are left out."""
        present = [name for name in columns if self.has(name)]
        if not present or self._database is None:
            return {}
        cells = [_real_cell(name) for name in present]
        read = self._database.numbers(self.name, cells, self._where, np.float64)
        return {
            name: np.where(np.isinf(values), np.nan, values)
            for name, values in zip(present, read, strict=True)
        }

    def texts(self, columns: Sequence[str], strings: StringPool) -> dict[str, Codes]:
        """Text columns by name, as codes of the pool; bytes that are not UTF-8 are replaced."""
        present = [name for name in columns if self.has(name)]
        made: dict[str, Codes] = {}
        if present and self._database is not None:
            known = _CodesByCell(strings)
            cells = [f"IFNULL(CAST(\"{name}\" AS BLOB), x'')" for name in present]
            rows = self._database.blobs(self.name, cells, self._where)
            flat = np.fromiter(map(known.__getitem__, chain.from_iterable(rows)), np.int32)
            for name, codes in zip(present, flat.reshape(-1, len(present)).T, strict=True):
                made[name] = np.ascontiguousarray(codes)
        rest = [name for name in columns if name not in made]
        count = len(made[present[0]]) if present else len(self)
        return made | {name: constant(NO_NAME, count, np.int32) for name in rest}

    def read(
        self,
        kind: type[_Table],
        columns: Mapping[str, str],
        strings: StringPool | None = None,
        **computed: Any,
    ) -> _Table:
        """Return the table as records: the name of the column here by that of each record column.

        What is not given holds the default of the record column, NO_ID or NO_TIME if it has none.

        Args:
            strings: the pool for columns of names.
            computed: further columns, or a number that all rows have in one.
        """
        declared = {one.name: one.metadata for one in fields(kind) if one.name in columns}
        names = [name for name, one in declared.items() if one["dtype"] == np.int32]
        reals = [name for name, one in declared.items() if one["dtype"] == np.float64]
        defaults = {
            columns[name]: (int(NO_TIME) if name.endswith("_ns") else NO_ID)
            if one["default"] is None
            else one["default"]
            for name, one in declared.items()
            if name not in (*names, *reals)
        }
        found: dict[str, Any] = self.integers(defaults)
        if strings is not None and names:
            found |= self.texts([columns[name] for name in names], strings)
        found |= self.reals([columns[name] for name in reals])
        made = {name: found[source] for name, source in columns.items() if source in found}
        for name in {"graph", "connection"} & made.keys():
            made[name] = IDS[name].given(made[name])
        count = len(next(iter(made.values())))
        for name, values in computed.items():
            made[name] = np.full(count, values) if isinstance(values, int) else values
        return kind.of(count, made)

    def _counted(self, name: str, values: Int64, bad: Bool, default: int) -> Int64:
        count = int(np.count_nonzero(bad))
        if not count:
            return values
        self.unreadable[name] = count
        return np.where(bad, default, values)


class _CodesByCell(dict[bytes, int]):
    """The code of each text, which is decoded when it is seen first."""

    def __init__(self, strings: StringPool) -> None:
        super().__init__({b"": NO_NAME})
        self._strings = strings

    def __missing__(self, cell: bytes) -> int:
        code = self[cell] = self._strings.code(cell.decode("utf-8", "replace"))
        return code


def _integer_cell(name: str, default: int, rounding: str) -> str:
    """Return a column as SQL that yields an integer for every cell; most hold one.

    rounding: the SQL function that makes a real whole; without one it is cut down.
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
    """Return what a whole number leaves of a column, as SQL."""
    column = f'"{name}"'
    return (
        f"CASE WHEN TYPEOF({column}) = 'real' AND ABS({column}) < {LARGEST_REAL} "
        f"THEN {column} - CAST({column} AS INTEGER) ELSE 0.0 END"
    )


def _real_cell(name: str) -> str:
    """Return a column as SQL that yields a real for every cell, infinite if not a number."""
    column = f'"{name}"'
    text = f"TRIM({column})"
    return (
        f"CASE WHEN TYPEOF({column}) IN ('integer', 'real') THEN CAST({column} AS REAL) "
        f"WHEN TYPEOF({column}) = 'text' AND {text} GLOB '*[0-9]*' "
        f"AND {text} NOT GLOB '*[^0-9.eE+-]*' THEN CAST({text} AS REAL) ELSE 9e999 END"
    )


class ParsedDatabases:
    """The databases of one device and of its host, each opened when it is asked for first."""

    def __init__(self, device: Path, host: Path, stack: ExitStack) -> None:
        self.device, self.host, self._stack = device, host, stack
        self._opened: dict[Path, Database | None] = {}
        self._tables: list[tuple[Path, LooseTable]] = []

    def device_table(self, file: str, *names: str) -> LooseTable:
        """Return the first of the tables that is there: versions name some of them differently.

        Raises:
            SourceError: the file is not a SQLite database.
        """
        return self._table(self.device / file, names, None)

    def host_table(
        self, file: str, *names: str, where: Mapping[str, int] | None = None
    ) -> LooseTable:
        """Return the first of the host's tables that is there, only rows that hold these numbers.

        Raises:
            SourceError: the file is not a SQLite database.
        """
        return self._table(self.host / file, names, where)

    def _table(
        self, path: Path, names: tuple[str, ...], where: Mapping[str, int] | None
    ) -> LooseTable:
        if path not in self._opened:
            # msprof makes the files first, so one of zero bytes is a table that it had no rows for.
            there = path.is_file() and (path.name == TASKS or path.stat().st_size > 0)
            self._opened[path] = self._stack.enter_context(open_database(path)) if there else None
        database = self._opened[path]
        present = [name for name in names if database is not None and database.has(name)]
        table = LooseTable(database, present[0] if present else names[0], where)
        self._tables.append((path, table))
        return table

    def omissions(self, rank: int) -> Iterator[Omission]:
        """Return what of the tables read so far was damaged, or no number where one belongs."""
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
    """Open the databases below two directories as they are needed.

    Raises:
        SourceError: the device has none.
    """
    if not device.is_dir():
        raise SourceError(device, "is no directory of databases.")
    with ExitStack() as stack:
        yield ParsedDatabases(device, host, stack)
