"""Idle time of a device: its gaps, split by cause and by the host call that ran meanwhile."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from timeline.analysis.cut import Cut
from timeline.analysis.idle.charges import ChargedCalls, Charges, RankGaps
from timeline.analysis.idle.host_calls import (
    Calls,
    CallWindow,
    fetching_names,
    names_waiting_for_data,
    names_waiting_for_device,
    split_by_call,
)
from timeline.analysis.idle.idle_sums import (
    CAUSES,
    IdleCause,
    IdleParts,
    IdleSums,
    IdleTimes,
    Parts,
)
from timeline.analysis.idle.kernel_gaps import kernel_gaps
from timeline.analysis.idle.launches import DeviceItems, device_items, values_at
from timeline.analysis.overlap import Overlap
from timeline.analysis.steps import data_aug_bounds
from timeline.analysis.work.code_lines import CodeLines
from timeline.columns.columns import Bool, Codes, ColumnTable, Int64, column
from timeline.columns.constant import constant
from timeline.columns.distinct import distinct, matched_rows
from timeline.columns.group_by import sum_by
from timeline.columns.intervals import IntervalSet, cut_at, open_at, subtract, union, union_of_sets
from timeline.columns.strings import NO_NAME
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import Records, Spans, StepPart, Tasks


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


LONG_BEFORE_NS = 50_000
"""An item launched this long before a gap did not wait for its launch."""
LEAST_GAPS = 10
"""Minimum number of gaps, before items launched long before, to estimate the device's minimum gap.
"""
LEAST_SHARE = 0.05
"""Quantile of these gaps that is taken as the minimum gap."""
_NONE = np.empty(0, np.int64)
_NEVER, _ALWAYS = np.iinfo(np.int64).max, np.iinfo(np.int64).min


@dataclass(frozen=True)
class RankIdle:
    """Idle time of a rank by cause, within its selection.

    parts: idle time of the whole selection, exact, in order. times: sums of it, and of the idle
    time of each step. charged: sums of it by single host call. gaps: the longest ones.
    """

    parts: IdleParts = field(default_factory=IdleParts.empty)
    times: IdleTimes = field(default_factory=IdleTimes)
    charged: ChargedCalls = field(default_factory=ChargedCalls.empty)
    gaps: RankGaps = field(default_factory=RankGaps)

    def of_cause(self, cause: IdleCause) -> RankIdle:
        """Return only the parts and sums of one cause."""
        parts, causes, calls = self.parts, self.times.causes, self.times.calls
        at = CAUSES.index(cause)
        times = replace(
            self.times, causes=causes.take(causes.cause == at), calls=calls.take(calls.cause == at)
        )
        return RankIdle(parts.take(parts.cause == at), times)


class _Phase(enum.IntEnum):
    """Phase of an idle interval, delimited by the events of the item that ends it."""

    BEFORE_ASKED = 0
    BEFORE_LAUNCH = 1
    LAUNCHING = 2
    LAUNCHED = 3
    BETWEEN = 4


class _Ends(ColumnTable):
    """Item that ends each gap: when it was asked for and launched, and by which host events.

    Unknown times lie before or after all times, so that the phase from there covers all of the gap,
    or nothing.
    """

    asked_ns: Int64 = column(np.int64)
    launch_start_ns: Int64 = column(np.int64)
    launch_end_ns: Int64 = column(np.int64)
    asked: Int64 = column(np.int64)
    launch: Int64 = column(np.int64)

    @classmethod
    def of_gaps(cls, items: DeviceItems, item: Int64) -> _Ends:
        """Return the ends of gaps, given the row of the item that ends each.

        If no item comes, as after the last kernel of a selection, the host never asks for it.
        """
        has_launches = bool((items.asked_ns != NO_TIME).any())
        asked_ns = values_at(items.asked_ns, item)
        asked, launch = (values_at(rows, item, NO_ID) for rows in (items.asked, items.launch))
        start_ns, end_ns = (
            np.where(launch != NO_ID, values_at(times_ns, item), _NEVER)
            for times_ns in (items.launch_start_ns, items.launch_end_ns)
        )
        asked_ns = np.where(asked_ns == NO_TIME, _ALWAYS, asked_ns)
        never = (item == NO_ID) & has_launches
        return cls(np.where(never, _NEVER, asked_ns), start_ns, end_ns, asked, launch)


def measure_idle(part: Cut, overlap: Overlap) -> RankIdle:
    """Split the idle time of a selection, and of the period of each of its steps, by cause.

    overlap: of the selection. Each gap is attributed to the item that ended it, and to what the
    host did until that item was asked for, taken out of a queue and launched.
    """
    records, steps = part.around, part.recorded
    items = device_items(records)
    periods = steps.begin_ns, steps.end_ns
    reached = union(*(periods if records.free_is_known else (_NONE, _NONE)))
    gaps, stretches = find_gaps(overlap, reached, records.tasks, items)
    ends = _Ends.of_gaps(items, gaps.item)
    least_ns = _least_gap_ns(gaps, stretches, ends)
    sums = IdleSums(gaps.inner, stretches.gap, periods, records.strings)
    bounds_ns = np.concatenate(periods)
    charges = Charges(gaps.inner, stretches.gap, stretches.end_ns - stretches.start_ns)
    lines = _lines_of_items(records, items, gaps.item)
    for parts in _Splitter(records, gaps, stretches, bounds_ns, ends, least_ns, lines).parts():
        sums.add(parts)
        charges.add(parts)
    longest = gaps.take(charges.longest)
    times_ns, names = (longest.start_ns, longest.end_ns), _names_around(longest, items)
    listed = charges.longest_gaps(times_ns, periods, names, records.strings)
    times = sums.times(least_ns)
    if not len(steps):
        inner = gaps.take(gaps.inner)
        between = kernel_gaps(records, inner, inner.item, items)
        times = replace(times, kernel_gaps=between)
    return RankIdle(sums.parts(), times, charges.charged(), listed)


def _lines_of_items(records: Records, items: DeviceItems, item: Int64) -> Codes:
    """Return the line of code that asked for each of some items, (n,), else NO_NAME.

    item: (n,) rows of items, NO_ID for none.
    """
    lines = np.full(len(item), NO_NAME, np.int32)
    for table, here in ((records.tasks, ~items.is_op), (records.ops, items.is_op)):
        if table.line.any():
            rows = np.flatnonzero((item != NO_ID) & here[np.maximum(item, 0)])
            lines[rows] = table.line[items.row[item[rows]]]
    return lines


def _names_around(gaps: Gaps, items: DeviceItems) -> tuple[Codes, Codes]:
    """Return the names of the items before and after some gaps, NO_NAME for none."""
    near = items.take(items.is_op | np.isin(items.end_ns, gaps.start_ns))
    # Backwards in time, the item before a gap is the one that ends it.
    before = _ending(-gaps.start_ns, near, -near.end_ns, -near.start_ns)
    # NO_ID, which is -1, picks the name at the end.
    no_name = np.array([NO_NAME], np.int32)
    previous, following = (
        np.concatenate([of.name, no_name])[item]
        for of, item in ((near, before), (items, gaps.item))
    )
    return previous, following


def _least_gap_ns(gaps: Gaps, stretches: IdleStretches, ends: _Ends) -> int:
    """Return the device's own minimum gap, from gaps that the host does not explain."""
    idle_ns = sum_by(stretches.gap, stretches.end_ns - stretches.start_ns, len(gaps))
    length_ns = gaps.end_ns - gaps.start_ns
    without_copies = idle_ns == length_ns
    early = ends.launch_end_ns <= gaps.start_ns - LONG_BEFORE_NS
    unexplained_ns = length_ns[gaps.inner & early & without_copies]
    if len(unexplained_ns) < LEAST_GAPS:
        return 0
    return int(np.quantile(unexplained_ns, LEAST_SHARE, method="lower"))


