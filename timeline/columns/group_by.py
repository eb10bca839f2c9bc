"""Turns rows with equal keys into groups, and their values into one for each group."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from timeline.columns.columns import Codes, Int64, Rows
from timeline.columns.distinct import distinct_values

__all__ = ["Groups", "groups_of"]


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
    """The groups of so many rows; none of the keys is negative."""
    group = np.zeros(count, np.int64)
    if not count:
        return Groups(group, np.empty(0, np.intp))
    for key in keys:
        _, own = distinct_values(key)
        _, group = distinct_values(group * (int(own.max()) + 1) + own)
    first = np.zeros(int(group.max()) + 1, np.intp)
    first[group[::-1]] = np.arange(count)[::-1]
    return Groups(group, first)
