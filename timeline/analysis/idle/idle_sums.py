"""Idle time by cause: parts as they are drawn, and sums by step, cause and call."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

import numpy as np

from timeline.analysis.idle.kernel_gaps import KernelGaps
from timeline.analysis.steps import NO_STEP
from timeline.columns.columns import Bool, Codes, ColumnTable, Int64, column
from timeline.columns.distinct import are_first, distinct
from timeline.columns.group_by import group_by, sum_rows
from timeline.columns.intervals import open_at
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.not_given import NO_ID
from timeline.records.tables import Spans

MOST_CALLS = 5
"""Maximum number of calls reported per cause in a step."""
MOST_CALLS_OF_ALL = 1000
"""Maximum number of calls reported per cause in the whole selection."""


class IdleCause(str, enum.Enum):
    """Cause of idle time before an item starts; the values are a public interface."""

    WAITING_FOR_DATA = "waiting_for_data"
    """The device or the host fetches the next data."""
    HOST_NOT_ASKED = "host_not_asked"
    """The framework had not asked for it, because the host was busy with other work."""
    HOST_WAITED_FOR_DEVICE = "host_waited_for_device"
    """The framework had not asked for it, because the host waited for the device to finish."""
    QUEUED = "queued"
    """It was asked for, but not launched yet."""
    LAUNCH_CALL = "launch_call"
    """The call that launches it was running."""
    LAUNCH_LATENCY = "launch_latency"
    """The launch call had returned."""
    BETWEEN_TASKS = "between_tasks"
    """The device's own minimum gap between two tasks."""
    LAUNCHED_BEFORE = "launched_before"
    """It was launched before the gap began, so it waited for something else."""
    OUTSIDE_CALLS = "outside_calls"
    """It was not asked for, and no call of that thread is recorded at the time."""
    NOT_RECORDED = "not_recorded"
    """Its launch is not in the profile."""
    KERNELS_NOT_RECORDED = "kernels_not_recorded"
    """Kernels launched for this time were not recorded by the profiler."""

    @property
    def words(self) -> str:
        """Return the name of the cause for use within a sentence."""
        return _WORDS[self]

    @property
    def label(self) -> str:
        """Return the label in slices and tables: capitalised and without an article."""
        words = self.words.removeprefix("the ")
        return words[0].upper() + words[1:]


_WORDS = {
    IdleCause.WAITING_FOR_DATA: "waiting for data",
    IdleCause.HOST_NOT_ASKED: "host busy elsewhere",
    IdleCause.HOST_WAITED_FOR_DEVICE: "the host waited for the device",
    IdleCause.QUEUED: "queued on the host",
    IdleCause.LAUNCH_CALL: "in launch calls",
    IdleCause.LAUNCH_LATENCY: "between launch and start",
    IdleCause.BETWEEN_TASKS: "between tasks",
    IdleCause.LAUNCHED_BEFORE: "blocked on the device",
    IdleCause.OUTSIDE_CALLS: "outside any call",
    IdleCause.NOT_RECORDED: "launch not recorded",
    IdleCause.KERNELS_NOT_RECORDED: "kernels not recorded",
}
CAUSES = tuple(IdleCause)
"""All causes; tables hold positions in this tuple."""


LEAST_OF_CALL = 0.1
"""Share of the time of a call from which the line of code with most of it is reported."""


class IdleParts(Spans):
    """Idle time of a selection, split by cause: disjoint, in order of time.

    cause: position in CAUSES; call: name of the host call in which most of it passed, NO_NAME if
    none was open; gap: number of the gap between tasks that contains it.
    """

    cause: Int64 = column(np.int64)
    call: Codes = column(np.int32)
    gap: Int64 = column(np.int64)

    @property
    def has_causes(self) -> bool:
        """Return whether any part has a cause other than NOT_RECORDED."""
        return bool((self.cause != CAUSES.index(IdleCause.NOT_RECORDED)).any())


class CauseTimes(ColumnTable):
    """Idle time, one row per step (its row, NO_STEP for the whole selection) and cause.

    gaps: number of gaps between tasks with the cause; a gap counts once for each of its causes, so
    these do not add up.
    """

    step: Int64 = column(np.int64)
    cause: Int64 = column(np.int64)
    gaps: Int64 = column(np.int64)
    total_ns: Int64 = column(np.int64)


