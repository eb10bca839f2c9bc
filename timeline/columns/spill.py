"""Turns columns that memory has no room for into parts of files, mapped so that they read alike."""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
import weakref
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator
from typing import IO, Any, TypeVar

import numpy as np
import numpy.typing as npt

from timeline.columns.constant import constant
from timeline.errors import OutputError

__all__ = [
    "MappedFiles",
    "Place",
    "Room",
    "aligned",
    "by_parts",
    "kept",
    "let_go",
    "let_go_with_others",
    "parts_of",
    "write_at",
]

FILE_BYTES = 256 << 20
"""The size of a file, unless one column is larger."""
ALIGNED = 64
SUPPORTED = hasattr(os, "posix_fallocate") and hasattr(mmap, "MADV_DONTNEED")
"""Whether the system, as Linux does, can reserve room on a disk and take back memory."""


_Free = Callable[["_File", int, int], None]
"""What is told of a file, a beginning and a size."""


class _File:
    """A file without a name, all of it mapped, and the gaps between its columns."""

    def __init__(self, size: int) -> None:
        """Raises OSError where there is no room for it: later writes would fail otherwise."""
        self.file: IO[bytes] = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        weakref.finalize(self, self.file.close)
        os.posix_fallocate(self.file.fileno(), 0, size)
        self.mapping = mmap.mmap(self.file.fileno(), size, access=mmap.ACCESS_READ)
        self._gaps = [(0, size)]

    def take(self, size: int) -> int | None:
        """The beginning of the first gap that is large enough, which is smaller from now on."""
        for number, (first, length) in enumerate(self._gaps):
            if length >= size:
                self._gaps[number : number + 1] = (
                    [(first + size, length - size)] if length > size else []
                )
                return first
        return None

    def give_back(self, first: int, size: int) -> None:
        """Make a gap of what was taken, one with those beside it."""
        if not size:
            return
        insort(self._gaps, (first, size))
        joined: list[tuple[int, int]] = []
        for gap in self._gaps:
            if joined and sum(joined[-1]) == gap[0]:
                joined[-1] = (joined[-1][0], joined[-1][1] + gap[1])
            else:
                joined.append(gap)
        self._gaps = joined


def write_at(file: int, data: memoryview, at: int) -> None:
    """Put bytes into a temporary file, which its descriptor tells.

    Raises:
        OutputError: the disk fails.
    """
    try:
        while data:
            written = os.pwrite(file, data, at)
            data, at = data[written:], at + written
    except OSError as error:
        raise OutputError(
            f"{tempfile.gettempdir()} cannot be written: {error.strerror}. "
            "What memory has no room for goes there; TMPDIR may name another directory."
        ) from error


class Place:
    """Room in a file for one column."""

    def __init__(self, file: _File, first: int, size: int, free: _Free) -> None:
        """free: is told of the room as soon as nothing uses it."""
        self._file, self._first, self._size, self._free = file, first, size, free
        self._unused = weakref.finalize(self, free, file, first, size)
        self._unused.atexit = False

    def write(self, offset: int, values: npt.NDArray[Any]) -> None:
        """Put values so many bytes behind the beginning.

        Raises:
            OutputError: the disk fails.
        """
        assert offset + values.nbytes <= self._size, "what lies behind is of another column"
        data = np.ascontiguousarray(values).view(np.uint8).data
        write_at(self._file.file.fileno(), data, self._first + offset)

    def column(self, rows: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """What was written, read-only, once: its room is free when the last view of it is gone."""
        values: npt.NDArray[Any] = np.frombuffer(self._file.mapping, dtype, rows, self._first)
        used = aligned(values.nbytes)
        self._unused.detach()
        self._free(self._file, self._first + used, self._size - used)
        weakref.finalize(values, self._free, self._file, self._first, used).atexit = False
        return values


class MappedFiles:
    """The files of this process; one that was forked has files of its own."""

    def __init__(self) -> None:
        self._pool, self._process = _Pool(), os.getpid()

    def place(self, size: int) -> Place | None:
        """Room for a column; None where there can be none."""
        if not SUPPORTED:
            return None
        if self._process != os.getpid():
            self._pool, self._process = _Pool(), os.getpid()
        return self._pool.place(aligned(size))

    def watch(self, mapping: mmap.mmap) -> None:
        """Give back the memory of another file too, as long as it is mapped."""
        if SUPPORTED:
            self._pool.watch(mapping)

    def let_go(self) -> None:
        """Give back the memory of all columns; it fills again as they are read."""
        for own in list(self._pool.mappings.values()):
            mapping = own()
            if mapping is not None:
                mapping.madvise(mmap.MADV_DONTNEED)


class _Pool:
    """Files with room, as long as there is a column in any of them."""

    def __init__(self) -> None:
        self.mappings: dict[int, weakref.ref[mmap.mmap]] = {}
        self._files: list[_File] = []
        self._taken_bytes = 0
        self._freed: deque[tuple[_File, int, int]] = deque()
        self._lock = threading.Lock()

    def place(self, size: int) -> Place | None:
        """Room in the first file that has it, or in a new one."""
        with self._lock:
            self._reclaim()
            for file in self._files:
                if (first := file.take(size)) is not None:
                    break
            else:
                try:
                    file = _File(max(size, FILE_BYTES))
                except OSError:
                    return None
                first = file.take(size) or 0
                self._files.append(file)
                self.watch(file.mapping)
            self._taken_bytes += size
            return Place(file, first, size, self._free)

    def watch(self, mapping: mmap.mmap) -> None:
        """Note a mapping for as long as it is there."""
        key = id(mapping)
        self.mappings[key] = weakref.ref(mapping, lambda _: self.mappings.pop(key, None))

    def _free(self, file: _File, first: int, size: int) -> None:
        """Note room that is free: columns go at any moment, also while one is placed."""
        self._freed.append((file, first, size))
        if self._lock.acquire(blocking=False):
            try:
                self._reclaim()
            finally:
                self._lock.release()

    def _reclaim(self) -> None:
        while self._freed:
            file, first, size = self._freed.popleft()
            file.give_back(first, size)
            self._taken_bytes -= size
        if not self._taken_bytes:
            self._files.clear()


def aligned(size: int) -> int:
    """The next place at which a column may begin."""
    return -(-size // ALIGNED) * ALIGNED


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
