"""Columns that are worked out some rows at a time, so that what that takes stays small."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from timeline.columns.constant import constant
from timeline.columns.spill import (
    Extent,
    count_in_memory,
    count_read,
    reserve_extent,
    spillable,
)

CHUNK_ROWS = 1 << 16
"""Rows that are worked on at a time: what that takes stays in the processor's cache."""
ROW_BYTES = 16
"""What a row that is worked on takes of columns in files, about."""
WRITE_BYTES = 1 << 20
"""What is written at a time of a column that is still filled."""

_Item = TypeVar("_Item")


def chunks(count: int) -> Iterator[slice]:
    """Cut so many rows into slices of some thousand, in order."""
    for first in range(0, count, CHUNK_ROWS):
        stop = min(first + CHUNK_ROWS, count)
        yield slice(first, stop)
        count_read((stop - first) * ROW_BYTES)


def compute_in_chunks(
    dtype: npt.DTypeLike, function: Callable[..., npt.NDArray[Any]], *columns: Any
) -> npt.NDArray[Any]:
    """Apply a function that works row by row to columns or tables, some rows at a time.

    Args:
        dtype: that of the column that is returned.
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
    """A column of these values, at least one, as a ColumnBuilder makes it of a single chunk."""
    made = values.astype(dtype)
    bits = made.view(f"u{dtype.itemsize}")
    if bits[0] == bits[-1] and (bits == bits[0]).all():
        return constant(made[0], len(made), dtype)
    return spillable(made)


def rows_where(
    condition: Callable[..., npt.NDArray[np.bool_]], *columns: Any
) -> npt.NDArray[np.intp]:
    """The rows, ascending, for which a condition on columns (n,) holds.

    condition: gets the same rows of each column, and returns for each of them whether it holds.
    """
    found = [np.empty(0, np.intp)]
    for chunk in chunks(len(columns[0])):
        holds = condition(*(column[chunk] for column in columns))
        found.append(np.flatnonzero(holds) + chunk.start)
    return spillable(np.concatenate(found))


def one_by_one(items: Iterable[_Item], bytes_of: Callable[[_Item], int]) -> Iterator[_Item]:
    """Iterate over tracks or blocks; the memory of those before is given back now and then.

    bytes_of: how many bytes of columns are read for an item, about. To give memory back for each
    one takes longer than to read a short track.
    """
    for item in items:
        yield item
        count_read(bytes_of(item))


class ColumnBuilder:
    """Joins values to a column of at most `most` rows.

    Large ones may end up in a file; then the column is read-only. As long as all values are the
    same there is nothing but one of them: profiles have many columns that say the same of every
    row.
    """

    def __init__(self, most: int, dtype: npt.DTypeLike) -> None:
        self._most, self._dtype = most, np.dtype(dtype)
        self._first: npt.NDArray[Any] = np.empty(0, self._dtype)
        """The value of all rows so far, if they have one."""
        self._equal = 0
        self._extent: Extent | None = None
        self._waiting: npt.NDArray[Any] | None = None
        self._written, self._used = 0, 0

    def add(self, values: npt.NDArray[Any]) -> None:
        """Put values behind those that were added before."""
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
        # As bits: zeros of either sign are equal numbers, and no value is equal to itself.
        bits = f"u{self._dtype.itemsize}"
        return bool((values.view(bits) == self._first.view(bits)).all())

    def _buffer(self) -> npt.NDArray[Any]:
        """Memory for all rows, or for those that wait to be written into a file."""
        item_bytes = self._dtype.itemsize
        self._extent = reserve_extent(self._most * item_bytes)
        if self._extent is not None:
            return np.empty(min(self._most, WRITE_BYTES // item_bytes), self._dtype)
        made = np.empty(self._most, self._dtype)
        count_in_memory(made)
        return made

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
        """All values, once; nothing can be added then."""
        if self._waiting is None:
            value = self._first[0] if self._equal else 0
            return constant(value, self._equal, self._dtype)
        if self._extent is None:
            values = self._waiting[: self._used]
            return values.copy() if len(values) * 2 < len(self._waiting) else values
        self._write(self._waiting[: self._used])
        return self._extent.column(self._written, self._dtype)
