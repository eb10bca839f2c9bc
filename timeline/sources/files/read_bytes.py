"""Tells how many bytes of files are read, as soon as they are, to whoever asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from io import FileIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

Count = Callable[[int], None]
_COUNT: ContextVar[Count | None] = ContextVar("count", default=None)


@contextmanager
def counting(count: Count) -> Iterator[None]:
    """A `with` block in which `count` is told of all bytes that are read, those read twice too."""
    token = _COUNT.set(count)
    try:
        yield
    finally:
        _COUNT.reset(token)


def are_counted() -> bool:
    """Whether anybody asks for it."""
    return _COUNT.get() is not None


def count_read(size_bytes: int) -> None:
    """So many more bytes are read."""
    count = _COUNT.get()
    if count is not None:
        count(size_bytes)


class CountedFile(FileIO):
    """A file whose reads are counted, as they are in the file: compressed, if it is."""

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        """Read into a buffer."""
        size_bytes = super().readinto(buffer)
        count_read(size_bytes or 0)
        return size_bytes

    def readall(self) -> bytes:
        """Read to the end."""
        data = super().readall()
        count_read(len(data))
        return data
