"""Turns columns into protobuf messages, one per row, all of which are laid out in one matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Bool
from timeline.encoders.pieces import Bytes, Fixed64, Message, Piece, Varint, varint

__all__ = ["matrix_rows"]

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
    leaves = _joined(leaves)
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
        for place in range(self.width):
            if self.present is not None:
                kept[:, place] = self.present
            else:
                np.greater(self.length, place, out=kept[:, place])


def _put(target: ByteMatrix, cells: ByteMatrix) -> None:
    """Copy bytes, those of a row at once, which NumPy does several times faster than one by one."""
    row = f"V{cells.shape[1]}"
    target.view(row)[:] = cells.view(row)


def _joined(leaves: Sequence[_Leaf]) -> list[_Leaf]:
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
    for place in range(1, width):
        lengths += values >= values.dtype.type(1 << 7 * place)
    cells = _varint_cells(values, lengths, width)
    return _Leaf(cells, lengths if present is None else lengths * present)


def _varint_cells(values: npt.NDArray[Any], lengths: Lengths | None, width: int) -> ByteMatrix:
    """The bytes of varints; without lengths each is as long as the widest."""
    cells = np.empty((len(values), width), np.uint8)
    for place in range(width):
        own = (values >> values.dtype.type(7 * place)).astype(np.uint8)
        own &= np.uint8(0x7F)
        if place + 1 < width:
            more = np.uint8(1) if lengths is None else (lengths > place + 1).view(np.uint8)
            own |= more << np.uint8(7)
        cells[:, place] = own
    return cells
