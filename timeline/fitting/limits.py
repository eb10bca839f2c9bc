"""Limits of a file and what a file, or a part of one, takes of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from timeline.fitting.viewer_memory import MOST_MEMORY_BYTES, estimate_memory, most_memory
from timeline.frozen import dataclass
from timeline.options import ExportOptions
from timeline.tracks.model import Slices, Track
from timeline.units import spell_bytes, spell_number

__all__ = ["Cost", "LimitName", "Limits", "count_elements_of"]

LimitName: TypeAlias = Literal["bytes", "events", "memory"]
"""Which limit binds."""


@dataclass(frozen=True)
class Cost:
    """What a part of a file takes: its bytes, and its slices, samples and ends of arrows.

    memory_bytes: what it is expected to take of a viewer's memory, 0 where that has no limit.
    """

    size_bytes: float = 0.0
    elements: float = 0.0
    memory_bytes: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.size_bytes + other.size_bytes,
            self.elements + other.elements,
            self.memory_bytes + other.memory_bytes,
        )

    def __sub__(self, other: Cost) -> Cost:
        return self + other * -1

    def __mul__(self, factor: float) -> Cost:
        return Cost(self.size_bytes * factor, self.elements * factor, self.memory_bytes * factor)


@dataclass(frozen=True)
class Limits:
    """The bytes and the elements that a file may have, and the memory; 0 is any number."""

    size_bytes: float = 0
    elements: float = 0
    memory_bytes: float = 0

    @classmethod
    def of(cls, options: ExportOptions) -> Limits:
        """Those that were asked for: without a limit of bytes, elements have one only if given."""
        return cls(options.limit_bytes, options.most_events)

    def with_memory(self, tracks: Iterable[Track]) -> Limits:
        """The same with one of memory, if any file of these tracks could exceed that."""
        needs_one = most_memory(tracks) > MOST_MEMORY_BYTES
        return replace(self, memory_bytes=MOST_MEMORY_BYTES) if needs_one else self

    def __bool__(self) -> bool:
        return bool(self.size_bytes or self.elements)

    def __mul__(self, factor: float) -> Limits:
        return Limits(self.size_bytes * factor, self.elements * factor, self.memory_bytes * factor)

    def cost(self, size_bytes: float, tracks: Sequence[Track]) -> Cost:
        """What tracks take that take so many bytes."""
        memory_bytes = estimate_memory(tracks) if self.memory_bytes else 0
        return Cost(size_bytes, count_elements_of(tracks), memory_bytes)

    def share(self, cost: Cost) -> float:
        """What is used of the limit that is used most."""
        return max(self._shares(cost).values())

    def binding(self, cost: Cost) -> LimitName:
        """The limit that is used most."""
        shares = self._shares(cost)
        return max(shares, key=lambda name: shares[name])

    def part_that_fits(self, spent: Cost, more: Cost) -> float:
        """Which part of what more there is fits beside what is spent; 1 where all of it does."""
        used, needed = self._shares(spent), self._shares(more)
        parts = ((1 - used[name]) / share for name, share in needed.items() if share > 0)
        return min(parts, default=1.0)

    def hold(self, cost: Cost) -> bool:
        """Whether something keeps all limits."""
        return self.share(cost) <= 1

    def spelled(self, cost: Cost) -> tuple[str, str]:
        """The limit that binds, for people, and as much of it as something takes."""
        match self.binding(cost):
            case "bytes":
                return spell_bytes(int(self.size_bytes)), spell_bytes(int(cost.size_bytes))
            case "memory":
                limit, taken = (
                    spell_bytes(int(size)) for size in (self.memory_bytes, cost.memory_bytes)
                )
                return f"{limit} of a viewer's memory", f"{taken} of it"
        limit, taken = (spell_number(int(count)) for count in (self.elements, cost.elements))
        return f"{limit} events", f"{taken} events"

    def _shares(self, cost: Cost) -> dict[LimitName, float]:
        return {
            "bytes": cost.size_bytes / self.size_bytes if self.size_bytes else 0.0,
            "events": cost.elements / self.elements if self.elements else 0.0,
            "memory": cost.memory_bytes / self.memory_bytes if self.memory_bytes else 0.0,
        }


def count_elements_of(tracks: Iterable[Track]) -> int:
    """All slices, samples and ends of arrows of tracks."""
    found = 0
    for track in tracks:
        content = track.content
        if content is not None:
            found += len(content)
            if isinstance(content, Slices):
                found += len(content.arrows.arrow)
    return found
