"""Turns lines of a table into the places of its cells, all at once."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from timeline.columns.columns import Bool, Int64
from timeline.sources.text_lines import Lines

__all__ = ["Cells", "Spans", "unquoted"]

_QUOTE, _COMMA = b'",'
_NOTHING = b', \t\r"'
_AROUND = np.isin(np.arange(256), np.frombuffer(b" \t\r", np.uint8))
"""Characters around a cell that are not of it; tabs keep spreadsheets from rounding times."""

Spans = tuple[Int64, Int64]
"""Begin and end of the cells of a column."""


@dataclass(frozen=True)
class Cells:
    """Lines, and the commas between their cells.

    A line is a row, whatever quotes say: a quote that is never closed costs its own row only.
    """

    lines: Lines
    ends: Int64
    """Where the cells of each line end."""
    commas: Int64
    """All of them, and the end of the text behind them."""
    first: Int64
    """The first comma of each line."""
    count: Int64
    """The cells of each line."""

    @classmethod
    def of(cls, lines: Lines) -> Cells:
        """Find the cells of lines; commas between quotes are of a cell."""
        is_comma = lines.characters == _COMMA
        quotes = lines.characters == _QUOTE
        if quotes.any():
            is_comma &= ~_quoted(quotes, lines)
        return cls._between(lines, is_comma)

    @classmethod
    def from_end(cls, lines: Lines, most: int) -> Cells:
        """The last cells of lines, whose first one takes all other commas, and quotes."""
        cells = cls._between(lines, lines.characters == _COMMA)
        more = np.maximum(cells.count - most, 0)
        return replace(cells, first=cells.first + more, count=cells.count - more)

    @classmethod
    def _between(cls, lines: Lines, is_comma: Bool) -> Cells:
        commas = np.append(np.flatnonzero(is_comma), len(lines.data))
        first = np.searchsorted(commas, lines.starts)
        count = np.searchsorted(commas[:-1], lines.ends) - first + 1
        return cls(lines, lines.ends, commas, first, count)

    def column(self, place: int) -> Spans:
        """The spans of one column without blanks; empty where a line has fewer cells."""
        end = self._comma(place)
        begin = np.minimum(self._comma(place - 1) + 1, self.ends) if place else self.lines.starts
        return self._trimmed(begin, np.maximum(begin, end))

    def _comma(self, place: int) -> Int64:
        """The comma behind one column, or the end of the line."""
        at = np.minimum(self.first + place, len(self.commas) - 1)
        return np.minimum(self.commas[at], self.ends)

    def _trimmed(self, begin: Int64, end: Int64) -> Spans:
        characters = self.lines.characters
        last = len(characters) - 1
        while (more := (end > begin) & _AROUND[characters[end - 1]]).any():
            end = end - more
        while (more := (end > begin) & _AROUND[characters[np.minimum(begin, last)]]).any():
            begin = begin + more
        return begin, end

    def equal(self, place: int, text: bytes) -> Bool:
        """Which lines have just this text in a column."""
        begin, end = self.column(place)
        same: Bool = end - begin == len(text)
        for at, letter in enumerate(text):
            if not same.any():
                break
            same[same] = self.lines.characters[begin[same] + at] == letter
        return same

    def hold_more(self, place: int) -> Bool:
        """Which lines hold anything from a column on."""
        begin, _ = self.column(place)
        data = self.lines.data
        rest = zip(begin.tolist(), self.ends.tolist(), strict=True)
        return np.array([bool(data[at:to].strip(_NOTHING)) for at, to in rest], np.bool_)

    def without_last(self) -> Cells:
        """The same without the last cell of the last line."""
        ends, count = self.ends.copy(), self.count.copy()
        place = int(count[-1]) - 2
        ends[-1] = self._comma(place)[-1] if place >= 0 else self.lines.starts[-1]
        count[-1] -= 1
        return replace(self, ends=ends, count=count)

    def texts(self, line: int) -> list[str]:
        """The cells of one line, as they are meant."""
        own = Cells.of(Lines.of(self.lines.text(line), 1))
        spans = (own.column(place) for place in range(int(own.count[0]) if len(own.count) else 0))
        return [unquoted(own.lines.data[begin[0] : end[0]]) for begin, end in spans]


def _quoted(quotes: Bool, lines: Lines) -> Bool:
    """Which characters have an odd number of quotes before them in their own line."""
    odd = np.cumsum(quotes, dtype=np.uint8) & np.uint8(1)
    before = np.concatenate([np.zeros(1, np.uint8), odd[lines.starts[1:] - 1]])
    if before.any():
        widths = np.diff(np.append(lines.starts, len(quotes)))
        odd ^= np.repeat(before, widths)
    return odd.astype(np.bool_)


def unquoted(cell: bytes) -> str:
    """What a cell means; bytes that are no UTF-8 are replaced."""
    text = cell.decode("utf-8", errors="replace")
    if text.startswith('"'):
        return text[1:].removesuffix('"').replace('""', '"')
    return text
