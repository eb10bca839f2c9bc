"""ItemRuns: runs of items each of which waited for the one just before it, as nearly all do."""

from __future__ import annotations

import numpy as np

from timeline.columns.columns import Bool, Codes, Int64, Rows
from timeline.records.not_given import NO_ID, NO_TIME

__all__ = ["ItemRuns"]


class ItemRuns:
    """Items (n,), each of which waited for one of an earlier row or for none, in runs (k,).

    What is asked of all items that lead to one is worked out run by run, of which there are few;
    within runs it is a matter of columns.
    """

    def __init__(self, before: Codes) -> None:
        """before: (n,) the row that each item waited for, NO_ID for none."""
        begins = before != np.arange(-1, len(before) - 1)
        begins[:1] = True
        self._first = np.flatnonzero(begins)
        self._last = np.append(self._first, len(before))[1:] - 1
        self._run = np.cumsum(begins) - 1
        """(n,) the run of each item."""
        self._before = before[self._first]
        """(k,) the row that the first item of each run waited for."""
        self._waits = self._before != NO_ID
        self._run_before = np.where(self._waits, self._run[self._before], NO_ID)
        """(k,) the run of that row."""

    def leading_to(self, reached: Bool) -> Bool:
        """The items that are reached, and all that lead to them, (n,)."""
        rows = np.flatnonzero(reached)
        last = np.full(len(self._first), NO_ID)
        # Of several rows of a run the last one stays.
        last[self._run[rows]] = rows
        upto, before = last.tolist(), self._before.tolist()
        run_before = self._run_before.tolist()
        for run in range(len(upto) - 1, -1, -1):
            if upto[run] != NO_ID and before[run] != NO_ID:
                upto[run_before[run]] = max(upto[run_before[run]], before[run])
        found: Bool = np.arange(len(self._run)) <= np.array(upto, np.intp)[self._run]
        return found

    def sum_at(self, values: Int64, rows: Rows | Codes) -> Int64:
        """The sum over each of some rows and all that lead to it, but not over the first of them.

        values: (n,); those that lead to one item must not add up to more than 64 bits hold. All of
        them may: what overflows is taken off again.
        """
        upto = np.cumsum(values)
        within = upto[self._before] - upto[self._first[self._run_before]]
        gained = np.where(self._waits, within + values[self._first], 0)
        sums = list[int]()
        for run_before, gain in zip(self._run_before.tolist(), gained.tolist(), strict=True):
            sums.append(sums[run_before] + gain if run_before != NO_ID else 0)
        run = self._run[rows]
        found: Int64 = np.array(sums, np.int64)[run] + (upto[rows] - upto[self._first[run]])
        return found

    def first_after(self, ends_ns: Int64, rows: Rows, since_ns: Int64) -> Rows:
        """The first of those that lead to each of some rows and end after a moment, or the row.

        Args:
            ends_ns: (n,); no item ends before one that leads to it.
            since_ns: the moment for each of the rows.
        """
        run = self._first_run_after(ends_ns, rows, since_ns)
        low = self._first[run]
        high = np.where(run == self._run[rows], rows, self._last[run])
        while (low < high).any():
            middle = (low + high) // 2
            after = ends_ns[middle] > since_ns
            high = np.where(after, middle, high)
            low = np.where(after, low, np.minimum(middle + 1, high))
        return high

    def _first_run_after(self, ends_ns: Int64, rows: Rows, since_ns: Int64) -> Rows:
        """The run that holds it.

        Jumps to far runs, as of a skip list, find it in a time that grows with the logarithm of
        their number.
        """
        found = self._run[rows]
        # When the item ends at which a path comes to the run before.
        came_ns = np.where(self._waits, ends_ns[self._before], NO_TIME)
        far = np.flatnonzero(came_ns[found] > since_ns)
        if not len(far):
            return found
        before, before_ns = self._run_before.tolist(), came_ns.tolist()
        depth, jump, jump_ns = list[int](), list[int](), list[int]()
        for run, one in enumerate(before):
            if one == NO_ID:
                depth.append(0)
                jump.append(run)
                jump_ns.append(NO_TIME)
                continue
            other = jump[one]
            even = 0 < depth[one] - depth[other] == depth[other] - depth[jump[other]]
            depth.append(depth[one] + 1)
            jump.append(jump[other] if even else one)
            jump_ns.append(jump_ns[other] if even else before_ns[run])
        for place, since in zip(far.tolist(), since_ns[far].tolist(), strict=True):
            run = int(found[place])
            while before_ns[run] > since:
                run = jump[run] if jump_ns[run] > since else before[run]
            found[place] = run
        return found
