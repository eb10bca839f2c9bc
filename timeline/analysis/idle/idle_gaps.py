"""Gaps in which a device idles, and the items that end them."""

from __future__ import annotations

import numpy as np

from timeline.analysis.idle.device_items import DeviceItems
from timeline.analysis.overlap import Overlap
from timeline.columns.columns import Bool, Int64, column
from timeline.columns.intervals import IntervalSet, open_at, subtract, union, union_of_sets
from timeline.records.not_given import NO_ID
from timeline.records.tables import Spans, Tasks


class Gaps(Spans):
    """Intervals in which nothing computes or communicates, in order of time.

    item: row of DeviceItems that starts at the end of a gap, or that continues then; NO_ID for
    none. inner: whether the device works on both sides; if not, the gap lies at an edge of the
    selection, before the first kernel or after the last one.
    """

    item: Int64 = column(np.int64)
    inner: Bool = column(np.bool_)


class IdleStretches(Spans):
    """Parts of gaps without copies: one row each, in order of start; gap: row of the gap."""

    gap: Int64 = column(np.int64)


def find_gaps(
    overlap: Overlap, periods: IntervalSet, tasks: Tasks, items: DeviceItems
) -> tuple[Gaps, IdleStretches]:
    """Return the gaps of a selection, and the idle intervals in them.

    overlap: of the selection. periods: of its steps, which extend beyond its work.
    """
    inner = union_of_sets(overlap.idle, overlap.copies)
    busy = union_of_sets(overlap.computing, overlap.communication)
    edges = subtract(periods, union_of_sets(inner, busy))
    copies = union(tasks.start_ns[tasks.copy], tasks.end_ns[tasks.copy])
    gaps = union_of_sets(inner, edges)
    idle = union_of_sets(overlap.idle, subtract(edges, copies))
    item = _ending(gaps.end_ns, items, items.start_ns, items.end_ns)
    gap = np.searchsorted(gaps.start_ns, idle.start_ns, side="right") - 1
    return (
        Gaps(gaps.start_ns, gaps.end_ns, item, ~np.isin(gaps.start_ns, edges.start_ns)),
        IdleStretches(idle.start_ns, idle.end_ns, gap.astype(np.int64)),
    )


def _ending(ends_ns: Int64, items: DeviceItems, start_ns: Int64, end_ns: Int64) -> Int64:
    """Return the item that starts at the end of each gap, else the op that continues.

    NO_ID for none. If several start then, one with a known launch is preferred. In some captures
    ops count by their HCCL tasks, so that gaps lie inside them.

    Args:
        ends_ns: (k,) the ends of gaps.
        start_ns, end_ns: (n,) intervals of items, on the axis of the gaps.
    """
    ending = np.full(len(ends_ns), NO_ID)
    lasting = np.flatnonzero(end_ns > start_ns)
    if not len(lasting) or not len(ends_ns):
        return ending
    unknown = items.launch[lasting] == NO_ID
    lasting = lasting[np.lexsort((unknown, start_ns[lasting]))]
    at = np.searchsorted(start_ns[lasting], ends_ns, side="left")
    first = lasting[np.minimum(at, len(lasting) - 1)]
    starts = start_ns[first] == ends_ns
    ending[starts] = first[starts]
    ops = lasting[items.is_op[lasting]]
    if not starts.all() and len(ops):
        rest = np.flatnonzero(~starts)
        inside = open_at(ends_ns[rest], start_ns[ops], end_ns[ops])
        ending[rest] = np.where(inside >= 0, ops[inside], NO_ID)
    return ending
