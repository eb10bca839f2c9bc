"""Joins of tables by integer keys: which rows of one belong to those of another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from timeline.columns.chunks import chunks, compute_in_chunks, rows_where
from timeline.columns.columns import (
    Bool,
    Codes,
    Int64,
    Rows,
    ascending,
    concat_columns,
    rows_of_runs,
    sort_rows,
    take,
)
from timeline.columns.constant import constant
from timeline.columns.distinct import DENSE, MOST_NUMBERS
from timeline.columns.group_by import group_numbers, joined_keys
from timeline.records.not_given import NO_CONTEXT, NO_ID
from timeline.records.tables import Tasks

MOST_WIDTH = 1 << 62
"""Keys further apart are sorted: their differences may be no 64-bit numbers."""


@dataclass(frozen=True)
class _Places:
    """Numbers for keys near each other, ascending with them, by which they are found in a table.

    Keys may lie in clusters that are far apart, or a single one far from the others, as 4294967295
    where torch_npu has no id: the numbers from the least key on are cut into pages of the same
    size, and only those with a key have places. A key that is in none has the place `count`.
    """

    least: int
    shift: int
    """Of a number, the bits that tell its place within a page."""
    first: Int64 | None
    """(pages + 1,) the place that each page begins with, `count` where it has no key; None where
    all numbers are one page."""
    count: int

    @classmethod
    def of(cls, keys: Int64, rows: int = 0) -> _Places | None:
        """Places of keys and of what lies between; None where most of those would hold no key.

        rows: for so many a table is small, if they are more than the keys.
        """
        if not len(keys):
            return None
        rows = max(rows, len(keys))
        least = int(keys.min())
        width = int(keys.max()) - least + 1
        if width <= min(DENSE * rows, MOST_NUMBERS):
            return cls(least, 0, None, width)
        if width > MOST_WIDTH:
            return None
        shift = (width // rows).bit_length()
        has_keys = np.zeros((width >> shift) + 2, np.bool_)
        for chunk in chunks(len(keys)):
            has_keys[(keys[chunk] - least) >> shift] = True
        pages = np.flatnonzero(has_keys)
        count = len(pages) << shift
        if count > DENSE * rows:
            return None
        first = np.full(len(has_keys), count)
        first[pages] = np.arange(len(pages)) << shift
        return cls(least, shift, first, count)

    def at(self, keys: Int64) -> Int64:
        """The place of each key, (n,)."""
        if self.first is None:
            return _offsets(keys, self.least, self.count)
        offsets = _offsets(keys, self.least, (len(self.first) - 1) << self.shift)
        within = offsets & ((1 << self.shift) - 1)
        places: Int64 = np.minimum(self.first[offsets >> self.shift] + within, self.count)
        return places


def _offsets(keys: Int64, least: int, places: int) -> Int64:
    """How far keys are from the least one, and `places` for those that are not in so many."""
    # Below the least key the difference is huge without a sign, as above the greatest.
    return np.minimum((keys - least).view(np.uint64), np.uint64(places)).view(np.int64)


_Number = TypeVar("_Number", np.int64, np.int32)


class Lookup:
    """A table found by a key that is unique, or whose first row stands for all.

    An id that is not given is no key: it finds no row.
    """

    def __init__(self, columns: dict[str, Int64], key: str) -> None:
        self._columns = columns
        keys = columns[key]
        self._places = _Places.of(keys)
        self._row_at = np.empty(0, np.int32)
        self._order, self._sorted = np.empty(0, np.intp), keys[:0]
        if self._places is not None:
            # One place more, which is every key's that is not there.
            self._row_at = np.full(self._places.count + 1, -1, np.int32)
            for chunk in reversed(list(chunks(len(keys)))):
                rows = np.arange(chunk.start, chunk.stop)
                self._row_at[self._places.at(keys[chunk][::-1])] = rows[::-1]
            self._row_at[self._places.at(np.array([NO_ID]))] = -1
        else:
            order = np.argsort(keys, kind="stable")
            self._order = order[keys[order] != NO_ID]
            self._sorted = keys[self._order]

    def find(self, keys: Int64) -> Rows:
        """The row of each key, -1 for none."""
        return compute_in_chunks(np.intp, self._find, keys)

    def _find(self, keys: Int64) -> Rows | Codes:
        if self._places is not None:
            return self._row_at[self._places.at(keys)]
        if not len(self._sorted):
            return np.full(len(keys), -1, np.intp)
        at = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
        return np.where(self._sorted[at] == keys, self._order[at], -1)

    def of(self, column: str, rows: Rows, absent: int | Int64 = NO_ID) -> Int64:
        """A column's values at rows that `find` gave, and where it gave none, another value."""
        return values_at(self._columns[column], rows, absent)


