"""Lanes for slices that overlap: as few as possible, none of whose slices cross."""

from __future__ import annotations

import heapq

import numpy as np

from timeline.columns.columns import Bool, Int64, Rows
from timeline.columns.nesting import split_at_gaps

__all__ = ["flat_lanes", "nested_lanes", "rows_by_lane"]

SHORT_RUN = 32
"""Runs of up to so many slices are worked on together with others, longer ones one by one."""
RUNS_AT_ONCE = 1 << 14
"""Short runs that are worked on together."""
FOREVER_NS = 1 << 64
"""Later than any end."""


def flat_lanes(start_ns: Int64, end_ns: Int64) -> Int64:
    """Assign each slice the lowest lane that is free when it starts.

    Tasks of a stream have no parent or child, but Perfetto nests what overlaps on one track and
    swaps the durations of what crosses, without any error (google/perfetto#4280). A lane holds
    disjoint slices only.

    Args:
        start_ns: (n,) int64, ascending; equal starts in ascending order of end_ns.
        end_ns: (n,) int64.

    Returns:
        (n,) int64 lane per slice, dense from 0.

    >>> flat_lanes(np.array([0, 420, 680]), np.array([680, 900, 700])).tolist()
    [0, 1, 0]
    """
    lane = np.zeros(len(start_ns), np.int64)
    if not len(start_ns):
        return lane
    reach_ns = np.maximum.accumulate(end_ns)
    crowded = np.zeros(len(start_ns), np.bool_)
    crowded[1:] = start_ns[1:] < reach_ns[:-1]
    if not crowded.any():
        return lane
    # Only runs of slices that touch an earlier one need care; each run begins with a free one.
    member = crowded.copy()
    member[:-1] |= crowded[1:]
    rows = np.flatnonzero(member)
    first = np.flatnonzero(~crowded[rows])
    length = np.diff(np.append(first, len(rows)))
    short = np.flatnonzero(length <= SHORT_RUN)
    for at in range(0, len(short), RUNS_AT_ONCE):
        some = short[at : at + RUNS_AT_ONCE]
        _fill_runs(lane, start_ns, end_ns, rows[first[some]], length[some])
    long = length > SHORT_RUN
    for begin, count in zip(first[long].tolist(), length[long].tolist(), strict=True):
        _fill_run(lane, start_ns, end_ns, rows[begin : begin + count])
    return lane


def _fill_runs(lane: Int64, start_ns: Int64, end_ns: Int64, first: Rows, length: Int64) -> None:
    """Lanes of many short runs: the first slices of all, then the second ones, and so on."""
    order = np.argsort(-length, kind="stable")
    first, length = first[order], length[order]
    # A run of n slices needs n lanes at most; none is busy before the first of its slices.
    busy_until = np.full((len(first), int(length.max(initial=0))), np.iinfo(np.int64).min)
    for turn in range(busy_until.shape[1]):
        runs = int(np.searchsorted(-length, -turn, side="left"))
        row = first[:runs] + turn
        free = busy_until[:runs, : turn + 1] <= start_ns[row][:, None]
        taken = free.argmax(axis=1)
        busy_until[np.arange(runs), taken] = end_ns[row]
        lane[row] = taken


def _fill_run(lane: Int64, start_ns: Int64, end_ns: Int64, rows: Rows) -> None:
    """Lanes of one run."""
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    for row, begin, end in zip(
        rows.tolist(), start_ns[rows].tolist(), end_ns[rows].tolist(), strict=True
    ):
        while busy and busy[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(busy)[1])
        taken = heapq.heappop(free) if free else len(busy)
        lane[row] = taken
        heapq.heappush(busy, (end, taken))


def nested_lanes(start_ns: Int64, end_ns: Int64) -> Int64:
    """Assign each slice the lowest lane in which it crosses nothing; nesting is allowed.

    Call stacks nest, and then there is one lane. Where a call crosses another (a profiler's step
    that ends inside a function), it moves to the next lane with all its length.

    Args:
        start_ns, end_ns: (n,) int64, in any order.

    Returns:
        (n,) int64 lane per slice, dense from 0.
    """
    lane = np.zeros(len(start_ns), np.int64)
    for rows in split_at_gaps(start_ns, end_ns):
        # A slice that crosses none changes nothing for others, and there are few that do.
        left = rows[_in_a_crossing(start_ns[rows], end_ns[rows])]
        while len(left := left[_crossing(start_ns[left], end_ns[left])]):
            lane[left] += 1
    return lane


def _in_a_crossing(start_ns: Int64, end_ns: Int64) -> Bool:
    """Which slices cross any other one; they are in order of start, the outer one first."""
    found = _cross_later_ones(start_ns, end_ns)
    if found.any():
        # Seen backwards in time, the later one of two that cross is the earlier one.
        back = np.lexsort((start_ns, -end_ns))
        found[back] |= _cross_later_ones(-end_ns[back], -start_ns[back])
    return found


def _cross_later_ones(start_ns: Int64, end_ns: Int64) -> Bool:
    """Which slices end before one does that begins while they run; in the same order."""
    found = np.zeros(len(start_ns), np.bool_)
    behind = np.searchsorted(start_ns, end_ns, side="left")
    rows = np.flatnonzero(behind > np.arange(1, len(start_ns) + 1))
    # The last end of any number of slices in a row is that of two powers of two of them.
    power = np.frexp(behind[rows] - rows - 1)[1] - 1
    last_ns = end_ns
    for exponent in range(int(power.max(initial=-1)) + 1):
        width = 1 << exponent
        same = rows[power == exponent]
        reach_ns = np.maximum(last_ns[same + 1], last_ns[behind[same] - width])
        found[same] = reach_ns > end_ns[same]
        last_ns = np.maximum(last_ns[:-width], last_ns[width:])
    return found


def _crossing(start_ns: Int64, end_ns: Int64) -> list[int]:
    """Slices that cross one before them, those aside that do so too; in the same order."""
    crossing = []
    stack = [FOREVER_NS]
    for row, (begin, end) in enumerate(zip(start_ns.tolist(), end_ns.tolist(), strict=True)):
        while stack[-1] <= begin:
            stack.pop()
        if end <= stack[-1]:
            stack.append(end)
        else:
            crossing.append(row)
    return crossing


def rows_by_lane(rows: Rows, lane: Int64) -> list[Rows]:
    """The rows of each lane, in their own order; those of one lane where there are none."""
    most = int(lane.max(initial=0))
    return [rows[lane == number] for number in range(most + 1)] if most else [rows]
