"""What is known of a capture's clock."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EARLIEST_WALL_NS", "Clock"]

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