class _Pieces(Spans):
    """Pieces of idle intervals in one phase; row: of the interval, cut at bounds."""

    row: Int64 = column(np.int64)


class _Splitter:
    """Split idle intervals by cause, by open call, and at given bounds."""

    def __init__(
        self,
        records: Records,
        gaps: Gaps,
        stretches: IdleStretches,
        bounds_ns: Int64,
        ends: _Ends,
        least_ns: int,
        item_lines: Codes,
    ) -> None:
        """Prepare for intervals; item_lines: (gaps,) the line of what ends each gap."""
        self._host, self._strings = records.host, records.strings
        self._lines = CodeLines(records.host, records.strings)
        self._ends, self._least_ns, self._item_lines = ends, least_ns, item_lines
        unrecorded = union(records.unrecorded.start_ns, records.unrecorded.end_ns)
        times = (_fetching(records), _preparing(records), unrecorded, _loading(records))
        edges = [edge for one in times for edge in (one.start_ns, one.end_ns)]
        edges_ns = distinct(np.concatenate([bounds_ns, *edges]))
        self._of, self._start_ns, self._end_ns = cut_at(
            stretches.start_ns, stretches.end_ns, edges_ns
        )
        self._gap = stretches.gap[self._of]
        self._gap_start_ns, self._gap_end_ns = gaps.start_ns[self._gap], gaps.end_ns[self._gap]
        self._fetching, self._preparing, self._unrecorded, self._loading = (
            open_at(self._start_ns, one.start_ns, one.end_ns) >= 0 for one in times
        )

    def parts(self) -> Iterator[Parts]:
        """Yield all parts; together they are the intervals."""
        for phase, pieces in self._phases():
            for_data = self._fetching[pieces.row] & (phase is not _Phase.BETWEEN)
            yield self._parts(pieces.take(for_data), IdleCause.WAITING_FOR_DATA)
            pieces = pieces.take(~for_data)  # noqa: PLW2901
            lost = self._unrecorded[pieces.row]
            yield self._parts(pieces.take(lost), IdleCause.KERNELS_NOT_RECORDED)
            yield from self._of_phase(phase, pieces.take(~lost))

    def _phases(self) -> Iterator[tuple[_Phase, _Pieces]]:
        """Yield the pieces of intervals in each phase of the item that ends their gap."""
        ends = self._ends.take(self._gap)
        cut_ns = np.maximum(self._gap_end_ns - self._least_ns, self._start_ns)
        cut_ns = np.minimum(cut_ns, self._end_ns)
        from_ns = self._start_ns
        phase_ends = (ends.asked_ns, ends.launch_start_ns, ends.launch_end_ns, cut_ns, self._end_ns)
        for phase, phase_end_ns in zip(_Phase, phase_ends, strict=True):
            most_ns = self._end_ns if phase is _Phase.BETWEEN else cut_ns
            to_ns = np.minimum(np.maximum(phase_end_ns, from_ns), most_ns)
            row = np.flatnonzero(to_ns > from_ns)
            yield phase, _Pieces(from_ns[row], to_ns[row], row)
            from_ns = to_ns

    def _of_phase(self, phase: _Phase, pieces: _Pieces) -> Iterator[Parts]:
        gap = self._gap[pieces.row]
        launch = self._ends.launch[gap]
        if phase is _Phase.BEFORE_ASKED:
            yield from self._before_asked(pieces, self._ends.asked[gap])
        elif phase is _Phase.BEFORE_LAUNCH:
            yield self._parts(pieces.take(launch == NO_ID), IdleCause.NOT_RECORDED)
            # What the launching thread did.
            for window, own in self._windows(pieces, launch):
                lines = self._lines_in(window)
                lines = np.where(lines == NO_NAME, self._item_lines[self._gap[own.row]], lines)
                yield self._parts(own, IdleCause.QUEUED, window.stretches.call, lines)
        elif phase is _Phase.LAUNCHING:
            lines = self._lines.of(launch)
            lines = np.where(lines == NO_NAME, self._item_lines[gap], lines)
            yield self._parts(pieces, IdleCause.LAUNCH_CALL, launch, lines)
        elif phase is _Phase.LAUNCHED:
            before = self._ends.launch_end_ns[gap] <= self._gap_start_ns[pieces.row]
            yield self._parts(pieces.take(before), IdleCause.LAUNCHED_BEFORE)
            yield self._parts(pieces.take(~before), IdleCause.LAUNCH_LATENCY)
        else:
            yield self._parts(pieces, IdleCause.BETWEEN_TASKS)

    def _parts(
        self,
        pieces: _Pieces,
        cause: IdleCause | Int64,
        calls: Int64 | None = None,
        lines: Codes | None = None,
    ) -> Parts:
        """Return parts for some pieces; vague causes give way to a wait for data around them.

        calls: the row of the host call of each, NO_ID for none. lines: the line of code of each.
        """
        row = pieces.row
        codes = np.full(len(row), CAUSES.index(cause)) if isinstance(cause, IdleCause) else cause
        vague = _IS_VAGUE[codes] & self._preparing[row]
        codes = np.where(vague, CAUSES.index(IdleCause.WAITING_FOR_DATA), codes)
        if calls is None:
            calls = np.full(len(row), NO_ID)
        if lines is None:
            lines = constant(NO_NAME, len(row), np.int32)
        of, names = self._of[row].astype(np.int64), self._names(calls)
        return Parts(pieces.start_ns, pieces.end_ns, of, codes, names, calls, lines)

    def _before_asked(self, pieces: _Pieces, asked: Int64) -> Iterator[Parts]:
        """Yield parts by the work of the asking thread: waiting for data or device, or other."""
        yield self._parts(pieces.take(asked == NO_ID), IdleCause.HOST_NOT_ASKED)
        meanings = (
            (names_waiting_for_device(self._strings), IdleCause.HOST_WAITED_FOR_DEVICE),
            (names_waiting_for_data(self._strings), IdleCause.WAITING_FOR_DATA),
        )
        waits = CAUSES.index(IdleCause.WAITING_FOR_DATA)
        for window, own in self._windows(pieces, asked):
            names, call = self._host.name[window.calls.row], window.stretches.call
            cause = np.where(
                call == NO_ID,
                # Another thread than that which launches may wait for data.
                np.where(self._loading[own.row], waits, CAUSES.index(IdleCause.OUTSIDE_CALLS)),
                CAUSES.index(IdleCause.HOST_NOT_ASKED),
            )
            for waiting, meaning in meanings:
                around = window.innermost_of(np.isin(names, waiting))
                call = np.where(around == NO_ID, call, around)
                cause = np.where(around == NO_ID, cause, CAUSES.index(meaning))
            yield self._parts(own, cause, call, self._lines_in(window))

    def _lines_in(self, window: CallWindow) -> Codes:
        """Return the line of code at each stretch of a window, by the calls that are open then."""
        if not len(self._lines.holders):
            return constant(NO_NAME, len(window.stretches), np.int32)
        own = self._lines.own
        around = window.innermost_of(own[window.calls.row] != NO_NAME)
        return np.where(around == NO_ID, np.int32(NO_NAME), own[np.maximum(around, 0)])

    def _windows(self, pieces: _Pieces, host_rows: Int64) -> Iterator[tuple[CallWindow, _Pieces]]:
        """Yield the calls on the thread of the host row of some pieces, and these cut by call.

        Pieces without a host row are left out.
        """
        host, known = self._host, np.flatnonzero(host_rows != NO_ID)
        for asking, of_thread in matched_rows(host.thread[host_rows[known]], host.thread):
            calls = Calls(host.start_ns[of_thread], host.end_ns[of_thread], of_thread)
            own = pieces.take(known[asking])
            for window in split_by_call(calls, own.start_ns, own.end_ns):
                cut = window.stretches
                yield window, _Pieces(cut.start_ns, cut.end_ns, own.row[cut.stretch])

    def _names(self, call: Int64) -> Codes:
        if not len(self._host):
            return np.full(len(call), NO_NAME, np.int32)
        return np.where(call == NO_ID, np.int32(NO_NAME), self._host.name[np.maximum(call, 0)])


