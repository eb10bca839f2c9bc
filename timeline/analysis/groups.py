"""Turns rows with equal keys into groups, and their values into one for each group."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from timeline.records.columns import Codes, Int64, Rows

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
        own = _dense(key)
        group = _dense(group * (int(own.max()) + 1) + own)
    first = np.zeros(int(group.max()) + 1, np.intp)
    first[group[::-1]] = np.arange(count)[::-1]
    return Groups(group, first)


def _dense(keys: Int64 | Codes) -> Int64:
    """Keys numbered from 0 without gaps; small keys need no sorting."""
    bound = int(keys.max()) + 1
    if bound > 4 * len(keys) + (1 << 16):
        numbered: Int64 = np.unique(keys, return_inverse=True)[1].reshape(-1)
        return numbered
    number = np.zeros(bound, np.int64)
    number[keys] = 1
    dense: Int64 = (np.cumsum(number) - 1)[keys]
    return dense