class CallTimes(ColumnTable):
    """Idle time of the longest calls, one row per step, cause and call.

    line: the line of code in which most of it passed, NO_ID if none is known or it takes less than
    LEAST_OF_CALL of it; line_ns: the time in that line.
    """

    step: Int64 = column(np.int64)
    cause: Int64 = column(np.int64)
    call: Int64 = column(np.int64)
    line: Int64 = column(np.int64, NO_ID)
    line_ns: Int64 = column(np.int64)
    total_ns: Int64 = column(np.int64)


@dataclass(frozen=True, slots=True)
class IdleTimes:
    """Idle time by cause, and by cause and call; calls and lines are positions in `names`.

    least_ns: the device's own minimum gap between two tasks, 0 if there are too few gaps to
    estimate it. kernel_gaps: empty if the rank has steps.
    """

    causes: CauseTimes = field(default_factory=CauseTimes.empty)
    calls: CallTimes = field(default_factory=CallTimes.empty)
    names: tuple[str, ...] = ()
    least_ns: int = 0
    kernel_gaps: KernelGaps = KernelGaps()


class Parts(Spans):
    """Parts of idle intervals, in order of time.

    stretch: row of the interval; call: name of the host call, and row: its row in HostEvents.
    line: of code that the call comes from, NO_NAME if unknown.
    """

    stretch: Int64 = column(np.int64)
    cause: Int64 = column(np.int64)
    call: Codes = column(np.int32)
    row: Int64 = column(np.int64, NO_ID)
    line: Codes = column(np.int32, NO_NAME)


_NONE = np.empty(0, np.int64)


class IdleSums:
    """Accumulator of parts of idle intervals."""

    def __init__(
        self, inner: Bool, gap: Int64, periods: tuple[Int64, Int64], strings: StringPool
    ) -> None:
        """Prepare for intervals.

        Args:
            inner: (gaps,) mask of the gaps with work on both sides.
            gap: (n,) the gap of each interval.
            periods: start and end of each step (k,); no part crosses such a time.
        """
        self._inner, self._gap, self._strings = inner, gap, strings
        begin_ns, end_ns = periods
        self._steps = np.append(np.flatnonzero(end_ns > begin_ns), NO_STEP)
        self._periods = begin_ns[self._steps[:-1]], end_ns[self._steps[:-1]]
        self._total_ns = np.zeros((len(begin_ns) + 1) * len(CAUSES), np.int64)
        # Keys of step, cause and gap, and of step, cause and call with their time.
        self._seen, self._calls = [_NONE], [(_NONE, _NONE)]
        self._lines = [_LineTimes.empty()]
        self._drawn = [_Drawn.empty()]

    def add(self, parts: Parts) -> None:
        """Add parts to the selection and to the step that each belongs to."""
        if not len(parts):
            return
        length_ns = parts.end_ns - parts.start_ns
        gap = self._gap[parts.stretch]
        inner = self._inner[gap]
        step = self._steps[open_at(parts.start_ns, *self._periods)]
        for rows, owner in (
            (np.flatnonzero(inner), np.full(len(parts), NO_STEP)),
            (np.flatnonzero(step != NO_STEP), step),
        ):
            key = (owner[rows] + 1) * len(CAUSES) + parts.cause[rows]
            np.add.at(self._total_ns, key, length_ns[rows])
            self._seen.append(distinct(key * len(self._inner) + gap[rows]))
            named = np.flatnonzero(parts.call[rows] != NO_NAME)
            call_key = key[named] * len(self._strings) + parts.call[rows[named]]
            self._calls.append(_sums_by_key(call_key, length_ns[rows[named]]))
            lines = _LineTimes(call_key, parts.line[rows[named]], length_ns[rows[named]])
            self._lines.append(lines.take(lines.line != NO_NAME).summed())
        some = parts.take(inner)
        call_ns = np.where(some.call == NO_NAME, 0, length_ns[inner])
        self._drawn.append(
            _Drawn(some.start_ns, some.end_ns, some.cause, some.call, gap[inner], call_ns).joined()
        )

    def parts(self) -> IdleParts:
        """Return the parts of the selection; touching parts of one cause in a gap are joined."""
        drawn = _Drawn.concat(self._drawn).joined()
        return IdleParts(drawn.start_ns, drawn.end_ns, drawn.cause, drawn.call, drawn.gap)

    def times(self, least_ns: int) -> IdleTimes:
        """Return the sums by step and cause, and the longest calls of each cause."""
        key = np.flatnonzero(self._total_ns)
        step, cause = key // len(CAUSES) - 1, key % len(CAUSES)
        seen = distinct(np.concatenate(self._seen)) // max(len(self._inner), 1)
        gaps = np.bincount(seen, minlength=len(self._total_ns))
        calls, names = self._longest_calls()
        causes = CauseTimes(step, cause, gaps[key].astype(np.int64), self._total_ns[key])
        return IdleTimes(causes, calls, names, least_ns)

    def _longest_calls(self) -> tuple[CallTimes, tuple[str, ...]]:
        key, total_ns = _sums_by_key(*map(np.concatenate, zip(*self._calls, strict=True)))
        owner, code = np.divmod(key, max(len(self._strings), 1))
        _, call = self._strings.by_spelling(code)
        order = np.lexsort((call, -total_ns, owner))
        owner, key, code, total_ns = owner[order], key[order], code[order], total_ns[order]
        place = np.arange(len(owner)) - np.searchsorted(owner, owner)
        step = owner // len(CAUSES) - 1
        kept = place < np.where(step == NO_STEP, MOST_CALLS_OF_ALL, MOST_CALLS)
        lines = _LineTimes.concat(self._lines).summed()
        line, line_ns = lines.leading(key[kept], total_ns[kept])
        known = np.flatnonzero(line != NO_NAME)
        codes, which = self._strings.by_spelling(np.concatenate([code[kept], line[known]]))
        places = np.full(len(line), NO_ID)
        call, places[known] = np.split(which.astype(np.int64), [len(line)])
        return (
            CallTimes(step[kept], owner[kept] % len(CAUSES), call, places, line_ns, total_ns[kept]),
            tuple(self._strings.texts(codes)),
        )


