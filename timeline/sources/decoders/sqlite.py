"""Reads columns of SQLite databases, which may be damaged or remote, without modifying them."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import stat
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw
import numpy as np
import numpy.typing as npt

from timeline.columns.chunks import ColumnBuilder
from timeline.columns.columns import Float64, Int64
from timeline.columns.constant import constant
from timeline.errors import SourceError
from timeline.sources.common.losses import LossLog
from timeline.sources.files.opened import (
    MOST_POINTER_BYTES,
    are_counted,
    count_read,
    open_regular_file,
    refuse_pointer,
    source_errors_for,
)
from timeline.sources.files.remote_path import RemotePath

try:
    from timeline.sources.decoders import _rows
except ImportError:
    _rows = None  # type: ignore[assignment]


_Blocks = Generator[Sequence[npt.NDArray[Any]], None, None]
BLOCK_ROWS = 8192
"""Number of rows per block, small enough for a block to stay in the processor's cache."""


def is_compiled() -> bool:
    """Return whether this installation has the compiled module `_rows`."""
    return _rows is not None


def column_blocks(
    connection: apsw.Connection, query: str, width: int, dtype: npt.DTypeLike
) -> _Blocks:
    """Return a generator of blocks, each a list of columns; closing it closes the query.

    width: the number of columns. dtype: int64 or float64, of all columns.

    Raises:
        TypeError, ValueError, OverflowError: a value cannot be converted to the dtype.
        apsw.Error: SQLite failed.
    """
    blocks = _compiled_blocks if _is_loaded() else _blocks
    return blocks(connection, query, width, np.dtype(dtype))


@cache
def _is_loaded() -> bool:
    """Load the compiled module into apsw's SQLite, whose functions it calls; return success."""
    with closing(apsw.Connection(":memory:")) as connection:
        if _rows is None or not hasattr(connection, "load_extension"):
            return False
        connection.enable_load_extension(True)
        connection.load_extension(_rows.__file__, "sqlite3_rows_init")
    return True


def _compiled_blocks(
    connection: apsw.Connection, text: str, width: int, dtype: np.dtype[Any]
) -> _Blocks:
    kind = _rows.INTEGER if dtype == np.int64 else _rows.FLOAT
    query = None
    try:
        query = _rows.query(connection.sqlite3_pointer(), text)
        rows = BLOCK_ROWS
        while rows == BLOCK_ROWS:
            cells = _rows.next_columns(query, kind, BLOCK_ROWS)
            rows = len(cells[0]) // dtype.itemsize
            yield [np.frombuffer(column, dtype) for column in cells]
    except _rows.QueryError as error:
        code, message = error.args
        raise type(apsw.exception_for(code))(message) from None
    finally:
        # The traceback of an error would keep the query open, and with it the database.
        del query


def _blocks(connection: apsw.Connection, text: str, width: int, dtype: np.dtype[Any]) -> _Blocks:
    rows = connection.execute(text)
    while len(cells := np.fromiter(chain.from_iterable(islice(rows, BLOCK_ROWS)), dtype)):
        # SQLite cannot store NaN, so this was NULL, which NumPy converts to NaN.
        if dtype == np.float64 and np.isnan(cells).any():
            raise TypeError("a value is absent")
        yield list(cells.reshape(-1, width).T)


_SECTOR_BYTES = 4096
_NUMBERS = itertools.count()


@contextlib.contextmanager
def remote_pages(path: RemotePath) -> Iterator[str]:
    """Register a SQLite VFS that reads a remote database page by page; yield its name.

    Raises:
        OSError: a page could not be read; this replaces the errors that it caused in the block.
    """
    system = _System(f"tlexport-{next(_NUMBERS)}", path)
    try:
        yield system.name
    except (SourceError, apsw.Error):
        if system.failure is None:
            raise
    finally:
        system.unregister()
    if system.failure is not None:
        raise system.failure


