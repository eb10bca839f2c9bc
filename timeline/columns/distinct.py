"""Turns values into the distinct ones among them, and into the places that they have there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from timeline.columns.chunks import chunks, compute_in_chunks
from timeline.columns.columns import Codes, Int64, Rows
from timeline.columns.constant import constant, is_constant

__all__ = ["distinct", "distinct_pairs", "distinct_values", "spread", "translated"]

_Integer = TypeVar("_Integer", bound=np.integer[Any])
_Meaning = TypeVar("_Meaning", bound=np.generic)

DENSE = 8
"""Values that are spread over at most this many times their number are found by position."""
MOST_PLACES = 1 << 31
"""Places are numbered in 32 bits."""


def spread(values: npt.NDArray[np.integer[Any]]) -> tuple[int, int] | None:
    """The least value and the number of places from it to the greatest, if they lie dense."""
    if not len(values):
        return None
    least = int(values.min())
    places = int(values.max()) - least + 1
    return (least, places) if places <= min(DENSE * len(values), MOST_PLACES) else None


def distinct(values: npt.NDArray[_Integer]) -> npt.NDArray[_Integer]:
    """The distinct values, ascending."""
    if is_constant(values):
        return values[:1].copy()
    if (dense := spread(values)) is not None:
        found, _ = _placed(values, *dense)
        return found
    parts = [_sorted_distinct(values[chunk]) for chunk in chunks(len(values))]
    return _sorted_distinct(np.concatenate([values[:0], *parts]))


def distinct_values(values: npt.NDArray[_Integer]) -> tuple[npt.NDArray[_Integer], Rows]:
    """The distinct values, ascending, and for each value its place among them."""
    if is_constant(values):
        return values[:1].copy(), constant(0, len(values), np.intp)
    if (dense := spread(values)) is None:
        found, which = np.unique(values, return_inverse=True)
        return found, which.reshape(-1)
    least, _ = dense
    found, place = _placed(values, *dense)
    return found, compute_in_chunks(np.intp, lambda some: place[some - least], values)


def translated(
    values: npt.NDArray[_Integer],
    meaning: Callable[[npt.NDArray[_Integer]], npt.NDArray[_Meaning]],
) -> npt.NDArray[_Meaning]:
    """What each value means, given what the distinct values do, ascending."""
    found, which = distinct_values(values)
    table = meaning(found)
    return compute_in_chunks(table.dtype, table.__getitem__, which)


def distinct_pairs(first: Int64, second: Int64) -> tuple[npt.NDArray[np.int64], Rows]:
    """The distinct pairs in ascending order, (k, 2), and which of them each row is, (n,).

    Each column becomes places before they are joined: rows of two columns compare a hundred times
    slower than numbers.
    """
    ones, one = distinct_values(first)
    others, other = distinct_values(second)
    width = max(1, len(others))
    keys, which = distinct_values(one * width + other)
    return np.stack([ones[keys // width], others[keys % width]], axis=1), which


def _placed(
    values: npt.NDArray[_Integer], least: int, places: int
) -> tuple[npt.NDArray[_Integer], Codes]:
    """The distinct values; and for each number from the least on, how many of them are below."""
    held = np.zeros(places, np.bool_)
    for chunk in chunks(len(values)):
        held[values[chunk] - least] = True
    found = np.flatnonzero(held).astype(values.dtype, copy=False) + values.dtype.type(least)
    return found, np.cumsum(held, dtype=np.int32) - 1


def _sorted_distinct(values: npt.NDArray[_Integer]) -> npt.NDArray[_Integer]:
    """The distinct of a few values: some ten times faster than with the hash table of NumPy."""
    ordered = np.sort(values)
    is_first = np.ones(len(ordered), np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    found: npt.NDArray[_Integer] = ordered[is_first]
    return found
