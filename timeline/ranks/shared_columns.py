"""Pickle wrappers for results and arguments whose large columns do not go through the pipe.

Through a pipe every column would be copied several times, most of them by the one process that all
others work for. Instead workers write columns into files without names, which this process opened
and maps; it tells other workers where in such a file a column lies.
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
"""Where other processes find the files that this one has open; only Linux has it."""
WORTH_BYTES = 8 << 20
"""With smaller columns everything goes through the pipe: a process may open few files only."""
LEAST_BYTES = 1 << 12
"""Smaller columns are never put into the file."""
MOST_SHARED_STRINGS = 1 << 12
"""Strings of one content that are shared with all others."""
MOST_SHARED_ELEMENTS = 64
"""Elements of a set that is shared."""
FEW_RANKS = 16
"""Of so many ranks nothing is packed: they take little memory, and packing takes time."""

FILES_MAPPED = 4
"""Files of the main process that a worker keeps mapped; it goes from one to the next."""

_Content = TypeVar("_Content")

_offered: dict[str, IO[bytes]] = {}
"""The files without names that workers may fill, by the paths that lead to them."""


@dataclass(frozen=True)
class _MappedFile:
    """A file that the columns of a result are in.

    number: its inode; first and size: where it is mapped, and its bytes.
    """

    file: IO[bytes]
    path: str
    number: int
    first: int
    size: int


_mapped: dict[int, _MappedFile] = {}
"""The files whose columns are in use, by where they are mapped."""


def _close_all() -> None:
    """Close the files of the parent in a process that was forked."""
    while _offered:
        _offered.popitem()[1].close()
    while _mapped:
        _mapped.popitem()[1].file.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_all)


def open_shared_file() -> str:
    """Open a file for the columns of one result; the path to it, "" where none can be had."""
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
    """Close the file unless a result came in it: that closes it when its columns are gone."""
    file = _offered.pop(path, None)
    if file is not None:
        file.close()


@dataclass(frozen=True)
class SharedResult:
    """Pickle wrapper: large columns go into the file at `path`; unpickling gives `content` back.

    Columns that hold one value stay so. Where no file can be reached, or columns are small, all
    goes through the pipe. Columns that went into the file are read-only.

    Raises:
        OutputError: when it is pickled: the disk fails.
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
        """Name strings and sets, so that what is loaded holds the same objects as all before.

        Those of ranks are much the same. Of a rank with very many all others are its own.
        """
        if type(value) is frozenset:
            return tuple(value) if len(value) <= MOST_SHARED_ELEMENTS else None
        if type(value) is not str or self._strings > MOST_SHARED_STRINGS:
            return None
        self._strings += 1
        return value

    def reducer_override(self, value: Any) -> Any:
        """Keep columns of one value from being written out, and share short ones."""
        if type(value) is not np.ndarray or value.ndim != 1 or value.dtype.hasobject:
            return NotImplemented
        if len(value) and is_constant(value):
            return constant, (value[0], len(value), value.dtype)
        if value.nbytes < LEAST_BYTES:
            return short_column, (value.tobytes(), value.dtype)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, name: str | tuple[Any, ...]) -> str | frozenset[Any]:
        """Return the object of a name; see `_Pickler.persistent_id`."""
        return sys.intern(name) if type(name) is str else _shared_set(name)


@lru_cache(maxsize=256)
def _shared_set(values: tuple[Any, ...]) -> frozenset[Any]:
    return frozenset(values)


def _loaded(pickled: bytes, columns: Iterable[Any] | None = None) -> Any:
    return _Unpickler(io.BytesIO(pickled), buffers=columns).load()


def _split_off_columns(content: Any) -> tuple[bytes, list[memoryview]]:
    """Return the pickle of a value without its large columns, and these, in order."""
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


def kept(content: _Content, ranks: int) -> _Content:
    """Return the content of one of so many ranks, packed if they are many."""
    return packed(content) if ranks > FEW_RANKS else content


def packed(content: _Content) -> _Content:
    """Return the same content in the least memory: as if it came from another process.

    Short tables are packed, short columns shared with all that came before. Large columns stay
    where they are.
    """
    rest, columns = _split_off_columns(content)
    made: _Content = _loaded(rest, columns)
    return made


def _load(rest: bytes, columns: Sequence[bytes]) -> Any:
    return _loaded(rest, columns)


def _write(file: int, columns: Iterable[memoryview]) -> list[tuple[int, int]]:
    """Write columns behind each other; where each begins, and its size in bytes."""
    extents = []
    at = 0
    for column in columns:
        write_at(file, column, at)
        extents.append((at, column.nbytes))
        at = align(at + column.nbytes)
    return extents


def _load_from_file(path: str, rest: bytes, extents: Sequence[tuple[int, int]]) -> Any:
    """Unpickle a value; its columns are read-only, and read from the file when they are used."""
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
    """Pickle wrapper: columns of a `SharedResult` are not sent to a worker, which maps their file.

    Unpickling gives `content` back. It has to be held here until the worker has answered.
    """

    content: Any

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        made = io.BytesIO()
        _ArgumentsPickler(made).dump(self.content)
        return _loaded, (made.getvalue(),)


class _ArgumentsPickler(_Pickler):
    def reducer_override(self, value: Any) -> Any:
        """Send columns that lie in a file as where they lie."""
        if type(value) is np.ndarray and value.flags.c_contiguous and value.nbytes >= LEAST_BYTES:
            at = value.ctypes.data
            # This runs in a thread of its own: meanwhile other files are mapped, and closed.
            for file in list(_mapped.values()):
                if file.first <= at < file.first + file.size:
                    lies_at = (file.path, file.number, at - file.first)
                    return _column_in, (*lies_at, value.shape, value.dtype)
        return super().reducer_override(value)


def _column_in(
    path: str, number: int, at: int, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> npt.NDArray[Any]:
    return np.ndarray(shape, dtype, _mapping(path, number), at)


@lru_cache(maxsize=FILES_MAPPED)
def _mapping(path: str, number: int) -> mmap.mmap:
    """Map a file of the main process; its inode tells it from one that had the path before."""
    file = os.open(path, os.O_RDONLY)
    try:
        assert os.fstat(file).st_ino == number, "arguments are held until they are read"
        mapping = mmap.mmap(file, 0, access=mmap.ACCESS_READ)
    finally:
        os.close(file)
    watch_mapping(mapping)
    return mapping
