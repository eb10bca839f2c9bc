"""Assignment of overlapping slices to lanes: few lanes, with no crossing slices in any."""

from __future__ import annotations

import heapq

import numpy as np

from timeline.columns.columns import Bool, Int64, Rows
from timeline.columns.distinct import rows_by_value
from timeline.columns.nesting import are_exceeded, split_at_gaps

SHORT_RUN = 32
"""Maximum length of runs of overlapping slices that are processed many at a time."""
RUNS_AT_ONCE = 1 << 14
"""Number of short runs processed at a time."""
FOREVER_NS = 1 << 64
"""Later than any end."""
DEEPEST = 512
"""Maximum number of slices in each other on a track: Perfetto never ends those further inside."""


def flat_lanes(start_ns: Int64, end_ns: Int64) -> Int64:
    """Assign each slice the lowest lane that is free when it starts.

    Tasks of a stream do not nest, but Perfetto nests slices that overlap on one track, and swaps
    the durations of crossing ones without any error (google/perfetto#4280). So a lane holds only
    disjoint slices.

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
    # Only runs of overlapping slices matter; the first slice of a run overlaps no earlier one.
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
    """Assign the lanes of many short runs: the first slices of all, then the second, and so on."""
    order = np.argsort(-length, kind="stable")
    first, length = first[order], length[order]
    # A run of n slices needs at most n lanes; none is busy before its first slice.
    busy_until = np.full((len(first), int(length.max(initial=0))), np.iinfo(np.int64).min)
    for turn in range(busy_until.shape[1]):
        runs = int(np.searchsorted(-length, -turn, side="left"))
        row = first[:runs] + turn
        free = busy_until[:runs, : turn + 1] <= start_ns[row][:, None]
        taken = free.argmax(axis=1)
        busy_until[np.arange(runs), taken] = end_ns[row]
        lane[row] = taken


def _fill_run(lane: Int64, start_ns: Int64, end_ns: Int64, rows: Rows) -> None:
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
    """Assign each slice the lowest lane in which it crosses nothing; slices may nest.

    Call stacks nest and take one lane. A call that crosses another, such as a profiler's step that
    ends inside a function, moves to the next lane as a whole. Stacks deeper than DEEPEST continue
    in lanes after all others.

    Args:
        start_ns, end_ns: (n,) int64, in any order.

    Returns:
        (n,) int64 lane per slice, dense from 0.
    """
    lane, depth = np.zeros((2, len(start_ns)), np.int64)
    for rows in split_at_gaps(start_ns, end_ns):
        # Slices that cross no other do not affect the result, and few slices cross.
        left = rows[_in_a_crossing(start_ns[rows], end_ns[rows])]
        lane[left] = _first_that_nest(start_ns[left], end_ns[left])
        if len(rows) > DEEPEST:
            for _, of_lane in rows_by_value(lane[rows]):
                nested = rows[of_lane]
                depth[nested] = _depth(start_ns[nested], end_ns[nested])
    if (depth >= DEEPEST).any():
        _, lane = np.unique(lane + depth // DEEPEST * (lane.max() + 1), return_inverse=True)
    return lane


def _depth(start_ns: Int64, end_ns: Int64) -> Int64:
    """Return the number of slices around each one, (n,); they nest, and are in order, outer first.

    A slice without length is around none.
    """
    has_length = start_ns < end_ns
    begun: Int64 = np.cumsum(has_length) - has_length
    return begun - np.searchsorted(np.sort(end_ns[has_length]), start_ns, side="right")


def _in_a_crossing(start_ns: Int64, end_ns: Int64) -> Bool:
    """Return a mask of slices that cross another one; they are in order of start, outer first."""
    crossing = are_exceeded(start_ns, end_ns)
    if crossing.any():
        # With time reversed, the later of two crossing slices is the earlier one.
        back = np.lexsort((start_ns, -end_ns))
        crossing[back] |= are_exceeded(-end_ns[back], -start_ns[back])
    return crossing


def _first_that_nest(start_ns: Int64, end_ns: Int64) -> list[int]:
    """Return for each slice, in order, the lowest lane with no open slice that ends before it."""
    lanes = []
    stacks: list[list[int]] = [[FOREVER_NS]]
    closing: list[tuple[int, int]] = []
    ends = _LaneEnds()
    for begin, end in zip(start_ns.tolist(), end_ns.tolist(), strict=True):
        while closing and closing[0][0] <= begin:
            closed = heapq.heappop(closing)[1]
            stacks[closed].pop()
            ends.set(closed, stacks[closed][-1])
        taken = ends.first_from(end)
        if taken == len(stacks):
            stacks.append([FOREVER_NS])
        stacks[taken].append(end)
        ends.set(taken, end)
        heapq.heappush(closing, (end, taken))
        lanes.append(taken)
    return lanes


class _LaneEnds:
    """End of the innermost open slice of each lane; the last lane is always free.

    A binary tree whose nodes hold the greater of two ends, so that lookup and update are
    logarithmic in the number of lanes.
    """

    def __init__(self) -> None:
        self._lanes = 1
        self._latest = [FOREVER_NS] * 2

    def first_from(self, end_ns: int) -> int:
        """Return the lowest lane that is free or whose open slice does not end before `end_ns`."""
        latest, lanes, at = self._latest, self._lanes, 1
        while at < lanes:
            at *= 2
            if latest[at] < end_ns:
                at += 1
        return at - lanes

    def set(self, lane: int, end_ns: int) -> None:
        """Set the end of the innermost open slice of a lane."""
        if lane == self._lanes - 1:
            self._double()
        latest, at = self._latest, lane + self._lanes
        latest[at] = end_ns
        while at > 1:
            at //= 2
            greater = max(latest[2 * at], latest[2 * at + 1])
            if latest[at] == greater:
                break
            latest[at] = greater

    def _double(self) -> None:
        """Double the number of lanes; the new ones are free."""
        latest, lanes = self._latest, self._lanes
        doubled = [FOREVER_NS] * (4 * lanes)
        first = 1
        while first <= lanes:
            # A level of the tree becomes the left half of the next one.
            doubled[2 * first : 3 * first] = latest[first : 2 * first]
            first *= 2
        self._latest, self._lanes = doubled, 2 * lanes


def rows_by_lane(rows: Rows, lane: Int64) -> list[Rows]:
    """Split rows by lane, keeping their order; one empty part if there are no rows."""
    order = np.argsort(lane, kind="stable")
    return np.split(rows[order], np.flatnonzero(np.diff(lane[order])) + 1)
