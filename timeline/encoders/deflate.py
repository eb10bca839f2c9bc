"""Turns bytes into zlib and gzip streams, all by one fast implementation of deflate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from zlib_ng import zlib_ng

__all__ = ["compressed", "gzipped"]

LEVEL = 9
"""On a million tasks zlib-ng takes as long at its level 9 as zlib at 6, for a tenth less."""
_GZIP = 16 + zlib_ng.MAX_WBITS


def compressed(body: bytes | bytearray) -> bytes:
    """One zlib stream."""
    return bytes(zlib_ng.compress(body, LEVEL))


def gzipped(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """A gzip file of all pieces, without name or time, so that equal input gives equal files."""
    packer = zlib_ng.compressobj(LEVEL, zlib_ng.DEFLATED, _GZIP)
    for piece in pieces:
        if packed := packer.compress(piece):
            yield packed
    yield packer.flush()
