"""Distinct values of columns, and the distinct value of each row."""

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
"""Columns of at most this many rows are processed row by row in Python."""
FEW_VALUES = 8
"""For at most this many values, comparing each with all rows is faster than sorting."""

_Integer = TypeVar("_Integer", bound=np.integer[Any])
_Meaning = TypeVar("_Meaning", bound=np.generic)

DENSE = 8
"""Maximum range of values, in multiples of their number, for lookup by position."""
MOST_NUMBERS = 1 << 31
"""Positions are numbered in 32 bits."""
NO_ROWS: Rows = np.empty(0, np.intp)
"""Rows of a value that does not occur."""
SHORT_RANGE = 1 << 16
"""Values within a smaller range are sorted as 16-bit numbers."""


def dense_range(values: npt.NDArray[np.integer[Any]]) -> tuple[int, int] | None:
    """Return the minimum and the size of the range of values; None if the range is sparse.

    If it is not None, a table with an entry for each number is small and fast.
    """
    if not len(values):
        return None
    least = int(values.min())
    width = int(values.max()) - least + 1
    return (least, width) if width <= min(DENSE * len(values), MOST_NUMBERS) else None


def distinct(values: npt.NDArray[_Integer]) -> npt.NDArray[_Integer]:
    """Return the distinct values, ascending."""
    if is_constant(values):
        return values[:1].copy()
    if (dense := dense_range(values)) is not None:
        unique, _ = _numbered(values, *dense)
        return unique
    parts = [_sorted_distinct(values[chunk]) for chunk in chunks(len(values))]
    return _sorted_distinct(np.concatenate([values[:0], *parts]))


def distinct_values(values: npt.NDArray[_Integer]) -> tuple[npt.NDArray[_Integer], Rows]:
    """Return the distinct values (k,), ascending, and the position of each row's value, (n,)."""
    if is_constant(values):
        return values[:1].copy(), constant(0, len(values), np.intp)
    if len(values) <= FEW_ROWS:
        return _distinct_of_few(values)
    if (dense := dense_range(values)) is None:
        return _sorted_values(values)
    least, _ = dense
    unique, position = _numbered(values, *dense)
    return unique, compute_in_chunks(np.intp, lambda some: position.take(some - least), values)


def _distinct_of_few(values: npt.NDArray[_Integer]) -> tuple[npt.NDArray[_Integer], Rows]:
    """Return the same as `distinct_values` for a few rows, for which calling NumPy takes longer."""
    rows = values.tolist()
    number = {value: place for place, value in enumerate(sorted(set(rows)))}
    unique = np.array(list(number), values.dtype)
    if len(number) == 1:
        return unique, constant(0, len(rows), np.intp)
    return unique, np.array([number[value] for value in rows], np.intp)


def distinct_as_met(values: npt.NDArray[_Integer]) -> tuple[npt.NDArray[_Integer], Rows]:
    """Return the distinct values in order of first occurrence, and the position of each row's.

    >>> values, which = distinct_as_met(np.array([7, 3, 7]))
    >>> values.tolist(), which.tolist()
    ([7, 3], [0, 1, 0])
    """
    unique, which, turn = distinct_turns(values)
    return unique[np.argsort(turn)], turn[which]


