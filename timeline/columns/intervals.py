"""Arithmetic of half-open intervals: union, difference, length, and lookup by time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timeline.columns.columns import Bool, Codes, Columnar, Int64, Rows, rows_of_runs, take
from timeline.columns.distinct import matched_rows

NEVER_NS = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class IntervalSet(Columnar):
    """Disjoint, non-touching, non-empty half-open intervals in ascending order.

    Both columns are (n,) int64 nanoseconds.
    """

    start_ns: Int64
    end_ns: Int64

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def total_ns(self) -> int:
        """Return the total length."""
        return int((self.end_ns - self.start_ns).sum())

    @property
    def span_ns(self) -> tuple[int, int] | None:
        """Return the first start and last end, None without intervals."""
        if not len(self):
            return None
        return int(self.start_ns[0]), int(self.end_ns[-1])


def union(start_ns: Int64, end_ns: Int64) -> IntervalSet:
    """Merge intervals that overlap or touch; empty ones disappear.

    Args:
        start_ns: (n,) int64, in any order.
        end_ns: (n,) int64, ``end_ns[i] >= start_ns[i]``.

    >>> merged = union(np.array([5, 0, 3]), np.array([9, 3, 4]))
    >>> merged.start_ns.tolist(), merged.end_ns.tolist()
    ([0, 5], [4, 9])
    """
    lasts = end_ns > start_ns
    if not lasts.all():
        start_ns, end_ns = start_ns[lasts], end_ns[lasts]
    if not len(start_ns):
        return IntervalSet(start_ns, end_ns)
    if not (start_ns[1:] >= start_ns[:-1]).all():
        order = np.argsort(start_ns, kind="stable")
        start_ns, end_ns = start_ns[order], end_ns[order]
        del order
    reach_ns = np.maximum.accumulate(end_ns)
    opens = np.empty(len(start_ns), np.bool_)
    opens[0] = True
    np.greater(start_ns[1:], reach_ns[:-1], out=opens[1:])
    closes = np.append(opens[1:], [True])
    return IntervalSet(take(start_ns, opens), take(reach_ns, closes))


def union_of_sets(left: IntervalSet, *others: IntervalSet) -> IntervalSet:
    """Return the time that any of the sets covers.

    >>> left, right = union(np.array([0]), np.array([4])), union(np.array([2]), np.array([9]))
    >>> both = union_of_sets(left, right)
    >>> both.start_ns.tolist(), both.end_ns.tolist()
    ([0], [9])
    """
    for right in others:
        if not len(left) or not len(right):
            left = right if len(right) else left
        else:
            left = union(
                np.concatenate([left.start_ns, right.start_ns]),
                np.concatenate([left.end_ns, right.end_ns]),
            )
    return left


def subtract(left: IntervalSet, right: IntervalSet) -> IntervalSet:
    """Return the part of `left` that `right` does not cover.

    >>> rest = subtract(union(np.array([0]), np.array([9])), union(np.array([2]), np.array([4])))
    >>> rest.start_ns.tolist(), rest.end_ns.tolist()
    ([0, 4], [2, 9])
    """
    if not len(left) or not len(right):
        return left
    first = np.searchsorted(right.end_ns, left.start_ns, side="right")
    count = np.searchsorted(right.start_ns, left.end_ns, side="left") - first
    if not count.any():
        return left
    # What remains of an interval is before, between and after those that it overlaps.
    last = np.cumsum(count + 1) - 1
    is_first, is_last = np.zeros((2, len(left) + int(count.sum())), np.bool_)
    is_first[last - count], is_last[last] = True, True
    met = rows_of_runs(first, count)
    start_ns, end_ns = np.empty((2, len(is_first)), np.int64)
    start_ns[is_first], start_ns[~is_first] = left.start_ns, right.end_ns[met]
    end_ns[is_last], end_ns[~is_last] = left.end_ns, right.start_ns[met]
    lasts = end_ns > start_ns
    return IntervalSet(start_ns[lasts], end_ns[lasts])


def intersect(left: IntervalSet, right: IntervalSet) -> IntervalSet:
    """Return the time that both sets cover."""
    return subtract(left, subtract(left, right))


def are_touching(start_ns: Int64, end_ns: Int64, intervals: IntervalSet) -> Bool:
    """Return a mask of intervals (n,), maybe empty ones, that share time with any of a set.

    >>> some = union(np.array([2, 8]), np.array([4, 9]))
    >>> are_touching(np.array([0, 0, 3, 4]), np.array([2, 3, 3, 9]), some).tolist()
    [False, True, True, True]
    """
    if not len(intervals):
        return np.zeros(len(start_ns), np.bool_)
    at = np.searchsorted(intervals.end_ns, start_ns, side="right")
    begins_ns = intervals.start_ns[np.minimum(at, len(intervals) - 1)]
    touching: Bool = (at < len(intervals)) & ((begins_ns < end_ns) | (begins_ns <= start_ns))
    return touching


def covered_until(intervals: IntervalSet, times_ns: Int64) -> Int64:
    """Return the time before each timestamp (n,) that the intervals cover, (n,).

    >>> covered_until(union(np.array([0, 5]), np.array([2, 9])), np.array([1, 4, 7])).tolist()
    [1, 2, 4]
    """
    if not len(intervals):
        return np.zeros(len(times_ns), np.int64)
    upto_ns = np.concatenate([[0], np.cumsum(intervals.end_ns - intervals.start_ns)])
    at = np.searchsorted(intervals.start_ns, times_ns, side="right")
    over_ns = np.where(at > 0, np.maximum(intervals.end_ns[at - 1] - times_ns, 0), 0)
    covered: Int64 = upto_ns[at] - over_ns
    return covered


def covered_between(intervals: IntervalSet, start_ns: Int64, end_ns: Int64) -> Int64:
    """Return the time in each period (n,) that the intervals cover; 0 if it ends before its start.

    >>> covered_between(union(np.array([0, 5]), np.array([2, 9])), np.array([1]), np.array([6]))
    array([2])
    """
    covered: Int64 = covered_until(intervals, np.maximum(start_ns, end_ns))
    return covered - covered_until(intervals, start_ns)


def reached_at(intervals: IntervalSet, covered_ns: Int64) -> Int64:
    """Return the time at which the intervals have covered each amount of time (n,).

    Each amount must be more than 0 and at most the total.

    >>> reached_at(union(np.array([0, 5]), np.array([2, 9])), np.array([1, 2, 4])).tolist()
    [1, 2, 7]
    """
    upto_ns = np.concatenate([[0], np.cumsum(intervals.end_ns - intervals.start_ns)])
    at = np.searchsorted(upto_ns, covered_ns, side="left") - 1
    time_ns: Int64 = intervals.start_ns[at] + covered_ns - upto_ns[at]
    return time_ns


def open_at(times_ns: Int64, start_ns: Int64, end_ns: Int64) -> Rows:
    """Return the half-open interval that began last at each timestamp, -1 if it has ended.

    Args:
        times_ns: (n,) int64, in any order.
        start_ns, end_ns: (k,) int64, in any order; they may overlap.

    Returns:
        rows: (n,) rows of the intervals; of several that begin together, the last row.

    >>> open_at(np.array([1, 4, 9]), np.array([0, 3]), np.array([8, 5])).tolist()
    [0, 1, -1]
    """
    if not len(start_ns):
        return np.full(len(times_ns), -1, np.intp)
    order = np.argsort(start_ns, kind="stable")
    at = np.searchsorted(start_ns[order], times_ns, side="right") - 1
    last = order[np.maximum(at, 0)]
    return np.where((at >= 0) & (times_ns < end_ns[last]), last, -1)


def open_at_by_key(
    key: Int64 | Codes,
    times_ns: Int64,
    interval_key: Int64 | Codes,
    start_ns: Int64,
    end_ns: Int64,
) -> Rows:
    """Return the row of `open_at` among the intervals with the key of each timestamp.

    Args:
        key, times_ns: (n,) in any order.
        interval_key, start_ns, end_ns: (k,) in any order.
    """
    rows_open = np.full(len(times_ns), -1, np.intp)
    for intervals, rows in matched_rows(interval_key, key):
        at = open_at(times_ns[rows], start_ns[intervals], end_ns[intervals])
        rows_open[rows] = np.where(at >= 0, intervals[at], -1)
    return rows_open


def first_open_at(times_ns: Int64, start_ns: Int64, end_ns: Int64) -> Rows:
    """Return the half-open interval that began first among those open at each timestamp.

    Args:
        times_ns: (n,) int64, in any order.
        start_ns, end_ns: (k,) int64, in any order; they may overlap.

    Returns:
        rows: (n,) rows of the intervals, -1 if none is open; of several that begin together, the
        first row.

    >>> first_open_at(np.array([1, 4, 9]), np.array([0, 3]), np.array([8, 5])).tolist()
    [0, 0, -1]
    """
    order = np.append(np.argsort(start_ns, kind="stable"), -1)
    begins_ns = start_ns[order[:-1]]
    reach_ns = np.maximum.accumulate(end_ns[order[:-1]])
    at = np.searchsorted(reach_ns, times_ns, side="right")
    return np.where(np.append(begins_ns, NEVER_NS)[at] <= times_ns, order[at], -1)


def cut_at(start_ns: Int64, end_ns: Int64, edges_ns: Int64) -> tuple[Rows, Int64, Int64]:
    """Cut intervals at all edges inside them.

    Args:
        start_ns, end_ns: (n,) none is empty.
        edges_ns: (k,) ascending, each once.

    Returns:
        The interval that each part belongs to, (m,) ascending, and the start and end of each part.

    >>> of, start_ns, end_ns = cut_at(np.array([0, 9]), np.array([4, 10]), np.array([1, 4, 9]))
    >>> of.tolist(), start_ns.tolist(), end_ns.tolist()
    ([0, 0, 1], [0, 1, 9], [1, 4, 10])
    """
    first = np.searchsorted(edges_ns, start_ns, side="right")
    count = np.maximum(np.searchsorted(edges_ns, end_ns, side="left") - first, 0)
    last = np.cumsum(count + 1) - 1
    is_first, is_last = np.zeros((2, len(start_ns) + int(count.sum())), np.bool_)
    is_first[last - count], is_last[last] = True, True
    edges = edges_ns[rows_of_runs(first, count)]
    begins_ns, stops_ns = np.empty((2, len(is_first)), np.int64)
    begins_ns[is_first], begins_ns[~is_first] = start_ns, edges
    stops_ns[is_last], stops_ns[~is_last] = end_ns, edges
    return np.repeat(np.arange(len(start_ns)), count + 1), begins_ns, stops_ns


def only_open_at(times_ns: Int64, start_ns: Int64, end_ns: Int64) -> tuple[Rows, Int64]:
    """Return the only half-open interval around each timestamp, and the number of open ones.

    Args:
        times_ns: (n,) int64, in any order.
        start_ns, end_ns: (k,) int64, in any order, ``end_ns[i] >= start_ns[i]``.

    Returns:
        rows: (n,) rows of the intervals, -1 if none or several are open.
        count: (n,) number of open intervals.

    >>> rows, count = only_open_at(np.array([1, 4, 9]), np.array([0, 3]), np.array([8, 5]))
    >>> rows.tolist(), count.tolist()
    ([0, -1, -1], [1, 2, 0])
    """
    by_start, by_end = np.argsort(start_ns), np.argsort(end_ns)
    begun = np.searchsorted(start_ns[by_start], times_ns, side="right")
    ended = np.searchsorted(end_ns[by_end], times_ns, side="right")
    # The sum of rows begun minus the sum of rows ended is the row of a single open interval.
    row_sums = np.cumsum(np.append(0, by_start))[begun] - np.cumsum(np.append(0, by_end))[ended]
    count = begun - ended
    return np.where(count == 1, row_sums, -1), count
