"""Recording: the data of one rank that a replay needs, derived from its records.

The device is a list of items, the host a list of points in time. A point depends on the point
before it; an item on the item before it on the device and on the point that launched it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from timeline.analysis.idle.host_calls import names_waiting_for_data
from timeline.analysis.idle.launches import DeviceItems
from timeline.analysis.path.rank_path import (
    before_on_device,
    item_collectives,
    item_kinds,
    ordered_items,
    waits_for_device,
)
from timeline.analysis.steps import NO_STEP, Membership
from timeline.analysis.work.operators import TaskTypes
from timeline.columns.columns import Bool, Codes, ColumnTable, Int64, Rows, column
from timeline.columns.group_by import rows_before
from timeline.columns.intervals import covered_between, covered_until, union
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.clock import ClockMove
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import Records, Spans, Steps

MOST_ITEMS = 2_000_000
"""Maximum number of items of a run that are held for a replay.

Each item is played some twenty times, at a microsecond each.
"""
SOON_NS = 100_000
"""A host that continues within this time after the end of an item may have waited for it."""
LONG_NS = 200_000
"""A host that makes no call for longer than this, while the device never rests, is blocked by it.
"""
ALL_OF = 0.9
"""Share of an interval that must be busy to count as all of it."""
COARSEST_NS = 1_000
"""Coarsest unit to which profilers round the starts of tasks."""
DOUBLE_NS = 300
"""Error of microseconds since 1970 in a double, which holds quarters, written with one decimal."""


class DeviceWork(Spans):
    """All compute tasks, copies and communication ops of one rank, in order of start.

    kind: a PathKind. name: code in the strings of the recording. collective: row of an op among the
    rank's collectives, NO_ID for tasks. before: row that must end before this one starts on the
    device, always an earlier one, NO_ID for none. stream_before: row before it on its stream;
    differs from `before` if the item seems to wait for another stream. also: another row that must
    have ended, NO_ID for none. launch: row of the host point that launched it, NO_ID if that is not
    recorded. step: row of its step, NO_STEP for none. type: operator type of a compute task, code
    in the strings, else NO_NAME.
    """

    kind: Codes = column(np.int32)
    name: Codes = column(np.int32)
    collective: Codes = column(np.int32, NO_ID)
    before: Codes = column(np.int32, NO_ID)
    stream_before: Codes = column(np.int32, NO_ID)
    launch: Codes = column(np.int32, NO_ID)
    step: Codes = column(np.int32, NO_STEP)
    also: Codes = column(np.int32, NO_ID)
    type: Codes = column(np.int32, NO_NAME)


class HostPoints(ColumnTable):
    """Points in time of the host of one rank, over all threads, in order of time.

    A point is a launch, the start or end of a call that waits for the device, the end of a call
    that waits for data, or an edge of a step mark. name: code in the strings of the recording, of
    the launched item or else of the call. waits_for: item whose end the host waited for, set at the
    end of the waiting call, else NO_ID. data_ns: time since the previous point in which the host
    waited for data. step: row of its step, NO_STEP for none. guessed: whether the wait is inferred
    only from a device that never rested, without a call that waits.
    """

    time_ns: Int64 = column(np.int64)
    name: Codes = column(np.int32)
    waits_for: Codes = column(np.int32, NO_ID)
    data_ns: Int64 = column(np.int64, 0)
    step: Codes = column(np.int32, NO_STEP)
    guessed: Bool = column(np.bool_, 0)


@dataclass(frozen=True, slots=True)
class Recording:
    """The data of one rank that a replay needs; codes are positions in `strings`.

    items: number of items, even if there are too many to hold and `work` is empty.
    """

    strings: tuple[str, ...] = ("",)
    work: DeviceWork = field(default_factory=DeviceWork.empty)
    points: HostPoints = field(default_factory=HostPoints.empty)
    items: int = 0

    def moved(self, move: ClockMove) -> Recording:
        """Return the recording on another clock; waits for data keep their duration."""
        return replace(
            self,
            work=self.work.moved(move),
            points=replace(self.points, time_ns=move.of(self.points.time_ns)),
        )


def record_rank(records: Records, membership: Membership, selected: Bool, most: int) -> Recording:
    """Return the data of a rank that a replay needs.

    Args:
        records: the selected records of the rank.
        membership: the step of each record.
        selected: mask of the rank's collectives that are ops of the records.
        most: maximum number of items to hold of the rank.
    """
    items = ordered_items(records)
    if not 0 < len(items) <= most:
        return Recording(items=len(items))
    items = _without_rounding(items)
    strings = StringPool()
    step = _steps_of_items(items, membership)
    names = strings.translate(items.name, records.strings)
    points, launch = _host_points(records, items, names, step, strings)
    before = before_on_device(records, items).astype(np.int32)
    work = DeviceWork(
        items.start_ns,
        items.end_ns,
        item_kinds(records, items),
        names,
        item_collectives(records, selected, items),
        before,
        np.where(items.is_op, before, rows_before(items.stream)).astype(np.int32),
        launch,
        step,
        np.full(len(items), NO_ID, np.int32),
        _operator_types(records, items, strings),
    )
    return Recording(tuple(strings), work, points, len(items))


def _without_rounding(items: DeviceItems) -> DeviceItems:
    """Return items shortened by the unit to which their starts are rounded, if they are.

    Profilers that write microseconds round starts to 1 us, or to the 0.25 us that a double holds,
    but not durations: an item may then seem to end after the start of the next one, and after the
    end of the call that waited for it, by up to that unit.
    """
    unit_ns = int(np.gcd.reduce(np.diff(items.start_ns)))
    if not 1 < unit_ns <= COARSEST_NS:
        return items
    if unit_ns in (50, 100, 250):
        unit_ns = DOUBLE_NS
    return replace(items, end_ns=np.maximum(items.start_ns, items.end_ns - unit_ns))


def _steps_of_items(items: DeviceItems, membership: Membership) -> Codes:
    step = np.empty(len(items), np.int32)
    step[items.is_op] = membership.ops[items.row[items.is_op]]
    step[~items.is_op] = membership.tasks[items.row[~items.is_op]]
    return step


def _operator_types(records: Records, items: DeviceItems, strings: StringPool) -> Codes:
    types = np.full(len(items), NO_NAME, np.int32)
    tasks = np.flatnonzero(~items.is_op)
    computing = tasks[records.tasks.compute[items.row[tasks]]]
    rows = items.row[computing].astype(np.intp)
    types[computing], _ = TaskTypes.of(records, strings).at(records.tasks, rows)
    return types


@dataclass(frozen=True)
class _Points:
    """Host points before they are sorted; item: the item launched or waited for, or NO_ID."""

    time_ns: Int64
    name: Codes
    item: Rows
    waits: bool


def _host_points(
    records: Records, items: DeviceItems, names: Codes, step: Codes, strings: StringPool
) -> tuple[HostPoints, Codes]:
    """Return the host points of a rank, and the row of the point that launched each item.

    If a queue lies between the framework and the launch, the host launches by filling the queue.
    """
    host = records.host
    queued = (items.launch_end_ns == NO_TIME) | (items.asked != items.launch)
    launch_ns = np.where(queued, items.asked_ns, items.launch_end_ns)
    launched = np.flatnonzero(launch_ns != NO_TIME)
    launch_ns = np.minimum(launch_ns, items.start_ns)[launched]
    calls, item = _innermost_waits(records, items)
    fetches = np.flatnonzero(np.isin(host.name, names_waiting_for_data(records.strings)))
    call_names = strings.translate(host.name[calls], records.strings)
    marks = np.flatnonzero(records.steps.host)
    none = np.full(len(calls), NO_ID)
    kinds = [
        _Points(launch_ns, names[launched], launched, waits=False),
        _Points(host.start_ns[calls], call_names, none, waits=False),
        _Points(host.end_ns[calls], call_names, item, waits=True),
        _Points(
            host.end_ns[fetches],
            strings.translate(host.name[fetches], records.strings),
            np.full(len(fetches), NO_ID),
            waits=False,
        ),
        *(
            _Points(
                _after_waits(times_ns[marks], host.end_ns[calls]),
                np.full(len(marks), NO_NAME, np.int32),
                np.full(len(marks), NO_ID),
                waits=False,
            )
            for times_ns in (records.steps.start_ns, records.steps.end_ns)
        ),
    ]
    time_ns = np.concatenate([one.time_ns for one in kinds])
    item = np.concatenate([one.item for one in kinds])
    waits = np.repeat([one.waits for one in kinds], [len(one.time_ns) for one in kinds])
    order = np.lexsort((~waits, time_ns))
    time_ns, item, waits = time_ns[order], item[order], waits[order]
    launch = np.full(len(items), NO_ID, np.int32)
    is_launch = np.flatnonzero(~waits & (item != NO_ID))
    launch[item[is_launch]] = is_launch
    waits_for = np.where(waits, item, NO_ID)
    in_data_ns = covered_until(union(host.start_ns[fetches], host.end_ns[fetches]), time_ns)
    data_ns = np.diff(in_data_ns, prepend=0)
    blocked, blocking = _blocked(items, time_ns)
    free = (waits_for[blocked] == NO_ID) & (data_ns[blocked] == 0)
    waits_for[blocked[free]] = blocking[free]
    guessed = np.zeros(len(time_ns), np.bool_)
    guessed[blocked[free]] = True
    points = HostPoints(
        time_ns,
        np.concatenate([one.name for one in kinds])[order],
        waits_for.astype(np.int32),
        data_ns,
        _steps_of_points(records.steps, time_ns, is_launch, step[item[is_launch]]),
        guessed,
    )
    return points, launch


def _after_waits(times_ns: Int64, waits_end_ns: Int64) -> Int64:
    """Return the edges of step marks, moving those just before the end of a wait to that end.

    A step ends after its last wait, but rounded times may be in the other order.
    """
    ends_ns = np.append(np.sort(waits_end_ns), np.iinfo(np.int64).max)
    next_ns = ends_ns[np.searchsorted(ends_ns, times_ns)]
    return np.where(next_ns - times_ns <= COARSEST_NS, next_ns, times_ns)


def _innermost_waits(records: Records, items: DeviceItems) -> tuple[Rows, Rows]:
    """Return the innermost calls that waited for the device, and the items they waited for."""
    calls, item = waits_for_device(records, items)
    host = records.host
    order = np.lexsort((-host.end_ns[calls], host.start_ns[calls], host.thread[calls]))
    waits = calls[order]
    holds = np.zeros(len(waits), np.bool_)
    holds[:-1] = (host.thread[waits[1:]] == host.thread[waits[:-1]]) & (
        host.start_ns[waits[1:]] < host.end_ns[waits[:-1]]
    )
    kept = np.sort(order[~holds])
    return calls[kept], item[kept]


def _blocked(items: DeviceItems, time_ns: Int64) -> tuple[Rows, Rows]:
    """Return the points before which the device blocked the host, and the blocking items.

    The host is blocked if the time since the previous point is long, the device never rested in it,
    and it ends soon after the item does: a call such as cudaMalloc waits without a name that says
    so.
    """
    way_ns = np.diff(time_ns, prepend=time_ns[:1])
    rows = np.flatnonzero(way_ns > LONG_NS)
    by_end = np.argsort(items.end_ns, kind="stable")
    at = np.searchsorted(items.end_ns[by_end], time_ns[rows], side="right") - 1
    rows, item = rows[at >= 0], by_end[at[at >= 0]]
    way_ns, until_ns = way_ns[rows], time_ns[rows]
    end_ns = items.end_ns[item]
    busy = union(items.start_ns, items.end_ns)
    busy_ns = covered_between(busy, until_ns - way_ns, until_ns)
    is_blocked = (until_ns - end_ns <= SOON_NS) & (busy_ns > ALL_OF * way_ns)
    return rows[is_blocked], item[is_blocked]


def _steps_of_points(steps: Steps, time_ns: Int64, is_launch: Rows, of_launches: Codes) -> Codes:
    """Return the row of the step of each point, NO_STEP after the last step.

    If the host has step marks, a step begins at the end of the one before; otherwise a point
    belongs to the step of the next launch.
    """
    marks = np.flatnonzero(steps.host)
    if len(marks):
        marks = marks[np.argsort(steps.end_ns[marks], kind="stable")]
        at = np.searchsorted(steps.end_ns[marks], time_ns, side="left")
        return np.append(marks, NO_STEP)[at].astype(np.int32)
    at = np.searchsorted(is_launch, np.arange(len(time_ns)), side="left")
    return np.append(of_launches, NO_STEP)[at].astype(np.int32)
