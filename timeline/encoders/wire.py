"""Turns columns into protobuf messages, one per row, without making an object for any.

The package is whole without the compiled module: encoding then takes longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from timeline.encoders.pieces import Bytes, Message, Piece, Varint
from timeline.encoders.row_matrix import matrix_rows

try:
    from timeline.encoders._wire import encode
except ImportError:
    encode = None  # type: ignore[assignment]

__all__ = ["encode_rows", "is_compiled"]

_BYTES, _VARINT, _FIXED64, _MESSAGE = range(4)
_Cells = tuple[int, bytes | None, bytes, int]
"""One piece as the compiled module takes it."""


def is_compiled() -> bool:
    """Whether this installation has the compiled module."""
    return encode is not None


def encode_rows(pieces: Sequence[Piece], count: int) -> bytes:
    """Encode `count` rows, one after the other; varints are canonical."""
    if encode is None:
        return matrix_rows(pieces, count)
    return encode(tuple(_flattened(pieces)), count)


def _flattened(pieces: Sequence[Piece]) -> Iterator[_Cells]:
    """The pieces, each message before those that it holds."""
    for piece in pieces:
        present = None if piece.present is None else piece.present.tobytes()
        if isinstance(piece, Message):
            inner = tuple(_flattened(piece.pieces))
            yield _MESSAGE, present, piece.tag, len(inner)
            yield from inner
        elif isinstance(piece, Bytes):
            yield _BYTES, present, piece.value, 0
        elif isinstance(piece, Varint):
            yield _VARINT, present, piece.values.astype(np.int64, copy=False).tobytes(), 0
        else:
            yield _FIXED64, present, piece.values.tobytes(), 0
