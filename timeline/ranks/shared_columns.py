"""Pickle wrappers for results and arguments, which move large columns through shared files.

Through a pipe every column would be copied several times, mostly by the main process, which all
workers share. Instead workers write columns into unnamed files that the main process has opened and
maps; it sends other workers only the file and position of a column.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
import numpy.typing as npt

from timeline.columns.constant import constant, is_constant, short_column
from timeline.columns.spill import align, watch_mapping, write_at

OPEN_FILES = Path("/proc/self/fd")
"""Directory through which other processes reach the open files of this one; only on Linux."""
WORTH_BYTES = 8 << 20
"""Total size of columns below which all go through the pipe: a process may open few files."""
LEAST_BYTES = 1 << 12
"""Size of a column below which it is never put into a file."""
MOST_SHARED_STRINGS = 1 << 12
"""Maximum number of strings per result that are shared with other results."""
MOST_SHARED_ELEMENTS = 64
"""Maximum number of elements of a set that is shared with other results."""
FEW_RANKS = 16
"""Number of ranks up to which nothing is packed: they take little memory, packing takes time."""

FILES_MAPPED = 4
"""Files of the main process that a worker keeps mapped; it reads them one after another."""

_Content = TypeVar("_Content")

_offered: dict[str, IO[bytes]] = {}
"""The open unnamed files that workers may fill, by path below OPEN_FILES."""


@dataclass(frozen=True)
class _MappedFile:
    """A mapped file that holds the columns of a result.

    number: inode. first: address of the mapping. size: bytes.
    """

    file: IO[bytes]
    path: str
    number: int
    first: int
    size: int


_mapped: dict[int, _MappedFile] = {}
"""The files whose columns are in use, by the address of their mapping."""


def _close_all() -> None:
    """Close the parent's files in a forked process."""
    while _offered:
        _offered.popitem()[1].close()
    while _mapped:
        _mapped.popitem()[1].file.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_all)


def open_shared_file() -> str:
    """Open an unnamed file for the columns of one result; return its path, "" if not possible."""
    if not OPEN_FILES.is_dir():
        return ""
    try:
        file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
    except OSError:
        return ""
    path = str(OPEN_FILES.resolve() / str(file.fileno()))
    _offered[path] = file
    return path


def close_shared_file(path: str) -> None:
    """Close a shared file, unless a result arrived in it: it is closed with its columns then."""
    file = _offered.pop(path, None)
    if file is not None:
        file.close()


@dataclass(frozen=True)
class SharedResult:
    """Pickle wrapper of a result: large columns go into the file at `path`.

    Unpickling returns `content`, with constant columns still stored as one value. If the file
    cannot be opened, or all columns are small, everything goes through the pipe. Columns from the
    file are read-only.

    Raises:
        OutputError: the disk fails while it is pickled.
    """

    content: Any
    path: str

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        rest, columns = _split_off_columns(self.content)
        worth = sum(column.nbytes for column in columns) >= WORTH_BYTES
        file = _opened(self.path) if worth else None
        if file is None:
            return _load, (rest, [bytes(column) for column in columns])
        try:
            return _load_from_file, (self.path, rest, _write(file, columns))
        finally:
            os.close(file)


def _opened(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDWR)
    except OSError:
        return None


class _Pickler(pickle.Pickler):
    def __init__(self, file: IO[bytes], **options: Any) -> None:
        super().__init__(file, 5, **options)
        self._strings = 0

    def persistent_id(self, value: Any) -> str | tuple[Any, ...] | None:
        """Pickle strings and sets by value as ids, so that equal ones become one object on loading.

        Ranks mostly have the same strings. Past MOST_SHARED_STRINGS, strings are pickled as usual.
        """
        if type(value) is frozenset:
            return tuple(value) if len(value) <= MOST_SHARED_ELEMENTS else None
        if type(value) is not str or self._strings > MOST_SHARED_STRINGS:
            return None
        self._strings += 1
        return value

    def reducer_override(self, value: Any) -> Any:
        """Pickle constant columns as one value, and short ones so that equal ones are shared."""
        if type(value) is not np.ndarray or value.ndim != 1 or value.dtype.hasobject:
            return NotImplemented
        if len(value) and is_constant(value):
            return constant, (value[0], len(value), value.dtype)
        if value.nbytes < LEAST_BYTES:
            return short_column, (value.tobytes(), value.dtype)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, name: str | tuple[Any, ...]) -> str | frozenset[Any]:
        """Return the one shared string or set of this value."""
        return sys.intern(name) if type(name) is str else _shared_set(name)


