"""Columns of numbers of a table of SQLite, read from the pages of its file.

SQLite takes several times as long for them. It reads what is unusual or damaged, and all of it
where the compiled module is missing.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import numpy.typing as npt

from timeline.patterns import compile_late
from timeline.sources.decoders.sqlite_rows import BLOCK_ROWS
from timeline.sources.files.read_bytes import count_read

try:
    from timeline.sources.decoders import _pages
except ImportError:
    _pages = None  # type: ignore[assignment]

__all__ = ["OnlySqliteError", "TablePages", "is_compiled"]

_HEADER = struct.Struct(">16sHxxB")
"""Of a file: what it begins with, the size of a page, and how much of each is reserved."""
_MAGIC = b"SQLite format 3\0"
_LARGEST_PAGE_BYTES = 1 << 16
"""It does not fit where the size is told, which is 1 then."""
_UNUSUAL = compile_late(r"\b(AS|DESC|VIRTUAL|WITHOUT)\b", re.IGNORECASE)
"""What may be said of tables without row numbers, and of columns that are not stored."""


class OnlySqliteError(Exception):
    """A table is stored in a way that is left to SQLite."""


def is_compiled() -> bool:
    """Whether this installation has the compiled module."""
    return _pages is not None


class TablePages:
    """The tables of a file that nothing writes to, and that a connection has opened too."""

    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        self._connection = connection
        self._file = FileIO(path)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def blocks(
        self, table: str, columns: Mapping[str, float], dtype: npt.DTypeLike
    ) -> Iterator[Sequence[npt.NDArray[Any]]]:
        """Columns of some rows of a table after the other, in order of their row numbers.

        Whole numbers that are spelled as text are read too, unless their column is declared to
        hold whole numbers.

        Args:
            columns: of the table, with the value where none is stored.
            dtype: int64 or float64.

        Raises:
            OnlySqliteError: something is stored in another way, maybe behind rows that were read.
            OSError: the file cannot be read.
        """
        dtype = np.dtype(dtype)
        root, declared = self._declared(table)
        numbers = {name: number for number, name in enumerate(declared)}
        wanted = [
            (numbers[name], declared[name], int(np.array(value, dtype).view(np.int64)))
            for name, value in columns.items()
        ]
        sizes = _page_sizes(self._read(0, _HEADER.size), self._file.seek(0, 2))
        reals = dtype == np.float64
        try:
            pages = _pages.table(self._read, root, *sizes, len(declared), reals, wanted)
        except ValueError:  # the file is shorter than it says, or its first bytes are damaged
            raise OnlySqliteError from None
        rows = BLOCK_ROWS
        while rows == BLOCK_ROWS:
            found = _pages.next_rows(pages, BLOCK_ROWS)
            if found is None:
                raise OnlySqliteError
            values, rows = found
            yield list(np.frombuffer(values, dtype).reshape(len(wanted), BLOCK_ROWS)[:, :rows])

    def _read(self, first: int, size: int) -> bytes:
        self._file.seek(first)
        found = self._file.read(size)
        count_read(len(found))
        return found

    def _declared(self, table: str) -> tuple[int, dict[str, int]]:
        """The first page of a table, and how each of its columns is stored."""
        found = list(
            self._connection.execute(
                "SELECT rootpage, sql FROM sqlite_master WHERE type = 'table' AND name = ?",
                (table,),
            )
        )
        columns = list(
            self._connection.execute("SELECT name, type, pk FROM pragma_table_info(?)", (table,))
        )
        if len(found) != 1 or _UNUSUAL.search(found[0][1]):
            raise OnlySqliteError
        has_one_key = sum(key > 0 for _, _, key in columns) == 1
        declared = {}
        for name, kind, key in columns:
            declared[name] = _pages.AS_TEXT_TOO
            if "INTEGER" in kind.upper():
                is_row = kind.upper() == "INTEGER" and key and has_one_key
                declared[name] = _pages.AS_ROW if is_row else _pages.AS_NUMBER
        return found[0][0], declared


def _page_sizes(header: bytes, file_bytes: int) -> tuple[int, int, int]:
    """The number of pages, the bytes of each, and those of them that are used.

    Raises:
        OnlySqliteError: that is no database, or one that is encrypted.
    """
    if len(header) < _HEADER.size:
        raise OnlySqliteError
    magic, page_bytes, reserved_bytes = _HEADER.unpack(header)
    if page_bytes == 1:
        page_bytes = _LARGEST_PAGE_BYTES
    if magic != _MAGIC or not page_bytes:
        raise OnlySqliteError
    return file_bytes // page_bytes, page_bytes, page_bytes - reserved_bytes
