"""Bytes that are read of the ranks in work: counted by each process, and seen by the one waiting.

Each process has a place in memory that all share, and writes nowhere else, so nothing is locked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableSequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from timeline.sources.files.read_bytes import counting

TOLD_BYTES = 1 << 16
"""Fewer bytes more than those told last are told later."""
_RANK, _BYTES, _CELLS = range(3)
_NOBODY = -1


@dataclass
class ReadCounts:
    """By place the rank that is read there, and how many bytes of it are read."""

    cells: MutableSequence[int]

    def bytes_of_ranks(self) -> dict[int, int]:
        """The bytes that are read of each rank in work, or last."""
        cells = list(self.cells)
        pairs = zip(cells[_RANK::_CELLS], cells[_BYTES::_CELLS], strict=True)
        return {rank: size_bytes for rank, size_bytes in pairs if rank != _NOBODY}

    def clear(self) -> None:
        """Forget the ranks in work: they are read again."""
        for at in range(_RANK, len(self.cells), _CELLS):
            self.cells[at] = _NOBODY


@dataclass
class LocalCounts(ReadCounts):
    """Those of this process alone, which tells them: nobody else has time to look."""

    cells: MutableSequence[int] = field(default_factory=lambda: [_NOBODY, 0])
    tell: Callable[[], None] = lambda: None


@dataclass
class SharedCounts(ReadCounts):
    """Those of several processes; taken: how many have a place."""

    taken: Any

    @classmethod
    def of(cls, jobs: int) -> SharedCounts:
        """Places for so many processes.

        Raises:
            OSError: this machine has no memory that processes share.
        """
        from multiprocessing import get_context

        context = get_context("spawn")  # whose locks copies of this process take too
        return cls(context.RawArray("q", [_NOBODY, 0] * jobs), context.Value("i", 0))


_PLACE: tuple[ReadCounts, int] | None = None
"""Of this process, where it works for another."""


def take_place(counts: SharedCounts) -> None:
    """Take a place for what this process reads from now on."""
    global _PLACE  # noqa: PLW0603
    with counts.taken.get_lock():
        place = counts.taken.value
        counts.taken.value = place + 1
    _PLACE = (counts, place % (len(counts.cells) // _CELLS))


@contextmanager
def counted_here(rank: int, local: LocalCounts | None) -> Iterator[None]:
    """A `with` block in which a rank is read, in this process or one that has taken a place."""
    place = _PLACE if local is None else (local, 0)
    if place is None:
        yield
        return
    counts, at = place
    counts.cells[_CELLS * at + _BYTES] = 0
    counts.cells[_CELLS * at + _RANK] = rank
    waiting = 0

    def count(size_bytes: int) -> None:
        nonlocal waiting
        waiting += size_bytes
        if waiting >= TOLD_BYTES:
            counts.cells[_CELLS * at + _BYTES] += waiting
            waiting = 0
            if local is not None:
                local.tell()

    with counting(count):
        yield