@lru_cache(maxsize=256)
def _shared_set(values: tuple[Any, ...]) -> frozenset[Any]:
    return frozenset(values)


def _loaded(pickled: bytes, columns: Iterable[Any] | None = None) -> Any:
    return _Unpickler(io.BytesIO(pickled), buffers=columns).load()


def _split_off_columns(content: Any) -> tuple[bytes, list[memoryview]]:
    """Return the pickle of a value without its large columns, and those columns in order."""
    columns: list[memoryview] = []

    def stays(buffer: pickle.PickleBuffer) -> bool:
        with buffer.raw() as values:
            if values.nbytes < LEAST_BYTES:
                return True
        columns.append(buffer.raw())
        return False

    rest = io.BytesIO()
    _Pickler(rest, buffer_callback=stays).dump(content)
    return rest.getvalue(), columns


def pack_if_many(content: _Content, ranks: int) -> _Content:
    """Return the content of one of `ranks` ranks, packed if these are many."""
    return pack(content) if ranks > FEW_RANKS else content


def pack(content: _Content) -> _Content:
    """Return a copy of the content in the least memory, as if another process had sent it.

    Short tables are packed, and short columns shared with content packed before. Large columns are
    not copied.
    """
    rest, columns = _split_off_columns(content)
    copy: _Content = _loaded(rest, columns)
    return copy


def _load(rest: bytes, columns: Sequence[bytes]) -> Any:
    return _loaded(rest, columns)


def _write(file: int, columns: Iterable[memoryview]) -> list[tuple[int, int]]:
    """Write columns one after another; return the position and size of each in bytes."""
    extents = []
    at = 0
    for column in columns:
        write_at(file, column, at)
        extents.append((at, column.nbytes))
        at = align(at + column.nbytes)
    return extents


def _load_from_file(path: str, rest: bytes, extents: Sequence[tuple[int, int]]) -> Any:
    """Unpickle a value whose columns are mapped, read-only, from the file."""
    file = _offered.pop(path)
    mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    watch_mapping(mapping)
    first = np.frombuffer(mapping, np.uint8).ctypes.data
    _mapped[first] = _MappedFile(file, path, os.fstat(file.fileno()).st_ino, first, len(mapping))
    weakref.finalize(mapping, _close, first).atexit = False
    view = memoryview(mapping)
    return _loaded(rest, [view[at : at + size] for at, size in extents])


def _close(first: int) -> None:
    unused = _mapped.pop(first, None)
    if unused is not None:
        unused.file.close()


@dataclass(frozen=True)
class SharedArguments:
    """Pickle wrapper of arguments: columns from a `SharedResult` are sent as file and position.

    Unpickling in a worker maps the file and returns `content`. The main process must hold the
    content until the worker has answered.
    """

    content: Any

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        pickled = io.BytesIO()
        _ArgumentsPickler(pickled).dump(self.content)
        return _loaded, (pickled.getvalue(),)


class _ArgumentsPickler(_Pickler):
    def reducer_override(self, value: Any) -> Any:
        """Pickle columns that are mapped from a file as the file and their position in it."""
        if type(value) is np.ndarray and value.flags.c_contiguous and value.nbytes >= LEAST_BYTES:
            at = value.ctypes.data
            # A copy, since pickling runs in its own thread while other files are mapped and closed.
            for file in list(_mapped.values()):
                if file.first <= at < file.first + file.size:
                    position = (file.path, file.number, at - file.first)
                    return _column_in, (*position, value.shape, value.dtype)
        return super().reducer_override(value)


def _column_in(
    path: str, number: int, at: int, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> npt.NDArray[Any]:
    return np.ndarray(shape, dtype, _mapping(path, number), at)


@lru_cache(maxsize=FILES_MAPPED)
def _mapping(path: str, number: int) -> mmap.mmap:
    """Map a file of the main process; the inode distinguishes files that reuse a path."""
    file = os.open(path, os.O_RDONLY)
    try:
        assert os.fstat(file).st_ino == number, "arguments are held until they are read"
        mapping = mmap.mmap(file, 0, access=mmap.ACCESS_READ)
    finally:
        os.close(file)
    watch_mapping(mapping)
    return mapping
