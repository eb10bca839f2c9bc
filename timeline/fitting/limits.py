"""Limits of a file and what a file, or a part of one, takes of them: bytes, and elements."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from timeline.frozen import dataclass
from timeline.options import ExportOptions
from timeline.tracks.model import Slices, Track
from timeline.units import spell_bytes, spell_number

__all__ = ["Cost", "LimitName", "Limits", "count_elements_of"]

LimitName: TypeAlias = Literal["bytes", "events"]
"""Which limit binds."""


@dataclass(frozen=True)
class Cost:
    """What a part of a file takes: its bytes, and its slices, samples and ends of arrows."""

    size_bytes: float = 0.0
    elements: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.size_bytes + other.size_bytes, self.elements + other.elements)

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.size_bytes - other.size_bytes, self.elements - other.elements)

    def __mul__(self, factor: float) -> Cost:
        return Cost(self.size_bytes * factor, self.elements * factor)


@dataclass(frozen=True)
class Limits:
    """The bytes and the elements that a file may have; 0 is any number."""

    size_bytes: float = 0
    elements: float = 0

    @classmethod
    def of(cls, options: ExportOptions) -> Limits:
        """Those that were asked for: without a limit of bytes, elements have one only if given."""
        return cls(options.limit_bytes, options.most_events)

    def __bool__(self) -> bool:
        return bool(self.size_bytes or self.elements)

    def __mul__(self, factor: float) -> Limits:
        return Limits(self.size_bytes * factor, self.elements * factor)

    def share(self, cost: Cost) -> float:
        """What is used of the limit that is used most."""
        return max(self._shares(cost))

    def binding(self, cost: Cost) -> LimitName:
        """The limit that is used most."""
        of_bytes, of_elements = self._shares(cost)
        return "bytes" if of_bytes >= of_elements else "events"

    def hold(self, cost: Cost) -> bool:
        """Whether something keeps both limits."""
        return self.share(cost) <= 1

    def spelled(self, cost: Cost) -> tuple[str, str]:
        """The limit that binds, for people, and as much of it as something takes."""
        if self.binding(cost) == "bytes":
            return spell_bytes(int(self.size_bytes)), spell_bytes(int(cost.size_bytes))
        limit, taken = (spell_number(int(count)) for count in (self.elements, cost.elements))
        return f"{limit} events", f"{taken} events"

    def _shares(self, cost: Cost) -> tuple[float, float]:
        return (
            cost.size_bytes / self.size_bytes if self.size_bytes else 0.0,
            cost.elements / self.elements if self.elements else 0.0,
        )


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
