"""Numbers for values, in the order in which they are first seen."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from itertools import islice
from typing import TypeVar

import numpy as np

from timeline.columns.columns import Int64

_Key = TypeVar("_Key", bound=Hashable)

NUMBERED_AT_ONCE = 1 << 14
"""Number of values processed at a time, to limit memory."""


class Interner(dict[_Key, int]):
    """Number of each value; an unknown value gets the next number on access."""

    first = 0
    """Number of the first value."""

    def __missing__(self, value: _Key) -> int:
        self[value] = number = self.first + len(self)
        return number

    def number(self, values: Iterable[_Key]) -> list[_Key]:
        """Assign the next numbers to the new ones among many values, and return those.

        This is three times as fast as looking up one after the other.
        """
        every, values = list[_Key](), iter(values)
        while some := list(islice(values, NUMBERED_AT_ONCE)):
            fresh = self._without_number(some)
            number = self.first + len(self)
            self.update(zip(fresh, range(number, number + len(fresh)), strict=True))
            every += fresh
        return every

    def _without_number(self, values: Iterable[_Key]) -> list[_Key]:
        """Return the values that would get a new number, each once."""
        return [value for value in dict.fromkeys(values) if value not in self]

    def of(self, values: Collection[_Key]) -> Int64:
        """Return the numbers of many values, (n,) int64."""
        self.number(values)
        return np.fromiter(map(self.__getitem__, values), np.int64, len(values))
