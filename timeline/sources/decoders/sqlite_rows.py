"""Columns of numbers of the rows that a query finds, some rows at a time.

The package is whole without the compiled module: rows then take twice as long.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from functools import cache
from itertools import chain, islice
from typing import Any

import apsw
import numpy as np
import numpy.typing as npt

try:
    from timeline.sources.decoders import _rows
except ImportError:
    _rows = None  # type: ignore[assignment]

_Blocks = Generator[Sequence[npt.NDArray[Any]], None, None]
BLOCK_ROWS = 8192
"""Rows that are numbers of no column yet: few enough for the processor's own cache."""


def is_compiled() -> bool:
    """Whether this installation has the compiled module."""
    return _rows is not None


def column_blocks(
    connection: apsw.Connection, query: str, width: int, dtype: npt.DTypeLike
) -> _Blocks:
    """The columns of some rows after the other, all of them as long; until closed, a query is open.

    width is the number of columns, dtype int64 or float64.

    Raises:
        TypeError, ValueError, OverflowError: a value cannot be one of the dtype.
        apsw.Error: SQLite cannot go on.
    """
    blocks = _compiled_blocks if _is_loaded() else _blocks
    return blocks(connection, query, width, np.dtype(dtype))


@cache
def _is_loaded() -> bool:
    """Whether SQLite has the compiled module too, which tells the module where SQLite is."""
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
