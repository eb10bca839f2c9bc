"""Codes of strings that columns use: how often each, and the number that each has in a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.columns.chunks import chunks
from timeline.columns.columns import Bool, Codes, Int64
from timeline.columns.distinct import DENSE, dense_range, distinct_values


@dataclass(frozen=True)
class UsedCodes:
    """The codes (k,) that columns use, and how often each is, (k,); codes ascend.

    Takes as much memory as is used, however many strings there are: a file may have as many short
    tracks as strings.
    """

    codes: Codes | Int64
    count: Int64

    @classmethod
    def of(cls, columns: Iterable[tuple[npt.NDArray[Any], Bool | None]]) -> UsedCodes:
        """Count the codes of some columns where they are present, everywhere if that is None."""
        parts = [
            _counted(codes[chunk] if present is None else codes[chunk][present[chunk]])
            for codes, present in columns
            for chunk in chunks(len(codes))
        ]
        if len(parts) == 1:
            return cls(*parts[0])
        every = np.concatenate([np.empty(0, np.int32), *(codes for codes, _ in parts)])
        found, which = distinct_values(every)
        count = np.zeros(len(found), np.int64)
        np.add.at(count, which, np.concatenate([count[:0], *(count for _, count in parts)]))
        return cls(found, count)


def _counted(codes: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Int64]:
    if (dense := dense_range(codes)) is None:
        found, count = np.unique(codes, return_counts=True)
        return found, count
    least, width = dense
    uses = np.bincount(codes - least, minlength=width)
    at = np.flatnonzero(uses)
    return at + least, uses[at]


class NumberOfCode:
    """The number of each code that is used, 0 of any other one."""

    def __init__(
        self, codes: Codes | Int64, numbers: Sequence[int], strings: int, rows: int
    ) -> None:
        """codes: ascending. strings: how many there are. rows: about to be asked for."""
        self._codes, self._numbers = codes, np.array(numbers, np.int64)
        self._table: Int64 | None = None
        if strings <= DENSE * rows:
            self._table = np.zeros(strings, np.int64)
            self._table[self._codes] = self._numbers

    def of(self, codes: npt.NDArray[Any]) -> Int64:
        """The numbers of codes (n,), (n,)."""
        if self._table is not None:
            found: Int64 = self._table.take(codes)
            return found
        if not len(self._codes):
            return np.zeros(len(codes), np.int64)
        at = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        return np.where(self._codes[at] == codes, self._numbers[at], 0)
