"""Columns of queries on a SQLite database, which is opened so that it cannot change."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar
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
"""Rows that are numbers of no column yet: few enough for the processor's own cache."""


def is_compiled() -> bool:
    """Return whether this installation has the compiled module."""
    return _rows is not None


def column_blocks(
    connection: apsw.Connection, query: str, width: int, dtype: npt.DTypeLike
) -> _Blocks:
    """Return blocks of columns of equal length; the query is open until they are closed.

    width is the number of columns, dtype int64 or float64.

    Raises:
        TypeError, ValueError, OverflowError: a value cannot be one of the dtype.
        apsw.Error: SQLite cannot go on.
    """
    blocks = _compiled_blocks if _is_loaded() else _blocks
    return blocks(connection, query, width, np.dtype(dtype))


@cache
def _is_loaded() -> bool:
    """Return whether SQLite has the compiled module too, which tells the module where SQLite is."""
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
        # An error would keep it with this frame, and a database with open queries stays open.
        del query


def _blocks(connection: apsw.Connection, text: str, width: int, dtype: np.dtype[Any]) -> _Blocks:
    rows = connection.execute(text)
    while len(cells := np.fromiter(chain.from_iterable(islice(rows, BLOCK_ROWS)), dtype)):
        # SQLite stores no NaN: this is None, which NumPy takes for one.
        if dtype == np.float64 and np.isnan(cells).any():
            raise TypeError("a value is absent")
        yield list(cells.reshape(-1, width).T)


_SECTOR_BYTES = 4096
_NUMBERS = itertools.count()


@contextlib.contextmanager
def remote_pages(path: RemotePath) -> Iterator[str]:
    """Return the name of what opens a database as file system of SQLite, in a `with` block.

    Raises:
        OSError: a page could not be read, whatever was made of that meanwhile.
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
    """A file system of one file, which cannot be changed."""

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
    """The file, as SQLite asks for it."""

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
        """Nobody else writes it."""

    def xUnlock(self, level: int) -> None:  # noqa: N802
        """See `xLock`."""

    def xSync(self, flags: int) -> None:  # noqa: N802
        """Nothing is written."""

    def xClose(self) -> None:  # noqa: N802
        """Nothing is held."""


# A connection stays in one thread: without its locks a table is read in two thirds of the time.
_UNLOCKED = apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_NOMUTEX
_ONLY_READING = apsw.SQLITE_OPEN_READONLY | _UNLOCKED
_OF_A_COPY = apsw.SQLITE_OPEN_READWRITE | _UNLOCKED


@contextmanager
def _connected(path: Path, *, in_part: bool = False) -> Iterator[apsw.Connection]:
    """Connect to a database.

    It is opened as immutable, so no journal or lock file appears beside it. A write-ahead log
    beside it that holds data would then be ignored, so in that case a private copy of both is
    read instead. One on another file system is fetched first, with its log.

    Args:
        in_part: whether few pages are wanted, for which nothing is fetched.

    Raises:
        SourceError: the file cannot be opened, is empty, or is not a SQLite database.
    """
    file = path
    try:
        state = path.stat()
        log = path.with_name(path.name + "-wal")
        with_log = log.is_file() and log.stat().st_size > 0
    except OSError as error:
        raise SourceError(path, f"cannot be read: {error.strerror}.") from error
    if not stat.S_ISREG(state.st_mode):
        raise SourceError(path, "cannot be read: it is no regular file.")
    if not state.st_size:
        raise SourceError(path, "is empty.", do="The export was interrupted; export it again.")
    if state.st_size <= MOST_POINTER_BYTES:
        with source_errors_for(path), open_regular_file(path) as opened:
            refuse_pointer(opened, path)
    if isinstance(path, RemotePath):
        if in_part and not with_log:
            with source_errors_for(path), remote_pages(path) as system:
                uri = f"file:{quote(path.name)}?mode=ro&immutable=1"
                with _connection(path, uri, _ONLY_READING, system) as connection:
                    yield connection
            return
        with source_errors_for(path):
            file = path.fetched()
            log = path.with_name(log.name).fetched() if with_log else log
    if not with_log:
        uri = f"file:{quote(os.fsencode(file.resolve()))}?mode=ro&immutable=1"
        with _connection(path, uri, _ONLY_READING) as connection:
            yield connection
        return
    with tempfile.TemporaryDirectory(prefix="tlexport-") as directory:
        copy = Path(directory) / path.name
        try:
            shutil.copyfile(file, copy)
            shutil.copyfile(log, copy.with_name(log.name))
        except OSError as error:
            what = "cannot be copied, which its write-ahead log makes necessary"
            raise SourceError(path, f"{what}: {error.strerror}.") from error
        with _connection(path, f"file:{quote(os.fsencode(copy))}", _OF_A_COPY) as connection:
            yield connection


@contextmanager
def _connection(
    path: Path, uri: str, flags: int, system: str | None = None
) -> Iterator[apsw.Connection]:
    with reading(path):
        connection = apsw.Connection(uri, flags=flags, vfs=system)
    try:
        # Functions and views that a schema brings along are data too, and are not run.
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        if are_counted():
            _count_pages(connection)
        yield connection
    finally:
        connection.close()


def _count_pages(connection: apsw.Connection) -> None:
    """Have all pages counted that are read from the file, while queries run."""
    ((page_bytes,),) = connection.execute("PRAGMA page_size")
    counted = 0

    def count() -> bool:
        nonlocal counted
        read, _ = connection.status(apsw.SQLITE_DBSTATUS_CACHE_MISS)
        count_read((read - counted) * page_bytes)
        counted = read
        return False  # which goes on

    connection.set_progress_handler(count, COUNTED_STEPS)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Return what fails while a database is read, as an error that names it.

    Raises:
        SourceError: SQLite cannot read it, or a value is not of the kind that was expected.
    """
    try:
        yield
    except apsw.Error as error:
        raise SourceError(path, f"cannot be read as a SQLite database: {error}.") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise SourceError(path, f"holds a value of an unexpected kind: {error}.") from error


