"""Turns integer keys of two tables into row numbers: the joins of a profile database."""

from __future__ import annotations

import numpy as np

from timeline.records.columns import Bool, Int64, Rows
from timeline.records.tables import NO_CONTEXT, NO_ID, Tasks

__all__ = ["Lookup", "covering_parents", "distinct_values", "pairs_by_key"]


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
            self._row_at = np.full(places, -1, np.intp)
            self._row_at[keys[::-1] - self._least] = np.arange(len(keys))[::-1]
        else:
            self._order = np.argsort(keys, kind="stable")
            self._sorted = keys[self._order]

    def find(self, keys: Int64) -> Rows:
        """The row of each key, -1 for none."""
        if len(self._row_at):
            offset = keys - self._least
            inside = (offset >= 0) & (offset < len(self._row_at))
            return np.where(inside, self._row_at[np.where(inside, offset, 0)], -1)
        if not len(self._sorted):
            return np.full(len(keys), -1, np.intp)
        at = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
        return np.where(self._sorted[at] == keys, self._order[at], -1)

    def of(self, column: str, rows: Rows, absent: int = NO_ID) -> Int64:
        """A column's values at rows that `find` gave."""
        values = self._columns[column]
        if not len(values):
            return np.full(len(rows), absent, np.int64)
        return np.where(rows >= 0, values[np.maximum(rows, 0)], absent)


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
    parent = tasks.context == NO_CONTEXT
    children = np.flatnonzero(~parent)
    candidates = np.flatnonzero(parent)
    found = np.zeros(len(tasks), np.bool_)
    if not len(children) or not len(candidates):
        return found
    key = np.zeros(len(tasks), np.int64)
    for ids in (tasks.device, tasks.stream, tasks.task):
        distinct, place = distinct_values(ids)
        _, key = distinct_values(key * len(distinct) + place)
    mixed = np.concatenate([children, candidates])
    # A candidate comes before a child that starts with it, so the next child is behind it.
    later = np.repeat(np.array([1, 0]), [len(children), len(candidates)])
    order = np.lexsort((later, tasks.start_ns[mixed], key[mixed]))
    is_child = later[order] == 1
    children_before = np.cumsum(is_child)
    by_place = np.empty(len(mixed), np.int64)
    by_place[order] = children_before
    at = by_place[len(children) :]
    order = mixed[order[is_child]]
    nearest = order[np.minimum(at, len(order) - 1)]
    covers = (
        (at < len(order))
        & (key[nearest] == key[candidates])
        & (tasks.end_ns[nearest] <= tasks.end_ns[candidates])
    )
    found[candidates[covers]] = True
    return found