def distinct_turns(
    values: npt.NDArray[_Integer],
) -> tuple[npt.NDArray[_Integer], npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the distinct values, ascending; the position of each row's; and the turn of each.

    The turn of a value is its number in the order of first rows.

    >>> values, which, turn = distinct_turns(np.array([7, 3, 7]))
    >>> values.tolist(), which.tolist(), turn.tolist()
    ([3, 7], [1, 0, 1], [1, 0])
    """
    keys, which = distinct_values(values)
    turn = np.empty(len(keys), np.intp)
    turn[np.argsort(first_rows(which, len(keys)))] = np.arange(len(keys))
    return keys, which, turn


def first_rows(group: Rows | Int64, groups: int) -> Rows:
    """Return the first row of each of `groups` groups, given the number of each row's group."""
    first = np.zeros(groups, np.intp)
    first[group[::-1]] = np.arange(len(group))[::-1]
    return first


def map_values(
    values: npt.NDArray[_Integer], meaning: Callable[[npt.NDArray[_Integer]], npt.NDArray[_Meaning]]
) -> npt.NDArray[_Meaning]:
    """Map each value (n,) through a function that is called with the distinct values only.

    meaning: gets the distinct values, ascending, and returns one value for each.
    """
    keys, which = distinct_values(values)
    table = meaning(keys)
    return compute_in_chunks(table.dtype, table.take, which)


def distinct_pairs(first: Int64, second: Int64) -> tuple[npt.NDArray[np.int64], Rows]:
    """Return the distinct pairs, ascending, (k, 2), and the position of each row's, (n,).

    Each column is converted to positions before the two are combined: comparing rows of two columns
    is a hundred times slower than comparing numbers.
    """
    ones, one = distinct_values(first)
    others, other = distinct_values(second)
    width = max(1, len(others))
    keys, which = distinct_values(one * width + other)
    return np.stack([ones[keys // width], others[keys % width]], axis=1), which


def rows_by_value(
    values: npt.NDArray[_Integer], wanted: npt.NDArray[_Integer] | None = None
) -> Iterator[tuple[int, Rows]]:
    """Yield each distinct value, or each wanted one, ascending, and its rows, ascending.

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


def matched_rows(
    few: npt.NDArray[_Integer], many: npt.NDArray[_Integer]
) -> Iterator[tuple[Rows, Rows]]:
    """Yield, for each value of `few`, ascending, its rows there and its rows in `many`.

    >>> left, right = np.array([7, 3]), np.array([3, 3, 5])
    >>> [(rows.tolist(), others.tolist()) for rows, others in matched_rows(left, right)]
    [([1], [0, 1]), ([0], [])]
    """
    rows_of = dict(rows_by_value(few))
    for value, rows in rows_by_value(many, distinct(few)):
        yield rows_of[value], rows


def _rows_of_each(values: npt.NDArray[_Integer]) -> Iterator[tuple[int, Rows]]:
    if not len(values):
        return
    least, keys = int(values.min()), values
    if int(values.max()) - least < SHORT_RANGE:
        # 16-bit numbers are sorted by radix, in a tenth of the time.
        keys = compute_in_chunks(np.uint16, lambda some: some - least, values)
    order = sort_rows(keys)
    ordered = keys[order]
    bounds = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1], [True]]))
    unique = values[order[bounds[:-1]]]
    for value, begin, stop in zip(
        unique.tolist(), bounds[:-1].tolist(), bounds[1:].tolist(), strict=True
    ):
        yield value, order[begin:stop]


def _numbered(
    values: npt.NDArray[_Integer], least: int, width: int
) -> tuple[npt.NDArray[_Integer], Codes]:
    """Return the distinct values, and for each number from `least` on its position among them."""
    occurs = np.zeros(width, np.bool_)
    for chunk in chunks(len(values)):
        # Indexing with 64-bit positions is so much faster in NumPy that converting pays.
        occurs[(values[chunk] - least).astype(np.intp, copy=False)] = True
    unique = np.flatnonzero(occurs).astype(values.dtype, copy=False) + values.dtype.type(least)
    return unique, np.cumsum(occurs, dtype=np.int32) - 1


def _sorted_distinct(values: npt.NDArray[_Integer]) -> npt.NDArray[_Integer]:
    """Return the distinct values by sorting, some ten times faster than NumPy's hash table."""
    ordered = ascending(values)
    return ordered[are_first(ordered)]


def _sorted_values(values: npt.NDArray[_Integer]) -> tuple[npt.NDArray[_Integer], Rows]:
    """Return the distinct values, and the position of each row's value, by sorting."""
    order = sort_rows(values)
    ordered = values[order]
    is_first = are_first(ordered)
    which = np.empty(len(values), np.intp)
    which[order] = np.cumsum(is_first) - 1
    return ordered[is_first], which


def are_first(*ordered: npt.NDArray[_Integer]) -> Bool:
    """Return a mask of rows of sorted columns (n,) that differ from the row before them."""
    is_first = np.ones(len(ordered[0]), np.bool_)
    np.not_equal(ordered[0][1:], ordered[0][:-1], out=is_first[1:])
    for column in ordered[1:]:
        is_first[1:] |= column[1:] != column[:-1]
    return is_first
