"""Turns a table of intervals into the mask of rows that repeat an earlier one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields
from itertools import pairwise

import numpy as np

from timeline.columns.columns import Bool, Int64, Rows, picked
from timeline.columns.spill import parts_of
from timeline.records.tables import Spans

__all__ = ["copies_in"]

SORTED_ROWS = 1 << 20
"""Rows that are sorted at a time."""
SAMPLED = 1 << 14
"""Rows that tell how all are spread."""


def copies_in(table: Spans) -> Bool:
    """Rows that are equal to an earlier row in every column, and take time.

    No context of a stream or plane, and no thread, does the same thing twice in one interval:
    exports that overlap, and files that were put together twice, give such rows.
    """
    copies = np.zeros(len(table), np.bool_)
    rows = _with_equals(table.start_ns)
    rows = rows[table.end_ns[rows] > table.start_ns[rows]]
    if not len(rows):
        return copies
    columns = [picked(getattr(table, field.name), rows) for field in fields(table)]
    columns = [own.view(np.int64) if own.dtype == np.float64 else own for own in columns]
    order = np.lexsort(columns)
    equal = np.ones(max(0, len(rows) - 1), np.bool_)
    for own in columns:
        equal &= own[order][1:] == own[order][:-1]
    copies[rows[order[1:][equal]]] = True
    return copies


def _with_equals(values: Int64) -> Rows:
    """The rows, ascending, whose value other rows have too; of many some are sorted at a time."""
    count = len(values)
    ascends = all((values[1:][part] >= values[:-1][part]).all() for part in parts_of(count - 1))
    if ascends:
        equal = [
            np.flatnonzero(values[1:][part] == values[:-1][part]) + part.start
            for part in parts_of(count - 1)
        ]
        rows = np.concatenate([np.empty(0, np.intp), *equal])
        return np.union1d(rows, rows + 1) if len(rows) else rows
    found = [np.empty(0, np.intp)]
    for low, high in pairwise(_bounds(values)):
        near = [
            np.flatnonzero((values[part] >= low) & (values[part] < high)) + part.start
            for part in parts_of(count)
        ]
        rows = np.concatenate(near)
        own = values[rows]
        order = np.argsort(own, kind="stable")
        same = own[order][1:] == own[order][:-1]
        found.append(rows[order[np.append(same, False) | np.append(False, same)]])
    return np.sort(np.concatenate(found))


def _bounds(values: Int64) -> Iterator[int | float]:
    """Values between which about SORTED_ROWS lie, from below all of them to above."""
    some = np.sort(values[:: max(1, len(values) // SAMPLED)])
    yield -math.inf
    yield from np.unique(some[:: max(1, len(some) * SORTED_ROWS // len(values))])[1:].tolist()
    yield math.inf
