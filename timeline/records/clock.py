"""The clock of a capture, and the rules by which its writer counts free time and communication."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce

import numpy as np

from timeline.columns.columns import Int64
from timeline.ranges import FURTHEST_NS, check_span

EARLIEST_WALL_NS = 10**17
"""Wall time passed this in March 1973; a monotonic clock would need three years of uptime."""


@dataclass(frozen=True)
class Clock:
    """The relation of a capture's times to those of other captures.

    `host` names the machine, empty where the capture does not; captures of one machine share a
    clock. `wall_offset_ns` turns its monotonic clock into wall time, where that is known.
    """

    host: str = ""
    wall_offset_ns: int | None = None


_PARTS = 10**9


@dataclass(frozen=True, slots=True)
class ClockMove:
    """The move of times to another clock: a constant, and a drift that grows from `origin_ns`.

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
        """Return whether nothing moves."""
        return not self.offset_ns and not self.drift_ppb

    def of(self, times_ns: Int64) -> Int64:
        """Return the times on the other clock.

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
        """Return recorded times on the other clock; damaged ones stay far away, within all times.

        For a move without drift.
        """
        latest_ns = FURTHEST_NS - max(self.offset_ns, 0)
        earliest_ns = -FURTHEST_NS - min(self.offset_ns, 0)
        is_given = times_ns >= -FURTHEST_NS
        return self.of(np.where(is_given, np.clip(times_ns, earliest_ns, latest_ns), times_ns))

    def of_moment(self, time_ns: int) -> int:
        """Return one time on the other clock."""
        drifted_ns = (time_ns - self.origin_ns) * self.drift_ppb // _PARTS
        return time_ns + self.offset_ns + drifted_ns

    def back(self, time_ns: int) -> int:
        """Return the first time on this clock that moves to one on the other, or behind it."""
        found = time_ns - self.offset_ns
        found -= (found - self.origin_ns) * self.drift_ppb // (_PARTS + self.drift_ppb)
        while self.of_moment(found) >= time_ns:
            found -= 1
        while self.of_moment(found) < time_ns:
            found += 1
        return found

    def then(self, offset_ns: int) -> ClockMove:
        """Return this move, and then one by a constant."""
        return ClockMove(self.offset_ns + offset_ns, self.drift_ppb, self.origin_ns)


# -- counting --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FreeRule:
    """The rule for what counts as free beside the gaps of computing and communication.

    By the inner rule nothing does. By the outer rule free time also reaches from the start of the
    capture's other tasks (start_ns) and to their end (end_ns); None if they reach no further
    than computing and communication. evidence: what tells the rule, "" where nothing does; the
    inner rule is taken then.
    """

    evidence: str = ""
    outer: bool = False
    start_ns: int | None = None
    end_ns: int | None = None

    @property
    def name(self) -> str | None:
        """The rule as reports call it, None if nothing tells it."""
        if not self.evidence:
            return None
        return "outer" if self.outer else "inner"

    @classmethod
    def join(cls, rules: list[FreeRule]) -> FreeRule:
        """Return the rule of a capture in several files, some of which may not tell it."""
        known = [rule for rule in rules if rule.evidence]
        return reduce(_join_two, known) if known else cls()


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
"""The rule of steps, windows and graphs, whatever that of their capture."""


@dataclass(frozen=True)
class CommunicationRule:
    """The rule for communication: the union of communication ops, or of their HCCL tasks.

    evidence: what it is based on, "" where ops are taken because nothing asks for anything else.
    vendor_ns: what the writer itself says of each step, by its number; given only while the rule
    is still to be chosen by it.
    """

    of_tasks: bool = False
    evidence: str = ""
    vendor_ns: Mapping[int, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The rule as reports call it."""
        return "tasks" if self.of_tasks else "ops"
