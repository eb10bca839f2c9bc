"""What of one rank can lie on the critical path, found from its records."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from timeline.analysis.idle.device_items import DeviceItems
from timeline.analysis.idle.innermost_calls import Calls
from timeline.analysis.path.device_order import (
    LEAST_DELAY_NS,
    before_on_device,
    item_collectives,
    item_kinds,
    ordered_items,
    waits_for_device,
)
from timeline.analysis.path.longest_calls import longest_calls
from timeline.analysis.path.path_items import PathItems, RankPath
from timeline.columns.columns import Bool, Codes, Int64, Rows, ascending
from timeline.columns.distinct import distinct, rows_by_value
from timeline.columns.strings import StringPool
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import Records

__all__ = ["rank_path"]


def rank_path(records: Records, selected: Bool, step_ends_ns: Int64) -> RankPath:
    """What of a rank can lie on the critical path, and what let each item start.

    An item waits for the one before on its stream; behind an event wait, and where a profile
    records none, for whatever ended last before it on the device, and so does a communication op.
    If it was launched after that, the host was late: the path goes back over the launch, the queue
    and what the host did since it last waited for the device, in whatever thread.

    Args:
        records: what is selected.
        selected: which of the rank's collectives those of the records are.
        step_ends_ns: the last device ends of steps, at which paths may begin.
    """
    items = ordered_items(records)
    if not len(items):
        return RankPath()
    before = before_on_device(records, items)
    made = _path_items(records, selected, items, before)
    kept = _reachable(made, step_ends_ns)
    path = _named(
        records, _renumbered(_with_calls(records, made, items.asked, kept, step_ends_ns), kept)
    )
    return replace(path, span_ns=(int(items.start_ns.min()), int(items.end_ns.max())))


def _path_items(records: Records, selected: Bool, items: DeviceItems, before: Rows) -> PathItems:
    start_ns = items.start_ns
    ready_ns = np.where(before >= 0, items.end_ns[before], NO_TIME)
    launched = items.launch != NO_ID
    launch_ns = np.where(launched, items.launch_start_ns, start_ns)
    told_ns = np.where(launched, items.launch_end_ns, items.asked_ns)
    delayed = (before < 0) | (start_ns - ready_ns >= LEAST_DELAY_NS)
    late = (told_ns != NO_TIME) & (told_ns > ready_ns) & delayed
    launch_ns = np.where(late, np.clip(launch_ns, ready_ns, start_ns), start_ns)
    asked_ns = np.where(late, np.clip(items.asked_ns, ready_ns, launch_ns), start_ns)
    host_ns, waited_for = _host_since(records, items, asked_ns)
    # Of items without length at one moment, the host may have waited for a later one.
    on_host = late & (asked_ns > ready_ns) & (waited_for < np.arange(len(items)))
    return PathItems(
        start_ns,
        items.end_ns,
        item_kinds(records, items),
        items.name,
        item_collectives(records, selected, items),
        np.where(on_host, waited_for, before).astype(np.int32),
        launch_ns,
        asked_ns,
        np.where(on_host, host_ns, asked_ns),
        np.zeros(len(items), np.int32),
        np.zeros(len(items), np.int64),
    )


def _host_since(records: Records, items: DeviceItems, moments_ns: Int64) -> tuple[Int64, Rows]:
    """Since when the host had not waited for the device, and for which item it did.

    NO_TIME and NO_ID where it had not before.
    """
    calls, item = waits_for_device(records, items)
    if not len(calls):
        return np.full(len(moments_ns), NO_TIME), np.full(len(moments_ns), NO_ID)
    end_ns = records.host.end_ns[calls]
    at = np.searchsorted(end_ns, moments_ns, side="right") - 1
    return np.where(at >= 0, end_ns[at], NO_TIME), np.where(at >= 0, item[at], NO_ID)


def _reachable(items: PathItems, step_ends_ns: Int64) -> Bool:
    """The items that a path can come to: from ops, ends of steps, and the last end of all."""
    ends = np.lexsort((np.arange(len(items)), items.end_ns))
    at = np.searchsorted(items.end_ns[ends], step_ends_ns, side="right") - 1
    reached = items.collective != NO_ID
    reached[ends[at[at >= 0]]] = True
    reached[ends[-1:]] = True
    return leading_items(items.before, reached)


def leading_items(before: Codes, reached: Bool) -> Bool:
    """Return the items that are reached, and all that lead to them, (n,).

    Nearly all items waited for the one just before. So runs of such items are gone through one by
    one, and what lies within them as columns.

    Args:
        before: (n,) the earlier row that each item waited for, NO_ID for none.
    """
    begins = before != np.arange(-1, len(before) - 1)
    begins[:1] = True
    run = np.cumsum(begins) - 1
    earlier = before[begins]
    last = np.full(len(earlier), NO_ID)
    rows = np.flatnonzero(reached)
    # Of several rows of a run the last one stays.
    last[run[rows]] = rows
    upto, earlier_run = last.tolist(), run[earlier].tolist()
    for at, row in reversed(list(enumerate(earlier.tolist()))):
        if upto[at] != NO_ID and row != NO_ID:
            upto[earlier_run[at]] = max(upto[earlier_run[at]], row)
    leading: Bool = np.arange(len(run)) <= np.array(upto, np.intp)[run]
    return leading


def _renumbered(items: PathItems, kept: Bool) -> PathItems:
    """The items that are kept, which only go on at others of them."""
    number = np.append(np.cumsum(kept) - 1, NO_ID).astype(np.int32)
    some = items.take(kept)
    return replace(some, before=number[some.before])


def _with_calls(
    records: Records, items: PathItems, asked: Int64, kept: Bool, step_ends_ns: Int64
) -> PathItems:
    """The items, with the call that took most of the host time before those that are kept.

    Paths begin at the ends of steps, or with the first work of the device: no call before counts.
    """
    host = records.host
    ends_ns = ascending(np.append(step_ends_ns, NO_TIME))
    step_ns = ends_ns[np.searchsorted(ends_ns, items.asked_ns, side="right") - 1]
    since_ns = np.maximum(items.host_ns, step_ns)
    since_ns = np.maximum(since_ns, items.start_ns.min(initial=np.iinfo(np.int64).max))
    rows = np.flatnonzero(kept & (since_ns < items.asked_ns) & (asked != NO_ID))
    call, call_ns = items.call.copy(), items.call_ns.copy()
    threads = host.thread[asked[rows]]
    some = distinct(threads)
    asking = dict(rows_by_value(threads, some))
    for thread, on_thread in rows_by_value(host.thread, some):
        its = rows[asking[thread]]
        calls = Calls(host.start_ns[on_thread], host.end_ns[on_thread], on_thread)
        call[its], call_ns[its] = longest_calls(
            calls, host.name, since_ns[its], items.asked_ns[its]
        )
    return replace(items, call=call, call_ns=call_ns)


def _named(records: Records, items: PathItems) -> RankPath:
    """The items with strings of their own."""
    strings = StringPool()
    name = strings.translate(items.name, records.strings)
    call = strings.translate(items.call, records.strings)
    return RankPath(tuple(strings), replace(items, name=name, call=call))
