"""Files for columns that exceed the memory limit; mapped, so that they are used like others.

Tables and functions on columns pass their results to `spillable`. Other functions of this module
are for chunked computation and for code that maps files itself.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
import weakref
from bisect import bisect
from collections import deque
from collections.abc import Callable
from typing import IO, Any, TypeVar

import numpy as np
import numpy.typing as npt

from timeline.errors import OutputError

FILE_BYTES = 256 << 20
"""Size of a file, unless one column is larger."""
ALIGNED_BYTES = 64
BYTES_BETWEEN_DROPS = 16 << 20
"""After reading this many bytes, the memory of columns in files is released."""
SUPPORTED = hasattr(os, "posix_fallocate") and hasattr(mmap, "MADV_DONTNEED")
"""True if the system, like Linux, can reserve bytes on a disk and release mapped memory."""


_Free = Callable[["_File", int, int], None]
"""Callback that frees bytes: file, offset and size."""


class _File:
    """An unnamed file, completely mapped, and the gaps between its columns."""

    def __init__(self, size: int) -> None:
        """Create the file.

        Raises OSError if the disk has no room, since later writes would fail.
        """
        self.file: IO[bytes] = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        weakref.finalize(self, self.file.close)
        os.posix_fallocate(self.file.fileno(), 0, size)
        self.mapping = mmap.mmap(self.file.fileno(), size, access=mmap.ACCESS_READ)
        self._gaps = [(0, size)]

    def take(self, size: int) -> int | None:
        """Reserve bytes in the first sufficient gap; return their offset, None if there is none."""
        for number, (first, length) in enumerate(self._gaps):
            if length >= size:
                self._gaps[number : number + 1] = (
                    [(first + size, length - size)] if length > size else []
                )
                return first
        return None

    def give_back(self, first: int, size: int) -> None:
        """Free reserved bytes, merging them with adjacent gaps."""
        if not size:
            return
        gaps = self._gaps
        at = bisect(gaps, (first, size))
        before, behind = gaps[max(at - 1, 0) : at], gaps[at : at + 1]
        stop = at
        if behind and first + size == behind[0][0]:
            size, stop = size + behind[0][1], at + 1
        if before and sum(before[0]) == first:
            (first, length), at = before[0], at - 1
            size += length
        gaps[at:stop] = [(first, size)]


def write_at(file: int, data: memoryview, at: int) -> None:
    """Write bytes at an offset of a temporary file, given by its descriptor.

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
            "Data that does not fit in memory goes there; TMPDIR can name another directory."
        ) from error