def values_at(
    values: npt.NDArray[_Number], rows: Rows, absent: int | npt.NDArray[_Number]
) -> npt.NDArray[_Number]:
    """The values of rows, and where a row is -1, another value."""
    other = constant(absent, len(rows), values.dtype) if isinstance(absent, int) else absent
    if not len(values):
        return other

    def found(places: Rows, others: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
        return np.where(places >= 0, values[np.maximum(places, 0)], others)

    return compute_in_chunks(values.dtype, found, rows, other)


def pairs_by_key(left: Int64, right: Int64) -> tuple[Rows, Rows]:
    """All pairs (row of left, row of right) with equal keys, by left row, then right row."""
    order = sort_rows(right)
    matches = _matches_in(take(right, order))
    pairs = [_pairs(chunk.start, *matches(left[chunk]), order) for chunk in chunks(len(left))]
    nothing = np.empty(0, np.intp)
    lefts, rights = zip((nothing, nothing), *pairs, strict=True)
    return concat_columns(lefts), concat_columns(rights)


def _matches_in(ordered: Int64) -> Callable[[Int64], tuple[Rows, Rows, Rows]]:
    """What tells which of some keys are among keys in order, and where those begin and end."""
    if (places := _Places.of(ordered)) is None:

        def sought(keys: Int64) -> tuple[Rows, Rows, Rows]:
            first = np.searchsorted(ordered, keys, side="left")
            rows = np.flatnonzero(first < len(ordered))
            rows = rows[ordered[first[rows]] == keys[rows]]
            stop = np.searchsorted(ordered, keys[rows], side="right")
            return rows, first[rows], stop

        return sought
    bounds = np.zeros(places.count + 1, np.intp)
    for chunk in chunks(len(ordered)):
        place = places.at(ordered[chunk])
        first, last = int(place[0]), int(place[-1])
        bounds[first + 1 : last + 2] += np.bincount(place - first)
    # One place more, which is every key's that is not there.
    held = np.append(bounds[1:] > 0, False)
    np.cumsum(bounds, out=bounds)

    def found(keys: Int64) -> tuple[Rows, Rows, Rows]:
        place = places.at(keys)
        rows = np.flatnonzero(held[place])
        place = place[rows]
        return rows, bounds[place], bounds[place + 1]

    return found


def _pairs(before: int, rows: Rows, first: Rows, stop: Rows, order: Rows) -> tuple[Rows, Rows]:
    """The pairs of some rows of the left column, behind others, with places in the right one."""
    count = stop - first
    return np.repeat(rows + before, count), order[rows_of_runs(first, count)]


def covering_parents(tasks: Tasks) -> Bool:
    """Which tasks are FFTS+ parents: without a context, covering a sub-task of the same task.

    TASK holds a row for the FFTS+ task as a whole beside the rows of its sub-tasks; drawn, it
    would be a kernel that never ran. Task ids wrap, so the parent must also cover in time.
    """
    found = np.zeros(len(tasks), np.bool_)
    is_child: Bool = tasks.context != NO_CONTEXT
    child = np.flatnonzero(is_child)
    if not len(child):
        return found
    key, keys = joined_keys(len(tasks), (tasks.device, tasks.stream, tasks.task))
    has_child = np.zeros(keys, np.bool_)
    has_child[key[child]] = True
    candidate = np.flatnonzero(has_child[key] & ~is_child)
    if not len(candidate):
        return found
    start_ns = tasks.start_ns[child]
    if (start_ns[1:] < start_ns[:-1]).any():
        order = sort_rows(start_ns)
        child, start_ns = child[order], start_ns[order]
    # Children in order of their key, then of their start: their places in order of start do.
    places = ascending(key[child] * len(child) + np.arange(len(child)))
    place = np.searchsorted(start_ns, tasks.start_ns[candidate])
    at = np.searchsorted(places, key[candidate] * len(child) + place)
    next_key, next_place = np.divmod(places[np.minimum(at, len(places) - 1)], len(child))
    covers = (
        (at < len(places))
        & (next_key == key[candidate])
        & (tasks.end_ns[child[next_place]] <= tasks.end_ns[candidate])
    )
    found[candidate[covers]] = True
    return found


def rows_in(values: Int64, wanted: Int64, *, invert: bool = False) -> Rows:
    """The rows that hold one of the wanted values, or none of them."""
    are_wanted = _membership(wanted, len(values))
    return rows_where(lambda some: are_wanted(some) != invert, values)


def are_in(values: Int64, wanted: Int64) -> Bool:
    """Which of the values (n,) are wanted, (n,)."""
    return _membership(wanted, len(values))(values)


def _membership(wanted: Int64, rows: int) -> Callable[[Int64], Bool]:
    """What tells which of some values are wanted, about to be asked for so many."""
    if (places := _Places.of(wanted, rows)) is None:
        return lambda values: np.isin(values, wanted)
    # One place more, which is every value's that is not there.
    held = np.zeros(places.count + 1, np.bool_)
    held[places.at(wanted)] = True
    return lambda values: held[places.at(values)]


def common_keys(left: Sequence[Int64], right: Sequence[Int64]) -> tuple[Int64, Int64]:
    """One key per row of two tables, equal where all the columns given of both are equal."""
    rows = len(left[0])
    both = (np.concatenate(pair) for pair in zip(left, right, strict=True))
    key = group_numbers(rows + len(right[0]), both)
    return key[:rows].astype(np.int64), key[rows:].astype(np.int64)


def ordinals(key: Int64, start_ns: Int64) -> Int64:
    """The place of each row among those of the same key, in order of start."""
    if not len(key):
        return np.empty(0, np.int64)
    order = np.lexsort((start_ns, key))
    places = np.arange(len(order))
    first = np.concatenate([[True], key[order][1:] != key[order][:-1]])
    found = np.empty(len(order), np.int64)
    found[order] = places - np.maximum.accumulate(np.where(first, places, 0))
    return found
