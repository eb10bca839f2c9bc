"""Turns columns into protobuf messages, one per row, without making an object for any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from timeline.records.columns import Bool, Float64, Int64

__all__ = ["Bytes", "Fixed64", "Message", "Piece", "Varint", "encode_rows", "varint"]

ByteMatrix = npt.NDArray[np.uint8]
LONGEST_VARINT = 10


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


def encode_rows(pieces: Sequence[Piece], count: int) -> bytes:
    """Encode `count` rows, one after the other.

    All rows are laid out in one matrix as wide as the widest row could be; what a row does not
    have is masked out at the end. Varints are canonical.
    """
    leaves: list[_Leaf] = []
    for piece in pieces:
        _flatten(piece, None, leaves, count)
    width = sum(leaf.width for leaf in leaves)
    matrix = np.empty((count, width), np.uint8)
    kept = np.empty((count, width), np.bool_)
    at = 0
    for leaf in leaves:
        leaf.write(matrix[:, at : at + leaf.width], kept[:, at : at + leaf.width])
        at += leaf.width
    return matrix[kept].tobytes()


@dataclass(frozen=True)
class _Leaf:
    """Columns of the matrix: bytes (n or 1, width) and the length that each row keeps of them."""

    cells: ByteMatrix
    length: Int64 | int

    @property
    def width(self) -> int:
        return int(self.cells.shape[1])

    def write(self, cells: ByteMatrix, kept: Bool) -> None:
        cells[:] = self.cells
        if isinstance(self.length, int):
            kept[:] = True
        else:
            for place in range(self.width):
                np.greater(self.length, place, out=kept[:, place])


def _flatten(piece: Piece, outer: Bool | None, leaves: list[_Leaf], count: int) -> Int64 | int:
    """Add the leaves of a piece; the bytes each row gets of it."""
    present = _both(outer, piece.present)
    if isinstance(piece, Bytes):
        cells = np.frombuffer(piece.value, np.uint8)[None, :]
        leaf = _Leaf(cells, _only(present, len(piece.value)))
    elif isinstance(piece, Varint):
        values = np.ascontiguousarray(piece.values, np.int64).view(np.uint64)
        if present is not None:
            values = np.where(present, values, np.uint64(0))
        lengths = _varint_lengths(values)
        leaf = _Leaf(_varint_cells(values, lengths), _only(present, lengths))
    elif isinstance(piece, Fixed64):
        cells = np.ascontiguousarray(piece.values).view(np.uint8).reshape(-1, 8)
        leaf = _Leaf(cells, _only(present, 8))
    else:
        return _flatten_message(piece, present, leaves, count)
    leaves.append(leaf)
    return leaf.length


def _flatten_message(
    message: Message, present: Bool | None, leaves: list[_Leaf], count: int
) -> Int64 | int:
    inner: list[_Leaf] = []
    size: Int64 | int = 0
    for piece in message.pieces:
        size = size + _flatten(piece, present, inner, count)
    sizes = np.full(count, size, np.int64) if isinstance(size, int) else size
    head = _flatten(Bytes(message.tag, present), None, leaves, count)
    prefix = _flatten(Varint(sizes, present), None, leaves, count)
    leaves.extend(inner)
    return head + prefix + size


def _both(one: Bool | None, other: Bool | None) -> Bool | None:
    if one is None or other is None:
        return one if other is None else other
    return one & other


def _only(present: Bool | None, length: Int64 | int) -> Int64 | int:
    if present is None:
        return length
    made: Int64 = np.where(present, length, 0)
    return made


def _varint_lengths(values: npt.NDArray[np.uint64]) -> Int64:
    lengths = np.ones(len(values), np.int64)
    largest = int(values.max(initial=0))
    for place in range(1, LONGEST_VARINT):
        if largest < 1 << 7 * place:
            break
        lengths += values >= np.uint64(1 << 7 * place)
    return lengths


def _varint_cells(values: npt.NDArray[np.uint64], lengths: Int64) -> ByteMatrix:
    width = int(lengths.max(initial=1))
    cells = np.empty((len(values), width), np.uint8)
    for place in range(width):
        cells[:, place] = (values >> np.uint64(7 * place)) & np.uint64(0x7F)
        if place + 1 < width:
            cells[:, place] |= (lengths > place + 1).astype(np.uint8) << 7
    return cells
