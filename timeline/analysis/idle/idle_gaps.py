"""The gaps in which a device idles, of a whole selection and of each step, and what ends them."""

from __future__ import annotations

import numpy as np

from timeline.analysis.idle.device_items import DeviceItems
from timeline.analysis.overlap import Overlap, StepsApart
from timeline.analysis.step_membership import NO_STEP, Membership
from timeline.columns.columns import Int64, Rows, column
from timeline.columns.intervals import IntervalSet, open_at, union
from timeline.records.not_given import NO_ID
from timeline.records.tables import Spans

__all__ = ["Gaps", "IdleStretches", "gaps_of_selection", "gaps_of_steps", "item_steps"]


class Gaps(Spans):
    """Stretches in which nothing computes or communicates, though something does around them.

    item: the row of DeviceItems that ends a gap by its start, or that goes on then; NO_ID where
    none does. step: the row of the step whose gap it is, NO_STEP of the whole selection.
    """

    item: Int64 = column(np.int64)
    step: Int64 = column(np.int64, NO_STEP)


class IdleStretches(Spans):
    """What copies leave of gaps: one row for each stretch, in order of start; gap: its row."""

    gap: Int64 = column(np.int64)


def item_steps(items: DeviceItems, membership: Membership) -> Rows:
    """The step of each item, NO_STEP for none."""
    steps = np.full(len(items), NO_STEP, np.intp)
    steps[items.is_op] = membership.ops[items.row[items.is_op]]
    steps[~items.is_op] = membership.tasks[items.row[~items.is_op]]
    return steps


def gaps_of_selection(overlap: Overlap, items: DeviceItems) -> tuple[Gaps, IdleStretches]:
    """The gaps of the whole selection, and when it idles in them: `overlap.idle`."""
    gaps = union(
        np.concatenate([overlap.idle.start_ns, overlap.copies.start_ns]),
        np.concatenate([overlap.idle.end_ns, overlap.copies.end_ns]),
    )
    item = _ending(gaps.end_ns, items, items.start_ns, items.end_ns)
    steps = np.full(len(gaps), NO_STEP)
    return Gaps(gaps.start_ns, gaps.end_ns, item, steps), _stretches(overlap.idle, gaps)


def gaps_of_steps(
    apart: StepsApart, items: DeviceItems, item_step: Rows
) -> tuple[Gaps, IdleStretches]:
    """The gaps between what belongs to one step, and when it idles in them.

    They are in order of steps, and those of steps that run at once share time.
    """
    rows = np.flatnonzero(item_step != NO_STEP)
    moved_ns = apart.moved_ns[item_step[rows]]
    member = items.take(rows)
    item = _ending(apart.gaps.end_ns, member, member.start_ns + moved_ns, member.end_ns + moved_ns)
    item = np.where(item == NO_ID, NO_ID, np.append(rows, NO_ID)[item])
    step = np.searchsorted(apart.bounds, apart.gaps.start_ns, side="right") - 1
    stretches = _stretches(apart.idle, apart.gaps)
    gap_back_ns = np.append(apart.moved_ns, 0)[step]
    back_ns = gap_back_ns[stretches.gap]
    return (
        Gaps(
            apart.gaps.start_ns - gap_back_ns,
            apart.gaps.end_ns - gap_back_ns,
            item.astype(np.int64),
            step.astype(np.int64),
        ),
        IdleStretches(stretches.start_ns - back_ns, stretches.end_ns - back_ns, stretches.gap),
    )


def _stretches(idle: IntervalSet, gaps: IntervalSet) -> IdleStretches:
    gap = np.searchsorted(gaps.start_ns, idle.start_ns, side="right") - 1
    return IdleStretches(idle.start_ns, idle.end_ns, gap.astype(np.int64))


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
