"""Turns integer keys of two tables into row numbers: the joins of a profile database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from timeline.records.columns import Bool, Codes, Int64, Rows, is_constant
from timeline.records.tables import NO_CONTEXT, NO_ID, Tasks

__all__ = [
    "Lookup",
    "at_rows",
    "common_keys",
    "covering_parents",
    "distinct_values",
    "ordinals",
    "pairs_by_key",
]

_Values = TypeVar("_Values", Int64, Codes)

DENSE = 8
"""Keys that are spread over at most this many times their number are found by position."""


def _spread(keys: Int64) -> tuple[int, int] | None:
    """The least key and the number of places from it to the greatest, if they lie dense."""
    if not len(keys):
        return None
    least = int(keys.min())
    places = int(keys.max()) - least + 1
    return (least, places) if places <= DENSE * len(keys) else None


def distinct_values(values: Int64) -> tuple[Int64, Rows]:
    """The distinct values, ascending, and for each value its place among them."""
    dense = _spread(values)
    if dense is None:
        distinct, which = np.unique(values, return_inverse=True)
        return distinct, which.reshape(-1)
    least, places = dense
    offset = values - least
    held = np.zeros(places, np.bool_)
    held[offset] = True
    place = np.cumsum(held, dtype=np.intp) - 1
    return np.flatnonzero(held) + least, place[offset]


class Lookup:
    """A table found by a key that is unique, or whose first row stands for all."""

    def __init__(self, columns: dict[str, Int64], key: str) -> None:
        self._columns = columns
        keys = columns[key]
        self._least, self._row_at = 0, np.empty(0, np.intp)
        self._order, self._sorted = np.empty(0, np.intp), keys[:0]
        if dense := _spread(keys):
            self._least, places = dense
            # One place more, which is every key's that is not there.
            self._row_at = np.full(places + 1, -1, np.intp)
            self._row_at[keys[::-1] - self._least] = np.arange(len(keys))[::-1]
        else:
            self._order = np.argsort(keys, kind="stable")
            self._sorted = keys[self._order]

    def find(self, keys: Int64) -> Rows:
        """The row of each key, -1 for none."""
        if len(self._row_at):
            places = len(self._row_at) - 1
            # Below the least key the difference is huge without a sign, as above the greatest.
            offset = (keys - self._least).view(np.uint64)
            return self._row_at[np.minimum(offset, np.uint64(places)).view(np.int64)]
        if not len(self._sorted):
            return np.full(len(keys), -1, np.intp)
        at = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
        return np.where(self._sorted[at] == keys, self._order[at], -1)

    def of(self, column: str, rows: Rows, absent: int = NO_ID) -> Int64:
        """A column's values at rows that `find` gave."""
        return at_rows(self._columns[column], rows, absent)


def at_rows(values: _Values, rows: Rows, absent: int) -> _Values:
    """A column's values at rows that `Lookup.find` gave; where it gave none, another."""
    # The last value is the one that -1 picks.
    return np.append(values, values.dtype.type(absent))[rows]


def pairs_by_key(left: Int64, right: Int64) -> tuple[Rows, Rows]:
    """All pairs (row of left, row of right) with equal keys, by left row, then right row."""
    order = np.argsort(right, kind="stable")
    ordered = right[order]
    first = np.searchsorted(ordered, left, side="left")
    count = np.searchsorted(ordered, left, side="right") - first
    rows = np.repeat(np.arange(len(left)), count)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
    return rows, order[np.repeat(first, count) + within]


def covering_parents(tasks: Tasks) -> Bool:
    """Which tasks are FFTS+ parents: without a context, covering a sub-task of the same task.

    TASK holds a row for the FFTS+ task as a whole beside the rows of its sub-tasks; drawn, it
    would be a kernel that never ran. Task ids wrap, so the parent must also cover in time.
    """
    found = np.zeros(len(tasks), np.bool_)
    is_child: Bool = tasks.context != NO_CONTEXT
    if not is_child.any():
        return found
    with_children, _ = distinct_values(tasks.stream[is_child])
    rows = np.flatnonzero(np.isin(tasks.stream, with_children))
    rows = rows[np.isin(tasks.task[rows], distinct_values(tasks.task[is_child])[0])]
    key = np.zeros(len(rows), np.int64)
    for column in (tasks.device, tasks.stream, tasks.task):
        if is_constant(column):
            continue
        ids = column[rows]
        distinct, place = distinct_values(ids)
        _, key = distinct_values(key * len(distinct) + place)
    # A parent comes before a child that starts with it, so the next child is behind it.
    order = np.lexsort((is_child[rows], tasks.start_ns[rows], key))
    rows, key = rows[order], key[order]
    child_places = np.flatnonzero(is_child[rows])
    candidate_places = np.flatnonzero(~is_child[rows])
    at = np.searchsorted(child_places, candidate_places)
    nearest = child_places[np.minimum(at, len(child_places) - 1)]
    covers = (
        (at < len(child_places))
        & (key[nearest] == key[candidate_places])
        & (tasks.end_ns[rows[nearest]] <= tasks.end_ns[rows[candidate_places]])
    )
    found[rows[candidate_places[covers]]] = True
    return found


def common_keys(left: Sequence[Int64], right: Sequence[Int64]) -> tuple[Int64, Int64]:
    """One key per row of two tables, equal where all the columns given of both are equal."""
    rows = len(left[0])
    key = np.zeros(rows + len(right[0]), np.int64)
    for one, other in zip(left, right, strict=True):
        distinct, place = distinct_values(np.concatenate([one, other]))
        _, key = distinct_values(key * len(distinct) + place)
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
