"""Groups of rows with equal keys, and one value for each group: a sum, an extreme."""

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
from timeline.columns.distinct import DENSE, are_first, dense_range, distinct_values
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
        """Return how many rows each group has, (k,)."""
        return np.bincount(self.group, minlength=len(self.first)).astype(np.int64)

    def sum(self, values: Int64) -> Int64:
        """The exact sum of the values (n,) of each group, (k,)."""
        made = np.zeros(len(self.first), np.int64)
        np.add.at(made, self.group, values)
        return made

    def least(self, values: Int64) -> Int64:
        """The least of the values (n,) of each group, (k,)."""
        made = np.full(len(self.first), np.iinfo(np.int64).max)
        np.minimum.at(made, self.group, values)
        return made

    def greatest(self, values: Int64) -> Int64:
        """The greatest of the values (n,) of each group, (k,)."""
        made = np.full(len(self.first), np.iinfo(np.int64).min)
        np.maximum.at(made, self.group, values)
        return made


def group_by(count: int, keys: Iterable[Int64 | Codes]) -> GroupBy:
    """Group rows that are equal in all keys, (count,) each; without a key they are one group."""
    group = group_numbers(count, keys)
    if not count:
        return GroupBy(group, np.empty(0, np.intp))
    return GroupBy(group, _first_rows(group, int(group.max()) + 1))


def sum_rows(
    table: _Table,
    keys: Iterable[str],
    sums: Iterable[str],
    *,
    least: Iterable[str] = (),
    greatest: Iterable[str] = (),
) -> tuple[_Table, Int64]:
    """Return one row for each combination of keys, ascending, and which one each row is in, (n,).

    Args:
        keys, sums, least, greatest: names of columns. Others are as in the first row of each.
    """
    columns = table.columns()
    values = [columns[name] for name in keys]
    groups = group_by(
        len(table), [np.asarray(one, np.int64) if one.dtype == bool else one for one in values]
    )
    made: dict[str, Any] = {name: groups.sum(columns[name]) for name in sums}
    made |= {name: groups.least(columns[name]) for name in least}
    made |= {name: groups.greatest(columns[name]) for name in greatest}
    return replace(table.take(groups.first), **made), groups.group


def group_numbers(count: int, keys: Iterable[Int64 | Codes]) -> Int64:
    """The number of each row's group, (n,), in ascending order of the keys."""
    number, _ = joined_keys(count, keys)
    return distinct_values(number)[1]


def joined_keys(count: int, keys: Iterable[Int64 | Codes]) -> tuple[Int64, int]:
    """A number per row, (n,), that ascends with the keys, and a bound of all; some may be unused.

    The bound is so small that a table with an entry for each number is small and fast.
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
            found, number = distinct_values(key)
            least, others = 0, len(found)
        if bound * others > DENSE * count:
            joined, bound = _renumbered(joined)
        append = partial(_append, others, least)
        joined = compute_in_chunks(np.int64, append, joined, number)
        bound *= others
    return _renumbered(joined) if bound > DENSE * count else (joined, bound)


def _append(others: int, least: int, joined: Int64, number: Int64 | Codes | Rows) -> Int64:
    """Numbers that tell one of so many others, from the least on, behind what they told before."""
    appended = joined * others
    appended += number
    appended -= least
    return appended


def _renumbered(values: Int64) -> tuple[Int64, int]:
    """Which of the distinct values each row holds, and how many those are."""
    found, which = distinct_values(values)
    return which, len(found)


def distinct_turns(
    values: npt.NDArray[_Integer],
) -> tuple[npt.NDArray[_Integer], npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """The distinct values, ascending; for each row, which of them it holds; and the turn of each.

    The turn of a value is its number in the order of first rows.

    >>> found, which, turn = distinct_turns(np.array([7, 3, 7]))
    >>> found.tolist(), which.tolist(), turn.tolist()
    ([3, 7], [1, 0, 1], [1, 0])
    """
    found, which = distinct_values(values)
    turn = np.empty(len(found), np.intp)
    turn[np.argsort(_first_rows(which, len(found)))] = np.arange(len(found))
    return found, which, turn


def count_turns(*keys: npt.NDArray[Any]) -> Int64:
    """Return how many rows with the same keys come before each row, (n,).

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


def _first_rows(group: Rows | Int64, groups: int) -> Rows:
    first = np.zeros(groups, np.intp)
    first[group[::-1]] = np.arange(len(group))[::-1]
    return first


@dataclass(frozen=True)
class GroupRuns:
    """Rows (n,) in order of their group, so that each group is a run: sums of it are fast.

    order: (n,) the rows in that order, None where they are in it; first: (k,) where each group
    begins in the order; members: (k,) how many rows it has.
    """

    order: Rows | None
    first: Rows
    members: Int64

    @classmethod
    def of(cls, group: Int64) -> GroupRuns:
        """Sort rows, given the number of each one's group: at least one, every number used."""
        in_order = bool((group[1:] >= group[:-1]).all())
        order = None if in_order else np.argsort(group, kind="stable")
        ordered = group if order is None else group[order]
        first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        return cls(order, first, np.diff(np.append(first, len(group))))

    @property
    def count(self) -> int:
        """How many groups there are."""
        return len(self.first)

    def least(self, values: Int64) -> Int64:
        """The least of the values (n,) of each group, (k,)."""
        found: Int64 = self._reduce(np.minimum, values)
        return found

    def greatest(self, values: Int64) -> Int64:
        """The greatest of the values (n,) of each group, (k,)."""
        found: Int64 = self._reduce(np.maximum, values)
        return found

    def sum(self, values: Int64) -> Int64:
        """The exact sum of the values (n,) of each group, (k,)."""
        if is_constant(values):
            return spillable(self.members * values[0])
        found: Int64 = self._reduce(np.add, values)
        return found

    def any(self, values: Bool) -> Bool:
        """Whether any of the values (n,) of each group is true, (k,)."""
        found: Bool = self._reduce(np.logical_or, values)
        return found

    def single(self, values: Int64, otherwise: int) -> Int64:
        """The value of each group of one row, and of groups of several another value; (k,)."""
        first = self._ordered(values)[self.first]
        return spillable(np.where(self.members == 1, first, otherwise))

    def _reduce(self, function: np.ufunc, values: Any) -> Any:
        return spillable(function.reduceat(self._ordered(values), self.first))

    def _ordered(self, values: Any) -> Any:
        return values if self.order is None else values[self.order]

    def stretches(self, least_rows: int) -> Iterator[slice]:
        """Groups that follow each other, in slices of about so many rows."""
        last = 0
        while last < self.count:
            after = int(np.searchsorted(self.first, self.first[last] + least_rows))
            first, last = last, max(after, last + 1)
            yield slice(first, last)

    def rows(self, groups: slice) -> Rows:
        """The rows of some groups that follow each other."""
        first = self.first[groups.start]
        stop = first + int(self.members[groups].sum())
        return np.arange(first, stop) if self.order is None else self.order[first:stop]
