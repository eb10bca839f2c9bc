"""What the start of each collective of a rank depended on since its op before."""

from __future__ import annotations

import numpy as np

from timeline.analysis.path.item_runs import ItemRuns
from timeline.analysis.path.path_items import PathItems, PathKind
from timeline.columns.columns import Int64, Rows
from timeline.records.not_given import NO_ID

__all__ = ["op_delays"]


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
    runs = ItemRuns(items.before)
    until = runs.first_after(items.end_ns, rows, since_ns)
    # An op itself is not part of what it waits for.
    first = _spent(items, rows, since_ns, items.start_ns[rows])
    last = _spent(items, until, since_ns, items.end_ns[until])
    led = np.flatnonzero(until != rows)
    before = items.before[rows[led]]
    begin_ns = np.where(items.before != NO_ID, items.end_ns[items.before], items.start_ns)
    whole = _spent(items, np.arange(len(items)), begin_ns, items.end_ns)
    for found, of_first, of_last, of_all in zip(
        (computing_ns, host_ns), first, last, whole, strict=True
    ):
        between_ns = runs.sum_at(of_all, before) - runs.sum_at(of_all, until[led])
        of_first[led] += of_last[led] + between_ns
        found[items.collective[rows]] = of_first
    return computing_ns, host_ns


def _spent(items: PathItems, rows: Rows, since_ns: Int64, upto_ns: Int64) -> tuple[Int64, Int64]:
    """How long items compute, and the host delays them, between two moments: (k,) each."""
    start_ns, host_ns = (
        np.maximum(moments_ns[rows], since_ns) for moments_ns in (items.start_ns, items.host_ns)
    )
    computing_ns = np.where(items.kind[rows] == PathKind.COMPUTING, upto_ns - start_ns, 0)
    return np.maximum(computing_ns, 0), np.maximum(start_ns - host_ns, 0)


def _came_before(items: PathItems, rows: Rows) -> Int64:
    """When the op began that ended last before each op; for the first, the first start of all."""
    by_end = rows[np.argsort(items.end_ns[rows], kind="stable")]
    at = np.searchsorted(items.end_ns[by_end], items.start_ns[rows], side="right") - 1
    since_ns: Int64 = np.where(at >= 0, items.start_ns[by_end[at]], items.start_ns[0])
    return np.minimum(since_ns, items.start_ns[rows])
