"""Groups of rows with equal keys, and reductions by group such as sums, extremes and quartiles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from timeline.columns.chunks import compute_in_chunks
from timeline.columns.columns import Bool, Codes, ColumnTable, Int64, Rows
from timeline.columns.constant import constant, is_constant
from timeline.columns.distinct import DENSE, are_first, dense_range, distinct_values, first_rows
from timeline.columns.spill import spillable

_Integer = TypeVar("_Integer", bound=np.integer[Any])
_Table = TypeVar("_Table", bound=ColumnTable)


@dataclass(frozen=True)
class GroupBy:
    """Rows (n,) by group; groups are in ascending order of their keys.

    group: (n,) the number of each row's group; first: (k,) the first row of each group.
    """

    group: Int64
    first: Rows

    def count(self) -> Int64:
        """Return the number of rows of each group, (k,)."""
        return np.bincount(self.group, minlength=len(self.first)).astype(np.int64)

    def sum(self, values: Int64) -> Int64:
        """Return the exact sum of the values (n,) of each group, (k,)."""
        return sum_by(self.group, values, len(self.first))

    def least(self, values: Int64) -> Int64:
        """Return the minimum of the values (n,) of each group, (k,)."""
        minima = np.full(len(self.first), np.iinfo(np.int64).max)
        np.minimum.at(minima, self.group, values)
        return minima

    def greatest(self, values: Int64) -> Int64:
        """Return the maximum of the values (n,) of each group, (k,)."""
        maxima = np.full(len(self.first), np.iinfo(np.int64).min)
        np.maximum.at(maxima, self.group, values)
        return maxima


def sum_by(group: npt.NDArray[np.integer[Any]], values: Int64, count: int) -> Int64:
    """Return the exact sum of values by group, (count,), given the number of each value's group.

    >>> sum_by(np.array([2, 0, 2]), np.array([5, 1, 7]), 3).tolist()
    [1, 0, 12]
    """
    sums = np.zeros(count, np.int64)
    np.add.at(sums, group, values)
    return sums


def group_by(count: int, keys: Iterable[Int64 | Codes]) -> GroupBy:
    """Group rows that are equal in all keys, (count,) each; without a key they are one group."""
    group = group_numbers(count, keys)
    if not count:
        return GroupBy(group, np.empty(0, np.intp))
    return GroupBy(group, first_rows(group, int(group.max()) + 1))


def sum_rows(
    table: _Table,
    keys: Iterable[str],
    sums: Iterable[str],
    *,
    least: Iterable[str] = (),
    greatest: Iterable[str] = (),
) -> tuple[_Table, Int64]:
    """Return one row for each combination of keys, ascending, and the group of each row, (n,).

    Args:
        keys, sums, least, greatest: names of columns. Others are as in the first row of each group.
    """
    columns = table.columns()
    values = [columns[name] for name in keys]
    groups = group_by(
        len(table), [np.asarray(one, np.int64) if one.dtype == bool else one for one in values]
    )
    reduced: dict[str, Any] = {name: groups.sum(columns[name]) for name in sums}
    reduced |= {name: groups.least(columns[name]) for name in least}
    reduced |= {name: groups.greatest(columns[name]) for name in greatest}
    return replace(table.take(groups.first), **reduced), groups.group


def group_numbers(count: int, keys: Iterable[Int64 | Codes]) -> Int64:
    """Return the number of each row's group, (n,), in ascending order of the keys."""
    number, _ = joined_keys(count, keys)
    return distinct_values(number)[1]


def joined_keys(count: int, keys: Iterable[Int64 | Codes]) -> tuple[Int64, int]:
    """Return a number per row, (n,), that ascends with the keys, and an upper bound.

    Some numbers may be unused. The bound is small enough for a table with an entry per number.
    """
    joined: Int64 = constant(0, count, np.int64)
    bound = 1
    for key in keys:
        if is_constant(key):
            continue
        number: Int64 | Codes | Rows = key
        if dense := dense_range(key):
            least, others = dense
        else:
            unique, number = distinct_values(key)
            least, others = 0, len(unique)
        if bound * others > DENSE * count:
            joined, bound = _renumbered(joined)
        append = partial(_append, others, least)
        joined = compute_in_chunks(np.int64, append, joined, number)
        bound *= others
    return _renumbered(joined) if bound > DENSE * count else (joined, bound)


