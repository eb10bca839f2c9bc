"""What the start of each collective of a rank depended on since its op before."""

from __future__ import annotations

import numpy as np

from timeline.analysis.path.path_items import PathItems, PathKind
from timeline.columns.columns import Int64, Rows
from timeline.records.tables import NO_ID, NO_TIME

__all__ = ["op_delays"]

_KINDS = (PathKind.LAUNCH, PathKind.QUEUED, PathKind.HOST, PathKind.BETWEEN_TASKS)
"""Of the time before an item, from its start back."""
_OF_HOST = [PathKind.HOST, PathKind.QUEUED, PathKind.LAUNCH]


def op_delays(items: PathItems, ops: int) -> tuple[Int64, Int64]:
    """How long the start of each op depended on computing, and on the host, since the op before.

    That is the time of each on the critical path that leads to the op on its own rank, since the
    rank came to the op before: while it waits there it may compute, what ranks that come later
    compute later. What the device computes while the host has not launched the op yet does not
    delay the op: the host does.

    Args:
        ops: how many collectives the rank has.

    Returns:
        (ops,) each, 0 for those that are no item.
    """
    computing_ns, host_ns = np.zeros((2, ops), np.int64)
    rows = np.flatnonzero(items.collective != NO_ID)
    if not len(rows):
        return computing_ns, host_ns
    since_ns = _came_before(items, rows)
    op, item = _visits(items, rows, since_ns)
    begin_ns = since_ns[op]
    # An op itself is not part of what it waits for.
    upto_ns = np.where(item == rows[op], items.start_ns[item], items.end_ns[item])
    before = items.before[item]
    before_ns = np.where(before != NO_ID, items.end_ns[before], NO_TIME)
    cuts_ns = [upto_ns, items.start_ns[item], items.launch_ns[item], items.asked_ns[item]]
    cuts_ns += [items.host_ns[item], before_ns]
    cuts_ns = [np.maximum(moments_ns, begin_ns) for moments_ns in cuts_ns]
    collective = items.collective[rows][op]
    for at, kind in enumerate((None, *_KINDS)):
        spent_ns = np.maximum(cuts_ns[at] - cuts_ns[at + 1], 0)
        if kind is None:
            own = items.kind[item] == PathKind.COMPUTING
            np.add.at(computing_ns, collective[own], spent_ns[own])
        elif kind in _OF_HOST:
            np.add.at(host_ns, collective, spent_ns)
    return computing_ns, host_ns


def _came_before(items: PathItems, rows: Rows) -> Int64:
    """When the op began that ended last before each op; for the first, the first start of all."""
    by_end = rows[np.argsort(items.end_ns[rows], kind="stable")]
    at = np.searchsorted(items.end_ns[by_end], items.start_ns[rows], side="right") - 1
    since_ns: Int64 = np.where(at >= 0, items.start_ns[by_end[at]], items.start_ns[0])
    return np.minimum(since_ns, items.start_ns[rows])


def _visits(items: PathItems, rows: Rows, since_ns: Int64) -> tuple[Rows, Rows]:
    """The items that lead to each op, back to a moment: positions in rows, and rows of items."""
    before, ends_ns = items.before.tolist(), items.end_ns.tolist()
    ops, visited = list[int](), list[int]()
    for op, (row, begin_ns) in enumerate(zip(rows.tolist(), since_ns.tolist(), strict=True)):
        item = row
        while item >= 0 and (item == row or ends_ns[item] > begin_ns):
            ops.append(op)
            visited.append(item)
            item = before[item]
    return np.array(ops, np.intp), np.array(visited, np.intp)
