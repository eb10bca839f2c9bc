"""Groups of rows whose keys are equal: their numbers, first rows, sums and extremes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Codes, Int64, Rows
from timeline.columns.constant import is_constant
from timeline.columns.distinct import distinct_values

__all__ = ["Groups", "group_numbers", "groups_of", "turns_of"]

_Integer = TypeVar("_Integer", bound=np.integer[Any])


@dataclass(frozen=True)
class Groups:
    """Rows (n,) by group, in ascending order of their keys.

    group: (n,) the number of each row's group; first: (k,) the first row of each group.
    """

    group: Int64
    first: Rows

    def sums(self, values: Int64) -> Int64:
        """The sum of the values of each group, exact."""
        made = np.zeros(len(self.first), np.int64)
        np.add.at(made, self.group, values)
        return made

    def least(self, values: Int64) -> Int64:
        """The least value of each group."""
        made = np.full(len(self.first), np.iinfo(np.int64).max)
        np.minimum.at(made, self.group, values)
        return made

    def most(self, values: Int64) -> Int64:
        """The greatest value of each group."""
        made = np.full(len(self.first), np.iinfo(np.int64).min)
        np.maximum.at(made, self.group, values)
        return made


def groups_of(count: int, keys: Iterable[Int64 | Codes]) -> Groups:
    """The groups of so many rows, which are one group without a key."""
    group = group_numbers(count, keys)
    if not count:
        return Groups(group, np.empty(0, np.intp))
    return Groups(group, _first_rows(group, int(group.max()) + 1))


def group_numbers(count: int, keys: Iterable[Int64 | Codes]) -> Int64:
    """The number of each row's group, (n,), in ascending order of the keys."""
    group = np.zeros(count, np.int64)
    for key in keys:
        if not is_constant(key):
            found, place = distinct_values(key)
            _, group = distinct_values(group * len(found) + place)
    return group


def turns_of(
    values: npt.NDArray[_Integer],
) -> tuple[npt.NDArray[_Integer], npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """The distinct values, ascending; the place of each row's among them; and the turn of each.

    The turn of a value is its number in the order of first rows.

    >>> found, which, turn = turns_of(np.array([7, 3, 7]))
    >>> found.tolist(), which.tolist(), turn.tolist()
    ([3, 7], [1, 0, 1], [1, 0])
    """
    found, which = distinct_values(values)
    turn = np.empty(len(found), np.intp)
    turn[np.argsort(_first_rows(which, len(found)))] = np.arange(len(found))
    return found, which, turn


def _first_rows(group: Rows | Int64, groups: int) -> Rows:
    first = np.zeros(groups, np.intp)
    first[group[::-1]] = np.arange(len(group))[::-1]
    return first