class _System(apsw.VFS):
    """A SQLite VFS (virtual file system) that holds one read-only remote file."""

    def __init__(self, name: str, path: RemotePath) -> None:
        super().__init__(name, "")
        self.name, self.path = name, path
        self.failure: OSError | None = None

    def xFullPathname(self, name: str) -> str:  # noqa: N802
        return name

    def xAccess(self, pathname: str, flags: int) -> bool:  # noqa: N802
        return False

    def xOpen(self, name: Any, flags: list[int]) -> Any:  # noqa: N802
        return _Pages(self)


class _Pages:
    """The open remote file of a SQLite VFS."""

    def __init__(self, system: _System) -> None:
        self._system = system

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        path = self._system.path
        assert path.tree is not None
        try:
            return path.tree.read_at(path, offset, amount)
        except OSError as error:
            self._system.failure = error
            raise apsw.IOError(str(error)) from None

    def xFileSize(self) -> int:  # noqa: N802
        return self._system.path.stat().st_size

    def xSectorSize(self) -> int:  # noqa: N802
        return _SECTOR_BYTES

    def xDeviceCharacteristics(self) -> int:  # noqa: N802
        return int(apsw.SQLITE_IOCAP_IMMUTABLE)

    def xFileControl(self, op: int, pointer: int) -> bool:  # noqa: N802
        return False

    def xCheckReservedLock(self) -> bool:  # noqa: N802
        return False

    def xLock(self, level: int) -> None:  # noqa: N802
        """Do nothing: no other process writes the file."""

    def xUnlock(self, level: int) -> None:  # noqa: N802
        """Do nothing, as `xLock`."""

    def xSync(self, flags: int) -> None:  # noqa: N802
        """Do nothing: nothing was written."""

    def xClose(self) -> None:  # noqa: N802
        """Do nothing: no file is open."""


# Each connection is used by one thread only; without a mutex, reading takes a third less time.
_UNLOCKED = apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_NOMUTEX
_READ_ONLY = apsw.SQLITE_OPEN_READONLY | _UNLOCKED
_WRITABLE_COPY = apsw.SQLITE_OPEN_READWRITE | _UNLOCKED


@contextmanager
def _connected(path: Path, *, in_part: bool = False) -> Iterator[apsw.Connection]:
    """Connect to a database.

    It is opened as immutable, so that no journal or lock file is created. SQLite would then ignore
    a write-ahead log of it, so if there is one, temporary copies of both are read. A remote
    database is fetched first, with its log.

    in_part: whether only a few pages will be read; a remote database is then not fetched.

    Raises:
        SourceError: the file cannot be opened, is empty, or is not a SQLite database.
    """
    file = path
    try:
        state = path.stat()
        log = path.with_name(path.name + "-wal")
        with_log = log.is_file() and log.stat().st_size > 0
    except OSError as error:
        raise SourceError.of_system(path, "cannot be read", error) from error
    if not stat.S_ISREG(state.st_mode):
        raise SourceError(path, "cannot be read: it is not a regular file.")
    if not state.st_size:
        raise SourceError(path, "is empty.", do="The export was interrupted; export it again.")
    if state.st_size <= MOST_POINTER_BYTES:
        with source_errors_for(path), open_regular_file(path) as opened:
            refuse_pointer(opened, path)
    if isinstance(path, RemotePath):
        if in_part and not with_log:
            with source_errors_for(path), remote_pages(path) as system:
                uri = f"file:{quote(path.name)}?mode=ro&immutable=1"
                with _connection(path, uri, _READ_ONLY, system) as connection:
                    yield connection
            return
        with source_errors_for(path):
            file = path.fetched()
            log = path.with_name(log.name).fetched() if with_log else log
    if not with_log:
        uri = f"file:{quote(os.fsencode(file.absolute()))}?mode=ro&immutable=1"
        with _connection(path, uri, _READ_ONLY) as connection:
            yield connection
        return
    with tempfile.TemporaryDirectory(prefix="tlexport-") as directory:
        copy = Path(directory) / path.name
        try:
            shutil.copyfile(file, copy)
            shutil.copyfile(log, copy.with_name(log.name))
        except OSError as error:
            what = "cannot be copied, which its write-ahead log makes necessary"
            raise SourceError.of_system(path, what, error) from error
        with _connection(path, f"file:{quote(os.fsencode(copy))}", _WRITABLE_COPY) as connection:
            yield connection


