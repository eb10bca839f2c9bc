"""Turns what holds large columns into a parcel, which leaves them where another process reads them.

Through a pipe every column would be copied several times, most of them by the process that is to
receive them all.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from timeline.records.columns import constant, is_constant
from timeline.records.mapped_files import aligned, write_at
from timeline.records.paging import let_go_with_others

__all__ = ["Parcel", "forget_room", "room_for_parcel"]

WORTH_BYTES = 8 << 20
"""With smaller columns everything travels as it is: files that are open are few."""
LEAST_BYTES = 1 << 12
"""Smaller columns are not put aside."""

_rooms: dict[str, IO[bytes]] = {}
"""The files without names that other processes may fill, by the paths that lead to them."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_rooms.clear)


def room_for_parcel() -> str:
    """Where a process that is asked for a parcel may leave its columns."""
    file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
    path = f"/proc/{os.getpid()}/fd/{file.fileno()}"
    _rooms[path] = file
    return path


def forget_room(path: str) -> None:
    """Nothing will come, or it has come."""
    if path in _rooms:
        _rooms.pop(path).close()


@dataclass(frozen=True)
class Parcel:
    """Anything, for the process whose room the path leads to; it unpacks as what it holds.

    Columns that hold one value stay so. Where the system shows no files of other processes, as
    only Linux does, everything travels as it is.

    Raises:
        OutputError: when it is pickled: the disk fails.
    """

    content: Any
    path: str

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        rest, columns = _taken_apart(self.content)
        if sum(column.nbytes for column in columns) < WORTH_BYTES:
            return pickle.loads, (_pickled(self.content),)
        try:
            room = os.open(self.path, os.O_RDWR)
        except OSError:
            return pickle.loads, (_pickled(self.content),)
        try:
            return _unpacked, (self.path, rest, _written(room, columns))
        finally:
            os.close(room)


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

    return _pickled(content, stays), columns


def _pickled(content: Any, stays: Callable[[pickle.PickleBuffer], bool] = lambda _: True) -> bytes:
    made = io.BytesIO()
    _Pickler(made, 5, buffer_callback=stays).dump(content)
    return made.getvalue()


def _written(room: int, columns: Iterable[memoryview]) -> list[tuple[int, int]]:
    """Put columns behind each other; where each begins, and its size."""
    places = []
    at = 0
    for column in columns:
        write_at(room, column, at)
        places.append((at, column.nbytes))
        at = aligned(at + column.nbytes)
    return places


def _unpacked(path: str, rest: bytes, places: Sequence[tuple[int, int]]) -> Any:
    """What was packed; its columns are read-only, and read from the file when they are used."""
    mapping = mmap.mmap(_rooms[path].fileno(), 0, access=mmap.ACCESS_READ)
    forget_room(path)
    let_go_with_others(mapping)
    view = memoryview(mapping)
    return pickle.loads(rest, buffers=[view[at : at + size] for at, size in places])
