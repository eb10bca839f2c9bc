"""The gaps in which a device idles, and what ends them."""

from __future__ import annotations

import numpy as np

from timeline.analysis.idle.device_items import DeviceItems
from timeline.analysis.overlap import Overlap
from timeline.columns.columns import Bool, Int64, column
from timeline.columns.intervals import IntervalSet, open_at, subtract, union, union_of_sets
from timeline.records.not_given import NO_ID
from timeline.records.tables import Spans, Tasks


class Gaps(Spans):
    """Stretches in which nothing computes or communicates, in order of time.

    item: the row of DeviceItems that ends a gap by its start, or that goes on then; NO_ID where
    none does. inner: whether the device works on both sides of it; else it lies at an edge of the
    selection, before the first kernel or after the last one.
    """

    item: Int64 = column(np.int64)
    inner: Bool = column(np.bool_)


class IdleStretches(Spans):
    """What copies leave of gaps: one row for each stretch, in order of start; gap: its row."""

    gap: Int64 = column(np.int64)


def find_gaps(
    overlap: Overlap, periods: IntervalSet, tasks: Tasks, items: DeviceItems
) -> tuple[Gaps, IdleStretches]:
    """Return the gaps of a selection, and when the device idles in them.

    overlap: of the selection. periods: of its steps, which reach before and after its work.
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
    """The item that starts when each gap ends, else the op that goes on then; NO_ID for neither.

    Of several that start at once, one whose launch is known. Ops count by their HCCL tasks in some
    captures, so that gaps lie inside them.

    Args:
        ends_ns: (k,) the ends of gaps.
        start_ns, end_ns: (n,) when items run, on the axis of the gaps.
    """
    found = np.full(len(ends_ns), NO_ID)
    lasting = np.flatnonzero(end_ns > start_ns)
    if not len(lasting) or not len(ends_ns):
        return found
    unknown = items.launch[lasting] == NO_ID
    lasting = lasting[np.lexsort((unknown, start_ns[lasting]))]
    at = np.searchsorted(start_ns[lasting], ends_ns, side="left")
    first = lasting[np.minimum(at, len(lasting) - 1)]
    starts = start_ns[first] == ends_ns
    found[starts] = first[starts]
    ops = lasting[items.is_op[lasting]]
    if not starts.all() and len(ops):
        rest = np.flatnonzero(~starts)
        inside = open_at(ends_ns[rest], start_ns[ops], end_ns[ops])
        found[rest] = np.where(inside >= 0, ops[inside], NO_ID)
    return found