def _append(others: int, least: int, joined: Int64, number: Int64 | Codes | Rows) -> Int64:
    """Return numbers extended by another key with `others` values from `least` on."""
    appended = joined * others
    appended += number
    appended -= least
    return appended


def _renumbered(values: Int64) -> tuple[Int64, int]:
    """Return the position of each row's value among the distinct ones, and their number."""
    keys, which = distinct_values(values)
    return which, len(keys)


def count_turns(*keys: npt.NDArray[Any]) -> Int64:
    """Return the number of earlier rows with the same keys for each row, (n,).

    >>> count_turns(np.array([7, 3, 7])).tolist()
    [0, 0, 1]
    """
    order = np.lexsort(keys)
    opens = are_first(*(key[order] for key in keys))
    first = np.maximum.accumulate(np.where(opens, np.arange(len(order)), 0))
    turn = np.empty(len(order), np.int64)
    turn[order] = np.arange(len(order)) - first
    return turn


def rows_before(*keys: npt.NDArray[Any]) -> Rows:
    """Return for each row the last one before it with the same keys, (n,), -1 for none.

    >>> rows_before(np.array([7, 3, 7])).tolist()
    [-1, -1, 0]
    """
    order = np.lexsort(keys)
    before = np.full(len(order), -1, np.intp)
    same = np.flatnonzero(~are_first(*(key[order] for key in keys))[1:])
    before[order[same + 1]] = order[same]
    return before


@dataclass(frozen=True)
class GroupRuns:
    """Rows (n,) sorted by group, so that each group is a run and reductions are fast.

    order: (n,) the rows in that order, None if they are sorted already. first: (k,) offset of each
    group in the order. members: (k,) number of rows of each group.
    """

    order: Rows | None
    first: Rows
    members: Int64

    @classmethod
    def of(cls, group: Int64) -> GroupRuns:
        """Sort rows by group number; there is at least one row, and every number occurs."""
        in_order = bool((group[1:] >= group[:-1]).all())
        order = None if in_order else np.argsort(group, kind="stable")
        ordered = group if order is None else group[order]
        first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        return cls(order, first, np.diff(np.append(first, len(group))))

    @property
    def count(self) -> int:
        """Return the number of groups."""
        return len(self.first)

    def least(self, values: Int64) -> Int64:
        """Return the minimum of the values (n,) of each group, (k,)."""
        minima: Int64 = self._reduce(np.minimum, values)
        return minima

    def greatest(self, values: Int64) -> Int64:
        """Return the maximum of the values (n,) of each group, (k,)."""
        maxima: Int64 = self._reduce(np.maximum, values)
        return maxima

    def sum(self, values: Int64) -> Int64:
        """Return the exact sum of the values (n,) of each group, (k,)."""
        if is_constant(values):
            return spillable(self.members * values[0])
        sums: Int64 = self._reduce(np.add, values)
        return sums

    def any(self, values: Bool) -> Bool:
        """Return a mask of the groups with any true value (n,), (k,)."""
        mask: Bool = self._reduce(np.logical_or, values)
        return mask

    def single(self, values: Int64, otherwise: int) -> Int64:
        """Return the value of each group of one row, and `otherwise` for larger groups; (k,)."""
        first = self._ordered(values)[self.first]
        return spillable(np.where(self.members == 1, first, otherwise))

    def _reduce(self, function: np.ufunc, values: Any) -> Any:
        return spillable(function.reduceat(self._ordered(values), self.first))

    def _ordered(self, values: Any) -> Any:
        return values if self.order is None else values[self.order]

    def stretches(self, least_rows: int) -> Iterator[slice]:
        """Yield slices of consecutive groups with about `least_rows` rows each."""
        last = 0
        while last < self.count:
            after = int(np.searchsorted(self.first, self.first[last] + least_rows))
            first, last = last, max(after, last + 1)
            yield slice(first, last)

    def rows(self, groups: slice) -> Rows:
        """Return the rows of consecutive groups."""
        first = self.first[groups.start]
        stop = first + int(self.members[groups].sum())
        return np.arange(first, stop) if self.order is None else self.order[first:stop]


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
    count = np.bincount(group, minlength=groups).astype(np.int64)
    ordered_group = np.repeat(np.arange(groups), count)
    least = int(values.min(initial=0))
    width = int(values.max(initial=0)) - least + 1
    if width * groups < 1 << 63:  # sorting numbers is ten times faster than sorting rows
        ordered = np.sort(group * width + (values - least)) - (ordered_group * width - least)
    else:
        ordered = values[np.lexsort((values, group))]
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
