"""Columns computed in chunks of rows, so that temporary memory stays small."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from timeline.columns.constant import constant
from timeline.columns.spill import Extent, count_in_memory, count_read, reserve_extent, spillable

CHUNK_ROWS = 1 << 16
"""Number of rows processed at a time; their temporaries fit into the processor's cache."""
ROW_BYTES = 16
"""Approximate size of a processed row in columns in files."""
WRITE_BYTES = 1 << 20
"""Size of the writes of a column that is still being filled."""

_Item = TypeVar("_Item")


def chunks(count: int) -> Iterator[slice]:
    """Split `count` rows into consecutive slices of CHUNK_ROWS."""
    for first in range(0, count, CHUNK_ROWS):
        stop = min(first + CHUNK_ROWS, count)
        yield slice(first, stop)
        count_read((stop - first) * ROW_BYTES)


def compute_in_chunks(
    dtype: npt.DTypeLike, function: Callable[..., npt.NDArray[Any]], *columns: Any
) -> npt.NDArray[Any]:
    """Apply a row-wise function to columns or tables in chunks.

    Args:
        dtype: of the returned column.
        function: gets the same rows of each column, and returns one value for each of them.
        columns: (n,) each, or tables of n rows; at least one.
    """
    count = len(columns[0])
    if 0 < count <= CHUNK_ROWS:
        return _column_of(function(*columns), np.dtype(dtype))
    builder = ColumnBuilder(count, dtype)
    for chunk in chunks(count):
        builder.add(function(*(column[chunk] for column in columns)))
    return builder.build()


def _column_of(values: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return a column of at least one value, as a ColumnBuilder makes it of a single chunk."""
    column = values.astype(dtype)
    bits = column.view(f"u{dtype.itemsize}")
    if bits[0] == bits[-1] and (bits == bits[0]).all():
        return constant(column[0], len(column), dtype)
    return spillable(column)


def rows_where(
    condition: Callable[..., npt.NDArray[np.bool_]], *columns: Any
) -> npt.NDArray[np.intp]:
    """Return the rows, ascending, for which a condition on columns (n,) holds.

    condition: gets the same rows of each column, and returns a mask of them.
    """
    rows = [np.empty(0, np.intp)]
    for chunk in chunks(len(columns[0])):
        holds = condition(*(column[chunk] for column in columns))
        rows.append(np.flatnonzero(holds) + chunk.start)
    return spillable(np.concatenate(rows))


def one_by_one(items: Iterable[_Item], bytes_of: Callable[[_Item], int]) -> Iterator[_Item]:
    """Iterate over tracks or blocks, releasing memory of earlier ones from time to time.

    bytes_of: approximate size of the columns read for an item. Releasing memory after each item
    would take longer than reading a short track.
    """
    for item in items:
        yield item
        count_read(bytes_of(item))


class ColumnBuilder:
    """Builder of a column of at most `most` rows.

    Large columns may end up in a file and are then read-only. As long as all values are equal, only
    one of them is stored: profiles have many columns with the same value in every row.
    """

    def __init__(self, most: int, dtype: npt.DTypeLike) -> None:
        self._most, self._dtype = most, np.dtype(dtype)
        self._first: npt.NDArray[Any] = np.empty(0, self._dtype)
        """Value of all rows so far, if they are equal."""
        self._equal = 0
        self._extent: Extent | None = None
        self._waiting: npt.NDArray[Any] | None = None
        self._written, self._used = 0, 0

    def add(self, values: npt.NDArray[Any]) -> None:
        """Append values."""
        if self._waiting is None:
            if self._are_equal(values):
                self._equal += len(values)
                return
            self._waiting = self._buffer()
            for part in range(0, self._equal, len(self._waiting)):
                rows = min(self._equal - part, len(self._waiting))
                self._put(constant(self._first[0], rows, self._dtype), self._waiting)
        self._put(values, self._waiting)

    def _are_equal(self, values: npt.NDArray[Any]) -> bool:
        if not len(self._first):
            self._first = values[:1].astype(self._dtype)
        values = values.astype(self._dtype, copy=False)
        # Compare bits: -0.0 equals 0.0 as a number, and NaN does not equal itself.
        bits = f"u{self._dtype.itemsize}"
        return bool((values.view(bits) == self._first.view(bits)).all())

    def _buffer(self) -> npt.NDArray[Any]:
        """Return memory for all rows, or for those waiting to be written into a file."""
        item_bytes = self._dtype.itemsize
        self._extent = reserve_extent(self._most * item_bytes)
        if self._extent is not None:
            return np.empty(min(self._most, WRITE_BYTES // item_bytes), self._dtype)
        buffer = np.empty(self._most, self._dtype)
        count_in_memory(buffer)
        return buffer

    def _put(self, values: npt.NDArray[Any], waiting: npt.NDArray[Any]) -> None:
        if self._used + len(values) > len(waiting):
            self._write(waiting[: self._used])
            self._used = 0
        if len(values) > len(waiting):
            self._write(values.astype(self._dtype, copy=False))
            return
        waiting[self._used : self._used + len(values)] = values
        self._used += len(values)

    def _write(self, values: npt.NDArray[Any]) -> None:
        assert self._extent is not None
        self._extent.write(self._written * self._dtype.itemsize, values)
        self._written += len(values)

    def build(self) -> npt.NDArray[Any]:
        """Return all values; call it once and add nothing afterwards."""
        if self._waiting is None:
            value = self._first[0] if self._equal else 0
            return constant(value, self._equal, self._dtype)
        if self._extent is None:
            values = self._waiting[: self._used]
            return values.copy() if len(values) * 2 < len(self._waiting) else values
        self._write(self._waiting[: self._used])
        return self._extent.column(self._written, self._dtype)