COUNTED_STEPS = 100_000
"""Of SQLite's machine, after which pages are counted: some milliseconds."""
LIKELY_ROW_BYTES = 20
"""A row of a large table takes more of the file."""
FEW_ROWS = 1 << 14
"""Memory for so many is little, however few they are."""
_Found = TypeVar("_Found")
_BOTH_WAYS = ("ASC", "DESC")
_DAMAGES = (apsw.CorruptError, apsw.IOError, apsw.NotADBError)


class Database:
    """A database whose tables and columns may be missing: profiles of each version hold others.

    What cannot be read of it is noted in `damage`, and the rest is read: rows in pages that are
    damaged, and values of another kind than their column.
    """

    def __init__(self, path: Path, connection: apsw.Connection) -> None:
        """Begin with the tables that are there."""
        self.path = path
        self.damage = LossLog(path)
        self._connection = connection
        self._columns: dict[str, dict[str, str]] = {}
        self._readable: dict[str, tuple[int, int]] = {}
        """Of a damaged table, the number of rows that can be read from either end."""
        self._read_whole: set[str] = set()
        for table, name, kind in self._named_columns():
            self._columns.setdefault(table, {})[name] = str(kind).upper()

    def _named_columns(self) -> list[tuple[Any, ...]]:
        """Return each column with its table and kind; views run SQL of the file: not read."""
        query = """SELECT tables.name, columns.name, columns.type
            FROM sqlite_master AS tables, pragma_table_info(tables.name) AS columns
            WHERE tables.type = 'table'"""
        with reading(self.path):
            try:
                return list(self._connection.execute(query))
            except apsw.CorruptError:
                # SQLite refuses a file that is shorter than its header says, unless told not to.
                self._connection.execute("PRAGMA writable_schema = ON")
                found = self._rows_before_damage(query)
        size_bytes = self.path.stat().st_size
        if not found:
            raise SourceError(
                self.path,
                f"ends early or is damaged: {size_bytes} bytes are there, and not the list of its "
                "tables.",
            )
        self.damage.add("an early end, after which pages are missing", f"byte {size_bytes}")
        return found

    def _rows_before_damage(self, query: str) -> list[tuple[Any, ...]]:
        found = list[tuple[Any, ...]]()
        with contextlib.suppress(apsw.CorruptError):
            found.extend(self._connection.execute(query))
        return found

    def has(self, table: str, *columns: str) -> bool:
        """Return whether a table is there, with all these columns."""
        return table in self._columns and all(self.spelled(table, name) for name in columns)

    def columns_of(self, table: str) -> tuple[str, ...]:
        """Return the names of a table's columns, none if it is not there."""
        return tuple(self._columns.get(table, ()))

    def spelled(self, table: str, column: str) -> str:
        """Return how a table writes a column, empty where it has none; some write snake_case."""
        held = self._columns.get(table, {})
        if column in held:
            return column
        plain = _without_underscores(column)
        return next((name for name in held if _without_underscores(name) == plain), "")

    def where(self, table: str, column: str, value: int | None) -> str:
        """Return the SQL that selects a value; empty for None, or where there is no such column."""
        spelled = self.spelled(table, column)
        return f'WHERE "{spelled}" = {value}' if spelled and value is not None else ""

    def note_unread(self, table: str, *columns: str) -> None:
        """Count the rows of a table that lacks one of the columns without which it says nothing."""
        missing = [name for name in columns if not self.spelled(table, name)]
        if missing and self.has_rows(table):
            held = ", ".join(self._columns[table])
            self.damage.add(
                f"rows of {table}, which has no column {missing[0]} (found {held})",
                "row 1",
                self.count(table),
            )

    def require(self, table: str, *columns: str) -> None:
        """Refuse a table that is there but lacks a column without which it means nothing.

        Raises:
            SourceError: it does; the message lists the columns that are there.
        """
        held = self._columns.get(table, {})
        missing = [name for name in columns if held and not self.spelled(table, name)]
        if missing:
            raise SourceError(
                self.path,
                f"table {table} has no column {missing[0]}; found {', '.join(held)}.",
                do="It was probably written by a newer version of the profiler: export it as text.",
            )

    def count(self, table: str) -> int:
        """Return the number of rows of a table, 0 where it is not there."""
        with reading(self.path):
            return self._count(table, "") if self.has(table) else 0

    def has_rows(self, table: str) -> bool:
        """Return whether a table is there and holds a row that can be read."""
        if self.has(table):
            with contextlib.suppress(*_DAMAGES):
                return bool(list(self._connection.execute(f'SELECT 1 FROM "{table}" LIMIT 1')))
        return False

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a small query."""
        with reading(self.path):
            return list(self._connection.execute(query, values))

    def texts_by_id(self, table: str, key: str, text: str) -> dict[int, str]:
        """Texts by their integer key; bytes that are not UTF-8 become a mark of replacement."""
        found: dict[int, str] = {}
        query = f'SELECT "{key}", CAST("{text}" AS BLOB) FROM "{table}" WHERE "{key}" IS NOT NULL'
        try:
            for number, value in self._connection.execute(query):
                if isinstance(number, int):
                    found[number] = (value or b"").decode("utf-8", errors="replace")
        except _DAMAGES as error:
            self._note_lost(table, str(error))
        return found

    def integers(self, table: str, columns: dict[str, int], where: str = "") -> dict[str, Int64]:
        """Integer columns of a table, by name; NULL and absent columns hold the default given.

        Numbers stored as text or real (older exports do) are read as integers.
        """
        return self._columns_of(table, columns, where, "INTEGER", np.int64)

    def floats(self, table: str, columns: dict[str, float], where: str = "") -> dict[str, Float64]:
        """Real columns of a table, in the row order of `integers`."""
        return self._columns_of(table, columns, where, "REAL", np.float64)

    def numbers(self, table: str, cells: Sequence[str], where: str, dtype: Any) -> list[Any]:
        """Columns given as SQL, none of whose cells may be NULL, in order of rowid."""
        with reading(self.path):
            return self._read(table, cells, where, dtype)

    def texts(self, table: str, cells: Sequence[str], where: str) -> Iterator[tuple[bytes, ...]]:
        """Rows of columns given as SQL and hold blobs, in order of rowid."""
        with reading(self.path):
            yield from self._connection.execute(
                f"SELECT {', '.join(cells)} FROM {self._rows_of(table)} {where} ORDER BY rowid"
            )

    def _columns_of(
        self, table: str, columns: dict[str, Any], where: str, kind: str, dtype: Any
    ) -> dict[str, Any]:
        held = self._columns.get(table)
        if held is None:
            return {name: np.empty(0, dtype) for name in columns}
        spelled = {name: self.spelled(table, name) for name in columns}
        present = {spelled[name]: columns[name] for name in columns if spelled[name]}
        with reading(self.path):
            kinds = {name: held[name] for name in present}
            made = self._cells_of(table, kinds, present, where, kind, dtype)
            count = len(made[0]) if made else self._count(table, where)
        values = dict(zip(present, made, strict=True))
        return {
            name: values[spelled[name]] if spelled[name] else constant(default, count, dtype)
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
        """Columns that are there, at first as if no value was absent or of another kind.

        Most tables are so, and SQLite takes a fifth longer to ask for each value.
        """
        for cell in (_plain, _cell):
            with contextlib.suppress(TypeError, ValueError, OverflowError):
                cells = [
                    cell(name, declaration, defaults[name], kind)
                    for name, declaration in declared.items()
                ]
                return self._read(table, cells, where, dtype)
        cells = [_tolerant(name, defaults[name], kind) for name in declared]
        made = self._read(table, cells, where, dtype)
        self._note_kinds(table, list(declared))
        return made

    def _read(
        self, table: str, cells: Sequence[str], where: str, dtype: Any
    ) -> list[npt.NDArray[Any]]:
        """Return the values of cells in every row that can be read."""
        if not cells:
            return []
        return self._around(table, cells, lambda: self._filled(table, cells, where, dtype))

    def _around(self, table: str, cells: Sequence[str], query: Callable[[], _Found]) -> _Found:
        """Return what a query finds; of a table that is damaged, in the rows that can be read."""
        try:
            found = query()
        except _DAMAGES as error:
            if table in self._read_whole or table in self._readable:
                raise
            self._readable[table] = self._rows_around(table, cells, str(error))
            return query()
        self._read_whole.add(table)
        return found

    def is_lost(self, table: str) -> bool:
        """Return whether a table is damaged so that no row of it can be read."""
        return self._readable.get(table) == (0, 0)

    def _filled(
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
        """Return a bound of the number of rows, by their ids, which need no row to be read.

        Where these lie far apart, as those of a key that the profiler chose, rows are counted.
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
        """Return a table as SQL; of a damaged one, the rows before and behind the damage.

        They are counted from both ends: a condition on the row would read on to the next one.
        """
        if table not in self._readable:
            return f'"{table}" NOT INDEXED'
        parts = [
            f'SELECT * FROM (SELECT rowid AS rowid, * FROM "{table}" NOT INDEXED '
            f"ORDER BY rowid {order} LIMIT {rows})"
            for order, rows in zip(_BOTH_WAYS, self._readable[table], strict=True)
        ]
        return f"({' UNION ALL '.join(parts)})"

    def _rows_around(self, table: str, cells: Sequence[str], found: str) -> tuple[int, int]:
        """Return how many rows can be read from either end of a damaged table."""
        picked = ", ".join(["rowid", *cells])
        counts, last = [0, 0], [0, 0]
        for end, order in enumerate(_BOTH_WAYS):
            query = f'SELECT {picked} FROM "{table}" NOT INDEXED ORDER BY rowid {order}'
            with contextlib.suppress(*_DAMAGES):
                for row in self._connection.execute(query):
                    counts[end] += 1
                    last[end] = row[0]
        lost = last[1] - last[0] - 1 if all(counts) else 1
        self._note_lost(table, found, max(1, lost))
        return counts[0], counts[1]

    def _note_lost(self, table: str, found: str, rows: int = 1) -> None:
        self.damage.add(f"rows of {table} in damaged pages ({found})", "a page of it", rows)

    def _note_kinds(self, table: str, names: Sequence[str]) -> None:
        for name in names:
            found = self.rows(
                f"SELECT COUNT(*), MIN(rowid) FROM {self._rows_of(table)} "
                f"WHERE typeof(\"{name}\") NOT IN ('integer', 'real', 'null')"
            )
            ((count, first),) = found
            if count:
                self.damage.add(
                    f"values of {table}.{name} that are no numbers", f"row {first}", count
                )


