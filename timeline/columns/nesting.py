"""Nested intervals: the order of their edges, and the open interval at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from timeline.columns.columns import Bool, Int64, Rows, ascending, take
from timeline.columns.spill import spillable

try:
    from timeline.columns import _nesting
except ImportError:
    _nesting = None  # type: ignore[assignment]

PIECE_ROWS = 1 << 16
"""Minimum number of intervals processed at a time, split where none is open."""


def is_compiled() -> bool:
    """Return whether the compiled module is installed."""
    return _nesting is not None


@dataclass(frozen=True)
class Edges:
    """The 2n edges of n intervals in drawing order.

    row: (2n,) the interval an edge belongs to; is_end: (2n,); time_ns: (2n,).

    At equal times, ends come first (inner before outer), then beginnings (outer before inner), and
    an interval without length has its two edges next to each other.
    """

    row: Rows
    is_end: Bool
    time_ns: Int64


def order_edges(start_ns: Int64, end_ns: Int64) -> Edges:
    """Order the edges of intervals, given in any order.

    Intervals that cross are ordered too, but a stack machine such as Perfetto's would close the
    wrong one.
    """
    row = np.tile(np.arange(len(start_ns)), 2)
    is_end = np.arange(len(row)) >= len(start_ns)
    time_ns = np.concatenate([start_ns, end_ns])
    is_point = (start_ns == end_ns)[row]
    turn = np.where(is_point, 2, ~is_end)
    # Among beginnings the longer one is outer, among ends the later start is inner. Equal
    # intervals open in row order and close in the reverse one.
    outer = np.where(is_point, row, np.concatenate([-end_ns, -start_ns]))
    same = np.where(is_point, is_end, np.where(is_end, -row, row))
    order = np.lexsort((same, outer, turn, time_ns))
    return Edges(row[order], is_end[order], time_ns[order])


def split_at_gaps(
    start_ns: Int64, end_ns: Int64, least: int = PIECE_ROWS, *, touching: bool = False
) -> Iterator[Rows]:
    """Split intervals into runs of at least `least`, with no interval open between runs.

    Rows of a run are in order of start, the outer one first, and runs in order of time, so nesting
    can be computed run by run, in little memory.

    Args:
        touching: whether a run may begin at the time at which the one before ends.
    """
    order = _by_start(start_ns, end_ns)
    rows = np.arange(len(start_ns)) if order is None else order
    if len(rows) <= least:
        yield rows
        return
    ordered = start_ns if order is None else take(start_ns, order)
    ends_ns = end_ns if order is None else take(end_ns, order)
    reach_ns = np.maximum.accumulate(ends_ns)
    # An interval without length stays with one that ends or begins at the same time.
    quiet = np.flatnonzero(ordered[1:] > reach_ns[:-1]) + 1
    if touching:
        meeting = np.flatnonzero(ordered[1:] == reach_ns[:-1]) + 1
        instants_ns = ordered[ordered == ends_ns]
        quiet = ascending(np.append(quiet, meeting[~np.isin(ordered[meeting], instants_ns)]))
    del ordered, ends_ns, reach_ns
    first = 0
    while first < len(rows):
        at = np.searchsorted(quiet, first + least)
        stop = int(quiet[at]) if at < len(quiet) else len(rows)
        yield rows[first:stop]
        first = stop


def _by_start(start_ns: Int64, end_ns: Int64) -> Rows | None:
    """Return the rows in order of start, the outer one first; None if they are in this order.

    Most are in order in blocks: a single stable sort makes use of that, lexsort would not.
    """
    if _in_order(start_ns, end_ns):
        return None
    order = np.argsort(start_ns, kind="stable")
    start_ns = take(start_ns, order)
    is_equal = start_ns[1:] == start_ns[:-1]
    if is_equal.any():
        some = np.flatnonzero(np.append(is_equal, False) | np.append(False, is_equal))
        rows = order[some]
        order[some] = rows[np.lexsort((-end_ns[rows], start_ns[some]))]
    return spillable(order)


def _in_order(start_ns: Int64, end_ns: Int64) -> bool:
    """Return whether intervals are in order of start, the outer one first."""
    before, after = start_ns[:-1], start_ns[1:]
    return bool(((before < after) | ((before == after) & (end_ns[:-1] >= end_ns[1:]))).all())


@dataclass(frozen=True)
class Events:
    """Consecutive drawing events of intervals, in k rows.

    row: the interval that begins, ends, or does both without another event in between. begin_ns,
    end_ns: time since the previous event. begins, ends: masks of rows with a beginning and an end;
    None if all rows have both.
    """

    row: Rows
    begin_ns: Int64
    end_ns: Int64
    begins: Bool | None = None
    ends: Bool | None = None

    def __len__(self) -> int:
        return len(self.row)

    def between(self, first: int, stop: int) -> Events:
        """Return consecutive rows."""
        part = slice(first, stop)
        return Events(
            self.row[part],
            self.begin_ns[part],
            self.end_ns[part],
            None if self.begins is None else self.begins[part],
            None if self.ends is None else self.ends[part],
        )


def nested_events(start_ns: Int64, end_ns: Int64, before_ns: int) -> Events:
    """Return the events of nested intervals, given in any order.

    The first event is relative to before_ns.
    """
    events = _events_by_stack(start_ns, end_ns, before_ns)
    return _events_of(order_edges(start_ns, end_ns), before_ns) if events is None else events


def _events_by_stack(start_ns: Int64, end_ns: Int64, before_ns: int) -> Events | None:
    """Return the events of intervals; None if some cross or the compiled module is missing."""
    if _nesting is None:
        return None
    order = _by_start(start_ns, end_ns)
    if order is not None:
        start_ns, end_ns = start_ns[order], end_ns[order]
    columns = _nesting.events(start_ns.tobytes(), end_ns.tobytes(), before_ns)
    if columns is None:
        return None
    count, *numbers, begins, ends = columns
    row, since_ns, until_ns = (np.frombuffer(one, np.int64, count) for one in numbers)
    return Events(
        row if order is None else order[row],
        since_ns,
        until_ns,
        np.frombuffer(begins, np.bool_, count),
        np.frombuffer(ends, np.bool_, count),
    )


def _events_of(edges: Edges, before_ns: int) -> Events:
    """Return one row per event, but an end right after its beginning shares the row."""
    since_ns = np.diff(edges.time_ns, prepend=before_ns)
    follows = np.zeros(len(edges.row), np.bool_)
    follows[1:] = edges.is_end[1:] & ~edges.is_end[:-1]
    at = np.flatnonzero(~follows)
    begins = ~edges.is_end[at]
    ended = np.append(follows, False)[at + 1]
    return Events(edges.row[at], since_ns[at], since_ns[at + ended], begins, ~begins | ended)


def _rows_of(column: bytes) -> Rows:
    return np.frombuffer(column, np.int64).astype(np.intp, copy=False)


def innermost(start_ns: Int64, end_ns: Int64, times_ns: Int64) -> Rows:
    """Return the innermost nested interval open at each timestamp, (m,) rows, -1 for none.

    An interval that starts at the timestamp is open, one that ends at it is not; an interval
    without length counts as open at its own time if nothing longer starts there.
    """
    rows_open = np.full(len(times_ns), -1, np.intp)
    if not len(start_ns) or not len(times_ns):
        return rows_open
    by_time = np.argsort(times_ns, kind="stable")
    ordered = times_ns[by_time]
    for rows in split_at_gaps(start_ns, end_ns):
        first = np.searchsorted(ordered, start_ns[rows[0]], side="left")
        stop = np.searchsorted(ordered, end_ns[rows].max(), side="right")
        if stop > first:
            asked = by_time[first:stop]
            at = _innermost(start_ns[rows], end_ns[rows], ordered[first:stop])
            rows_open[asked] = np.where(at >= 0, rows[at], rows_open[asked])
    return rows_open


def _innermost(start_ns: Int64, end_ns: Int64, times_ns: Int64) -> Rows:
    latest = latest_open(start_ns, end_ns, times_ns)
    points = np.flatnonzero(start_ns == end_ns)
    if len(points):
        at = np.searchsorted(start_ns[points], times_ns, side="right") - 1
        point = points[np.maximum(at, 0)]
        is_here = (at >= 0) & (start_ns[point] == times_ns)
        is_alone = (latest < 0) | (start_ns[latest] < times_ns)
        latest = np.where(is_here & is_alone, point, latest)
    return latest


def latest_open(start_ns: Int64, end_ns: Int64, times_ns: Int64) -> Rows:
    """Return the open interval at each timestamp that began last, (m,) rows, -1 for none.

    Intervals may cross if their times were rounded; of nested ones it is the innermost. Takes O(n
    log n), and without the compiled module more if intervals are nested deeper than that.
    """
    if not len(start_ns):
        return np.full(len(times_ns), -1, np.intp)
    order = _by_start(start_ns, end_ns)
    if order is not None:
        start_ns, end_ns = start_ns[order], end_ns[order]
    if _nesting is None:
        latest = _latest_by_searching(start_ns, end_ns, times_ns)
    else:
        latest = _latest_by_stack(start_ns, end_ns, times_ns)
    return latest if order is None else np.where(latest >= 0, order[latest], -1)


def _latest_by_stack(start_ns: Int64, end_ns: Int64, times_ns: Int64) -> Rows:
    assert _nesting is not None
    by_time = None
    if (times_ns[:-1] > times_ns[1:]).any():
        by_time = np.argsort(times_ns, kind="stable")
        times_ns = times_ns[by_time]
    columns = (column.tobytes() for column in (start_ns, end_ns, times_ns))
    latest = _rows_of(_nesting.latest_open(*columns))
    if by_time is None:
        return latest
    in_order = np.empty_like(latest)
    in_order[by_time] = latest
    return in_order


def _latest_by_searching(start_ns: Int64, end_ns: Int64, times_ns: Int64) -> Rows:
    reach_ns = np.maximum.accumulate(end_ns)
    before = _open_before(start_ns, end_ns, reach_ns)
    latest = np.searchsorted(start_ns, times_ns, side="right") - 1
    latest[(latest >= 0) & (reach_ns[latest] <= times_ns)] = -1
    closed = np.flatnonzero((latest >= 0) & (end_ns[latest] <= times_ns))
    while len(closed):
        at = before[latest[closed]]
        latest[closed] = at
        closed = closed[(at >= 0) & (end_ns[at] <= times_ns[closed])]
    return latest


def open_around(start_ns: Int64, end_ns: Int64) -> Rows:
    """Return the interval open at the start of each one that began last, (n,) rows, -1 for none.

    Intervals are in order of start, the outer one first, and may cross. The result is a tree: all
    intervals between one and the next that is not below it are below it.
    """
    if not len(start_ns):
        return np.empty(0, np.intp)
    if _nesting is not None:
        return _rows_of(_nesting.open_around(start_ns.tobytes(), end_ns.tobytes()))
    return _open_before(start_ns, end_ns, np.maximum.accumulate(end_ns))


def are_exceeded(start_ns: Int64, end_ns: Int64) -> Bool:
    """Return a mask of the intervals that end before one that begins while they run, (n,).

    Intervals are in order of start, the outer one first.
    """
    if _nesting is not None:
        mask = _nesting.are_exceeded(start_ns.tobytes(), end_ns.tobytes())
        return np.frombuffer(bytearray(mask), np.bool_)
    return _exceeded_by_searching(start_ns, end_ns)


def _exceeded_by_searching(start_ns: Int64, end_ns: Int64) -> Bool:
    exceeded = np.zeros(len(start_ns), np.bool_)
    behind = np.searchsorted(start_ns, end_ns, side="left")
    rows = np.flatnonzero(behind > np.arange(1, len(start_ns) + 1))
    # The last end of a run of intervals is that of two overlapping runs of 2^k intervals.
    power = np.frexp(behind[rows] - rows - 1)[1] - 1
    last_ns = end_ns
    for exponent in range(int(power.max(initial=-1)) + 1):
        width = 1 << exponent
        same = rows[power == exponent]
        reach_ns = np.maximum(last_ns[same + 1], last_ns[behind[same] - width])
        exceeded[same] = reach_ns > end_ns[same]
        last_ns = np.maximum(last_ns[:-width], last_ns[width:])
    return exceeded


def _open_before(start_ns: Int64, end_ns: Int64, reach_ns: Int64) -> Rows:
    """Return the last interval before each one that is open when it starts, -1 for none.

    Intervals are in order. All between an interval and its candidate have ended when it starts, so
    a candidate that has ended is replaced by its own candidate; the distance doubles each round.
    """
    open_row = np.arange(len(start_ns)) - 1
    open_row[1:][reach_ns[:-1] <= start_ns[1:]] = -1
    closed = np.flatnonzero((open_row >= 0) & (end_ns[open_row] <= start_ns))
    while len(closed):
        at = open_row[open_row[closed]]
        open_row[closed] = at
        closed = closed[(at >= 0) & (end_ns[at] <= start_ns[closed])]
    return open_row
