"""Turns files without names into room for columns, which is used again when a column is gone."""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
import weakref
from bisect import insort
from collections import deque
from collections.abc import Callable
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from timeline.errors import OutputError

__all__ = ["MappedFiles", "Place", "aligned", "write_at"]

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
