"""Turns slices that overlap into lanes: as few as possible, none of whose slices cross."""

from __future__ import annotations

import heapq

import numpy as np

from timeline.records.columns import Int64, Rows
from timeline.records.nesting import edges_of

__all__ = ["flat_lanes", "nested_lanes", "rows_by_lane"]


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
    fresh = ~crowded[rows]
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    lanes = 0
    for row, begin, end, is_fresh in zip(
        rows.tolist(), start_ns[rows].tolist(), end_ns[rows].tolist(), fresh.tolist(), strict=True
    ):
        if is_fresh:
            free, busy, lanes = [], [], 0
        while busy and busy[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            taken = heapq.heappop(free)
        else:
            taken, lanes = lanes, lanes + 1
        lane[row] = taken
        heapq.heappush(busy, (end, taken))
    return lane


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
    if not len(start_ns) or edges_of(start_ns, end_ns).nested():
        return lane
    order = np.lexsort((-end_ns, start_ns))
    stacks: list[list[int]] = []
    for row, begin, end in zip(
        order.tolist(), start_ns[order].tolist(), end_ns[order].tolist(), strict=True
    ):
        lane[row] = _place(stacks, begin, end)
    return lane


def _place(stacks: list[list[int]], begin: int, end: int) -> int:
    for number, stack in enumerate(stacks):
        while stack and stack[-1] <= begin:
            stack.pop()
        if not stack or end <= stack[-1]:
            stack.append(end)
            return number
    stacks.append([end])
    return len(stacks) - 1


def rows_by_lane(lane: Int64) -> list[Rows]:
    """The rows of each lane, in row order."""
    return [np.flatnonzero(lane == number) for number in range(int(lane.max(initial=-1)) + 1)]