class Extent:
    """Bytes of a file reserved for one column, which are freed after their last use."""

    def __init__(self, file: _File, first: int, size: int, free: _Free) -> None:
        """free: called when the bytes are not used any more."""
        self._file, self._first, self._size, self._free = file, first, size, free
        self._unused = weakref.finalize(self, free, file, first, size)
        self._unused.atexit = False

    def write(self, offset: int, values: npt.NDArray[Any]) -> None:
        """Write values at an offset in bytes from the beginning of the extent.

        Raises:
            OutputError: the disk fails.
        """
        assert offset + values.nbytes <= self._size, "further bytes belong to another column"
        data = np.ascontiguousarray(values).view(np.uint8).data
        write_at(self._file.file.fileno(), data, self._first + offset)

    def column(self, rows: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return the written values, read-only, once; the bytes are freed with the last view."""
        values: npt.NDArray[Any] = np.frombuffer(self._file.mapping, dtype, rows, self._first)
        used = align(values.nbytes)
        self._unused.detach()
        self._free(self._file, self._first + used, self._size - used)
        weakref.finalize(values, self._free, self._file, self._first, used).atexit = False
        return values


class SpillFiles:
    """Files of this process; a forked process has files of its own."""

    def __init__(self) -> None:
        self._pool, self._process = _FilePool(), os.getpid()
        self._read_bytes = 0

    def count_read(self, size: int) -> None:
        """Count bytes that were read, and release memory after many of them."""
        self._read_bytes += size
        if self._read_bytes >= BYTES_BETWEEN_DROPS:
            self._read_bytes = 0
            self.drop_pages()

    def reserve(self, size: int) -> Extent | None:
        """Reserve bytes for a column; None if no file can be created."""
        if not SUPPORTED:
            return None
        if self._process != os.getpid():
            self._pool, self._process = _FilePool(), os.getpid()
        return self._pool.reserve(align(size))

    def watch(self, mapping: mmap.mmap) -> None:
        """Include another mapping in `drop_pages`, as long as it exists."""
        if SUPPORTED:
            self._pool.watch(mapping)

    def drop_pages(self) -> None:
        """Release the memory of all columns in files; it is loaded again when they are read."""
        for reference in list(self._pool.mappings.values()):
            if (mapping := reference()) is not None:
                mapping.madvise(mmap.MADV_DONTNEED)


class _FilePool:
    """Files with free extents, kept as long as any of them holds a column."""

    def __init__(self) -> None:
        self.mappings: dict[int, weakref.ref[mmap.mmap]] = {}
        self._files: list[_File] = []
        self._taken_bytes = 0
        self._freed: deque[tuple[_File, int, int]] = deque()
        self._lock = threading.Lock()

    def reserve(self, size: int) -> Extent | None:
        """Reserve the first sufficient free bytes, in a new file if necessary; None without one."""
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
            return Extent(file, first, size, self._free)

    def watch(self, mapping: mmap.mmap) -> None:
        """Register a mapping for as long as it exists."""
        key = id(mapping)
        self.mappings[key] = weakref.ref(mapping, lambda _: self.mappings.pop(key, None))

    def _free(self, file: _File, first: int, size: int) -> None:
        """Record free bytes; columns may be dropped at any time, even during a reservation."""
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


def align(size: int) -> int:
    """Round a size up to the next possible offset of a column."""
    return -(-size // ALIGNED_BYTES) * ALIGNED_BYTES


MEMORY_BYTES = 112 << 20
"""Maximum size of columns in memory at a time; further ones are placed in files."""
LEAST_SPILLED_BYTES = 1 << 16
"""Smaller columns stay in memory and are not counted."""

_Column = TypeVar("_Column", bound=npt.NDArray[Any])


class _MemoryColumns:
    """Columns in memory that are still in use, by the array that owns them."""

    def __init__(self) -> None:
        self._columns: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._bytes = 0

    def has(self, owner: npt.NDArray[Any]) -> bool:
        return id(owner) in self._columns

    def fits(self, size: int) -> bool:
        return self._bytes + size <= MEMORY_BYTES

    def add(self, owner: npt.NDArray[Any]) -> None:
        key, size = id(owner), owner.nbytes
        self._columns[key] = (weakref.ref(owner, lambda _: self._drop(key)), size)
        self._bytes += size

    def _drop(self, key: int) -> None:
        self._bytes -= self._columns.pop(key)[1]


_in_memory, _files = _MemoryColumns(), SpillFiles()


def drop_pages() -> None:
    """Release the memory of all columns in files; it is loaded again when they are read."""
    _files.drop_pages()


def count_read(size: int) -> None:
    """Count bytes of columns that were read; their memory is released from time to time."""
    _files.count_read(size)


def watch_mapping(mapping: mmap.mmap) -> None:
    """Make `drop_pages` release the memory of a file that was mapped elsewhere too."""
    _files.watch(mapping)


def reserve_extent(size: int) -> Extent | None:
    """Reserve bytes of a file for a column; None if it is small, fits, or no file is available."""
    if size < LEAST_SPILLED_BYTES or _in_memory.fits(size):
        return None
    return _files.reserve(size)


def count_in_memory(values: npt.NDArray[Any]) -> None:
    """Count a column that owns its memory, unless it is small."""
    if values.nbytes >= LEAST_SPILLED_BYTES:
        _in_memory.add(values)


def spillable(values: _Column) -> _Column:
    """Return the values unchanged, or as a read-only column in a file if memory is full."""
    if values.nbytes < LEAST_SPILLED_BYTES or 0 in values.strides:
        return values
    owner: npt.NDArray[Any] = values
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    if not owner.flags.owndata or _in_memory.has(owner):
        return values
    _files.count_read(values.nbytes)  # the columns it was computed from are about as large
    if _in_memory.fits(owner.nbytes) or (extent := _files.reserve(values.nbytes)) is None:
        _in_memory.add(owner)
        return values
    extent.write(0, values)
    column: _Column = extent.column(len(values), values.dtype)  # type: ignore[assignment]
    return column
