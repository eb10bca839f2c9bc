"""Protobuf messages from columns, one per row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Bool, Float64, Int64

try:
    from timeline.encoders._wire import encode
except ImportError:
    encode = None  # type: ignore[assignment]


@lru_cache(maxsize=1 << 14)
def varint(value: int) -> bytes:
    """Return a number as a varint."""
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


@dataclass(frozen=True)
class Bytes:
    """Bytes that are equal in all rows, or in all rows that have them."""

    value: bytes
    present: Bool | None = None


@dataclass(frozen=True)
class Varint:
    """A varint per row; negative numbers take ten bytes, as protobuf's int64 does."""

    values: Int64
    present: Bool | None = None


@dataclass(frozen=True)
class Fixed64:
    """Eight bytes per row: a double or a fixed64."""

    values: Float64 | Int64
    present: Bool | None = None


@dataclass(frozen=True)
class Text:
    """A run of `value` per row, such as a string with its length before it."""

    value: bytes
    start: Int64
    length: Int64
    present: Bool | None = None


@dataclass(frozen=True)
class Message:
    """A tag, a length and the pieces of a nested message; absent rows have none of it."""

    tag: bytes
    pieces: Sequence[Piece]
    present: Bool | None = None


Piece = Bytes | Varint | Fixed64 | Text | Message


def joined_rows(pieces: Sequence[Piece], count: int) -> bytes:
    """Encode `count` rows as `encode_rows` does, without the compiled module."""
    return b"".join(_cells_of_rows(pieces, count))


def _cells_of_rows(pieces: Sequence[Piece], count: int) -> list[bytes]:
    rows = [[b""] * count, *(_cells(piece, count) for piece in pieces)]
    return list(map(b"".join, zip(*rows, strict=True)))


def _cells(piece: Piece, count: int) -> list[bytes]:
    if isinstance(piece, Message):
        inner = _cells_of_rows(piece.pieces, count)
        made = [piece.tag + varint(len(cell)) + cell for cell in inner]
    elif isinstance(piece, Bytes):
        made = [piece.value] * count
    elif isinstance(piece, Varint):
        made = list(map(varint, np.ascontiguousarray(piece.values, np.int64).view("u8").tolist()))
    elif isinstance(piece, Fixed64):
        data = piece.values.tobytes()
        made = [data[at : at + 8] for at in range(0, len(data), 8)]
    else:
        runs = zip(piece.start.tolist(), piece.length.tolist(), strict=True)
        made = [piece.value[start : start + length] for start, length in runs]
    if piece.present is None:
        return made
    return [cell if has else b"" for cell, has in zip(made, piece.present.tolist(), strict=True)]


_BYTES, _VARINT, _FIXED64, _TEXT, _MESSAGE = range(5)
_Raw = bytes | npt.NDArray[Any]
"""Bytes, or an array that lies in memory in the order of rows."""
_Cells = tuple[int, _Raw | None, _Raw, int, _Raw | None]
"""One piece as the compiled module takes it."""


def is_compiled() -> bool:
    """Return whether this installation has the compiled module."""
    return encode is not None


def encode_rows(pieces: Sequence[Piece], count: int) -> bytes:
    """Encode `count` rows, one after the other; varints are canonical."""
    if encode is None:
        return joined_rows(pieces, count)
    return encode(tuple(_flattened(pieces)), count)


def _flattened(pieces: Sequence[Piece]) -> Iterator[_Cells]:
    """Return the pieces that a row has, each message before those that it holds."""
    for piece in pieces:
        present = None if piece.present is None else np.ascontiguousarray(piece.present, np.bool_)
        if present is not None:
            count = np.count_nonzero(present)
            if not count:
                continue
            if count == len(present):
                present = None
        if isinstance(piece, Message):
            inner = tuple(_flattened(piece.pieces))
            yield _MESSAGE, present, piece.tag, len(inner), None
            yield from inner
        elif isinstance(piece, Bytes):
            yield _BYTES, present, piece.value, 0, None
        elif isinstance(piece, Varint):
            yield _VARINT, present, np.ascontiguousarray(piece.values, np.int64), 0, None
        elif isinstance(piece, Text):
            runs = np.stack([piece.start, piece.length], axis=1)
            yield _TEXT, present, piece.value, 0, runs
        else:
            yield _FIXED64, present, np.ascontiguousarray(piece.values), 0, None
