"""The order in which one device works: what each item waits for there, and what the host waits for.

Critical path and replay stand on it.
"""

from __future__ import annotations

import numpy as np

from timeline.analysis.idle.call_kinds import names_waiting_for_device
from timeline.analysis.idle.device_items import DeviceItems, device_items
from timeline.analysis.path.critical_path import PathKind
from timeline.columns.columns import Bool, Codes, Int64, Rows
from timeline.columns.distinct import distinct, rows_by_value
from timeline.columns.intervals import open_at, union
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import Records, Tasks

LEAST_DELAY_NS = 2_000
"""A task that starts so soon after the one before was not kept waiting by anything else."""
WAIT_SLACK_NS = 1_000
"""An event wait may begin so much before the end of the task before, as recorded."""
_EVENT_WAIT = ("eventwait", "event_wait")
"""Types and names of the tasks with which a stream waits for another one."""


def ordered_items(records: Records) -> DeviceItems:
    """Compute tasks, copies and communication ops in order of start, those without length first."""
    items = device_items(records, also=_own_copies(records))
    return items.take(np.lexsort((items.end_ns, items.start_ns)))


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


def before_on_device(records: Records, items: DeviceItems) -> Rows:
    """The item whose end let each start, as far as the device is concerned; NO_ID for none.

    That is the one before on the stream; behind an event wait, and where a profile records none,
    for a communication op too, whatever ended last on the device. items: those of `ordered_items`.
    """
    rows = np.arange(len(items))
    last = _Ends(items, rows).before_items(items, rows)
    tasks = records.tasks
    waits = np.flatnonzero(_waits(records))
    found = last.copy()
    on_streams = np.flatnonzero(~items.is_op)
    streams = distinct(items.stream[on_streams])
    waits_of = dict(rows_by_value(tasks.stream[waits], streams))
    for stream, places in rows_by_value(items.stream[on_streams], streams):
        its = on_streams[places]
        on_stream = _Ends(items, its).before_items(items, its)
        its_waits = waits[waits_of[stream]]
        idle_since_ns = np.where(on_stream >= 0, items.end_ns[on_stream], NO_TIME)
        if len(waits):
            waited = _waited_between(tasks, its_waits, idle_since_ns, items.start_ns[its])
        else:
            waited = (on_stream < 0) | (items.start_ns[its] - idle_since_ns >= LEAST_DELAY_NS)
        found[its] = np.where(waited, last[its], on_stream)
    return found


def _waits(records: Records) -> Bool:
    """The tasks with which a stream waits for another one."""
    waits = np.zeros(len(records.strings), np.bool_)
    waits[records.strings.codes_with(_EVENT_WAIT)] = True
    return waits[records.tasks.task_type] | waits[records.tasks.name]


def _waited_between(tasks: Tasks, waits: Rows, since_ns: Int64, until_ns: Int64) -> Bool:
    """Whether one of the waits of a stream lies between two moments."""
    if not len(waits):
        return np.zeros(len(since_ns), np.bool_)
    order = waits[np.argsort(tasks.end_ns[waits], kind="stable")]
    at = np.searchsorted(tasks.end_ns[order], until_ns, side="right") - 1
    begin_ns = tasks.start_ns[order[np.maximum(at, 0)]]
    between: Bool = (at >= 0) & (begin_ns + WAIT_SLACK_NS >= since_ns)
    return between


def item_kinds(records: Records, items: DeviceItems) -> Codes:
    """The PathKind of each item."""
    kinds = np.full(len(items), PathKind.TRANSFER, np.int32)
    its_tasks = np.flatnonzero(~items.is_op)
    compute = records.tasks.compute[items.row[its_tasks]]
    kinds[its_tasks] = np.where(compute, PathKind.COMPUTING, PathKind.COPY)
    return kinds


def item_collectives(records: Records, selected: Bool, items: DeviceItems) -> Codes:
    """The row of each op among the rank's collectives, NO_ID for what is no op.

    selected: which of those, which are in order of start, the ops of the records are.
    """
    row = np.empty(len(records.ops), np.int32)
    row[np.argsort(records.ops.start_ns, kind="stable")] = np.flatnonzero(selected)
    found = np.full(len(items), NO_ID, np.int32)
    ops = np.flatnonzero(items.is_op)
    found[ops] = row[items.row[ops]]
    return found


def waits_for_device(records: Records, items: DeviceItems) -> tuple[Rows, Rows]:
    """The host calls in which the host waited until an item had ended, and that item.

    In order of the ends of calls; of several items the last one that ended before the call did.
    """
    host = records.host
    calls = np.flatnonzero(np.isin(host.name, names_waiting_for_device(records.strings)))
    calls = calls[np.argsort(host.end_ns[calls], kind="stable")]
    item = _Ends(items, np.arange(len(items))).before(host.end_ns[calls])
    waited = (item >= 0) & (items.end_ns[item] >= host.start_ns[calls])
    return calls[waited], item[waited]
