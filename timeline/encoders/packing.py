"""Turns bytes into zlib and gzip streams, all by one fast implementation of deflate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass

from zlib_ng import zlib_ng

__all__ = ["QUICK", "SMALL", "Tally", "Workers", "compressed", "gzipped"]

SMALL = 9
"""On a million tasks zlib-ng takes as long at its level 9 as zlib at 6, for a tenth less."""
QUICK = 5
"""A seventh larger in a third of the time; level 6 takes half, for another hundredth."""
_GZIP = 16 + zlib_ng.MAX_WBITS


def compressed(body: bytes | bytearray, level: int) -> bytes:
    """One zlib stream."""
    return bytes(zlib_ng.compress(body, level))


def gzipped(pieces: Iterable[bytes], level: int) -> Iterator[bytes]:
    """A gzip file of all pieces, without name or time, so that equal input gives equal files."""
    packer = zlib_ng.compressobj(level, zlib_ng.DEFLATED, _GZIP)
    for piece in pieces:
        if packed := packer.compress(piece):
            yield packed
    yield packer.flush()


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


@dataclass(frozen=True)
class Workers:
    """Processes of this machine that have time, and how many they are."""

    executor: Executor
    jobs: int
