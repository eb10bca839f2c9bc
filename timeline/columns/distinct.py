"""Distinct values of columns, and for each row which of them it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from timeline.columns.chunks import chunks, compute_in_chunks
from timeline.columns.columns import Bool, Codes, Int64, Rows, ascending, sort_rows
from timeline.columns.constant import constant, is_constant
from timeline.columns.spill import spillable

FEW_ROWS = 32
"""So many rows are looked at one by one."""
FEW_VALUES = 8
"""So many values are compared with each row sooner than rows are sorted by them."""

_Integer = TypeVar("_Integer", bound=np.integer[Any])
_Meaning = TypeVar("_Meaning", bound=np.generic)

DENSE = 8
"""Values whose range is at most so many times their number are found by position."""
MOST_NUMBERS = 1 << 31
"""Positions are numbered in 32 bits."""
NO_ROWS: Rows = np.empty(0, np.intp)
"""The rows that hold a value that there is not."""
SHORT_RANGE = 1 << 16
"""Values less far apart than this are sorted as 16-bit numbers."""


def dense_range(values: npt.NDArray[np.integer[Any]]) -> tuple[int, int] | None:
    """The least value and how many numbers there are up to the greatest; None where few are used.

    Where it is not None, a table with an entry for each number is small and fast.
    """
    if not len(values):
        return None
    least = int(values.min())
    width = int(values.max()) - least + 1
    return (least, width) if width <= min(DENSE * len(values), MOST_NUMBERS) else None


def distinct(values: npt.NDArray[_Integer]) -> npt.NDArray[_Integer]:
    """The distinct values, ascending."""
    if is_constant(values):
        return values[:1].copy()
    if (dense := dense_range(values)) is not None:
        found, _ = _numbered(values, *dense)
        return found
    parts = [_sorted_distinct(values[chunk]) for chunk in chunks(len(values))]
    return _sorted_distinct(np.concatenate([values[:0], *parts]))


def distinct_values(values: npt.NDArray[_Integer]) -> tuple[npt.NDArray[_Integer], Rows]:
    """The distinct values (k,), ascending, and for each row where its value is among them (n,)."""
    if is_constant(values):
        return values[:1].copy(), constant(0, len(values), np.intp)
    if len(values) <= FEW_ROWS:
        return _distinct_of_few(values)
    if (dense := dense_range(values)) is None:
        return _sorted_values(values)
    least, _ = dense
    found, position = _numbered(values, *dense)
    return found, compute_in_chunks(np.intp, lambda some: position.take(some - least), values)


def _distinct_of_few(
    values: npt.NDArray[_Integer],
) -> tuple[npt.NDArray[_Integer], Rows]:
    """The same of a few rows: to call NumPy takes longer than to look at each."""
    rows = values.tolist()
    number = {value: place for place, value in enumerate(sorted(set(rows)))}
    found = np.array(list(number), values.dtype)
    if len(number) == 1:
        return found, constant(0, len(rows), np.intp)
    return found, np.array([number[value] for value in rows], np.intp)


def distinct_as_met(values: npt.NDArray[_Integer]) -> tuple[npt.NDArray[_Integer], Rows]:
    """The distinct values in the order in which they are first met, and which each row holds.

    >>> found, which = distinct_as_met(np.array([7, 3, 7]))
    >>> found.tolist(), which.tolist()
    ([7, 3], [0, 1, 0])
    """
    found, which = distinct_values(values)
    first = np.empty(len(found), np.intp)
    # The last of several values for one place stays.
    first[which[::-1]] = np.arange(len(values) - 1, -1, -1)
    order = np.argsort(first)
    number = np.empty(len(order), np.intp)
    number[order] = np.arange(len(order))
    return found[order], number[which]


def map_values(
    values: npt.NDArray[_Integer],
    meaning: Callable[[npt.NDArray[_Integer]], npt.NDArray[_Meaning]],
) -> npt.NDArray[_Meaning]:
    """Map each value (n,) through a function that is asked for the distinct values alone.

    meaning: gets the distinct values, ascending, and returns one value for each.
    """
    found, which = distinct_values(values)
    table = meaning(found)
    return compute_in_chunks(table.dtype, table.take, which)


def distinct_pairs(first: Int64, second: Int64) -> tuple[npt.NDArray[np.int64], Rows]:
    """The distinct pairs in ascending order, (k, 2), and which of them each row is, (n,).

    Each column becomes positions before the two are joined: rows of two columns compare a hundred
    times slower than numbers.
    """
    ones, one = distinct_values(first)
    others, other = distinct_values(second)
    width = max(1, len(others))
    keys, which = distinct_values(one * width + other)
    return np.stack([ones[keys // width], others[keys % width]], axis=1), which


def rows_by_value(
    values: npt.NDArray[_Integer], wanted: npt.NDArray[_Integer] | None = None
) -> Iterator[tuple[int, Rows]]:
    """Each distinct value, or each of some, ascending, and the rows that hold it, ascending.

    >>> [(value, rows.tolist()) for value, rows in rows_by_value(np.array([7, 3, 7]))]
    [(3, [1]), (7, [0, 2])]
    """
    if wanted is None:
        yield from _rows_of_each(values)
        return
    if len(wanted) <= FEW_VALUES:
        for value in wanted.tolist():
            yield value, spillable(np.flatnonzero(values == value))
        return
    rows = np.flatnonzero(np.isin(values, wanted))
    rows = rows[np.argsort(values[rows], kind="stable")]
    ordered = values[rows]
    first = np.searchsorted(ordered, wanted, side="left").tolist()
    stop = np.searchsorted(ordered, wanted, side="right").tolist()
    for value, begin, end in zip(wanted.tolist(), first, stop, strict=True):
        yield value, rows[begin:end]


def _rows_of_each(values: npt.NDArray[_Integer]) -> Iterator[tuple[int, Rows]]:
    if not len(values):
        return
    least, keys = int(values.min()), values
    if int(values.max()) - least < SHORT_RANGE:
        # Short numbers are sorted by their digits, in a tenth of the time.
        keys = compute_in_chunks(np.uint16, lambda some: some - least, values)
    order = sort_rows(keys)
    ordered = keys[order]
    bounds = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1], [True]]))
    found = values[order[bounds[:-1]]]
    for value, begin, stop in zip(
        found.tolist(), bounds[:-1].tolist(), bounds[1:].tolist(), strict=True
    ):
        yield value, order[begin:stop]


def _numbered(
    values: npt.NDArray[_Integer], least: int, width: int
) -> tuple[npt.NDArray[_Integer], Codes]:
    """The distinct values; and for each number from the least on, how many of them are below."""
    occurs = np.zeros(width, np.bool_)
    for chunk in chunks(len(values)):
        # NumPy marks by positions of 64 bits so much quicker that converting them pays.
        occurs[(values[chunk] - least).astype(np.intp, copy=False)] = True
    found = np.flatnonzero(occurs).astype(values.dtype, copy=False) + values.dtype.type(least)
    return found, np.cumsum(occurs, dtype=np.int32) - 1


def _sorted_distinct(values: npt.NDArray[_Integer]) -> npt.NDArray[_Integer]:
    """The distinct of a few values, some ten times faster than by the hash table of NumPy."""
    ordered = ascending(values)
    return ordered[are_first(ordered)]


def _sorted_values(values: npt.NDArray[_Integer]) -> tuple[npt.NDArray[_Integer], Rows]:
    """The distinct values, and where each row's is among them, by their order."""
    order = sort_rows(values)
    ordered = values[order]
    is_first = are_first(ordered)
    which = np.empty(len(values), np.intp)
    which[order] = np.cumsum(is_first) - 1
    return ordered[is_first], which


def are_first(*ordered: npt.NDArray[_Integer]) -> Bool:
    """Tell which rows of columns in order (n,) differ from the row before them."""
    is_first = np.ones(len(ordered[0]), np.bool_)
    np.not_equal(ordered[0][1:], ordered[0][:-1], out=is_first[1:])
    for column in ordered[1:]:
        is_first[1:] |= column[1:] != column[:-1]
    return is_first
