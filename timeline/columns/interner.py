"""Numbers for values, in the order in which the values are first seen."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from itertools import islice
from typing import TypeVar

import numpy as np

from timeline.columns.columns import Int64

_Key = TypeVar("_Key", bound=Hashable)

NUMBERED_AT_ONCE = 1 << 14
"""Values that are looked at together, so that what that takes stays small."""


class Interner(dict[_Key, int]):
    """The number of each value; a value that is asked for the first time gets the next number."""

    first = 0
    """The number of the first value."""

    def __missing__(self, value: _Key) -> int:
        self[value] = number = self.first + len(self)
        return number

    def number(self, values: Iterable[_Key]) -> list[_Key]:
        """Give the next numbers to those of many values that have none, and tell which those are.

        To ask for one after the other takes three times as long.
        """
        every, values = list[_Key](), iter(values)
        while some := list(islice(values, NUMBERED_AT_ONCE)):
            fresh = self._without_number(some)
            number = self.first + len(self)
            self.update(zip(fresh, range(number, number + len(fresh)), strict=True))
            every += fresh
        return every

    def _without_number(self, values: Iterable[_Key]) -> list[_Key]:
        """Those of many values that get one when they are asked for, each once."""
        return [value for value in dict.fromkeys(values) if value not in self]

    def of(self, values: Collection[_Key]) -> Int64:
        """The numbers of many values, (n,) int64."""
        self.number(values)
        return np.fromiter(map(self.__getitem__, values), np.int64, len(values))
