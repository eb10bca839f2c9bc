"""How hard what is written is compressed: as small as can be, or quickly."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from zlib_ng import zlib_ng

_BEST_LEVEL = 9
"""On a million tasks zlib-ng takes as long at its level 9 as zlib at 6, for a tenth less."""
_FAST_LEVEL = 2
"""ISA-L takes a fifth of the time of zlib-ng's level 5 at it, for as much or a fifth more; its
level 3 takes six to twenty times as long, for 5 to 17% less."""


class _Stream(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...

    def flush(self, mode: int, /) -> bytes: ...


class Compression(Enum):
    """How hard what is written is compressed."""

    BEST = "best"
    """As small as can be: what is near a limit, and what is little."""
    FAST = "fast"
    """Two fifths larger in a twentieth of the time: what is large and has room."""

    def compress(self, data: bytes) -> bytes:
        """A whole zlib stream of the data."""
        if self is Compression.FAST:
            from isal import isal_zlib

            return isal_zlib.compress(data, _FAST_LEVEL)
        return bytes(zlib_ng.compress(data, _BEST_LEVEL))

    def open(self) -> _Stream:
        """What compresses data that come in parts to one stream of deflate, without a header."""
        if self is Compression.FAST:
            from isal import isal_zlib

            return isal_zlib.compressobj(_FAST_LEVEL, isal_zlib.DEFLATED, -isal_zlib.MAX_WBITS)
        return zlib_ng.compressobj(_BEST_LEVEL, zlib_ng.DEFLATED, -zlib_ng.MAX_WBITS)
