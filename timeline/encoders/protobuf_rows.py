"""Protobuf messages from columns, one per row; NumPy lays them out in one matrix of bytes."""

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
    """One varint."""
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


ByteMatrix = npt.NDArray[np.uint8]
Lengths = npt.NDArray[np.int32] | npt.NDArray[np.uint8]


def matrix_rows(pieces: Sequence[Piece], count: int) -> bytes:
    """Encode `count` rows, one after the other.

    The matrix is as wide as the widest row could be; what a row does not have is masked out at the
    end.
    """
    leaves: list[_Leaf] = []
    for piece in pieces:
        _flatten(piece, None, leaves, count)
    leaves = _join_constants(leaves)
    width = sum(leaf.width for leaf in leaves)
    matrix = np.empty((count, width), np.uint8)
    constants = [leaf.cells[0] if leaf.constant else np.zeros(leaf.width) for leaf in leaves]
    _put(matrix, np.concatenate(constants, dtype=np.uint8, casting="unsafe")[None, :])
    kept = np.ones((count, width), np.bool_)
    at = 0
    for leaf in leaves:
        leaf.write(matrix[:, at : at + leaf.width], kept[:, at : at + leaf.width])
        at += leaf.width
    return matrix.reshape(-1)[kept.reshape(-1)].tobytes()


@dataclass(frozen=True)
class _Leaf:
    """Columns of the matrix: bytes (n or 1, width) and the length that each row keeps of them.

    present: which rows keep all bytes, where the others keep none.
    """

    cells: ByteMatrix
    length: Lengths | int
    present: Bool | None = None

    @property
    def width(self) -> int:
        return int(self.cells.shape[1])

    @property
    def constant(self) -> bool:
        """Whether all rows have the same bytes, as far as they keep them."""
        return len(self.cells) == 1

    def write(self, cells: ByteMatrix, kept: Bool) -> None:
        """Fill in what is not the same in all rows."""
        if not self.constant:
            _put(cells, self.cells)
        if isinstance(self.length, int):
            return
        # Byte by byte: rows are short, and columns long.
        for byte in range(self.width):
            if self.present is not None:
                kept[:, byte] = self.present
            else:
                np.greater(self.length, byte, out=kept[:, byte])


def _put(target: ByteMatrix, cells: ByteMatrix) -> None:
    """Copy bytes, those of a row at once, which NumPy does several times faster than one by one."""
    row = f"V{cells.shape[1]}"
    target.view(row)[:] = cells.view(row)


def _join_constants(leaves: Sequence[_Leaf]) -> list[_Leaf]:
    """Constant bytes that follow each other in the same rows, as one."""
    made: list[_Leaf] = []
    for leaf in leaves:
        last = made[-1] if made else None
        if last is not None and last.constant and leaf.constant and last.present is leaf.present:
            made[-1] = _leaf(np.concatenate([last.cells, leaf.cells], axis=1), leaf.present)
        else:
            made.append(leaf)
    return made


def _flatten(piece: Piece, outer: Bool | None, leaves: list[_Leaf], count: int) -> Lengths | int:
    """Add the leaves of a piece; the bytes each row gets of it."""
    present = _both(outer, piece.present)
    if isinstance(piece, Message):
        return _flatten_message(piece, present, leaves, count)
    if isinstance(piece, Varint):
        leaf = _varint_leaf(piece.values, present)
    elif isinstance(piece, Fixed64):
        cells = np.ascontiguousarray(piece.values).view(np.uint8).reshape(-1, 8)
        leaf = _leaf(cells, present)
    elif isinstance(piece, Text):
        leaf = _text_leaf(piece, present)
    else:
        leaf = _leaf(np.frombuffer(piece.value, np.uint8)[None, :], present)
    leaves.append(leaf)
    return leaf.length


def _flatten_message(
    message: Message, present: Bool | None, leaves: list[_Leaf], count: int
) -> Lengths | int:
    inner: list[_Leaf] = []
    size: Lengths | int = 0
    for piece in message.pieces:
        size = _sum(size, _flatten(piece, present, inner, count))
    head = _flatten(Bytes(message.tag, present), None, leaves, count)
    if isinstance(size, int):
        prefix = _flatten(Bytes(varint(size), present), None, leaves, count)
    else:
        prefix = _flatten(Varint(size.astype(np.int64), present), None, leaves, count)
    leaves.extend(inner)
    return _sum(_sum(head, prefix), size)


def _sum(one: Lengths | int, other: Lengths | int) -> Lengths | int:
    if isinstance(one, int) and isinstance(other, int):
        return one + other
    made: Lengths = np.add(one, other, dtype=np.int32)
    return made


def _both(one: Bool | None, other: Bool | None) -> Bool | None:
    """The rows that have both; None for all rows."""
    if other is not None and other.all():
        other = None
    if one is None or other is None:
        return one if other is None else other
    return one & other


def _leaf(cells: ByteMatrix, present: Bool | None) -> _Leaf:
    """Bytes that rows keep as they are."""
    width = int(cells.shape[1])
    if present is None:
        return _Leaf(cells, width)
    return _Leaf(cells, present * np.int32(width), present)


def _text_leaf(text: Text, present: Bool | None) -> _Leaf:
    """Runs of bytes, each as long as it is."""
    length = text.length if present is None else text.length * present
    width = int(length.max(initial=0))
    every = np.frombuffer(text.value, np.uint8)
    at = np.minimum(text.start[:, None] + np.arange(width), len(every) - 1)
    return _Leaf(every[at], length.astype(np.int32))


def _varint_leaf(column: npt.NDArray[Any], present: Bool | None) -> _Leaf:
    """Varints, each as long as its number needs."""
    values = np.ascontiguousarray(column, np.int64).view(np.uint64)
    if present is not None:
        values = np.where(present, values, np.uint64(0))
    greatest = int(values.max(initial=0))
    width = len(varint(greatest))
    values = values.astype(np.min_scalar_type(greatest))
    if present is None and len(values) and len(varint(int(values.min()))) == width:
        return _Leaf(_varint_cells(values, None, width), width)
    if width == 1:
        return _leaf(_varint_cells(values, None, width), present)
    lengths = np.ones(len(values), np.uint8)
    for position in range(1, width):
        lengths += values >= values.dtype.type(1 << 7 * position)
    cells = _varint_cells(values, lengths, width)
    return _Leaf(cells, lengths if present is None else lengths * present)


def _varint_cells(values: npt.NDArray[Any], lengths: Lengths | None, width: int) -> ByteMatrix:
    """The bytes of varints; without lengths each is as long as the widest."""
    cells = np.empty((len(values), width), np.uint8)
    for position in range(width):
        byte = (values >> values.dtype.type(7 * position)).astype(np.uint8)
        byte &= np.uint8(0x7F)
        if position + 1 < width:
            more = np.uint8(1) if lengths is None else (lengths > position + 1).view(np.uint8)
            byte |= more << np.uint8(7)
        cells[:, position] = byte
    return cells


_BYTES, _VARINT, _FIXED64, _TEXT, _MESSAGE = range(5)
_Raw = bytes | npt.NDArray[Any]
"""Bytes, or an array that lies in memory in the order of rows."""
_Cells = tuple[int, _Raw | None, _Raw, int, _Raw | None]
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
    """The pieces that a row has, each message before those that it holds."""
    for piece in pieces:
        present = None if piece.present is None else np.ascontiguousarray(piece.present, np.bool_)
        if present is not None:
            its = np.count_nonzero(present)
            if not its:
                continue
            if its == len(present):
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
