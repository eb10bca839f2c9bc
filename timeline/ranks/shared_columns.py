"""Turns what holds large columns into what other processes read without the columns being sent.

Through a pipe every column would be copied several times, most of them by the one process that all
others work for. It maps what they wrote into files without names, and tells them where in such a
file a column lies.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import tempfile
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from timeline.columns.constant import constant, is_constant
from timeline.columns.spill import align, watch_mapping, write_at

__all__ = ["Letter", "Parcel", "forget_room", "room_for_parcel"]

OPEN_FILES = Path("/proc/self/fd")
"""Where other processes find the files that this one has open; only Linux has it."""
WORTH_BYTES = 8 << 20
"""With smaller columns everything travels as it is: files that are open are few."""
LEAST_BYTES = 1 << 12
"""Smaller columns are not put aside."""

FILES_MAPPED = 4
"""Of other processes; those who work for this one go from file to file."""

_rooms: dict[str, IO[bytes]] = {}
"""The files without names that other processes may fill, by the paths that lead to them."""


@dataclass(frozen=True)
class _Opened:
    """A file that a parcel came in, by where memory shows it."""

    file: IO[bytes]
    path: str
    number: int
    first: int
    size: int


_opened: dict[int, _Opened] = {}
"""Those whose columns are in use."""


def _close_all() -> None:
    """Close what a copy of the process that opened it has no use for."""
    while _rooms:
        _rooms.popitem()[1].close()
    while _opened:
        _opened.popitem()[1].file.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_all)


def room_for_parcel() -> str:
    """Where a process that is asked for a parcel may leave its columns; "" for nowhere."""
    if not OPEN_FILES.is_dir():
        return ""
    try:
        file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
    except OSError:
        return ""
    path = str(OPEN_FILES.resolve() / str(file.fileno()))
    _rooms[path] = file
    return path


def forget_room(path: str) -> None:
    """Nothing will come, or it has come."""
    room = _rooms.pop(path, None)
    if room is not None:
        room.close()


@dataclass(frozen=True)
class Parcel:
    """Anything, for the process whose room the path leads to; it unpacks as what it holds.

    Columns that hold one value stay so. Where there is no such room everything travels as it is.

    Raises:
        OutputError: when it is pickled: the disk fails.
    """

    content: Any
    path: str

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        rest, columns = _taken_apart(self.content)
        worth = sum(column.nbytes for column in columns) >= WORTH_BYTES
        room = _reached(self.path) if worth else None
        if room is None:
            return _with_columns, (rest, [bytes(column) for column in columns])
        try:
            return _unpacked, (self.path, rest, _written(room, columns))
        finally:
            os.close(room)


def _reached(path: str) -> int | None:
    """The room that a path leads to, if it does."""
    try:
        return os.open(path, os.O_RDWR)
    except OSError:
        return None


class _Pickler(pickle.Pickler):
    def reducer_override(self, own: Any) -> Any:
        """Columns of one value would be written out otherwise."""
        if type(own) is np.ndarray and own.ndim == 1 and len(own) and is_constant(own):
            return constant, (own[0], len(own), own.dtype)
        return NotImplemented


def _taken_apart(content: Any) -> tuple[bytes, list[memoryview]]:
    """What is left of something without its columns, and these, in order."""
    columns: list[memoryview] = []

    def stays(buffer: pickle.PickleBuffer) -> bool:
        with buffer.raw() as values:
            if values.nbytes < LEAST_BYTES:
                return True
        columns.append(buffer.raw())
        return False

    rest = io.BytesIO()
    _Pickler(rest, 5, buffer_callback=stays).dump(content)
    return rest.getvalue(), columns


def _with_columns(rest: bytes, columns: Sequence[bytes]) -> Any:
    """What was packed, where its columns came along."""
    return pickle.loads(rest, buffers=columns)


def _written(room: int, columns: Iterable[memoryview]) -> list[tuple[int, int]]:
    """Put columns behind each other; where each begins, and its size."""
    places = []
    at = 0
    for column in columns:
        write_at(room, column, at)
        places.append((at, column.nbytes))
        at = align(at + column.nbytes)
    return places


def _unpacked(path: str, rest: bytes, places: Sequence[tuple[int, int]]) -> Any:
    """What was packed; its columns are read-only, and read from the file when they are used."""
    file = _rooms.pop(path)
    mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    watch_mapping(mapping)
    first = np.frombuffer(mapping, np.uint8).ctypes.data
    _opened[first] = _Opened(file, path, os.fstat(file.fileno()).st_ino, first, len(mapping))
    weakref.finalize(mapping, _closed, first).atexit = False
    view = memoryview(mapping)
    return pickle.loads(rest, buffers=[view[at : at + size] for at, size in places])


def _closed(first: int) -> None:
    own = _opened.pop(first, None)
    if own is not None:
        own.file.close()


@dataclass(frozen=True)
class Letter:
    """Anything, for a process that works for this one; it is unpacked as what it holds.

    Columns that came in a parcel are not sent: who reads the letter maps that file too. So what
    is sent has to be held here until it was answered.
    """

    content: Any

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        made = io.BytesIO()
        _LetterPickler(made, 5).dump(self.content)
        return pickle.loads, (made.getvalue(),)


class _LetterPickler(_Pickler):
    def reducer_override(self, own: Any) -> Any:
        """Columns that came in a parcel are where they came in."""
        if type(own) is np.ndarray and own.flags.c_contiguous and own.nbytes >= LEAST_BYTES:
            at = own.ctypes.data
            # Letters are written in a thread of their own: meanwhile others come, and are closed.
            for came in list(_opened.values()):
                if came.first <= at < came.first + came.size:
                    return _column_in, (
                        came.path,
                        came.number,
                        at - came.first,
                        own.shape,
                        own.dtype,
                    )
        return super().reducer_override(own)


def _column_in(
    path: str, number: int, at: int, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> npt.NDArray[Any]:
    return np.ndarray(shape, dtype, _mapped(path, number), at)


@lru_cache(maxsize=FILES_MAPPED)
def _mapped(path: str, number: int) -> mmap.mmap:
    """A file of another process, whose number tells it from one that had the path before."""
    room = os.open(path, os.O_RDONLY)
    try:
        assert os.fstat(room).st_ino == number, "a letter is read while its columns are held"
        mapping = mmap.mmap(room, 0, access=mmap.ACCESS_READ)
    finally:
        os.close(room)
    watch_mapping(mapping)
    return mapping
