"""Numbers for values, in the order in which the values are first seen."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import TypeVar

import numpy as np

from timeline.columns.columns import Int64

__all__ = ["Interner"]

_Key = TypeVar("_Key", bound=Hashable)


class Interner(dict[_Key, int]):
    """The number of each value; a value that is asked for the first time gets the next number."""

    def __missing__(self, value: _Key) -> int:
        self[value] = number = len(self)
        return number

    def of(self, values: Collection[_Key]) -> Int64:
        """The numbers of many values, (n,) int64."""
        return np.fromiter(map(self.__getitem__, values), np.int64, len(values))