@contextmanager
def _connection(
    path: Path, uri: str, flags: int, system: str | None = None
) -> Iterator[apsw.Connection]:
    with reading(path):
        connection = apsw.Connection(uri, flags=flags, vfs=system)
    try:
        # Do not run functions and views that the schema of the file defines.
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        if are_counted():
            _count_pages(connection)
        yield connection
    finally:
        connection.close()


def _count_pages(connection: apsw.Connection) -> None:
    """Count the bytes of all pages that queries read from the file, for the progress line."""
    ((page_bytes,),) = connection.execute("PRAGMA page_size")
    counted = 0

    def count() -> bool:
        nonlocal counted
        read, _ = connection.status(apsw.SQLITE_DBSTATUS_CACHE_MISS)
        count_read((read - counted) * page_bytes)
        counted = read
        return False  # True would abort the query

    connection.set_progress_handler(count, COUNTED_STEPS)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Run a `with` block in which errors of reading a database become SourceErrors.

    Raises:
        SourceError: SQLite cannot read the database, or a value has an unexpected type.
    """
    try:
        yield
    except apsw.Error as error:
        raise SourceError(path, f"cannot be read as a SQLite database: {error}.") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise SourceError(path, f"holds a value of an unexpected kind: {error}.") from error


COUNTED_STEPS = 100_000
"""Instructions of SQLite's virtual machine between counts of pages: some milliseconds."""
LIKELY_ROW_BYTES = 20
"""Lower estimate of the bytes per row of a large table."""
FEW_ROWS = 1 << 14
"""Number of rows for which memory is reserved without counting them first."""
_BOTH_ORDERS = ("ASC", "DESC")
_DAMAGES = (apsw.CorruptError, apsw.IOError, apsw.NotADBError)


