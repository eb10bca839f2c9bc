"""Turns fields of protobuf messages, given as columns, into what is encoded row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from timeline.columns.columns import Bool, Float64, Int64

__all__ = ["Bytes", "Fixed64", "Message", "Piece", "Varint", "varint"]


def varint(value: int) -> bytes:
    """One varint."""
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


@dataclass(frozen=True)
class Bytes:
    """The same bytes in every row, or in the rows that have them."""

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
class Message:
    """A tag, a length and the pieces of a nested message; absent rows have none of it."""

    tag: bytes
    pieces: Sequence[Piece]
    present: Bool | None = None


Piece = Bytes | Varint | Fixed64 | Message
