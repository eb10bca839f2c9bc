"""Compression of what is written, and what of the compressed bytes each track takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from zlib_ng import zlib_ng

__all__ = ["BEST_LEVEL", "FAST_LEVEL", "TrackSizes", "compress", "gzip_pieces"]

BEST_LEVEL = 9
"""On a million tasks zlib-ng takes as long at its level 9 as zlib at 6, for a tenth less."""
FAST_LEVEL = 5
"""A seventh larger in a third of the time; level 6 takes half, for another hundredth."""
_GZIP = 16 + zlib_ng.MAX_WBITS


def compress(body: bytes | bytearray, level: int) -> bytes:
    """Compress bytes into one zlib stream."""
    return bytes(zlib_ng.compress(body, level))


def gzip_pieces(pieces: Iterable[bytes], level: int) -> Iterator[bytes]:
    """Compress pieces into a gzip file without name or time: equal input gives equal files."""
    packer = zlib_ng.compressobj(level, zlib_ng.DEFLATED, _GZIP)
    for piece in pieces:
        if compressed := packer.compress(piece):
            yield compressed
    yield packer.flush()


class TrackSizes:
    """The bytes that each track took in a file; None stands for what no single track took.

    tell: is told how many slices are encoded, whenever there are more.
    """

    def __init__(self, tell: Callable[[int], None] | None = None) -> None:
        self.by_track: dict[int | None, float] = {}
        self._tell = tell
        self._slices = 0

    def count(self, slices: int) -> None:
        """Note that so many slices more are encoded."""
        self._slices += slices
        if self._tell is not None and slices:
            self._tell(self._slices)

    def add(self, track: int | None, size_bytes: float) -> None:
        """Note that a track took so many bytes more."""
        self.by_track[track] = self.by_track.get(track, 0.0) + size_bytes

    def scale_to(self, size_bytes: int) -> None:
        """Make the sum that of the file, which may be compressed as a whole."""
        total = sum(self.by_track.values())
        if total:
            for track in self.by_track:
                self.by_track[track] *= size_bytes / total
