"""Blocks of whole lines of a text file, compressed or not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Int64
from timeline.errors import SourceError
from timeline.sources.common.losses import LossLog
from timeline.sources.files.opened import UTF8_MARK, open_profile_file

BLOCK_BYTES = 1 << 21
LONGEST_LINE_BYTES = 1 << 25
"""A file with longer lines is no text."""
_BREAK = ord("\n")


@dataclass(frozen=True)
class Lines:
    """Lines of a file.

    starts, ends: (n,) where each lies in the text, without its end.
    first: the number of the first, from 1.
    """

    data: bytes
    characters: npt.NDArray[np.uint8]
    starts: Int64
    ends: Int64
    first: int

    @classmethod
    def of(cls, data: bytes, first: int) -> Lines:
        """Find the lines of a text; the last one may have no end."""
        characters = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(characters == _BREAK)
        if data and not data.endswith(b"\n"):
            ends = np.append(ends, len(data))
        starts = np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1])[: len(ends)]
        return cls(data, characters, starts, ends, first)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def numbers(self) -> Int64:
        """The number of each line."""
        return np.arange(self.first, self.first + len(self))

    @property
    def ended(self) -> bool:
        """Whether the last line has an end; one that has none may be cut off anywhere."""
        return self.data.endswith(b"\n")

    def text(self, line: int) -> bytes:
        """One line, without its end."""
        return self.data[self.starts[line] : self.ends[line]]

    def behind(self, count: int) -> Lines:
        """The lines behind the first ones."""
        if count == len(self):
            return Lines.of(b"", self.first + count)
        return Lines.of(self.data[self.starts[count] :], self.first + count)


def read_lines(path: Path, damage: LossLog) -> Iterator[Lines]:
    """Read all lines, some megabytes at a time.

    Where compressed content breaks off, the whole lines before that are all there is, and the
    break is noted.

    Raises:
        SourceError: the file cannot be read, or has no lines.
    """
    first = 1
    with open_profile_file(path) as file:
        for data in _parts(file, path, damage):
            lines = Lines.of(data, first)
            yield lines
            first += len(lines)


def _parts(file: BinaryIO, path: Path, damage: LossLog) -> Iterator[bytes]:
    """The text in parts that end with a line; the last one may not."""
    rest, lines = b"", 0
    while True:
        try:
            data = file.read(BLOCK_BYTES)
        except SourceError:
            if not lines:
                raise
            damage.add("compressed content that cannot be unpacked", f"line {lines + 1}")
            return
        whole = data.rfind(b"\n") + 1
        if whole:
            part = rest + data[:whole]
            yield part if lines else part.removeprefix(UTF8_MARK)
            lines += part.count(b"\n")
            rest = data[whole:]
        else:
            rest += data
        if len(rest) > LONGEST_LINE_BYTES:
            raise SourceError(path, "is no text: it has no lines.", offset=file.tell())
        if not data:
            break
    if rest:
        yield rest if lines else rest.removeprefix(UTF8_MARK)