def _without_underscores(name: str) -> str:
    return name.replace("_", "").lower()


def _plain(name: str, declared: str, default: float, kind: str) -> str:
    """Return a column as SQL where no value is absent."""
    return f'"{name}"' if kind in declared else f'CAST("{name}" AS {kind})'


def _cell(name: str, declared: str, default: float, kind: str) -> str:
    """Return a column as SQL: numbers stored as text, as older exports do, are read as numbers."""
    cell = f'IFNULL("{name}", {_literal(default)})'
    return cell if kind in declared else f"CAST({cell} AS {kind})"


def _tolerant(name: str, default: float, kind: str) -> str:
    """Return a column as SQL in which some values are not numbers: they count as absent."""
    return (
        f"CASE WHEN typeof(\"{name}\") IN ('integer', 'real') THEN CAST(\"{name}\" AS {kind}) "
        f"ELSE {_literal(default)} END"
    )


def _literal(value: float) -> str:
    """Return a number as SQL writes it; SQLite reads a literal out of range as infinite."""
    return "9e999" if value == float("inf") else str(value)


@contextmanager
def open_database(path: Path, *, in_part: bool = False) -> Iterator[Database]:
    """Open a database for reading without ever touching it.

    Args:
        in_part: whether few pages are wanted, for which one elsewhere is not fetched.

    Raises:
        SourceError: the file cannot be opened, is empty, or is not a SQLite database.
    """
    with _connected(path, in_part=in_part) as connection:
        yield Database(path, connection)
