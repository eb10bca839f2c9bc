"""Limits of a file and their use by tracks: bytes, elements, and memory of the viewer.

Perfetto's trace processor stores equal sets of args once for all slices that have them. The memory
of slices therefore depends on how many sets of args differ, which the size of a file does not show:
args that differ in a regular way compress to almost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import add, mul
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from timeline.columns.distinct import distinct
from timeline.encoders.drawn_values import is_formatted
from timeline.options import ExportOptions
from timeline.tracks.model import Arg, Slices, Track
from timeline.units import format_bytes, format_number

LimitName: TypeAlias = Literal["bytes", "events", "memory"]
"""The name of a limit."""

MOST_MEMORY_BYTES = 1_750_000_000
"""Maximum expected memory of a file with default options; actual memory then stays below 2 GB."""
SLICE_BYTES = 240
"""Memory per slice in addition to its args: up to 240 bytes, 180 without args."""
SAMPLE_BYTES = 150
ARROW_END_BYTES = 60
ARG_BYTES = 66
"""Memory per arg, including a string that no other arg has (`tests/bench/viewer_load.py`)."""
MERGED_ARGS = 9
"""Maximum number of args of a merged slice, formatted ones included."""
_MIX = np.uint64(0x9E3779B97F4A7C15)
"""An odd multiplier that spreads bits to the left."""
_HIGH = np.uint64(29)
_NUMBER = np.uint64((1 << 10) - 1)
"""The bits that hold the number of args, of which no kind of slice has as many."""
_PRESENT = np.uint64(0xBF58476D1CE4E5B9)
"""Added for each present arg: an arbitrary constant that sums of args hardly produce."""


@dataclass(frozen=True)
class Cost:
    """Bytes and elements of a part of a file: slices, samples and ends of arrows.

    memory_bytes: expected memory of a viewer, 0 if it has no limit.
    """

    size_bytes: float = 0.0
    elements: float = 0.0
    memory_bytes: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return self._with(other, add)

    def __mul__(self, factor: float | Cost) -> Cost:
        """Multiply all by one factor, or each by its own."""
        by = factor if isinstance(factor, Cost) else Cost(factor, factor, factor)
        return self._with(by, mul)

    def ratio(self, other: Cost) -> Cost:
        """Return the ratio of this cost to another, by component; 1 where either is 0."""
        return self._with(other, lambda one, two: one / two if one and two else 1.0)

    def between(self, other: Cost, part: float) -> Cost:
        """Return a cost between this one and another, interpolated geometrically."""
        return self._with(other, lambda a, b: a ** (1 - part) * b**part if a and b else 0.0)

    def _with(self, other: Cost, combine: Callable[[float, float], float]) -> Cost:
        return Cost(
            combine(self.size_bytes, other.size_bytes),
            combine(self.elements, other.elements),
            combine(self.memory_bytes, other.memory_bytes),
        )


@dataclass(frozen=True)
class Limits:
    """The bytes, elements and memory that a file may have; 0 is any number."""

    size_bytes: float = 0
    elements: float = 0
    memory_bytes: float = 0

    @classmethod
    def of(cls, options: ExportOptions) -> Limits:
        """Return the limits of bytes and elements that options set."""
        return cls(options.limit_bytes, options.most_events)

    def with_memory(self, tracks: Iterable[Track]) -> Limits:
        """Add the limit of memory, if any file of these tracks could exceed it."""
        needs_one = most_memory(tracks) > MOST_MEMORY_BYTES
        return replace(self, memory_bytes=MOST_MEMORY_BYTES) if needs_one else self

    def __bool__(self) -> bool:
        return bool(self.size_bytes or self.elements)

    def __mul__(self, factor: float) -> Limits:
        return Limits(self.size_bytes * factor, self.elements * factor, self.memory_bytes * factor)

    def cost(self, size_bytes: float, tracks: Sequence[Track]) -> Cost:
        """Return the cost of tracks that take this number of bytes."""
        memory_bytes = estimate_memory(tracks) if self.memory_bytes else 0
        return Cost(size_bytes, count_elements_of(tracks), memory_bytes)

    def share(self, cost: Cost) -> float:
        """Return the used share of the limit that is used most."""
        return max(self._shares(cost).values())

    def binding(self, cost: Cost) -> LimitName:
        """Return the limit that is used most."""
        shares = self._shares(cost)
        return max(shares, key=lambda name: shares[name])

    def part_that_fits(self, spent: Cost, more: Cost) -> float:
        """Return the part of a further cost that fits in addition to `spent`; 1 if all fits."""
        used, needed = self._shares(spent), self._shares(more)
        parts = ((1 - used[name]) / share for name, share in needed.items() if share > 0)
        return min(1.0, max(0.0, min(parts, default=1.0)))

    def hold(self, cost: Cost) -> bool:
        """Return True if a cost keeps all limits."""
        return self.share(cost) <= 1

    def format(self, cost: Cost) -> tuple[str, str]:
        """Format the binding limit, and the same component of a cost."""
        match self.binding(cost):
            case "bytes":
                return format_bytes(int(self.size_bytes)), format_bytes(int(cost.size_bytes))
            case "memory":
                limit, taken = (
                    format_bytes(int(size)) for size in (self.memory_bytes, cost.memory_bytes)
                )
                return f"{limit} of a viewer's memory", f"{taken} of it"
        limit, taken = (format_number(int(count)) for count in (self.elements, cost.elements))
        return f"{limit} events", f"{taken} events"

    def _shares(self, cost: Cost) -> dict[LimitName, float]:
        return {
            "bytes": cost.size_bytes / self.size_bytes if self.size_bytes else 0.0,
            "events": cost.elements / self.elements if self.elements else 0.0,
            "memory": cost.memory_bytes / self.memory_bytes if self.memory_bytes else 0.0,
        }


def count_elements_of(tracks: Iterable[Track]) -> int:
    """Count the slices, samples and ends of arrows of tracks."""
    count = 0
    for track in tracks:
        content = track.content
        if content is not None:
            count += len(content)
            if isinstance(content, Slices):
                count += len(content.arrows.arrow)
    return count


def most_memory(tracks: Iterable[Track]) -> int:
    """Return the most bytes of memory that tracks can take, however they are merged."""
    total = 0
    for track in tracks:
        content = track.content
        if isinstance(content, Slices):
            args = max(MERGED_ARGS, sum(_count_drawn(content, arg) for arg in content.args))
            total += len(content) * (SLICE_BYTES + ARG_BYTES * args) + _arrow_memory(content)
        else:
            total += SAMPLE_BYTES * len(content or ())
    return total


def estimate_memory(tracks: Iterable[Track]) -> int:
    """Estimate the bytes of memory that tracks take."""
    total = 0
    for track in tracks:
        content = track.content
        if isinstance(content, Slices):
            total += SLICE_BYTES * len(content) + ARG_BYTES * _count_args(content)
            total += _arrow_memory(content)
        else:
            total += SAMPLE_BYTES * len(content or ())
    return total


def _arrow_memory(slices: Slices) -> int:
    return ARROW_END_BYTES * len(slices.arrows.arrow)


def _count_drawn(slices: Slices, arg: Arg) -> int:
    """Return the number of args in the file for one arg: 2 if it has a formatted form too."""
    return 1 + is_formatted(slices.kind, arg)


def _count_args(slices: Slices) -> int:
    """Count the args of slices; equal sets of args count once."""
    key, args = np.zeros((2, len(slices)), np.uint64)
    for arg in slices.args:
        if arg.present.any():
            key += (_bits(arg.values) * _MIX + _PRESENT) * arg.present
            key ^= key >> _HIGH
            key *= _MIX
            args += arg.present * np.uint64(_count_drawn(slices, arg))
    if not args.any():
        return 0
    # The key of a set includes the number of its args, so sets need not be looked up again.
    return int((distinct(key & ~_NUMBER | args) & _NUMBER).sum())


def _bits(values: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Return numbers mapped to bits that differ if the numbers do."""
    wide = np.float64 if values.dtype.kind == "f" else np.int64
    return np.ascontiguousarray(values, wide).view(np.uint64)
