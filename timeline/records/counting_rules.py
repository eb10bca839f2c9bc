"""By which rules the writer of a capture counts free time and communication."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce


@dataclass(frozen=True)
class FreeRule:
    """What counts as free beside the gaps of computing and communication.

    By the inner rule nothing does. By the outer rule free time also reaches from the start of the
    capture's other tasks (start_ns) and to their end (end_ns); None where they reach no further
    than computing and communication. evidence: what tells the rule, "" where nothing does; the
    inner rule is taken then.
    """

    evidence: str = ""
    outer: bool = False
    start_ns: int | None = None
    end_ns: int | None = None

    @property
    def name(self) -> str | None:
        """The rule as reports call it, None where nothing tells it."""
        if not self.evidence:
            return None
        return "outer" if self.outer else "inner"

    @classmethod
    def join(cls, rules: list[FreeRule]) -> FreeRule:
        """The rule of a capture in several files, some of which may not tell it."""
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
    """What communication is the union of: communication ops, or the HCCL tasks that they are of.

    evidence: what tells it, "" where ops are taken because nothing asks for anything else.
    vendor_ns: what the writer itself says of each step, by its number; given only while the rule
    is still to be told by it.
    """

    of_tasks: bool = False
    evidence: str = ""
    vendor_ns: Mapping[int, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The rule as reports call it."""
        return "tasks" if self.of_tasks else "ops"
