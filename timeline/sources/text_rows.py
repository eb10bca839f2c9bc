"""Turns a small table written as CSV into its header and rows, however it was cut off."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from timeline.errors import SourceError
from timeline.records.tables import Omission
from timeline.sources.opened import open_binary

__all__ = ["TextRows", "is_cut_off", "omitted_rows", "read_text", "read_text_rows"]

_UTF8_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class TextRows:
    """The rows of a table; `lines` is the line of the file that each of them ends in.

    cut_off: whether the last line has no end, so that its last cell may lack digits.
    """

    path: Path
    header: tuple[str, ...]
    rows: tuple[list[str], ...]
    lines: tuple[int, ...]
    cut_off: bool

    def place(self, *names: str) -> int | None:
        """The column of the first of these names that there is."""
        return next((self.header.index(name) for name in names if name in self.header), None)

    def column(self, *names: str) -> list[str]:
        """The cells of a column by its first name that there is; empty where a row lacks it.

        Nothing is taken from the cell in which the file breaks off.
        """
        at = self.place(*names)
        if at is None:
            return [""] * len(self.rows)
        last = len(self.rows) - 1 if self.cut_off else -1
        return [
            row[at].strip() if at < len(row) - (number == last) else ""
            for number, row in enumerate(self.rows)
        ]


def read_text_rows(path: Path) -> TextRows:
    """Read a table; empty lines are passed over.

    Raises:
        SourceError: the file cannot be read, is empty, or is no table.
    """
    data = read_text(path)
    text = data.decode("utf-8", "replace").replace("\0", "")
    reader = csv.reader(io.StringIO(text, newline=""))
    rows, lines = [], []
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                rows.append(row)
                lines.append(reader.line_num)
    except csv.Error as error:
        raise SourceError(path, f"is not a table: {error}, in line {reader.line_num}.") from error
    if not rows:
        raise SourceError(path, "is empty.")
    header = tuple(name.strip() for name in rows[0])
    return TextRows(path, header, tuple(rows[1:]), tuple(lines[1:]), is_cut_off(data))


def read_text(path: Path) -> bytes:
    """The content of a file without its byte order mark.

    Raises:
        SourceError: the file cannot be read.
    """
    try:
        with open_binary(path) as file:
            return file.read().removeprefix(_UTF8_MARK)
    except OSError as error:
        raise SourceError(path, f"cannot be read: {error.strerror}.") from error


def is_cut_off(data: bytes) -> bool:
    """Whether a text stops inside a line: MindSpore ends every line."""
    return not data.rstrip(b" \t\0").endswith((b"\n", b"\r"))


def omitted_rows(path: Path, lines: list[int], rank: int) -> tuple[Omission, ...]:
    """What is reported of rows that cannot be read."""
    if not lines:
        return ()
    reason = f"rows of {path.name} that cannot be read, the first in line {min(lines)}"
    return (Omission(reason, len(lines), rank, loss=True),)
