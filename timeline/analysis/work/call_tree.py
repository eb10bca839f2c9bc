"""Calls of a program as one tree by time alone, whatever threads they ran on."""

from __future__ import annotations

from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Columnar, Int64, Rows, sort_rows
from timeline.columns.nesting import latest_open, open_around
from timeline.frozen import dataclass

__all__ = ["NO_CALL", "CallTree"]

NO_CALL = -1
"""The place of a call that is not there."""
_Value = TypeVar("_Value", bound=np.generic)


@dataclass(frozen=True)
class CallTree(Columnar):
    """Calls (n,) in order of their beginning, of those that begin together the longest first.

    Each hangs below the call that began last of those that have not ended when it begins. Other
    threads count like its own: the autograd engine's calls lie below the one that waits for them.

    row: what each call is a row of; parent: (n,) places in this order, NO_CALL for none.
    """

    row: Rows
    start_ns: Int64
    end_ns: Int64
    parent: Rows

    @classmethod
    def of(cls, row: Rows, start_ns: Int64, end_ns: Int64) -> CallTree:
        """The tree of calls that are given in any order, (n,) each."""
        order = sort_rows(start_ns, -end_ns)
        start_ns, end_ns = start_ns[order], end_ns[order]
        return cls(row[order], start_ns, end_ns, open_around(start_ns, end_ns))

    def __len__(self) -> int:
        return len(self.row)

    def open_at(self, moments_ns: Int64) -> Rows:
        """The call that began last of those that are open at each moment, NO_CALL for none."""
        return latest_open(self.start_ns, self.end_ns, moments_ns)

    @cached_property
    def place_of_row(self) -> tuple[Rows, Rows]:
        """The rows in ascending order, and the place of each."""
        order = np.argsort(self.row)
        return self.row[order], order

    def places(self, rows: Rows | Int64) -> Rows:
        """The place of the call that is each row, NO_CALL where it is none."""
        ordered, place = self.place_of_row
        if not len(ordered):
            return np.full(len(rows), NO_CALL, np.intp)
        at = np.minimum(np.searchsorted(ordered, rows), len(ordered) - 1)
        return np.where(ordered[at] == rows, place[at], NO_CALL)

    @cached_property
    def levels(self) -> list[Rows]:
        """The places of each depth, the outermost first."""
        depth, above = np.zeros(len(self), np.int64), self.parent.copy()
        depth[above != NO_CALL] = 1
        # What lies around is passed twice as far each time, so that deep trees take few rounds.
        open_rows = np.flatnonzero(above != NO_CALL)
        while len(open_rows):
            around = above[open_rows]
            depth[open_rows] += depth[around]
            above[open_rows] = above[around]
            open_rows = open_rows[above[open_rows] != NO_CALL]
        order = np.argsort(depth, kind="stable")
        ends = np.cumsum(np.bincount(depth)) if len(depth) else np.empty(0, np.int64)
        return np.split(order, ends[:-1]) if len(depth) else []

    def totals(self, values: Int64) -> Int64:
        """The sum of the values (n,) of each call and all that are below it."""
        found = values.copy()
        for level in reversed(self.levels[1:]):
            np.add.at(found, self.parent[level], found[level])
        return found

    def inherited(self, values: npt.NDArray[_Value], none: int) -> npt.NDArray[_Value]:
        """The value (n,) of each call, or of the nearest one around it that has one."""
        found = values.copy()
        for level in self.levels[1:]:
            lacking = level[found[level] == none]
            found[lacking] = found[self.parent[lacking]]
        return found
