"""Turns a table of intervals into the mask of rows that repeat an earlier one."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from timeline.records.columns import Bool, picked
from timeline.records.tables import Spans

__all__ = ["copies_in"]


def copies_in(table: Spans) -> Bool:
    """Rows that are equal to an earlier row in every column, and take time.

    No context of a stream or plane, and no thread, does the same thing twice in one interval:
    exports that overlap, and files that were put together twice, give such rows.
    """
    copies = np.zeros(len(table), np.bool_)
    start_ns, order = table.start_ns, None
    if not (start_ns[1:] >= start_ns[:-1]).all():
        order = np.argsort(start_ns, kind="stable")
        start_ns = start_ns[order]
    same = np.flatnonzero(start_ns[1:] == start_ns[:-1])
    if not len(same):
        return copies
    rows = np.union1d(same, same + 1)
    rows = rows if order is None else np.sort(order[rows])
    rows = rows[table.end_ns[rows] > table.start_ns[rows]]
    columns = [picked(getattr(table, field.name), rows) for field in fields(table)]
    columns = [own.view(np.int64) if own.dtype == np.float64 else own for own in columns]
    order = np.lexsort(columns)
    equal = np.ones(max(0, len(rows) - 1), np.bool_)
    for own in columns:
        equal &= own[order][1:] == own[order][:-1]
    copies[rows[order[1:][equal]]] = True
    return copies