_VAGUE = (IdleCause.LAUNCHED_BEFORE, IdleCause.OUTSIDE_CALLS, IdleCause.NOT_RECORDED)
"""Causes that do not show what the host did; a wait for data around them is more specific."""
_IS_VAGUE = np.array([cause in _VAGUE for cause in CAUSES])


def _fetching(records: Records) -> IntervalSet:
    """Return the intervals in which the device fetches data.

    They are its own marks, and fetching tasks that do not compute.
    """
    parts, tasks = records.parts, records.tasks
    marked = parts.kind == StepPart.GET_NEXT
    named = np.isin(tasks.name, fetching_names(records.strings)) & ~tasks.compute
    return union(
        np.concatenate([parts.start_ns[marked], tasks.start_ns[named]]),
        np.concatenate([parts.end_ns[marked], tasks.end_ns[named]]),
    )


def _loading(records: Records) -> IntervalSet:
    """Return the intervals in which any thread of the host waits for data."""
    calls = np.flatnonzero(np.isin(records.host.name, names_waiting_for_data(records.strings)))
    return union(records.host.start_ns[calls], records.host.end_ns[calls])


def _preparing(records: Records) -> IntervalSet:
    """Return the Data Aug Bound intervals.

    Each lasts from the latest end of any step on the device to the FP start of the next.
    """
    start_ns, end_ns = data_aug_bounds(records.steps.take(~records.steps.host))
    known = start_ns != NO_TIME
    return union(start_ns[known], np.maximum(start_ns, end_ns)[known])
