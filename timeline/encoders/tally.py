"""Turns the pieces of a file into the bytes that each track took."""

from __future__ import annotations

__all__ = ["Tally"]


class Tally:
    """Bytes by track; None stands for what no single track took."""

    def __init__(self) -> None:
        self.by_track: dict[int | None, float] = {}

    def add(self, track: int | None, size_bytes: float) -> None:
        """Note that a track took so many bytes more."""
        self.by_track[track] = self.by_track.get(track, 0.0) + size_bytes

    def scale_to(self, size_bytes: int) -> None:
        """Make the sum that of the file, which may be compressed as a whole."""
        total = sum(self.by_track.values())
        if total:
            for track in self.by_track:
                self.by_track[track] *= size_bytes / total
