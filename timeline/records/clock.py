"""What is known of a capture's clock, and how times move from one clock to another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timeline.columns.columns import Int64
from timeline.ranges import FURTHEST_NS, check_span

EARLIEST_WALL_NS = 10**17
"""Wall time passed this in March 1973; a monotonic clock would need three years of uptime."""


@dataclass(frozen=True)
class Clock:
    """How a capture's times relate to those of other captures.

    `host` names the machine, empty where the capture does not; captures of one machine share a
    clock. `wall_offset_ns` turns its monotonic clock into wall time, where that is known.
    """

    host: str = ""
    wall_offset_ns: int | None = None


_PARTS = 10**9


@dataclass(frozen=True, slots=True)
class ClockMove:
    """How times move to another clock: by a constant, and by a drift that grows from `origin_ns`.

    drift_ppb: ns per second. Order is kept, and what lasts ends no earlier than it begins, but with
    a drift lengths change by it. Exact while drift times span stay below 2**63: a day at 100 ppm.
    Columns may hold moments that are not given, beyond all times: those stay as they are.
    """

    offset_ns: int = 0
    drift_ppb: int = 0
    origin_ns: int = 0

    def __post_init__(self) -> None:
        """Check that no time can wrap."""
        check_span(self.offset_ns, self.origin_ns)

    @property
    def still(self) -> bool:
        """Whether nothing moves."""
        return not self.offset_ns and not self.drift_ppb

    def of(self, times_ns: Int64) -> Int64:
        """The times on the other clock.

        Raises:
            RecordError: one lies beyond all times there.
        """
        if not len(times_ns) or self.still:
            return times_ns
        if int(times_ns.min()) < -FURTHEST_NS:
            moved = times_ns.copy()
            given = times_ns >= -FURTHEST_NS
            moved[given] = self.of(times_ns[given])
            return moved
        # Order is kept, so that no time lies further than the first or last.
        first_ns, last_ns = int(times_ns.min()), int(times_ns.max())
        check_span(self.of_moment(first_ns), self.of_moment(last_ns))
        moved = times_ns + self.offset_ns
        if self.drift_ppb:
            moved += (times_ns - self.origin_ns) * self.drift_ppb // _PARTS
        return moved

    def of_recorded(self, times_ns: Int64) -> Int64:
        """Recorded times on the other clock; damaged ones stay far away, but within all times.

        For a move without drift.
        """
        latest_ns = FURTHEST_NS - max(self.offset_ns, 0)
        earliest_ns = -FURTHEST_NS - min(self.offset_ns, 0)
        is_given = times_ns >= -FURTHEST_NS
        return self.of(np.where(is_given, np.clip(times_ns, earliest_ns, latest_ns), times_ns))

    def of_moment(self, time_ns: int) -> int:
        """One time on the other clock."""
        drifted_ns = (time_ns - self.origin_ns) * self.drift_ppb // _PARTS
        return time_ns + self.offset_ns + drifted_ns

    def back(self, time_ns: int) -> int:
        """The first time on this clock that moves to one on the other clock, or behind it."""
        found = time_ns - self.offset_ns
        found -= (found - self.origin_ns) * self.drift_ppb // (_PARTS + self.drift_ppb)
        while self.of_moment(found) >= time_ns:
            found -= 1
        while self.of_moment(found) < time_ns:
            found += 1
        return found

    def then(self, offset_ns: int) -> ClockMove:
        """This move, and then one by a constant."""
        return ClockMove(self.offset_ns + offset_ns, self.drift_ppb, self.origin_ns)
