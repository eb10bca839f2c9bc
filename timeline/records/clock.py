"""Clocks of captures, and the rules by which their writers count free and communication time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce

import numpy as np

from timeline.columns.columns import Int64
from timeline.ranges import FURTHEST_NS, check_span

EARLIEST_WALL_NS = 10**17
"""Smallest time taken for wall time: March 1973, or three years of uptime of a monotonic clock."""


@dataclass(frozen=True)
class Clock:
    """The clock that a capture was recorded on.

    host: name of the machine, empty if unknown; captures of one machine share a clock.
    wall_offset_ns: wall time minus the machine's monotonic clock, None if unknown.
    """

    host: str = ""
    wall_offset_ns: int | None = None


_PARTS = 10**9


@dataclass(frozen=True, slots=True)
class ClockMove:
    """A conversion of times to another clock: an offset, and a drift that grows from `origin_ns`.

    drift_ppb: ns per second. The order of times is kept; a drift changes lengths. Exact while drift
    times span stays below 2**63, such as a day at 100 ppm. The sentinel of missing times, which
    lies beyond all times, is kept.
    """

    offset_ns: int = 0
    drift_ppb: int = 0
    origin_ns: int = 0

    def __post_init__(self) -> None:
        """Check that no time can overflow.

        Raises:
            RecordError: the offset or origin lies beyond all times.
        """
        check_span(self.offset_ns, self.origin_ns)

    @property
    def still(self) -> bool:
        """Return whether the conversion changes no time."""
        return not self.offset_ns and not self.drift_ppb

    def of(self, times_ns: Int64) -> Int64:
        """Return the times on the other clock.

        Raises:
            RecordError: a converted time overflows.
        """
        if not len(times_ns) or self.still:
            return times_ns
        if int(times_ns.min()) < -FURTHEST_NS:
            moved = times_ns.copy()
            given = times_ns >= -FURTHEST_NS
            moved[given] = self.of(times_ns[given])
            return moved
        # Order is kept, so it is enough to check the first and last time.
        first_ns, last_ns = int(times_ns.min()), int(times_ns.max())
        check_span(self.of_time(first_ns), self.of_time(last_ns))
        moved = times_ns + self.offset_ns
        if self.drift_ppb:
            moved += (times_ns - self.origin_ns) * self.drift_ppb // _PARTS
        return moved

    def of_recorded(self, times_ns: Int64) -> Int64:
        """Return recorded times on the other clock, clipped to the valid range if damaged.

        Only for a conversion without drift.
        """
        latest_ns = FURTHEST_NS - max(self.offset_ns, 0)
        earliest_ns = -FURTHEST_NS - min(self.offset_ns, 0)
        is_given = times_ns >= -FURTHEST_NS
        return self.of(np.where(is_given, np.clip(times_ns, earliest_ns, latest_ns), times_ns))

    def of_time(self, time_ns: int) -> int:
        """Return one time on the other clock."""
        drifted_ns = (time_ns - self.origin_ns) * self.drift_ppb // _PARTS
        return time_ns + self.offset_ns + drifted_ns

    def back(self, time_ns: int) -> int:
        """Return the earliest time on this clock whose conversion is at or after `time_ns`."""
        back_ns = time_ns - self.offset_ns
        back_ns -= (back_ns - self.origin_ns) * self.drift_ppb // (_PARTS + self.drift_ppb)
        while self.of_time(back_ns) >= time_ns:
            back_ns -= 1
        while self.of_time(back_ns) < time_ns:
            back_ns += 1
        return back_ns

    def then(self, offset_ns: int) -> ClockMove:
        """Return this conversion followed by a constant offset."""
        return ClockMove(self.offset_ns + offset_ns, self.drift_ppb, self.origin_ns)


# -- counting --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FreeRule:
    """The rule by which free time is counted.

    Inner rule: only gaps between computing and communication are free. Outer rule: free time also
    extends to the start (start_ns) and end (end_ns) of the capture's other tasks; None if these
    extend no further than computing and communication. evidence: the source of the rule; "" if
    there is none, and the inner rule is used.
    """

    evidence: str = ""
    outer: bool = False
    start_ns: int | None = None
    end_ns: int | None = None

    @property
    def name(self) -> str | None:
        """The name of the rule in reports, None without evidence."""
        if not self.evidence:
            return None
        return "outer" if self.outer else "inner"

    @classmethod
    def join(cls, rules: list[FreeRule]) -> FreeRule:
        """Return the rule of a capture in several files; those without evidence are ignored."""
        stated = [rule for rule in rules if rule.evidence]
        return reduce(_join_two, stated) if stated else cls()


def _join_two(one: FreeRule, other: FreeRule) -> FreeRule:
    starts_ns = [rule.start_ns for rule in (one, other) if rule.start_ns is not None]
    ends_ns = [rule.end_ns for rule in (one, other) if rule.end_ns is not None]
    first = one if one.outer or not other.outer else other
    return FreeRule(
        first.evidence,
        one.outer or other.outer,
        min(starts_ns, default=None),
        max(ends_ns, default=None),
    )


INNER = FreeRule("a part of a capture has no other tasks around it")
"""The rule for steps, windows and graphs, whichever rule their capture uses."""


@dataclass(frozen=True)
class CommunicationRule:
    """The rule for communication time: the union of communication ops, or of their HCCL tasks.

    evidence: the source of the rule, "" if ops are used by default. vendor_ns: the writer's own
    communication time by step number, set only until the rule has been chosen by it.
    """

    of_tasks: bool = False
    evidence: str = ""
    vendor_ns: Mapping[int, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the rule in reports."""
        return "tasks" if self.of_tasks else "ops"
