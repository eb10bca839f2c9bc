"""Joins of tables by integer keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from timeline.columns.chunks import chunks, compute_in_chunks, rows_where
from timeline.columns.columns import (
    Bool,
    Int64,
    Rows,
    ascending,
    concat_columns,
    rows_of_runs,
    sort_rows,
    take,
)
from timeline.columns.constant import constant
from timeline.columns.group_by import group_numbers, joined_keys
from timeline.records.not_given import NO_CONTEXT, NO_ID
from timeline.records.tables import Tasks

_Number = TypeVar("_Number", np.int64, np.int32)


class Lookup:
    """An index of a table by an integer key; of rows with equal keys, the first is found.

    Absent ids (NO_ID) are not keys and find no row.
    """

    def __init__(self, columns: dict[str, Int64], key: str) -> None:
        self._columns = columns
        keys = columns[key]
        order = sort_rows(keys)
        self._order = order[keys[order] != NO_ID]
        self._sorted = keys[self._order]

    def find(self, keys: Int64) -> Rows:
        """Return the row of each key, -1 if there is none."""
        return compute_in_chunks(np.intp, self._find, keys)

    def _find(self, keys: Int64) -> Rows:
        if not len(self._sorted):
            return np.full(len(keys), -1, np.intp)
        at = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
        return np.where(self._sorted[at] == keys, self._order[at], -1)

    def of(self, column: str, rows: Rows, absent: int | Int64 = NO_ID) -> Int64:
        """Return a column's values at rows from `find`, and `absent` for rows that are -1."""
        return values_at(self._columns[column], rows, absent)


def values_at(
    values: npt.NDArray[_Number], rows: Rows, absent: int | npt.NDArray[_Number]
) -> npt.NDArray[_Number]:
    """Return the values at rows, and `absent` for rows that are -1."""
    other = constant(absent, len(rows), values.dtype) if isinstance(absent, int) else absent
    if not len(values):
        return other

    def select(places: Rows, others: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
        return np.where(places >= 0, values[np.maximum(places, 0)], others)

    return compute_in_chunks(values.dtype, select, rows, other)


def last_rows(ordered: Int64, wanted: Int64) -> Rows:
    """Return the last row of each wanted key in an ascending column, -1 if absent or NO_ID."""
    at = np.searchsorted(ordered, wanted, side="right") - 1
    is_present = (at >= 0) & (wanted != NO_ID)
    is_present[is_present] = ordered[at[is_present]] == wanted[is_present]
    return np.where(is_present, at, -1)


def pairs_by_key(left: Int64, right: Int64) -> tuple[Rows, Rows]:
    """Return all pairs (row of left, row of right) with equal keys, by left row, then right row."""
    order = sort_rows(right)
    ordered = take(right, order)

    def pairs(first: int, keys: Int64) -> tuple[Rows, Rows]:
        begin = np.searchsorted(ordered, keys, side="left")
        count = np.searchsorted(ordered, keys, side="right") - begin
        rows = np.arange(first, first + len(keys))
        return np.repeat(rows, count), order[rows_of_runs(begin, count)]

    empty = np.empty(0, np.intp)
    parts = [pairs(chunk.start, left[chunk]) for chunk in chunks(len(left))]
    lefts, rights = zip((empty, empty), *parts, strict=True)
    return concat_columns(lefts), concat_columns(rights)


def covering_parents(tasks: Tasks) -> Bool:
    """Return a mask of rows that represent a whole FFTS+ task instead of a kernel.

    The table TASK has such a row besides the rows of the task's sub-tasks; drawn, it would appear
    as a kernel that never ran. It has no context, and covers in time a sub-task with the same
    device, stream and task id; time is compared because task ids wrap around.
    """
    are_parents = np.zeros(len(tasks), np.bool_)
    is_child: Bool = tasks.context != NO_CONTEXT
    child = np.flatnonzero(is_child)
    if not len(child):
        return are_parents
    key, keys = joined_keys(len(tasks), (tasks.device, tasks.stream, tasks.task))
    has_child = np.zeros(keys, np.bool_)
    has_child[key[child]] = True
    candidate = np.flatnonzero(has_child[key] & ~is_child)
    if not len(candidate):
        return are_parents
    start_ns = tasks.start_ns[child]
    if (start_ns[1:] < start_ns[:-1]).any():
        order = sort_rows(start_ns)
        child, start_ns = child[order], start_ns[order]
    # Sort children by key, then by start: both are in one number, key * count + place by start.
    places = ascending(key[child] * len(child) + np.arange(len(child)))
    place = np.searchsorted(start_ns, tasks.start_ns[candidate])
    at = np.searchsorted(places, key[candidate] * len(child) + place)
    next_key, next_place = np.divmod(places[np.minimum(at, len(places) - 1)], len(child))
    covers = (
        (at < len(places))
        & (next_key == key[candidate])
        & (tasks.end_ns[child[next_place]] <= tasks.end_ns[candidate])
    )
    are_parents[candidate[covers]] = True
    return are_parents


def rows_in(values: Int64, wanted: Int64, *, invert: bool = False) -> Rows:
    """Return the rows that hold one of the wanted values, or all other rows if `invert`."""
    return rows_where(lambda some: np.isin(some, wanted, invert=invert), values)


def common_keys(left: Sequence[Int64], right: Sequence[Int64]) -> tuple[Int64, Int64]:
    """Return one key per row of two tables, equal if all the given columns are equal."""
    rows = len(left[0])
    both = (np.concatenate(pair) for pair in zip(left, right, strict=True))
    key = group_numbers(rows + len(right[0]), both)
    return key[:rows].astype(np.int64), key[rows:].astype(np.int64)


def ordinals(key: Int64, start_ns: Int64) -> Int64:
    """Return the position of each row, from 0, among the rows of the same key by start."""
    if not len(key):
        return np.empty(0, np.int64)
    order = np.lexsort((start_ns, key))
    places = np.arange(len(order))
    first = np.concatenate([[True], key[order][1:] != key[order][:-1]])
    result = np.empty(len(order), np.int64)
    result[order] = places - np.maximum.accumulate(np.where(first, places, 0))
    return result
