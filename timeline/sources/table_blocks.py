"""Turns a CSV table into blocks of its wanted columns, and counts rows that are cut off."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from timeline.errors import SourceError
from timeline.records.columns import Bool, Codes, Int64
from timeline.records.strings import StringPool
from timeline.records.tables import Omission
from timeline.sources.opened import opened
from timeline.sources.trace_events import number

__all__ = ["Block", "Losses", "Spellings", "read_blocks"]

BLOCK_BYTES = 1 << 21
LONGEST_LINE_BYTES = 1 << 25
"""A file with longer lines is no table."""
_MARK = "\ufeff"
_QUOTE, _COMMA, _BREAK = b'",\n'
_AROUND = np.isin(np.arange(256), np.frombuffer(b" \t\r", np.uint8))
"""Characters around a cell that are not of it; tabs keep spreadsheets from rounding times."""
_SHORT_BYTES = 24
"""Cells up to this length are cut out of the text together, which is faster."""
_MOST_DIGITS = 18
"""So many always fit 64 bits."""

Spellings = Mapping[str, tuple[str, ...]]
"""The names of each wanted column over the versions, newest first."""
_Spans = tuple[Int64, Int64]
"""Begin and end of the cells of a column."""


@dataclass(frozen=True)
class Block:
    """Some rows of a table: where the cells of each column lie, and the line of each row."""

    data: bytes
    characters: npt.NDArray[np.uint8]
    spans: Mapping[str, _Spans]
    lines: Int64

    def __len__(self) -> int:
        return len(self.lines)

    def __contains__(self, key: str) -> bool:
        return key in self.spans

    def cells(self, key: str) -> list[bytes]:
        """The cells of a column as they are written, without blanks around them."""
        begin, end = self.spans[key]
        return self._slices(begin, end)

    def _slices(self, begin: Int64, end: Int64) -> list[bytes]:
        widest = int((end - begin).max(initial=0))
        if 0 < widest <= _SHORT_BYTES:
            places = begin[:, None] + np.arange(widest)
            letters = self.characters[np.minimum(places, len(self.characters) - 1)]
            letters[places >= end[:, None]] = 0
            short: list[bytes] = letters.view(f"S{widest}").reshape(-1).tolist()
            return short
        data = self.data
        return [data[at:to] for at, to in zip(begin.tolist(), end.tolist(), strict=True)]

    def codes(self, key: str, strings: StringPool, meaning: Callable[[str], str]) -> Codes:
        """The meaning of each cell as a name; worked out once for each distinct cell."""
        cells = self.cells(key)
        known = {cell: strings.code(meaning(_unquoted(cell))) for cell in dict.fromkeys(cells)}
        return np.array([known[cell] for cell in cells], np.int32)

    def integers(self, key: str, absent: int) -> Int64:
        """A column of ids; programs that rewrite tables make reals of them, such as 2.0."""
        begin, end = self.spans[key]
        length = end - begin
        values = np.zeros(len(begin), np.int64)
        good = (length > 0) & (length <= _MOST_DIGITS)
        last = len(self.characters) - 1
        for place in range(min(int(length.max(initial=0)), _MOST_DIGITS)):
            inside = length > place
            digit = self.characters[np.minimum(begin + place, last)] - np.uint8(ord("0"))
            good &= ~inside | (digit < 10)
            values = np.where(inside, values * 10 + digit, values)
        rest = np.flatnonzero(~good)
        if len(rest):
            cells = self._slices(begin[rest], end[rest])
            known = {
                cell: number(_unquoted(cell).strip().removesuffix(".0"), absent)
                for cell in dict.fromkeys(cells)
            }
            values[rest] = [known[cell] for cell in cells]
        return values


def _unquoted(cell: bytes) -> str:
    text = cell.decode("utf-8", errors="replace")
    if text.startswith('"'):
        return text[1:].removesuffix('"').replace('""', '"')
    return text


class Losses:
    """Counts the rows of one table that are left out, by reason."""

    def __init__(self, path: Path) -> None:
        self._name = path.name
        self._found: dict[str, tuple[int, int]] = {}

    def add(self, reason: str, lines: Int64) -> None:
        """Count rows by the lines that they are on."""
        if len(lines):
            rows, first = self._found.get(reason, (0, int(lines[0])))
            self._found[reason] = rows + len(lines), first

    def omissions(self, rank: int | None) -> tuple[Omission, ...]:
        """What was counted, with the first line of each reason."""
        return tuple(
            Omission(f"rows of {self._name} {reason}, first in line {line}", rows, rank, loss=True)
            for reason, (rows, line) in self._found.items()
        )


def read_blocks(
    path: Path, wanted: Spellings, required: Sequence[str], losses: Losses
) -> Iterator[Block]:
    """Read the wanted columns of a table.

    A line is a row, whatever quotes say: a quote that is never closed costs its own row only.
    Blank lines and repeated headers are no rows. Cells that a short row lacks are empty; a last
    line that is short and has no end was cut off while it was written, and is counted.

    Raises:
        SourceError: the file cannot be read, or lacks a required column.
    """
    with opened(path) as file:
        parts = _whole_lines(file, path)
        line, header, data = _header(parts)
        places = _places(path, header, wanted, required)
        while data:
            split = _split(data)
            yield _block(split, line + 1, header, places, places[required[0]], losses)
            line += len(split.starts)
            data = next(parts, b"")


def _whole_lines(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """The file in parts that end with a line; the last one may not."""
    rest = b""
    while data := file.read(BLOCK_BYTES):
        whole = data.rfind(b"\n") + 1
        if whole:
            yield rest + data[:whole]
            rest = data[whole:]
        else:
            rest += data
        if len(rest) > LONGEST_LINE_BYTES:
            raise SourceError(path, "is not a table: it has no lines.", offset=file.tell())
    if rest:
        yield rest


def _header(parts: Iterator[bytes]) -> tuple[int, list[str], bytes]:
    """The line of the header, from 1, its names, and what follows it."""
    number_of_line, data = 0, next(parts, b"")
    while data:
        first, _, data = data.partition(b"\n")
        number_of_line += 1
        names = _names(first)
        data = data or next(parts, b"")
        if any(names):
            return number_of_line, names, data
    return number_of_line, [], b""


def _names(line: bytes) -> list[str]:
    """The cells of a line as names; files put together may have a byte order mark inside."""
    text = line.decode("utf-8", errors="replace").lstrip(_MARK).rstrip("\r\n")
    try:
        return [cell.strip() for cell in next(csv.reader([text]), [])]
    except csv.Error:
        return []


def _places(
    path: Path, header: list[str], wanted: Spellings, required: Sequence[str]
) -> dict[str, int]:
    places = {
        key: header.index(name)
        for key, names in wanted.items()
        for name in names[::-1]
        if name in header
    }
    for key in required:
        if key not in places:
            raise SourceError(
                path,
                f"has no column {' or '.join(wanted[key])}; "
                f"found {', '.join(header)[:200] or 'nothing'}.",
            )
    return places


@dataclass(frozen=True)
class _Lines:
    """Lines of text, and the commas between their cells."""

    data: bytes
    characters: npt.NDArray[np.uint8]
    starts: Int64
    ends: Int64
    commas: Int64
    first: Int64
    """The first comma of each line."""
    count: Int64
    """The cells of each line."""

    def column(self, place: int) -> _Spans:
        """The spans of one column; empty where a line has fewer cells."""
        end = np.minimum(
            self.commas[np.minimum(self.first + place, len(self.commas) - 1)], self.ends
        )
        begin = self.starts
        if place:
            before = self.commas[np.minimum(self.first + place - 1, len(self.commas) - 1)]
            begin = np.minimum(before + 1, self.ends)
        return self._trimmed(begin, np.maximum(begin, end))

    def _comma(self, place: int) -> Int64:
        """The comma behind one column, or the end of the line."""
        at = np.minimum(self.first + place, len(self.commas) - 1)
        return np.minimum(self.commas[at], self.ends)

    def _trimmed(self, begin: Int64, end: Int64) -> _Spans:
        last = len(self.characters) - 1
        while (more := (end > begin) & _AROUND[self.characters[end - 1]]).any():
            end = end - more
        while (more := (end > begin) & _AROUND[self.characters[np.minimum(begin, last)]]).any():
            begin = begin + more
        return begin, end


def _split(data: bytes) -> _Lines:
    characters = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(characters == _BREAK)
    if not data.endswith(b"\n"):
        ends = np.append(ends, len(data))
    starts = np.concatenate([[0], ends[:-1] + 1])
    is_comma = characters == _COMMA
    quotes = characters == _QUOTE
    if quotes.any():
        is_comma &= ~_quoted(quotes, starts, ends)
    commas = np.append(np.flatnonzero(is_comma), len(data))
    first = np.searchsorted(commas, starts)
    count = np.searchsorted(commas[:-1], ends) - first + 1
    return _Lines(data, characters, starts, ends, commas, first, count)


def _quoted(quotes: Bool, starts: Int64, ends: Int64) -> Bool:
    """Which characters have an odd number of quotes before them in their own line."""
    odd = np.cumsum(quotes, dtype=np.uint8) & np.uint8(1)
    before = np.concatenate([np.zeros(1, np.uint8), odd[starts[1:] - 1]])
    if before.any():
        widths = np.diff(np.append(starts, len(quotes)))
        odd ^= np.repeat(before, widths)
    return odd.astype(np.bool_)


def _block(
    split: _Lines,
    first: int,
    header: list[str],
    places: Mapping[str, int],
    mark: int,
    losses: Losses,
) -> Block:
    lines = np.arange(first, first + len(split.starts))
    begin, end = split.column(0)
    held = (split.count > 1) | (end > begin)
    if held[-1] and split.count[-1] < len(header) and not split.data.endswith(b"\n"):
        losses.add("that are cut off", lines[-1:])
        held[-1] = False
    begin, end = split.column(mark)
    for row in np.flatnonzero(held & (end - begin == len(header[mark].encode()))).tolist():
        text = split.data[split.starts[row] : split.ends[row]]
        held[row] = _names(text) != header
    spans = {}
    for key, place in places.items():
        begin, end = split.column(place)
        spans[key] = (begin, end) if held.all() else (begin[held], end[held])
    return Block(split.data, split.characters, spans, lines[held])