class _LineTimes(ColumnTable):
    """Idle time by key of a step, cause and call, and by line of code."""

    key: Int64 = column(np.int64)
    line: Codes = column(np.int32)
    total_ns: Int64 = column(np.int64)

    def summed(self) -> _LineTimes:
        """Return one row per key and line, ascending."""
        return sum_rows(self, ("key", "line"), ("total_ns",))[0] if len(self) else self

    def leading(self, keys: Int64, all_ns: Int64) -> tuple[Codes, Int64]:
        """Return the line that takes most of the time of each key, and that time, (n,) each.

        The rows are one per key and line. all_ns: (n,) the time of each key. The line is NO_NAME
        and its time 0 if it takes less than LEAST_OF_CALL of that.
        """
        if not len(self):
            return np.full(len(keys), NO_NAME, np.int32), np.zeros(len(keys), np.int64)
        best = self.take(np.lexsort((-self.total_ns, self.key)))
        best = best.take(are_first(best.key))
        at = np.minimum(np.searchsorted(best.key, keys), len(best) - 1)
        has_line = (best.key[at] == keys) & (best.total_ns[at] >= LEAST_OF_CALL * all_ns)
        line = np.where(has_line, best.line[at], NO_NAME).astype(np.int32)
        return line, np.where(has_line, best.total_ns[at], 0)


def _sums_by_key(keys: Int64, values: Int64) -> tuple[Int64, Int64]:
    """Return the distinct keys, ascending, and the exact sum of the values of each."""
    groups = group_by(len(keys), [keys])
    return keys[groups.first], groups.sum(values)


class _Drawn(Spans):
    """Parts of the selection; call_ns: time spent in the named call."""

    cause: Int64 = column(np.int64)
    call: Codes = column(np.int32)
    gap: Int64 = column(np.int64)
    call_ns: Int64 = column(np.int64)

    def joined(self) -> _Drawn:
        """Join touching parts of one cause, keeping the call in which most of the time passed."""
        if not len(self):
            return self
        parts = self
        if (parts.start_ns[1:] < parts.start_ns[:-1]).any():
            parts = self.take(np.argsort(self.start_ns, kind="stable"))
        goes_on = (
            (parts.start_ns[1:] == parts.end_ns[:-1])
            & (parts.cause[1:] == parts.cause[:-1])
            & (parts.gap[1:] == parts.gap[:-1])
        )
        first = np.flatnonzero(np.append(True, ~goes_on))
        if len(first) == len(parts):
            return parts
        run = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(parts))))
        groups = group_by(len(parts), [run, parts.call])
        call_ns = groups.sum(parts.call_ns)
        # The call with most time in each run, the first of equals.
        best = np.lexsort((groups.first, -call_ns, run[groups.first]))
        best = best[are_first(run[groups.first[best]])]
        return _Drawn(
            parts.start_ns[first],
            parts.end_ns[np.append(first[1:], len(parts)) - 1],
            parts.cause[first],
            parts.call[groups.first[best]],
            parts.gap[first],
            call_ns[best],
        )
