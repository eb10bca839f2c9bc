"""Turns integer keys of two tables into row numbers: the joins of a profile database."""

from __future__ import annotations

import numpy as np

from timeline.records.columns import Bool, Int64, Rows
from timeline.records.tables import NO_CONTEXT, NO_ID, Tasks

__all__ = ["Lookup", "covering_parents", "pairs_by_key"]


class Lookup:
    """A table found by a key that is unique, or whose first row stands for all."""

    def __init__(self, columns: dict[str, Int64], key: str) -> None:
        self._columns = columns
        self._order = np.argsort(columns[key], kind="stable")
        self._sorted = columns[key][self._order]

    def find(self, keys: Int64) -> Rows:
        """The row of each key, -1 for none."""
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
    owner = np.stack([tasks.device, tasks.stream, tasks.task], axis=1)
    _, key = np.unique(owner, axis=0, return_inverse=True)
    key = key.reshape(-1)
    order = children[np.lexsort((tasks.start_ns[children], key[children]))]
    moments = np.unique(tasks.start_ns)
    sortable = key * (len(moments) + 1) + np.searchsorted(moments, tasks.start_ns)
    at = np.searchsorted(sortable[order], sortable[candidates])
    nearest = order[np.minimum(at, len(order) - 1)]
    covers = (
        (at < len(order))
        & (key[nearest] == key[candidates])
        & (tasks.end_ns[nearest] <= tasks.end_ns[candidates])
    )
    found[candidates[covers]] = True
    return found
