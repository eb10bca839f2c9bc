"""Turns columns that memory has no room for into parts of files, mapped so that they read alike."""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from timeline.records.constant import constant
from timeline.records.mapped_files import MappedFiles, Place

__all__ = ["Room", "by_parts", "kept", "let_go", "let_go_with_others", "parts_of"]

HELD_BYTES = 112 << 20
"""Columns that memory holds at a time; further ones are put into files."""
LEAST_BYTES = 1 << 16
"""Smaller columns stay in memory and are not counted."""
PART_ROWS = 1 << 16
"""Rows that are worked on at a time: what that takes stays small, and in the processor's cache."""
LET_GO_PARTS = 16
"""After so many parts what was read of files is given back."""
PART_BYTES = 1 << 20
"""What is written at a time of a column that is still filled."""

_Column = TypeVar("_Column", bound=npt.NDArray[Any])


class _Held:
    """The columns in memory that are still in use, by the array that owns them."""

    def __init__(self) -> None:
        self._columns: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._bytes = 0

    def has(self, owner: npt.NDArray[Any]) -> bool:
        return id(owner) in self._columns

    def fits(self, size: int) -> bool:
        return self._bytes + size <= HELD_BYTES

    def add(self, owner: npt.NDArray[Any]) -> None:
        key, size = id(owner), owner.nbytes
        self._columns[key] = (weakref.ref(owner, lambda _: self._drop(key)), size)
        self._bytes += size

    def _drop(self, key: int) -> None:
        self._bytes -= self._columns.pop(key)[1]


_held, _files = _Held(), MappedFiles()


def let_go() -> None:
    """Give back the memory of all columns that are in files; it fills again as they are read."""
    _files.let_go()


def let_go_with_others(mapping: mmap.mmap) -> None:
    """Let go of the memory of a file that was mapped elsewhere too."""
    _files.watch(mapping)


def kept(values: _Column) -> _Column:
    """The same values, in memory as long as there is room, else in a file and read-only."""
    owner: npt.NDArray[Any] = values
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    small = values.nbytes < LEAST_BYTES or 0 in values.strides
    if small or not owner.flags.owndata or _held.has(owner):
        return values
    if _held.fits(owner.nbytes) or (place := _files.place(values.nbytes)) is None:
        _held.add(owner)
        let_go()
        return values
    place.write(0, values)
    let_go()
    made: _Column = place.column(len(values), values.dtype)  # type: ignore[assignment]
    return made


class Room:
    """Room for a column of at most so many rows, in memory or in a file.

    As long as all values are the same there is nothing but one of them: profiles have many columns
    that say the same of every row.
    """

    def __init__(self, most: int, dtype: npt.DTypeLike) -> None:
        self._most, self._dtype = most, np.dtype(dtype)
        self._first: npt.NDArray[Any] = np.empty(0, self._dtype)
        """The value of all rows so far, if they have one."""
        self._equal = 0
        self._place: Place | None = None
        self._waiting: npt.NDArray[Any] | None = None
        self._written, self._used = 0, 0

    def add(self, values: npt.NDArray[Any]) -> None:
        """Put values behind the others."""
        if self._waiting is None:
            if self._are_equal(values):
                self._equal += len(values)
                return
            self._waiting = self._made_room()
            for part in range(0, self._equal, len(self._waiting)):
                rows = min(self._equal - part, len(self._waiting))
                self._put(constant(self._first[0], rows, self._dtype), self._waiting)
        self._put(values, self._waiting)

    def _are_equal(self, values: npt.NDArray[Any]) -> bool:
        if not len(self._first):
            self._first = values[:1].astype(self._dtype)
        own = values.astype(self._dtype, copy=False)
        # As bits: zeros of either sign are equal numbers, and no value is equal to itself.
        bits = f"u{self._dtype.itemsize}"
        return bool((own.view(bits) == self._first.view(bits)).all())

    def _made_room(self) -> npt.NDArray[Any]:
        """Memory for all rows, or for those that wait to be written into a file."""
        item_bytes = self._dtype.itemsize
        size = self._most * item_bytes
        if size < LEAST_BYTES:
            return np.empty(self._most, self._dtype)
        self._place = None if _held.fits(size) else _files.place(size)
        if self._place is not None:
            return np.empty(min(self._most, PART_BYTES // item_bytes), self._dtype)
        made = np.empty(self._most, self._dtype)
        _held.add(made)
        return made

    def _put(self, values: npt.NDArray[Any], waiting: npt.NDArray[Any]) -> None:
        if self._used + len(values) > len(waiting):
            self._write(waiting[: self._used])
            self._used = 0
        if len(values) > len(waiting):
            self._write(values.astype(self._dtype, copy=False))
            return
        waiting[self._used : self._used + len(values)] = values
        self._used += len(values)

    def _write(self, values: npt.NDArray[Any]) -> None:
        assert self._place is not None
        self._place.write(self._written * self._dtype.itemsize, values)
        self._written += len(values)

    def column(self) -> npt.NDArray[Any]:
        """All values; there is no more room then."""
        if self._waiting is None:
            value = self._first[0] if self._equal else 0
            return constant(value, self._equal, self._dtype)
        if self._place is None:
            values = self._waiting[: self._used]
            return values.copy() if len(values) * 2 < len(self._waiting) else values
        self._write(self._waiting[: self._used])
        return self._place.column(self._written, self._dtype)


def parts_of(count: int) -> Iterator[slice]:
    """Some rows of a table at a time."""
    for first in range(0, count, PART_ROWS):
        if first % (LET_GO_PARTS * PART_ROWS) == 0:
            let_go()
        yield slice(first, min(first + PART_ROWS, count))


def by_parts(
    count: int, dtype: npt.DTypeLike, work: Callable[[slice], npt.NDArray[Any]]
) -> npt.NDArray[Any]:
    """A column that is worked out some rows at a time."""
    room = Room(count, dtype)
    for part in parts_of(count):
        room.add(work(part))
    return room.column()