class Database:
    """A database in which tables and columns may be missing, as they differ between versions.

    Rows in damaged pages, and values of another type than their column, are recorded in `damage`;
    everything else is read.
    """

    def __init__(self, path: Path, connection: apsw.Connection) -> None:
        """Read the names of tables and columns."""
        self.path = path
        self.damage = LossLog(path)
        self._connection = connection
        self._columns: dict[str, dict[str, str]] = {}
        self._readable: dict[str, tuple[int, int]] = {}
        """The number of rows that can be read from either end, of damaged tables."""
        self._read_whole: set[str] = set()
        for table, name, kind in self._schema():
            self._columns.setdefault(table, {})[name] = str(kind).upper()

    def _schema(self) -> list[tuple[Any, ...]]:
        """Return (table, column, type) of all columns, without views, which would run SQL."""
        query = """SELECT tables.name, columns.name, columns.type
            FROM sqlite_master AS tables, pragma_table_info(tables.name) AS columns
            WHERE tables.type = 'table'"""
        with reading(self.path):
            try:
                return list(self._connection.execute(query))
            except apsw.CorruptError:
                # With writable_schema, SQLite accepts a file shorter than its header states.
                self._connection.execute("PRAGMA writable_schema = ON")
                columns = list[tuple[Any, ...]]()
                with contextlib.suppress(apsw.CorruptError):
                    columns.extend(self._connection.execute(query))
        size_bytes = self.path.stat().st_size
        if not columns:
            raise SourceError(
                self.path,
                f"ends early or is damaged: {size_bytes} bytes are there, and not the list of its "
                "tables.",
            )
        self.damage.add("an early end, after which pages are missing", f"byte {size_bytes}")
        return columns

    def has(self, table: str, *columns: str) -> bool:
        """Return whether a table exists and has all these columns."""
        return table in self._columns and all(self.column_name(table, name) for name in columns)

    def columns_of(self, table: str) -> tuple[str, ...]:
        """Return the names of a table's columns, none if it is not there."""
        return tuple(self._columns.get(table, ()))

    def column_name(self, table: str, column: str) -> str:
        """Return a column's name as the table has it (camelCase or snake_case), empty if absent."""
        names = self._columns.get(table, {})
        if column in names:
            return column
        plain = _without_underscores(column)
        return next((name for name in names if _without_underscores(name) == plain), "")

    def where(self, table: str, column: str, value: int | None) -> str:
        """Return a WHERE clause for a value; empty for None, or if the column does not exist."""
        name = self.column_name(table, column)
        return f'WHERE "{name}" = {value}' if name and value is not None else ""

    def note_unread(self, table: str, *columns: str) -> None:
        """Record all rows of a table as damage if it lacks one of its essential columns."""
        missing = [name for name in columns if not self.column_name(table, name)]
        if missing and self.has_rows(table):
            names = ", ".join(self._columns[table])
            self.damage.add(
                f"rows of {table}, which has no column {missing[0]} (found {names})",
                "row 1",
                self.count(table),
            )

    def require(self, table: str, *columns: str) -> None:
        """Raise an error if a table exists but lacks one of its essential columns.

        Raises:
            SourceError: a column is missing; the message lists the existing ones.
        """
        names = self._columns.get(table, {})
        missing = [name for name in columns if names and not self.column_name(table, name)]
        if missing:
            raise SourceError(
                self.path,
                f"table {table} has no column {missing[0]}; found {', '.join(names)}.",
                do="It was probably written by a newer version of the profiler: export it as text.",
            )

    def count(self, table: str) -> int:
        """Return the number of rows of a table, 0 if it does not exist."""
        with reading(self.path):
            return self._count(table, "") if self.has(table) else 0

    def has_rows(self, table: str) -> bool:
        """Return whether a table exists and has a row that can be read."""
        if self.has(table):
            with contextlib.suppress(*_DAMAGES):
                return bool(list(self._connection.execute(f'SELECT 1 FROM "{table}" LIMIT 1')))
        return False

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a small query."""
        with reading(self.path):
            return list(self._connection.execute(query, values))

    def strings_by_id(self, table: str, key: str, column: str) -> dict[int, str]:
        """Return a column of strings by integer key; invalid UTF-8 becomes U+FFFD."""
        strings: dict[int, str] = {}
        query = f'SELECT "{key}", CAST("{column}" AS BLOB) FROM "{table}" WHERE "{key}" IS NOT NULL'
        try:
            for number, value in self._connection.execute(query):
                if isinstance(number, int):
                    strings[number] = (value or b"").decode("utf-8", errors="replace")
        except _DAMAGES as error:
            self._note_lost(table, str(error))
        return strings

    def integers(self, table: str, columns: dict[str, int], where: str = "") -> dict[str, Int64]:
        """Return integer columns by name; `columns` gives the default for NULL and absent columns.

        Numbers stored as text or real, as in older exports, are read as integers.
        """
        return self._columns_of(table, columns, where, "INTEGER", np.int64)

    def floats(self, table: str, columns: dict[str, float], where: str = "") -> dict[str, Float64]:
        """Return real columns by name, in the row order of `integers`."""
        return self._columns_of(table, columns, where, "REAL", np.float64)

    def numbers(self, table: str, cells: Sequence[str], where: str, dtype: Any) -> list[Any]:
        """Return the values of SQL expressions, none of which may be NULL, in order of rowid."""
        with reading(self.path):
            return self._read(table, cells, where, dtype)

    def blobs(self, table: str, cells: Sequence[str], where: str) -> Iterator[tuple[bytes, ...]]:
        """Yield rows of the values of SQL expressions, which must be blobs, in order of rowid."""
        with reading(self.path):
            yield from self._connection.execute(
                f"SELECT {', '.join(cells)} FROM {self._rows_of(table)} {where} ORDER BY rowid"
            )

    def _columns_of(
        self, table: str, columns: dict[str, Any], where: str, kind: str, dtype: Any
    ) -> dict[str, Any]:
        declared = self._columns.get(table)
        if declared is None:
            return {name: np.empty(0, dtype) for name in columns}
        own_name = {name: self.column_name(table, name) for name in columns}
        present = {own_name[name]: columns[name] for name in columns if own_name[name]}
        with reading(self.path):
            kinds = {name: declared[name] for name in present}
            arrays = self._cells_of(table, kinds, present, where, kind, dtype)
            count = len(arrays[0]) if arrays else self._count(table, where)
        values = dict(zip(present, arrays, strict=True))
        return {
            name: values[own_name[name]] if own_name[name] else constant(default, count, dtype)
            for name, default in columns.items()
        }

    def _cells_of(
        self,
        table: str,
        declared: dict[str, str],
        defaults: dict[str, Any],
        where: str,
        kind: str,
        dtype: Any,
    ) -> list[npt.NDArray[Any]]:
        """Return existing columns, trying the fastest SQL expression first.

        Most tables have neither NULL nor values of another type; checking for these takes SQLite
        a fifth longer, so it is done only after an attempt without checks has failed.
        """
        for cell in (_plain, _cell):
            with contextlib.suppress(TypeError, ValueError, OverflowError):
                cells = [
                    cell(name, declaration, defaults[name], kind)
                    for name, declaration in declared.items()
                ]
                return self._read(table, cells, where, dtype)
        cells = [_tolerant(name, defaults[name], kind) for name in declared]
        columns = self._read(table, cells, where, dtype)
        self._note_kinds(table, list(declared))
        return columns

    def _read(
        self, table: str, cells: Sequence[str], where: str, dtype: Any
    ) -> list[npt.NDArray[Any]]:
        """Return the values of SQL expressions; of a damaged table, in the readable rows."""
        if not cells:
            return []
        try:
            columns = self._read_rows(table, cells, where, dtype)
        except _DAMAGES as error:
            if table in self._read_whole or table in self._readable:
                raise
            self._readable[table] = self._count_readable(table, cells, str(error))
            return self._read_rows(table, cells, where, dtype)
        self._read_whole.add(table)
        return columns

    def is_lost(self, table: str) -> bool:
        """Return whether a table is so damaged that none of its rows can be read."""
        return self._readable.get(table) == (0, 0)

    def _read_rows(
        self, table: str, cells: Sequence[str], where: str, dtype: Any
    ) -> list[npt.NDArray[Any]]:
        query = f"SELECT {', '.join(cells)} FROM {self._rows_of(table)} {where} ORDER BY rowid"
        most, read = self._most_rows(table), 0
        columns = [ColumnBuilder(most, dtype) for _ in cells]
        with closing(column_blocks(self._connection, query, len(cells), dtype)) as blocks:
            for block in blocks:
                read += len(block[0])
                if read > most:
                    raise SourceError(
                        self.path,
                        f"table {table} had {most} rows, and more when they were read.",
                        do="Something still writes to it: try again when the profiler has ended.",
                    )
                for column, values in zip(columns, block, strict=True):
                    column.add(values)
        return [column.build() for column in columns]

    def _most_rows(self, table: str) -> int:
        """Return an upper bound of the number of rows, from the lowest and highest rowid.

        This avoids counting. If rowids are sparse, as they are if the table has a primary key
        chosen by the profiler, rows are counted instead.
        """
        if table in self._readable:
            return sum(self._readable[table])
        ((first, last),) = self._connection.execute(
            f'SELECT (SELECT MIN(rowid) FROM "{table}"), (SELECT MAX(rowid) FROM "{table}")'
        )
        if first is None:
            return 0
        most = int(last - first + 1)
        if most <= FEW_ROWS:
            return most
        ((file_bytes,),) = self._connection.execute(
            "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
        )
        return most if most <= file_bytes // LIKELY_ROW_BYTES else self._count(table, "")

    def _count(self, table: str, where: str) -> int:
        ((count,),) = self._connection.execute(
            f"SELECT COUNT(*) FROM {self._rows_of(table)} {where}"
        )
        return int(count)

    def _rows_of(self, table: str) -> str:
        """Return a table as SQL; of a damaged table, the rows before and after the damage.

        These are selected with LIMIT from either end, as a condition on rowid would read one row
        more, which may be damaged.
        """
        if table not in self._readable:
            return f'"{table}" NOT INDEXED'
        parts = [
            f'SELECT * FROM (SELECT rowid AS rowid, * FROM "{table}" NOT INDEXED '
            f"ORDER BY rowid {order} LIMIT {rows})"
            for order, rows in zip(_BOTH_ORDERS, self._readable[table], strict=True)
        ]
        return f"({' UNION ALL '.join(parts)})"

    def _count_readable(self, table: str, cells: Sequence[str], error: str) -> tuple[int, int]:
        """Return how many rows can be read from either end of a damaged table."""
        columns = ", ".join(["rowid", *cells])
        counts, last = [0, 0], [0, 0]
        for end, order in enumerate(_BOTH_ORDERS):
            query = f'SELECT {columns} FROM "{table}" NOT INDEXED ORDER BY rowid {order}'
            with contextlib.suppress(*_DAMAGES):
                for row in self._connection.execute(query):
                    counts[end] += 1
                    last[end] = row[0]
        lost = last[1] - last[0] - 1 if all(counts) else 1
        self._note_lost(table, error, max(1, lost))
        return counts[0], counts[1]

    def _note_lost(self, table: str, error: str, rows: int = 1) -> None:
        self.damage.add(f"rows of {table} in damaged pages ({error})", "a page of it", rows)

    def _note_kinds(self, table: str, names: Sequence[str]) -> None:
        """Record values that are not numbers as damage."""
        for name in names:
            ((count, first),) = self.rows(
                f"SELECT COUNT(*), MIN(rowid) FROM {self._rows_of(table)} "
                f"WHERE typeof(\"{name}\") NOT IN ('integer', 'real', 'null')"
            )
            if count:
                self.damage.add(
                    f"values of {table}.{name} that are no numbers", f"row {first}", count
                )


def _without_underscores(name: str) -> str:
    return name.replace("_", "").lower()


def _plain(name: str, declared: str, default: float, kind: str) -> str:
    """Return the SQL expression of a column without NULL."""
    return f'"{name}"' if kind in declared else f'CAST("{name}" AS {kind})'


def _cell(name: str, declared: str, default: float, kind: str) -> str:
    """Return the SQL expression of a column with NULL, or numbers as text, as in older exports."""
    cell = f'IFNULL("{name}", {_literal(default)})'
    return cell if kind in declared else f"CAST({cell} AS {kind})"


def _tolerant(name: str, default: float, kind: str) -> str:
    """Return the SQL expression of a column in which values that are not numbers count as NULL."""
    return (
        f"CASE WHEN typeof(\"{name}\") IN ('integer', 'real') THEN CAST(\"{name}\" AS {kind}) "
        f"ELSE {_literal(default)} END"
    )


def _literal(value: float) -> str:
    """Return a number as an SQL literal; SQLite reads one out of range as infinity."""
    return "9e999" if value == float("inf") else str(value)


@contextmanager
def open_database(path: Path, *, in_part: bool = False) -> Iterator[Database]:
    """Open a database for reading, without modifying it or creating files beside it.

    in_part: whether only a few pages will be read; a remote database is then not fetched.

    Raises:
        SourceError: the file cannot be opened, is empty, or is not a SQLite database.
    """
    with _connected(path, in_part=in_part) as connection:
        yield Database(path, connection)
