"""What of one rank can lie on the critical path, found from its records."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from timeline.analysis.call_kinds import names_waiting_for_device
from timeline.analysis.device_items import DeviceItems, device_items
from timeline.analysis.innermost_calls import Calls
from timeline.analysis.longest_calls import longest_calls
from timeline.analysis.path_items import PathItems, PathKind, RankPath
from timeline.columns.columns import Bool, Codes, Int64, Rows
from timeline.columns.distinct import distinct
from timeline.columns.intervals import open_at, union
from timeline.columns.strings import StringPool
from timeline.records.tables import NO_ID, NO_TIME, Records, Tasks

__all__ = ["rank_path"]

LEAST_DELAY_NS = 2_000
"""A task that starts so soon after the one before was not kept waiting by the host."""
WAIT_SLACK_NS = 1_000
"""An event wait may begin so much before the end of the task before, as recorded."""
_EVENT_WAIT = re.compile(r"event_?wait", re.IGNORECASE)
"""Types and names of the tasks with which a stream waits for another one."""


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
    items = _in_order(device_items(records, also=_own_copies(records)))
    if not len(items):
        return RankPath()
    before = _before_on_device(records, items)
    made = _path_items(records, selected, items, before)
    kept = _reachable(made, step_ends_ns)
    return _named(
        records, _renumbered(_with_calls(records, made, items.asked, kept, step_ends_ns), kept)
    )


def _own_copies(records: Records) -> Bool:
    """The copies that are no part of a communication op: those that do not lie inside one."""
    tasks, ops = records.tasks, records.ops
    found = tasks.copy & ~tasks.compute
    rows = np.flatnonzero(found)
    inside = union(ops.start_ns, ops.end_ns)
    if not len(inside):
        return found
    begun = open_at(tasks.start_ns[rows], inside.start_ns, inside.end_ns)
    found[rows] = (begun < 0) | (tasks.end_ns[rows] > inside.end_ns[begun])
    return found


def _in_order(items: DeviceItems) -> DeviceItems:
    """Items in order of start, those without length first."""
    return items.take(np.lexsort((items.end_ns, items.start_ns)))


class _Ends:
    """The ends of some items in order of time, to find the last one before the start of others."""

    def __init__(self, items: DeviceItems, rows: Rows) -> None:
        self._rows = rows[np.lexsort((rows, items.end_ns[rows]))]
        self._end_ns = items.end_ns[self._rows]

    def before(self, moments_ns: Int64) -> Rows:
        """The last item that has ended at each moment, NO_ID for none."""
        at = np.searchsorted(self._end_ns, moments_ns, side="right") - 1
        return np.where(at >= 0, self._rows[np.maximum(at, 0)], NO_ID)

    def before_items(self, items: DeviceItems, rows: Rows) -> Rows:
        """The last item that has ended when each of some items starts, and that comes earlier."""
        found = self.before(items.start_ns[rows])
        # Of several without length at one moment, each is the last to have ended.
        late = np.flatnonzero(found >= rows)
        order = np.argsort(self._rows)
        at = order[np.searchsorted(self._rows, rows[late], sorter=order)] - 1
        found[late] = np.where(at >= 0, self._rows[np.maximum(at, 0)], NO_ID)
        return found


def _before_on_device(records: Records, items: DeviceItems) -> Rows:
    """The item whose end let each start, as far as the device is concerned; NO_ID for none."""
    rows = np.arange(len(items))
    last = _Ends(items, rows).before_items(items, rows)
    tasks = records.tasks
    waits = np.flatnonzero(_waits(records))
    found = last.copy()
    for stream in distinct(items.stream[~items.is_op]).tolist():
        its = np.flatnonzero((items.stream == stream) & ~items.is_op)
        on_stream = _Ends(items, its).before_items(items, its)
        its_waits = waits[tasks.stream[waits] == stream]
        idle_since_ns = np.where(on_stream >= 0, items.end_ns[on_stream], NO_TIME)
        if len(waits):
            waited = _waited_between(tasks, its_waits, idle_since_ns, items.start_ns[its])
        else:
            waited = (on_stream < 0) | (items.start_ns[its] - idle_since_ns >= LEAST_DELAY_NS)
        found[its] = np.where(waited, last[its], on_stream)
    return found


def _waits(records: Records) -> Bool:
    """The tasks with which a stream waits for another one."""
    tests = np.fromiter((bool(_EVENT_WAIT.search(text)) for text in records.strings), np.bool_)
    return tests[records.tasks.task_type] | tests[records.tasks.name]


def _waited_between(tasks: Tasks, waits: Rows, since_ns: Int64, until_ns: Int64) -> Bool:
    """Whether one of the waits of a stream lies between two moments."""
    if not len(waits):
        return np.zeros(len(since_ns), np.bool_)
    order = waits[np.argsort(tasks.end_ns[waits], kind="stable")]
    at = np.searchsorted(tasks.end_ns[order], until_ns, side="right") - 1
    begin_ns = tasks.start_ns[order[np.maximum(at, 0)]]
    between: Bool = (at >= 0) & (begin_ns + WAIT_SLACK_NS >= since_ns)
    return between


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
        _kinds(records.tasks, items),
        items.name,
        _collectives(records, selected, items),
        np.where(on_host, waited_for, before).astype(np.int32),
        launch_ns,
        asked_ns,
        np.where(on_host, host_ns, asked_ns),
        np.zeros(len(items), np.int32),
        np.zeros(len(items), np.int64),
    )


def _kinds(tasks: Tasks, items: DeviceItems) -> Codes:
    kinds = np.full(len(items), PathKind.TRANSFER, np.int32)
    its_tasks = np.flatnonzero(~items.is_op)
    compute = tasks.compute[items.row[its_tasks]]
    kinds[its_tasks] = np.where(compute, PathKind.COMPUTING, PathKind.COPY)
    return kinds


def _collectives(records: Records, selected: Bool, items: DeviceItems) -> Codes:
    """The row of each op among the rank's collectives, which are in order of start."""
    row = np.empty(len(records.ops), np.int32)
    row[np.argsort(records.ops.start_ns, kind="stable")] = np.flatnonzero(selected)
    found = np.full(len(items), NO_ID, np.int32)
    ops = np.flatnonzero(items.is_op)
    found[ops] = row[items.row[ops]]
    return found


