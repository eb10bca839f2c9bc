"""Turns queries on a SQLite database, opened so that it cannot change, into columns."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw
import numpy as np
import numpy.typing as npt

from timeline.errors import SourceError
from timeline.records.columns import Float64, Int64, constant

__all__ = ["Database", "open_database"]

BLOCK_ROWS = 16_384
_OPEN_FLAGS = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI


class Database:
    """A database whose tables and columns may be missing: profiles of each version hold others."""

    def __init__(self, path: Path, connection: apsw.Connection) -> None:
        self.path = path
        self._connection = connection
        self._columns: dict[str, dict[str, str]] = {}
        names = self.rows("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        for (name,) in names:
            columns = self.rows("SELECT name, type FROM pragma_table_info(?)", (name,))
            self._columns[name] = {column: str(kind).upper() for column, kind in columns}

    def has(self, table: str, *columns: str) -> bool:
        """Whether a table is there, with all these columns."""
        return table in self._columns and self._columns[table].keys() >= set(columns)

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a small query."""
        with _reading(self.path):
            return list(self._connection.execute(query, values))

    def integers(self, table: str, columns: dict[str, int], where: str = "") -> dict[str, Int64]:
        """Integer columns of a table, by name; NULL and absent columns hold the default given.

        Numbers stored as text or real (older exports do) are read as integers.
        """
        return self._columns_of(table, columns, where, "INTEGER", np.int64)

    def floats(self, table: str, columns: dict[str, float], where: str = "") -> dict[str, Float64]:
        """Real columns of a table, in the row order of `integers`."""
        return self._columns_of(table, columns, where, "REAL", np.float64)

    def _columns_of(
        self, table: str, columns: dict[str, Any], where: str, kind: str, dtype: Any
    ) -> dict[str, Any]:
        held = self._columns.get(table)
        if held is None:
            return {name: np.empty(0, dtype) for name in columns}
        present = [name for name in columns if name in held]
        picked = ", ".join(_cell(name, held[name], columns[name], kind) for name in present)
        ((count,),) = self.rows(f'SELECT COUNT(*) FROM "{table}" {where}')
        made = {
            name: np.empty(count, dtype) if name in held else constant(columns[name], count, dtype)
            for name in columns
        }
        if present:
            query = f'SELECT {picked} FROM "{table}" {where} ORDER BY rowid'
            self._fill([made[name] for name in present], query)
        return made

    def _fill(self, columns: Sequence[npt.NDArray[Any]], query: str) -> None:
        """Read the rows of a query into columns, a block at a time."""
        first = 0
        with _reading(self.path):
            rows = self._connection.execute(query)
            while True:
                block = chain.from_iterable(islice(rows, BLOCK_ROWS))
                cells = np.fromiter(block, columns[0].dtype).reshape(-1, len(columns))
                if not len(cells):
                    return
                for column, values in zip(columns, cells.T, strict=True):
                    column[first : first + len(cells)] = values
                first += len(cells)


def _cell(name: str, declared: str, default: float, kind: str) -> str:
    """A column as SQL: numbers stored as text, as older exports do, are read as numbers."""
    cell = f'IFNULL("{name}", {_literal(default)})'
    return cell if kind in declared else f"CAST({cell} AS {kind})"


def _literal(value: float) -> str:
    """A number as SQL spells it; SQLite reads a literal out of range as infinite."""
    return "9e999" if value == float("inf") else str(value)


@contextmanager
def open_database(path: Path) -> Iterator[Database]:
    """Open a database for reading without ever touching it.

    It is opened as immutable, so no journal or lock file appears beside it. A write-ahead log
    beside it that holds data would then be ignored, so in that case a private copy of both is
    read instead.

    Raises:
        SourceError: the file cannot be opened or is not a SQLite database.
    """
    log = path.with_name(path.name + "-wal")
    if log.is_file() and log.stat().st_size > 0:
        with tempfile.TemporaryDirectory(prefix="tlexport-") as directory:
            copy = Path(directory) / path.name
            shutil.copyfile(path, copy)
            shutil.copyfile(log, copy.with_name(log.name))
            with _opened(path, f"file:{quote(str(copy))}", writable=True) as database:
                yield database
        return
    uri = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"
    with _opened(path, uri, writable=False) as database:
        yield database


@contextmanager
def _opened(path: Path, uri: str, *, writable: bool) -> Iterator[Database]:
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI if writable else _OPEN_FLAGS
    with _reading(path):
        connection = apsw.Connection(uri, flags=flags)
    try:
        yield Database(path, connection)
    finally:
        connection.close()


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        raise SourceError(path, f"cannot be read as a SQLite database: {error}.") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise SourceError(path, f"holds a value of an unexpected kind: {error}.") from error
