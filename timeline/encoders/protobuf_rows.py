"""Encoding of columns as protobuf messages, one per row."""

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
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


@dataclass(frozen=True)
class Bytes:
    """Bytes that are the same in all rows that have them; present: mask of these, None for all."""

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
    """A part of `value` per row, such as a string after its length."""

    value: bytes
    start: Int64
    length: Int64
    present: Bool | None = None


@dataclass(frozen=True)
class Message:
    """A nested message per row, written as tag, length and pieces; absent rows have nothing."""

    tag: bytes
    pieces: Sequence[Piece]
    present: Bool | None = None


Piece = Bytes | Varint | Fixed64 | Text | Message


def join_rows(pieces: Sequence[Piece], count: int) -> bytes:
    """Encode `count` rows as `encode_rows` does, without the compiled module."""
    return b"".join(_cells_of_rows(pieces, count))


def _cells_of_rows(pieces: Sequence[Piece], count: int) -> list[bytes]:
    rows = [[b""] * count, *(_cells(piece, count) for piece in pieces)]
    return list(map(b"".join, zip(*rows, strict=True)))


def _cells(piece: Piece, count: int) -> list[bytes]:
    if isinstance(piece, Message):
        inner = _cells_of_rows(piece.pieces, count)
        cells = [piece.tag + varint(len(cell)) + cell for cell in inner]
    elif isinstance(piece, Bytes):
        cells = [piece.value] * count
    elif isinstance(piece, Varint):
        cells = list(map(varint, np.ascontiguousarray(piece.values, np.int64).view("u8").tolist()))
    elif isinstance(piece, Fixed64):
        data = piece.values.tobytes()
        cells = [data[at : at + 8] for at in range(0, len(data), 8)]
    else:
        runs = zip(piece.start.tolist(), piece.length.tolist(), strict=True)
        cells = [piece.value[start : start + length] for start, length in runs]
    if piece.present is None:
        return cells
    return [cell if has else b"" for cell, has in zip(cells, piece.present.tolist(), strict=True)]


_BYTES, _VARINT, _FIXED64, _TEXT, _MESSAGE = range(5)
_Raw = bytes | npt.NDArray[Any]
"""Bytes, or a contiguous array in the order of rows."""
_Cells = tuple[int, _Raw | None, _Raw, int, _Raw | None]
"""One piece for the compiled module: kind, present, value or tag, inner pieces, and runs."""


def is_compiled() -> bool:
    """Return whether the compiled module is installed."""
    return encode is not None


def encode_rows(pieces: Sequence[Piece], count: int) -> bytes:
    """Encode `count` rows, one after the other; varints are canonical."""
    if encode is None:
        return join_rows(pieces, count)
    return encode(tuple(_flattened(pieces)), count)


def _flattened(pieces: Sequence[Piece]) -> Iterator[_Cells]:
    """Yield the pieces that any row has in prefix order: each message before its inner pieces."""
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