def _host_since(records: Records, items: DeviceItems, moments_ns: Int64) -> tuple[Int64, Rows]:
    """Since when the host had not waited for the device, and for which item it did.

    NO_TIME and NO_ID where it had not before.
    """
    host = records.host
    calls = np.flatnonzero(np.isin(host.name, names_waiting_for_device(records.strings)))
    calls = calls[np.argsort(host.end_ns[calls], kind="stable")]
    item = _Ends(items, np.arange(len(items))).before(host.end_ns[calls])
    waited = (item >= 0) & (items.end_ns[item] >= host.start_ns[calls])
    calls, item = calls[waited], item[waited]
    at = np.searchsorted(host.end_ns[calls], moments_ns, side="right") - 1
    if not len(calls):
        return np.full(len(moments_ns), NO_TIME), np.full(len(moments_ns), NO_ID)
    since_ns = np.where(at >= 0, host.end_ns[calls[at]], NO_TIME)
    return since_ns, np.where(at >= 0, item[at], NO_ID)


def _reachable(items: PathItems, step_ends_ns: Int64) -> Bool:
    """The items that a path can come to: from ops, ends of steps, and the last end of all."""
    ends = np.lexsort((np.arange(len(items)), items.end_ns))
    at = np.searchsorted(items.end_ns[ends], step_ends_ns, side="right") - 1
    reached = items.collective != NO_ID
    reached[ends[at[at >= 0]]] = True
    reached[ends[-1:]] = True
    before = items.before.tolist()
    marks = bytearray(reached.tobytes())
    for row in range(len(before) - 1, -1, -1):
        if marks[row] and before[row] >= 0:
            marks[before[row]] = True
    return np.frombuffer(bytes(marks), np.bool_)


def _renumbered(items: PathItems, kept: Bool) -> PathItems:
    """The items that are kept, which only go on at others of them."""
    number = np.append(np.cumsum(kept) - 1, NO_ID).astype(np.int32)
    some = items.take(kept)
    return replace(some, before=number[some.before])


def _with_calls(
    records: Records, items: PathItems, asked: Int64, kept: Bool, step_ends_ns: Int64
) -> PathItems:
    """The items, with the call that took most of the host time before those that are kept.

    Paths end at the ends of steps, so no call before the last one counts.
    """
    host = records.host
    ends_ns = np.sort(np.append(step_ends_ns, NO_TIME))
    step_ns = ends_ns[np.searchsorted(ends_ns, items.asked_ns, side="right") - 1]
    since_ns = np.maximum(items.host_ns, step_ns)
    # Before the first end of a step, the host has run since its first call.
    since_ns = np.maximum(since_ns, host.start_ns.min(initial=np.iinfo(np.int64).max))
    rows = np.flatnonzero(kept & (since_ns < items.asked_ns) & (asked != NO_ID))
    call, call_ns = items.call.copy(), items.call_ns.copy()
    threads = host.thread[asked[rows]]
    for thread in distinct(threads).tolist():
        its = rows[threads == thread]
        on_thread = np.flatnonzero(host.thread == thread)
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
