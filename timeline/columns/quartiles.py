"""Quartiles and standard deviations of values by group, exact and without a loop."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timeline.columns.columns import Int64


@dataclass(frozen=True)
class Quartiles:
    """Quartiles and standard deviation of all values of a group, one row per group, (k,) each.

    They are rounded to whole numbers. count: number of values; if it is 0, the rest is 0 too and
    has no meaning.
    """

    count: Int64
    first: Int64
    median: Int64
    third: Int64
    deviation: Int64


def quartiles_by_group(group: Int64, values: Int64, groups: int) -> Quartiles:
    """Return the quartiles by group, interpolated between neighbours like `numpy.quantile`.

    Args:
        group: (n,) the number of each value's group, below `groups`; in any order.
        values: (n,) int64.

    >>> found = quartiles_by_group(np.array([0, 0, 0, 1]), np.array([4, 0, 2, 7]), 2)
    >>> found.first.tolist(), found.median.tolist(), found.deviation.tolist()
    ([1, 7], [2, 7], [2, 0])
    """
    order = np.lexsort((values, group))
    ordered, ordered_group = values[order], group[order]
    count = np.bincount(ordered_group, minlength=groups).astype(np.int64)
    first = np.cumsum(count) - count
    low, middle, high = (_quartile(ordered, first, count, which) for which in (1, 2, 3))
    return Quartiles(count, low, middle, high, _deviation(ordered, ordered_group, count))


def _quartile(ordered: Int64, first: Int64, count: Int64, which: int) -> Int64:
    quartile = np.zeros(len(count), np.int64)
    some = np.flatnonzero(count)
    below, quarters = np.divmod((count[some] - 1) * which, 4)
    low = ordered[first[some] + below]
    high = ordered[first[some] + np.minimum(below + 1, count[some] - 1)]
    quartile[some] = low + ((high - low) * quarters + 2) // 4
    return quartile


def _deviation(ordered: Int64, group: Int64, count: Int64) -> Int64:
    """Return the standard deviation of each group.

    It is computed from differences to integer means, since the squares of times exceed a float.
    """
    divisor = np.maximum(count, 1)
    sums = np.zeros(len(count), np.int64)
    np.add.at(sums, group, ordered)
    mean = sums // divisor
    off = (ordered - mean[group]).astype(np.float64)
    square = np.bincount(group, off * off, len(count)) / divisor
    rest = (sums - mean * divisor) / divisor
    return np.round(np.sqrt(np.maximum(square - rest * rest, 0))).astype(np.int64)
