"""Turns columns that memory has no room for into parts of files, mapped so that they read alike."""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import IO, Any, TypeVar

import numpy as np
import numpy.typing as npt

from timeline.errors import OutputError

__all__ = ["Room", "by_parts", "kept", "let_go", "parts_of"]

HELD_BYTES = 160 << 20
"""Columns that memory holds at a time; further ones are put into files."""
LEAST_BYTES = 1 << 16
"""Smaller columns stay in memory and are not counted."""
FILE_BYTES = 256 << 20
"""The size of a file, unless one column is larger."""
PART_ROWS = 1 << 16
"""Rows that are worked on at a time: what that takes stays small, and in the processor's cache."""
LET_GO_PARTS = 16
"""After so many parts what was read of files is given back."""
PART_BYTES = 1 << 20
"""What is written at a time of a column that is still filled."""
ALIGNED = 64
SUPPORTED = hasattr(os, "posix_fallocate") and hasattr(mmap, "MADV_DONTNEED")
"""Whether the system, as Linux does, can reserve room on a disk and take back memory; elsewhere
all columns stay in memory."""

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


class _File:
    """A file without a name that is filled with columns; it goes when the last of them does."""

    def __init__(self, size: int) -> None:
        """Raises OSError where there is no room for it: later writes would fail otherwise."""
        self._file: IO[bytes] = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        os.posix_fallocate(self._file.fileno(), 0, size)
        self.mapping = mmap.mmap(self._file.fileno(), size, access=mmap.ACCESS_READ)
        self._size, self._used = size, 0

    def fits(self, size: int) -> bool:
        return self._used + size <= self._size

    def place(self, size: int) -> int:
        """Where a column that fits goes."""
        first = self._used
        self._used += -(-size // ALIGNED) * ALIGNED
        return first

    def write(self, first: int, values: npt.NDArray[Any]) -> None:
        """Put values at a place.

        Raises:
            OutputError: the disk fails.
        """
        data = np.ascontiguousarray(values).view(np.uint8).data
        try:
            while data:
                written = os.pwrite(self._file.fileno(), data, first)
                data, first = data[written:], first + written
        except OSError as error:
            raise OutputError(
                f"{tempfile.gettempdir()} cannot be written: {error.strerror}. "
                "What memory has no room for goes there; TMPDIR may name another directory."
            ) from error

    def read(self, first: int, rows: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """The values at a place."""
        return np.frombuffer(self.mapping, dtype, rows, first)


class _Files:
    """The files of this process: one that is being filled, and the mappings still in use.

    A process that was forked fills files of its own.
    """

    def __init__(self) -> None:
        self._filling: _File | None = None
        self._process = 0
        self._mappings: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()
        self._lock = threading.Lock()

    def place(self, size: int) -> tuple[_File, int] | None:
        """A file and the place in it for a column; None where there can be none."""
        if not SUPPORTED:
            return None
        with self._lock:
            if self._process != os.getpid():
                self._filling, self._process = None, os.getpid()
            if self._filling is None or not self._filling.fits(size):
                try:
                    self._filling = _File(max(size, FILE_BYTES))
                except OSError:
                    return None
                self._mappings.add(self._filling.mapping)
            return self._filling, self._filling.place(size)

    def let_go(self) -> None:
        for mapping in list(self._mappings):
            mapping.madvise(mmap.MADV_DONTNEED)


_held, _files = _Held(), _Files()


def let_go() -> None:
    """Give back the memory of all columns that are in files; it fills again as they are read."""
    _files.let_go()


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
    file, first = place
    file.write(first, values)
    let_go()
    made: _Column = file.read(first, len(values), values.dtype)  # type: ignore[assignment]
    return made


class Room:
    """Room for a column of at most so many rows, in memory or in a file."""

    def __init__(self, most: int, dtype: npt.DTypeLike) -> None:
        self._dtype = np.dtype(dtype)
        size = most * self._dtype.itemsize
        in_memory = size < LEAST_BYTES or _held.fits(size)
        self._place = None if in_memory else _files.place(size)
        waiting = most if self._place is None else min(most, PART_BYTES // self._dtype.itemsize)
        self._waiting = np.empty(waiting, self._dtype)
        self._written, self._used = 0, 0
        if self._place is None and size >= LEAST_BYTES:
            _held.add(self._waiting)

    def add(self, values: npt.NDArray[Any]) -> None:
        """Put values behind the others."""
        if self._used + len(values) > len(self._waiting):
            self._write(self._waiting[: self._used])
            self._used = 0
        if len(values) > len(self._waiting):
            self._write(values.astype(self._dtype, copy=False))
            return
        self._waiting[self._used : self._used + len(values)] = values
        self._used += len(values)

    def _write(self, values: npt.NDArray[Any]) -> None:
        assert self._place is not None
        file, first = self._place
        file.write(first + self._written * self._dtype.itemsize, values)
        self._written += len(values)

    def column(self) -> npt.NDArray[Any]:
        """All values; there is no more room then."""
        if self._place is None:
            values = self._waiting[: self._used]
            return values.copy() if len(values) * 2 < len(self._waiting) else values
        self._write(self._waiting[: self._used])
        file, first = self._place
        return file.read(first, self._written, self._dtype)


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
