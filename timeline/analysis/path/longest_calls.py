"""Which call took most of stretches of host time, by name, in one pass over the calls."""

from __future__ import annotations

import numpy as np

from timeline.analysis.idle.innermost_calls import Calls, CallStretches, part_by_call
from timeline.columns.columns import Codes, Int64, Rows
from timeline.columns.distinct import distinct_values
from timeline.columns.strings import NO_NAME
from timeline.records.not_given import NO_ID

__all__ = ["longest_calls"]


def longest_calls(
    calls: Calls, names: Codes, since_ns: Int64, until_ns: Int64
) -> tuple[Codes, Int64]:
    """The name of the innermost calls that took most of each stretch, and how long they took.

    Any two stretches begin together or share no time, so that all that begin together are answered
    on the way through the longest of them: O(n log n) however many there are.

    Args:
        calls: those of one thread.
        names: (calls of the host,) where `row` of a call finds its name.
        since_ns, until_ns: (n,) the stretches, none empty.

    Returns:
        name: (n,) NO_NAME where no call is open; total_ns: (n,).
    """
    begins_ns, stretch = distinct_values(since_ns)
    ends_ns = np.full(len(begins_ns), np.iinfo(np.int64).min)
    np.maximum.at(ends_ns, stretch, until_ns)
    totals = _Totals(int(names.max(initial=0)) + 1, len(since_ns))
    # NO_ID, which is -1, picks the NO_NAME at the end.
    named = np.append(names, np.int32(NO_NAME))
    order = np.lexsort((until_ns, stretch))
    asked = _Asked(order, stretch[order], until_ns[order])
    for window in part_by_call(calls, begins_ns, ends_ns):
        totals.add(window.stretches, named, asked)
    return totals.name, totals.total_ns


class _Asked:
    """The stretches in order of time: where each is, what it is the beginning of, and its end."""

    def __init__(self, place: Rows, stretch: Rows, until_ns: Int64) -> None:
        self.place, self.stretch, self.until_ns = place, stretch, until_ns

    def in_parts(self, parts: CallStretches) -> tuple[Rows, Rows]:
        """The stretches that end in some parts, and the part in which each does."""
        first = np.searchsorted(self.until_ns, parts.start_ns[0], side="right")
        stop = np.searchsorted(self.until_ns, parts.end_ns[-1], side="right")
        rows = np.arange(first, stop)
        return rows, np.searchsorted(parts.start_ns, self.until_ns[rows], side="left") - 1


class _Totals:
    """What calls of each name took since the beginning of the stretch that is gone through.

    name, total_ns: the answers so far.
    """

    def __init__(self, names: int, count: int) -> None:
        self.name = np.full(count, NO_NAME, np.int32)
        self.total_ns = np.zeros(count, np.int64)
        self._stretch = NO_ID
        self._by_name_ns = np.zeros(names, np.int64)
        self._leader = NO_NAME

    def add(self, parts: CallStretches, names: Codes, asked: _Asked) -> None:
        """Go through parts that follow those before, and answer what ends in them."""
        if not len(parts):
            return
        stretch = parts.stretch
        length_ns = parts.end_ns - parts.start_ns
        name = names[parts.call]
        if int(stretch[0]) != self._stretch:
            self._by_name_ns[:], self._leader = 0, NO_NAME
        most_ns, best = int(self._by_name_ns.max()), self._leader
        upto_ns = self._upto(stretch, name, length_ns)
        # Greatest first of each stretch: what is of a later one is greater than all before.
        turn = np.cumsum(np.concatenate([[0], stretch[1:] != stretch[:-1]]))
        apart = int(max(upto_ns.max(), most_ns)) + 1
        keys = np.where(name == NO_NAME, 0, upto_ns) + turn * apart
        highest = np.maximum.accumulate(np.maximum(keys, np.where(turn == 0, most_ns, 0)))
        leader = np.maximum.accumulate(np.where(keys == highest, np.arange(len(keys)), NO_ID))
        rows, part = asked.in_parts(parts)
        whole = np.maximum(part - 1, 0)
        same = (part > 0) & (stretch[whole] == stretch[part])
        before_ns = np.where(same, highest[whole] - turn[part] * apart, 0)
        before = np.where(same & (leader[whole] != NO_ID), name[leader[whole]], best)
        carried = ~same & (turn[part] == 0)
        before_ns = np.where(carried, most_ns, before_ns)
        own_ns = upto_ns[part] - (parts.end_ns[part] - asked.until_ns[rows])
        own = (name[part] != NO_NAME) & (own_ns >= before_ns)
        place = asked.place[rows]
        self.total_ns[place] = np.where(own, own_ns, before_ns)
        self.name[place] = np.where(own, name[part], np.where(before_ns > 0, before, NO_NAME))
        self._carry(stretch, name, length_ns)
        if leader[-1] != NO_ID:  # which is then of the stretch that may go on
            self._leader = int(name[leader[-1]])

    def _upto(self, stretch: Int64, name: Codes, length_ns: Int64) -> Int64:
        """What calls of the name of each part took in its stretch, up to its end."""
        key = stretch * len(self._by_name_ns) + name
        order = np.argsort(key, kind="stable")
        key, taken_ns = key.take(order), length_ns.take(order)
        summed_ns = np.cumsum(taken_ns)
        opens = np.ones(len(order), np.bool_)
        np.not_equal(key[1:], key[:-1], out=opens[1:])
        first = np.flatnonzero(opens)
        before_ns = summed_ns[first] - taken_ns[first]
        upto_ns = np.empty(len(order), np.int64)
        upto_ns[order] = summed_ns - before_ns[np.cumsum(opens) - 1]
        return upto_ns + np.where(stretch == self._stretch, self._by_name_ns[name], 0)

    def _carry(self, stretch: Int64, name: Codes, length_ns: Int64) -> None:
        """Keep what the stretch that may go on has taken so far."""
        last = int(stretch[-1])
        if last != self._stretch:
            self._by_name_ns[:] = 0
        here = (stretch == last) & (name != NO_NAME)
        np.add.at(self._by_name_ns, name[here], length_ns[here])
        self._stretch = last
