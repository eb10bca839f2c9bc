"""Order of work on one device, and the items of its rank that can lie on the critical path."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from timeline.analysis.idle.host_calls import Calls, names_waiting_for_device, split_by_call
from timeline.analysis.idle.launches import DeviceItems, device_items
from timeline.analysis.work.code_lines import CodeLines
from timeline.columns.columns import Bool, Codes, ColumnTable, Int64, Rows, ascending, column
from timeline.columns.distinct import are_first, distinct_values, matched_rows
from timeline.columns.group_by import sum_rows
from timeline.columns.intervals import open_at, union
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.clock import ClockMove
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import Records, Spans, Tasks


class PathKind(enum.IntEnum):
    """Kind of a segment of a critical path; its name in lower case is published."""

    COMPUTING = 0
    TRANSFER = 1
    """Communication op, from the arrival of its last rank on."""
    COPY = 2
    HOST = 3
    """Host time before the task was asked for, since the host last waited for the device."""
    QUEUED = 4
    """Asked for, but not launched yet."""
    LAUNCH = 5
    """From the start of the launch call to the start of the task."""
    BETWEEN_TASKS = 6
    """From the end of the item that the task waited for to the start of the task."""
    NOT_PROFILED = 7
    """Time of a rank before an op that it came last to, if its part in that is not read."""

    @property
    def label(self) -> str:
        """Return the published name."""
        return self.name.lower()

    @property
    def words(self) -> str:
        """Return the name in words; a rank may be profiled, and its op outside the selection."""
        return "op not found" if self is PathKind.NOT_PROFILED else self.label.replace("_", " ")


class PathItems(Spans):
    """Compute tasks, copies and communication ops of one rank, in order of start.

    kind: COMPUTING, COPY, or TRANSFER for an op. name: code in the strings of the rank. collective:
    row among the rank's collectives, NO_ID unless it is an op. before: row whose end let it start,
    always an earlier one, NO_ID for none; if the host was late, the item that the host had last
    waited for. launch_ns, asked_ns, host_ns: start of the launch, of the queueing, and of the host
    work towards it, descending from start_ns; all equal start_ns if the device let it start;
    host_ns is NO_TIME if the host did not wait before. call, call_ns: call that took most of the
    time from host_ns to asked_ns, and its time. line, line_ns: the same of lines of code.
    """

    kind: Codes = column(np.int32)
    name: Codes = column(np.int32)
    collective: Codes = column(np.int32, NO_ID)
    before: Codes = column(np.int32, NO_ID)
    launch_ns: Int64 = column(np.int64, NO_TIME, moment=True)
    asked_ns: Int64 = column(np.int64, NO_TIME, moment=True)
    host_ns: Int64 = column(np.int64, NO_TIME, moment=True)
    call: Codes = column(np.int32, NO_NAME)
    call_ns: Int64 = column(np.int64, 0)
    line: Codes = column(np.int32, NO_NAME)
    line_ns: Int64 = column(np.int64, 0)


@dataclass(frozen=True, slots=True)
class RankPath:
    """Items of one rank that can lie on the critical path; codes are positions in `strings`.

    span_ns: first start and last end of its device work, None without any. Marks without work, such
    as those with which a profiler starts and stops, are not included.
    """

    strings: tuple[str, ...] = ("",)
    items: PathItems = field(default_factory=PathItems.empty)
    span_ns: tuple[int, int] | None = None

    def moved(self, move: ClockMove) -> RankPath:
        """Return the items on another clock."""
        span_ns = self.span_ns
        if span_ns is not None:
            span_ns = move.of_time(span_ns[0]), move.of_time(span_ns[1])
        return replace(self, items=self.items.moved(move), span_ns=span_ns)


LEAST_DELAY_NS = 2_000
"""A task that starts within this time after the one before was not delayed by anything else."""
WAIT_SLACK_NS = 1_000
"""An event wait may begin this long before the recorded end of the previous task."""
_EVENT_WAIT = ("eventwait", "event_wait")
"""Types and names of tasks with which a stream waits for another one."""

_FREES = ("cudaFree", "hipFree", "musaFree")
"""Calls that wait for the device and then free its memory."""


def ordered_items(records: Records) -> DeviceItems:
    """Return compute tasks, copies and communication ops by start, those without length first."""
    items = device_items(records, also=_own_copies(records))
    return items.take(np.lexsort((items.end_ns, items.start_ns)))


def _own_copies(records: Records) -> Bool:
    """Return a mask of the copies that do not lie inside a communication op."""
    tasks, ops = records.tasks, records.ops
    are_own = tasks.copy & ~tasks.compute
    rows = np.flatnonzero(are_own)
    inside = union(ops.start_ns, ops.end_ns)
    if not len(inside):
        return are_own
    begun = open_at(tasks.start_ns[rows], inside.start_ns, inside.end_ns)
    are_own[rows] = (begun < 0) | (tasks.end_ns[rows] > inside.end_ns[begun])
    return are_own


class _Ends:
    """Ends of items in order of time, to find the last one before the start of others."""

    def __init__(self, items: DeviceItems, rows: Rows) -> None:
        self._rows = rows[np.lexsort((rows, items.end_ns[rows]))]
        self._end_ns = items.end_ns[self._rows]

    def before(self, times_ns: Int64) -> Rows:
        """Return the last item that has ended at each timestamp, NO_ID for none."""
        at = np.searchsorted(self._end_ns, times_ns, side="right") - 1
        return np.where(at >= 0, self._rows[np.maximum(at, 0)], NO_ID)

    def before_items(self, items: DeviceItems, rows: Rows) -> Rows:
        """Return the last earlier item that has ended when each of some items starts."""
        before = self.before(items.start_ns[rows])
        # Among items without length at one time, each one is the last to have ended.
        late = np.flatnonzero(before >= rows)
        order = np.argsort(self._rows)
        at = order[np.searchsorted(self._rows, rows[late], sorter=order)] - 1
        before[late] = np.where(at >= 0, self._rows[np.maximum(at, 0)], NO_ID)
        return before


def before_on_device(records: Records, items: DeviceItems) -> Rows:
    """Return the item whose end let each item start on the device, NO_ID for none.

    It is the previous item on the stream; but the item that ended last on the device after an event
    wait, for a communication op, and for a late start if the profile records no event waits.

    items: from `ordered_items`.
    """
    rows = np.arange(len(items))
    last = _Ends(items, rows).before_items(items, rows)
    tasks = records.tasks
    waits = np.flatnonzero(_waits(records))
    before = last.copy()
    on_streams = np.flatnonzero(~items.is_op)
    for places, of_stream in matched_rows(items.stream[on_streams], tasks.stream[waits]):
        on_this = on_streams[places]
        on_stream = _Ends(items, on_this).before_items(items, on_this)
        stream_waits = waits[of_stream]
        idle_since_ns = np.where(on_stream >= 0, items.end_ns[on_stream], NO_TIME)
        if len(waits):
            waited = _waited_between(tasks, stream_waits, idle_since_ns, items.start_ns[on_this])
        else:
            waited = (on_stream < 0) | (items.start_ns[on_this] - idle_since_ns >= LEAST_DELAY_NS)
        before[on_this] = np.where(waited, last[on_this], on_stream)
    return before


def _waits(records: Records) -> Bool:
    """Return a mask of the tasks with which a stream waits for another one."""
    waits = np.zeros(len(records.strings), np.bool_)
    waits[records.strings.codes_with(_EVENT_WAIT)] = True
    return waits[records.tasks.task_type] | waits[records.tasks.name]


def _waited_between(tasks: Tasks, waits: Rows, since_ns: Int64, until_ns: Int64) -> Bool:
    """Return a mask of intervals that contain one of the waits of a stream."""
    if not len(waits):
        return np.zeros(len(since_ns), np.bool_)
    order = waits[np.argsort(tasks.end_ns[waits], kind="stable")]
    at = np.searchsorted(tasks.end_ns[order], until_ns, side="right") - 1
    begin_ns = tasks.start_ns[order[np.maximum(at, 0)]]
    between: Bool = (at >= 0) & (begin_ns + WAIT_SLACK_NS >= since_ns)
    return between


def item_kinds(records: Records, items: DeviceItems) -> Codes:
    """Return the PathKind of each item."""
    kinds = np.full(len(items), PathKind.TRANSFER, np.int32)
    tasks = np.flatnonzero(~items.is_op)
    compute = records.tasks.compute[items.row[tasks]]
    kinds[tasks] = np.where(compute, PathKind.COMPUTING, PathKind.COPY)
    return kinds


def item_collectives(records: Records, selected: Bool, items: DeviceItems) -> Codes:
    """Return the row of each op among the rank's collectives, NO_ID for other items.

    selected: mask of those, which are in order of start, that are the ops of the records.
    """
    row = np.empty(len(records.ops), np.int32)
    row[np.argsort(records.ops.start_ns, kind="stable")] = np.flatnonzero(selected)
    collectives = np.full(len(items), NO_ID, np.int32)
    ops = np.flatnonzero(items.is_op)
    collectives[ops] = row[items.row[ops]]
    return collectives


def waits_for_device(records: Records, items: DeviceItems) -> tuple[Rows, Rows]:
    """Return the host calls that waited until an item had ended, by their ends, and that item.

    It is the last item that ended before the call did. Calls that free memory of a GPU wait too,
    and then take time of their own.
    """
    host, strings = records.host, records.strings
    frees = [code for name in _FREES if (code := strings.find(name)) is not None]
    names = [*names_waiting_for_device(strings), *frees]
    calls = np.flatnonzero(np.isin(host.name, names))
    calls = calls[np.argsort(host.end_ns[calls], kind="stable")]
    item = _Ends(items, np.arange(len(items))).before(host.end_ns[calls])
    waited = (item >= 0) & (items.end_ns[item] >= host.start_ns[calls])
    return calls[waited], item[waited]


def rank_path(records: Records, selected: Bool, step_ends_ns: Int64) -> RankPath:
    """Return the items of a rank that can lie on the critical path, and what let each start.

    An item waits for the one before on its stream. After an event wait, or if a profile records
    none, it waits for whatever ended last before it on the device, and so does a communication op.
    If it was launched after that, the host was late: the path goes back over the launch, the queue
    and the host time since the host last waited for the device, in any thread.

    Args:
        records: the selected records.
        selected: mask of the rank's collectives that are ops of the records.
        step_ends_ns: the last device ends of steps, at which paths may begin.
    """
    items = ordered_items(records)
    if not len(items):
        return RankPath()
    before = before_on_device(records, items)
    every = _path_items(records, selected, items, before)
    kept = _reachable(every, step_ends_ns)
    path = _named(
        records, _renumbered(_with_calls(records, every, items.asked, kept, step_ends_ns), kept)
    )
    return replace(path, span_ns=(int(items.start_ns.min()), int(items.end_ns.max())))


def _path_items(records: Records, selected: Bool, items: DeviceItems, before: Rows) -> PathItems:
    start_ns = items.start_ns
    ready_ns = np.where(before >= 0, items.end_ns[before], NO_TIME)
    launched = items.launch != NO_ID
    launch_ns = np.where(launched, items.launch_start_ns, start_ns)
    launched_ns = np.where(launched, items.launch_end_ns, items.asked_ns)
    delayed = (before < 0) | (start_ns - ready_ns >= LEAST_DELAY_NS)
    late = (launched_ns != NO_TIME) & (launched_ns > ready_ns) & delayed
    launch_ns = np.where(late, np.clip(launch_ns, ready_ns, start_ns), start_ns)
    asked_ns = np.where(late, np.clip(items.asked_ns, ready_ns, launch_ns), start_ns)
    host_ns, waited_for = _host_since(records, items, asked_ns)
    # Among items without length at one time, the host may have waited for a later one.
    on_host = late & (asked_ns > ready_ns) & (waited_for < np.arange(len(items)))
    return PathItems.of(
        len(items),
        start_ns=start_ns,
        end_ns=items.end_ns,
        kind=item_kinds(records, items),
        name=items.name,
        collective=item_collectives(records, selected, items),
        before=np.where(on_host, waited_for, before).astype(np.int32),
        launch_ns=launch_ns,
        asked_ns=asked_ns,
        host_ns=np.where(on_host, host_ns, asked_ns),
    )


def _host_since(records: Records, items: DeviceItems, times_ns: Int64) -> tuple[Int64, Rows]:
    """Return when the host last stopped waiting for the device, and for which item it waited.

    NO_TIME and NO_ID if it had not waited before.
    """
    calls, item = waits_for_device(records, items)
    if not len(calls):
        return np.full(len(times_ns), NO_TIME), np.full(len(times_ns), NO_ID)
    end_ns = records.host.end_ns[calls]
    at = np.searchsorted(end_ns, times_ns, side="right") - 1
    return np.where(at >= 0, end_ns[at], NO_TIME), np.where(at >= 0, item[at], NO_ID)


def _reachable(items: PathItems, step_ends_ns: Int64) -> Bool:
    """Return the items that a path can reach: from ops, ends of steps, and the last end of all."""
    ends = np.lexsort((np.arange(len(items)), items.end_ns))
    at = np.searchsorted(items.end_ns[ends], step_ends_ns, side="right") - 1
    reached = items.collective != NO_ID
    reached[ends[at[at >= 0]]] = True
    reached[ends[-1:]] = True
    return leading_items(items.before, reached)


def leading_items(before: Codes, reached: Bool) -> Bool:
    """Return a mask of the reached items and all that lead to them, (n,).

    Nearly all items waited for the one just before. So runs of such items are traversed one by one,
    and items within a run as columns.

    Args:
        before: (n,) the earlier row that each item waited for, NO_ID for none.
    """
    begins = before != np.arange(-1, len(before) - 1)
    begins[:1] = True
    run = np.cumsum(begins) - 1
    earlier = before[begins]
    last = np.full(len(earlier), NO_ID)
    rows = np.flatnonzero(reached)
    # The last of several rows of a run stays.
    last[run[rows]] = rows
    upto, earlier_run = last.tolist(), run[earlier].tolist()
    for at, row in reversed(list(enumerate(earlier.tolist()))):
        if upto[at] != NO_ID and row != NO_ID:
            upto[earlier_run[at]] = max(upto[earlier_run[at]], row)
    leading: Bool = np.arange(len(run)) <= np.array(upto, np.intp)[run]
    return leading


def _renumbered(items: PathItems, kept: Bool) -> PathItems:
    number = np.append(np.cumsum(kept) - 1, NO_ID).astype(np.int32)
    some = items.take(kept)
    return replace(some, before=number[some.before])


def _with_calls(
    records: Records, items: PathItems, asked: Int64, kept: Bool, step_ends_ns: Int64
) -> PathItems:
    """Return the items with call and line that took most of the host time before each kept one.

    Paths begin at the ends of steps, or with the first work of the device: earlier calls do not
    count.
    """
    host, lines = records.host, CodeLines(records.host, records.strings)
    ends_ns = ascending(np.append(step_ends_ns, NO_TIME))
    step_ns = ends_ns[np.searchsorted(ends_ns, items.asked_ns, side="right") - 1]
    since_ns = np.maximum(items.host_ns, step_ns)
    since_ns = np.maximum(since_ns, items.start_ns.min(initial=np.iinfo(np.int64).max))
    rows = np.flatnonzero(kept & (since_ns < items.asked_ns) & (asked != NO_ID))
    columns: dict[str, Any] = {}
    for what, names, among in (
        ("call", host.name, slice(None)),
        ("line", lines.own if len(lines.holders) else host.name, lines.holders),
    ):
        name, total_ns = np.zeros(len(items), np.int32), np.zeros(len(items), np.int64)
        thread = host.thread[among]
        for asking, of_thread in matched_rows(host.thread[asked[rows]], thread):
            asking_rows = rows[asking]
            on_thread = of_thread if isinstance(among, slice) else among[of_thread]
            calls = Calls(host.start_ns[on_thread], host.end_ns[on_thread], on_thread)
            name[asking_rows], total_ns[asking_rows] = longest_calls(
                calls, names, since_ns[asking_rows], items.asked_ns[asking_rows]
            )
        columns |= {what: name, f"{what}_ns": total_ns}
    return replace(items, **columns)


def _named(records: Records, items: PathItems) -> RankPath:
    strings = StringPool()
    name = strings.translate(items.name, records.strings)
    call = strings.translate(items.call, records.strings)
    line = strings.translate(items.line, records.strings)
    return RankPath(tuple(strings), replace(items, name=name, call=call, line=line))


def longest_calls(
    calls: Calls, names: Codes, since_ns: Int64, until_ns: Int64
) -> tuple[Codes, Int64]:
    """Return the name of the innermost calls with the most time in each interval, and that time.

    Any two intervals start together or are disjoint, so intervals with the same start are answered
    in one pass through the longest of them: O(n log n) regardless of their number.

    Args:
        calls: of one thread.
        names: (calls of the host,) indexed by `row` of a call.
        since_ns, until_ns: (n,) the intervals, none empty.

    Returns:
        name: (n,) NO_NAME if no call is open; total_ns: (n,).
    """
    begins_ns, stretch = distinct_values(since_ns)
    ends_ns = np.full(len(begins_ns), np.iinfo(np.int64).min)
    np.maximum.at(ends_ns, stretch, until_ns)
    order = np.lexsort((until_ns, stretch))
    asked_ns = until_ns[order]
    name, total_ns = np.full(len(order), NO_NAME, np.int32), np.zeros(len(order), np.int64)
    # NO_ID is -1, so it selects the appended NO_NAME.
    named = np.append(names, np.int32(NO_NAME))
    before = _Taken.empty()
    for window in split_by_call(calls, begins_ns, ends_ns):
        parts = window.stretches
        if not len(parts):
            continue
        before = before.take(before.stretch == parts.stretch[0])
        lengths_ns = parts.end_ns - parts.start_ns
        taken = _Taken.concat([before, _Taken(parts.stretch, named[parts.call], lengths_ns)])
        upto_ns, most_ns, leader = taken.running()
        first = np.searchsorted(asked_ns, parts.start_ns[0], side="right")
        stop = np.searchsorted(asked_ns, parts.end_ns[-1], side="right")
        part = np.searchsorted(parts.start_ns, asked_ns[first:stop], side="left") - 1
        own_ns = upto_ns[len(before) + part] - (parts.end_ns[part] - asked_ns[first:stop])
        part += len(before)
        whole = np.maximum(part - 1, 0)
        follows = (part > 0) & (taken.stretch[whole] == taken.stretch[part])
        whole_ns = np.where(follows, most_ns[whole], 0)
        own = (taken.name[part] != NO_NAME) & (own_ns >= whole_ns)
        earlier = np.where(whole_ns > 0, taken.name[leader[whole]], NO_NAME)
        place = order[first:stop]
        total_ns[place] = np.where(own, own_ns, whole_ns)
        name[place] = np.where(own, taken.name[part], earlier)
        # Time of calls of each name in the interval that may continue, the longest last.
        last = (taken.stretch == taken.stretch[-1]) & (taken.name != NO_NAME)
        before, _ = sum_rows(taken.take(last), ("stretch", "name"), ("length_ns",))
        is_leader = before.name == taken.name[leader[-1]]
        before = before.take(np.lexsort((is_leader, before.length_ns)))
    return name, total_ns


class _Taken(ColumnTable):
    """Time of calls of a name in a part of an interval, in order of time."""

    stretch: Int64 = column(np.int64)
    name: Codes = column(np.int32)
    length_ns: Int64 = column(np.int64)

    def running(self) -> tuple[Int64, Int64, Rows]:
        """Return the time of each row's name in its interval up to the end of the row, (n,).

        Also return the maximum over all names, and the last row with that name.
        """
        names = int(self.name.max()) + 1
        order = np.argsort(self.stretch * names + self.name, kind="stable")
        sums_ns = np.cumsum(self.length_ns[order])
        opens = are_first(self.stretch[order], self.name[order])
        before_ns = (sums_ns - self.length_ns[order])[opens]
        upto_ns = np.empty(len(order), np.int64)
        upto_ns[order] = sums_ns - before_ns[np.cumsum(opens) - 1]
        # Keys of a later interval are greater than all before.
        least = np.cumsum(are_first(self.stretch)) * (int(upto_ns.max()) + 1)
        keys = np.where(self.name == NO_NAME, 0, upto_ns) + least
        highest = np.maximum.accumulate(keys)
        leader = np.maximum.accumulate(np.where(keys == highest, np.arange(len(keys)), 0))
        return upto_ns, highest - least, leader
