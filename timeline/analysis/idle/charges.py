"""Idle time by the single host call that it is charged to, and the longest gaps of a device."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from timeline.analysis.idle.host_calls import call_name
from timeline.analysis.idle.idle_sums import Parts
from timeline.analysis.steps import NO_STEP
from timeline.columns.columns import Bool, Codes, ColumnTable, Int64, Rows, column
from timeline.columns.distinct import are_first
from timeline.columns.group_by import group_by, sum_by
from timeline.columns.intervals import open_at
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.clock import ClockMove
from timeline.records.not_given import NO_ID
from timeline.records.tables import Spans

MOST_GAPS = 10
"""Gaps of a rank that are listed one by one."""


class ChargedCalls(ColumnTable):
    """Idle time within the selection, one row per host call and cause.

    row: of the call in HostEvents; cause: position in CAUSES.
    """

    row: Int64 = column(np.int64)
    cause: Int64 = column(np.int64)
    idle_ns: Int64 = column(np.int64)

    def summed(self) -> ChargedCalls:
        """Return one row for each combination of call and cause, in order of calls."""
        groups = group_by(len(self), [self.row, self.cause])
        return ChargedCalls(
            self.row[groups.first], self.cause[groups.first], groups.sum(self.idle_ns)
        )


class LongestGaps(Spans):
    """Gaps between two device tasks, from the end of the one to the start of the other.

    length_ns: on the rank's own clock. idle_ns: of it, without copies. step: row of the step in
    which it begins, else of the one in which it ends, else NO_STEP. cause: position in CAUSES of
    the cause of most of idle_ns, which takes cause_ns. call: name of the host call in which most of
    cause_ns passed. previous, next: names of the tasks or communication ops around it. Names are
    NO_NAME if not known.
    """

    length_ns: Int64 = column(np.int64)
    idle_ns: Int64 = column(np.int64)
    step: Int64 = column(np.int64, NO_STEP)
    cause: Int64 = column(np.int64)
    cause_ns: Int64 = column(np.int64)
    call: Codes = column(np.int32, NO_NAME)
    previous: Codes = column(np.int32, NO_NAME)
    next: Codes = column(np.int32, NO_NAME)


@dataclass(frozen=True, slots=True)
class RankGaps:
    """The longest gaps of one rank, longest idle time first; codes are positions in `strings`."""

    strings: tuple[str, ...] = ("",)
    gaps: LongestGaps = field(default_factory=LongestGaps.empty)

    def moved(self, move: ClockMove) -> RankGaps:
        """Return the gaps on another clock."""
        return replace(self, gaps=self.gaps.moved(move))


class _GapParts(ColumnTable):
    """Idle time of the longest gaps; number: position of the gap among them."""

    number: Int64 = column(np.int64)
    cause: Int64 = column(np.int64)
    call: Codes = column(np.int32)
    total_ns: Int64 = column(np.int64)

    def summed(self) -> _GapParts:
        """Return one row for each combination of gap, cause and call."""
        groups = group_by(len(self), [self.number, self.cause, self.call])
        first = self.take(groups.first)
        return replace(first, total_ns=groups.sum(self.total_ns))


class Charges:
    """Accumulator of idle time by single host call, and by cause and call of the longest gaps."""

    def __init__(self, inner: Bool, gap: Int64, idle_ns: Int64) -> None:
        """Prepare for parts of idle intervals.

        Args:
            inner: (gaps,) mask of the gaps with work on both sides; others are left out.
            gap, idle_ns: (n,) the gap of each idle interval, and the length of the interval.
        """
        self._inner, self._gap = inner, gap
        self._idle_ns = np.where(inner, sum_by(gap, idle_ns, len(inner)), 0)
        self.longest = _largest(self._idle_ns, MOST_GAPS)
        self._number = np.full(len(inner), NO_ID)
        self._number[self.longest] = np.arange(len(self.longest))
        self._charged, self._parts = [ChargedCalls.empty()], [_GapParts.empty()]

    def add(self, parts: Parts) -> None:
        """Add parts of idle intervals."""
        gap, length_ns = self._gap[parts.stretch], parts.end_ns - parts.start_ns
        rows = np.flatnonzero((parts.row != NO_ID) & self._inner[gap])
        if len(rows):
            charged = ChargedCalls(parts.row[rows], parts.cause[rows], length_ns[rows])
            self._charged.append(charged.summed())
        number = self._number[gap]
        rows = np.flatnonzero(number != NO_ID)
        if len(rows):
            listed = parts.take(rows)
            own = _GapParts(number[rows], listed.cause, listed.call, length_ns[rows])
            self._parts.append(own.summed())

    def charged(self) -> ChargedCalls:
        """Return the idle time charged to each call by each cause."""
        return ChargedCalls.concat(self._charged).summed()

    def longest_gaps(
        self,
        around: tuple[Int64, Int64],
        periods: tuple[Int64, Int64],
        names: tuple[Codes, Codes],
        strings: StringPool,
    ) -> RankGaps:
        """Return the gaps whose rows are `longest`.

        Args:
            around: start and end of each of these gaps.
            periods: start and end of each step (k,).
            names: of the previous and the next task of each.
            strings: what all names are codes of.
        """
        number, cause, cause_ns, call = self._main_causes()
        pool = StringPool()
        start_ns, end_ns = (times_ns[number] for times_ns in around)
        gaps = LongestGaps(
            start_ns,
            end_ns,
            end_ns - start_ns,
            self._idle_ns[self.longest[number]],
            _steps_of(start_ns, end_ns, periods),
            cause,
            cause_ns,
            pool.translate(call, strings, call_name),
            *(pool.translate(one[number], strings) for one in names),
        )
        return RankGaps(tuple(pool), gaps)

    def _main_causes(self) -> tuple[Int64, Int64, Int64, Codes]:
        """Return number, longest cause, its time, and the longest call of each listed gap."""
        parts = _GapParts.concat(self._parts).summed()
        groups = group_by(len(parts), [parts.number, parts.cause])
        cause_ns = groups.sum(parts.total_ns)[groups.group]
        # The named call with most time of the longest cause of each gap; the first of equals.
        named_ns = np.where(parts.call == NO_NAME, 0, parts.total_ns)
        order = np.lexsort((-named_ns, parts.cause, -cause_ns, parts.number))
        best = order[are_first(parts.number[order])]
        return parts.number[best], parts.cause[best], cause_ns[best], parts.call[best]


def _largest(values: Int64, most: int) -> Rows:
    """Return the rows of the largest positive values, at most so many, the largest first."""
    least = 0
    if len(values) > most:
        least = int(np.partition(values, len(values) - most)[len(values) - most])
    rows = np.flatnonzero((values >= least) & (values > 0))
    return rows[np.argsort(-values[rows], kind="stable")][:most]


def _steps_of(start_ns: Int64, end_ns: Int64, periods: tuple[Int64, Int64]) -> Int64:
    """Return the row of the step in which each gap begins, else ends, else NO_STEP."""
    begin_ns, stop_ns = periods
    lasting = np.flatnonzero(stop_ns > begin_ns)
    begun, ended = (
        np.append(lasting, NO_STEP)[open_at(moments_ns, begin_ns[lasting], stop_ns[lasting])]
        for moments_ns in (start_ns, end_ns - 1)
    )
    return np.where(begun == NO_STEP, ended, begun)
