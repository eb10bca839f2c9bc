"""Turns the path of a SQLite database into a connection that can change nothing."""

from __future__ import annotations

import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import apsw

from timeline.errors import SourceError

__all__ = ["connected", "reading"]

# A connection stays in one thread: without its locks a table is read in two thirds of the time.
_UNLOCKED = apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_NOMUTEX
_ONLY_READING = apsw.SQLITE_OPEN_READONLY | _UNLOCKED
_OF_A_COPY = apsw.SQLITE_OPEN_READWRITE | _UNLOCKED


@contextmanager
def connected(path: Path) -> Iterator[apsw.Connection]:
    """Connect to a database.

    It is opened as immutable, so no journal or lock file appears beside it. A write-ahead log
    beside it that holds data would then be ignored, so in that case a private copy of both is
    read instead.

    Raises:
        SourceError: the file cannot be opened, is empty, or is not a SQLite database.
    """
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
    if not with_log:
        uri = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"
        with _connected(path, uri, _ONLY_READING) as connection:
            yield connection
        return
    with tempfile.TemporaryDirectory(prefix="tlexport-") as directory:
        copy = Path(directory) / path.name
        try:
            shutil.copyfile(path, copy)
            shutil.copyfile(log, copy.with_name(log.name))
        except OSError as error:
            what = "cannot be copied, which its write-ahead log makes necessary"
            raise SourceError(path, f"{what}: {error.strerror}.") from error
        with _connected(path, f"file:{quote(str(copy))}", _OF_A_COPY) as connection:
            yield connection


@contextmanager
def _connected(path: Path, uri: str, flags: int) -> Iterator[apsw.Connection]:
    with reading(path):
        connection = apsw.Connection(uri, flags=flags)
    try:
        # Functions and views that a schema brings along are data too, and are not run.
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        yield connection
    finally:
        connection.close()


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """What fails while a database is read, as an error that names it.

    Raises:
        SourceError: SQLite cannot read it, or a value is not of the kind that was expected.
    """
    try:
        yield
    except apsw.Error as error:
        raise SourceError(path, f"cannot be read as a SQLite database: {error}.") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise SourceError(path, f"holds a value of an unexpected kind: {error}.") from error
