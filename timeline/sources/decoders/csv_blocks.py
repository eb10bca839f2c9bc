"""Reads text files as blocks of whole lines, and CSV tables as blocks of columns."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Bool, Codes, Float64, Int64
from timeline.columns.strings import StringPool
from timeline.errors import SourceError
from timeline.sources.common.losses import LossLog
from timeline.sources.decoders.exported_values import number
from timeline.sources.files.opened import UTF8_MARK, open_profile_file

BLOCK_BYTES = 1 << 21
LONGEST_LINE_BYTES = 1 << 25
"""Maximum length of a line; a file with longer ones is not text."""
_BREAK = ord("\n")


@dataclass(frozen=True)
class Lines:
    """Consecutive lines of a file.

    starts, ends: (n,) offsets in `data` of each line, without its line break.
    first: the number of the first line in the file, from 1.
    """

    data: bytes
    characters: npt.NDArray[np.uint8]
    starts: Int64
    ends: Int64
    first: int

    @classmethod
    def of(cls, data: bytes, first: int) -> Lines:
        """Split a text into lines; the last one may lack a line break."""
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
        """True if the last line has a line break; otherwise it may be cut off anywhere."""
        return self.data.endswith(b"\n")

    def text(self, line: int) -> bytes:
        """Return one line without its line break."""
        return self.data[self.starts[line] : self.ends[line]]

    def behind(self, count: int) -> Lines:
        """Return the lines after the first `count`."""
        if count == len(self):
            return Lines.of(b"", self.first + count)
        return Lines.of(self.data[self.starts[count] :], self.first + count)


def read_lines(path: Path, damage: LossLog) -> Iterator[Lines]:
    """Yield the lines of a file in blocks of some megabytes.

    If compressed content is damaged, the whole lines before the damage are read, and the damage is
    recorded.

    Raises:
        SourceError: the file cannot be read, or has lines longer than LONGEST_LINE_BYTES.
    """
    first = 1
    with open_profile_file(path) as file:
        for data in _read_whole_lines(file, path, damage):
            lines = Lines.of(data, first)
            yield lines
            first += len(lines)


def _read_whole_lines(file: BinaryIO, path: Path, damage: LossLog) -> Iterator[bytes]:
    """Yield the text in parts that end with a line break, except possibly the last."""
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
            raise SourceError(path, "is not text: it has no lines.", offset=file.tell())
        if not data:
            break
    if rest:
        yield rest if lines else rest.removeprefix(UTF8_MARK)


NOT_GIVEN = frozenset({"", "N/A", "NA", "-", "None", "null"})
"""The cells by which writers denote an absent value."""
TOO_FEW_OR_MANY = "rows with too few or many cells"
CUT_OFF = "rows that are cut off"
NO_ROWS = "headers that are cut off, with all rows"
_BYTE_ORDER_MARK = "\ufeff"
_SHORT_CELL_BYTES = 24
"""Maximum length of cells that are extracted together by NumPy, which is faster."""
_MOST_DIGITS = 18
"""Number of decimal digits that always fit into an int64."""

ColumnNames = Mapping[str, tuple[str, ...]]
"""The names that each wanted column has in different versions, newest first, by key."""

_QUOTE, _COMMA = b'",'
_EMPTY_CELLS = b', \t\r"'
_IS_BLANK = np.isin(np.arange(256), np.frombuffer(b" \t\r", np.uint8))
"""Bytes to strip from cells, by value; writers add tabs so that spreadsheets do not round times."""

CellBounds = tuple[Int64, Int64]
"""Begin and end of the cells of a column, as offsets in the text."""


@dataclass(frozen=True)
class Cells:
    """Lines, and the commas between their cells.

    A row never extends over several lines, even inside quotes, so that a quote that is not closed
    damages only its own row.
    """

    lines: Lines
    ends: Int64
    """The end of the last cell of each line."""
    commas: Int64
    """The offsets of all commas, and after them the end of the text."""
    first: Int64
    """The index in `commas` of the first comma of each line."""
    count: Int64
    """The number of cells of each line."""

    @classmethod
    def of(cls, lines: Lines) -> Cells:
        """Find the cells of lines; commas between quotes do not separate cells."""
        is_comma = lines.characters == _COMMA
        quotes = lines.characters == _QUOTE
        if quotes.any():
            is_comma &= ~_quoted(quotes, lines)
        return cls._between(lines, is_comma)

    @classmethod
    def from_end(cls, lines: Lines, most: int) -> Cells:
        """Find the last `most` cells of lines, ignoring quotes; the first has any other commas."""
        cells = cls._between(lines, lines.characters == _COMMA)
        more = np.maximum(cells.count - most, 0)
        return replace(cells, first=cells.first + more, count=cells.count - more)

    @classmethod
    def _between(cls, lines: Lines, is_comma: Bool) -> Cells:
        commas = np.append(np.flatnonzero(is_comma), len(lines.data))
        first = np.searchsorted(commas, lines.starts)
        count = np.searchsorted(commas[:-1], lines.ends) - first + 1
        return cls(lines, lines.ends, commas, first, count)

    def column(self, place: int) -> CellBounds:
        """Return the bounds of one column's cells without blanks; empty for lines too short."""
        end = self._comma(place)
        begin = np.minimum(self._comma(place - 1) + 1, self.ends) if place else self.lines.starts
        end = np.maximum(begin, end)
        characters = self.lines.characters
        last = len(characters) - 1
        while (more := (end > begin) & _IS_BLANK[characters[end - 1]]).any():
            end = end - more
        while (more := (end > begin) & _IS_BLANK[characters[np.minimum(begin, last)]]).any():
            begin = begin + more
        return begin, end

    def _comma(self, place: int) -> Int64:
        """Return the offset of the comma after one column, or of the end of the line."""
        at = np.minimum(self.first + place, len(self.commas) - 1)
        return np.minimum(self.commas[at], self.ends)

    def equal(self, place: int, text: bytes) -> Bool:
        """Return a mask of lines in which a cell of a column equals a text."""
        begin, end = self.column(place)
        same: Bool = end - begin == len(text)
        for at, letter in enumerate(text):
            if not same.any():
                break
            same[same] = self.lines.characters[begin[same] + at] == letter
        return same

    def hold_more(self, place: int) -> Bool:
        """Return a mask of lines with a cell that is not empty at or after a column."""
        begin, _ = self.column(place)
        data = self.lines.data
        rest = zip(begin.tolist(), self.ends.tolist(), strict=True)
        return np.array([bool(data[at:to].strip(_EMPTY_CELLS)) for at, to in rest], np.bool_)

    def without_last(self) -> Cells:
        """Return all cells but the last cell of the last line."""
        ends, count = self.ends.copy(), self.count.copy()
        place = int(count[-1]) - 2
        ends[-1] = self._comma(place)[-1] if place >= 0 else self.lines.starts[-1]
        count[-1] -= 1
        return replace(self, ends=ends, count=count)

    def texts(self, line: int) -> list[str]:
        """Return the cells of one line as strings without quotes."""
        cells = Cells.of(Lines.of(self.lines.text(line), 1))
        bounds = (
            cells.column(place) for place in range(int(cells.count[0]) if len(cells.count) else 0)
        )
        return [unquoted(cells.lines.data[begin[0] : end[0]]) for begin, end in bounds]


def _quoted(quotes: Bool, lines: Lines) -> Bool:
    """Return a mask of characters with an odd number of quotes up to them in their line."""
    odd = np.cumsum(quotes, dtype=np.uint8) & np.uint8(1)
    before = np.concatenate([np.zeros(1, np.uint8), odd[lines.starts[1:] - 1]])
    if before.any():
        widths = np.diff(np.append(lines.starts, len(quotes)))
        odd ^= np.repeat(before, widths)
    return odd.astype(np.bool_)


def unquoted(cell: bytes) -> str:
    """Return a cell as a string without quotes; invalid UTF-8 becomes U+FFFD."""
    text = cell.decode("utf-8", errors="replace")
    if text.startswith('"'):
        return text[1:].removesuffix('"').replace('""', '"')
    return text


class RowShape(enum.Enum):
    """The number of cells that rows of a table may have."""

    RAGGED = enum.auto()
    """Any number, except that a last line without line break must have all cells to be a row."""
    FULL = enum.auto()
    """As many as the header; other lines are not rows."""
    ENDED = enum.auto()
    """Any number; if the last line lacks a line break, it is a row without its last cell."""


@dataclass(frozen=True)
class Block:
    """Some rows of a table.

    The cells of a column that the table does not have are empty.

    header: the column names. lines: (n,) the line number of each row. cells_of: (n,) the number of
    cells of each row. _held: which lines of `_cells` are rows of this block. _places: the position
    of each column, by key.
    """

    header: tuple[str, ...]
    lines: Int64
    cells_of: Int64
    _cells: Cells
    _held: Bool
    _places: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.lines)

    def __contains__(self, key: str) -> bool:
        return key in self._places

    def cells(self, key: str | int) -> list[bytes]:
        """Return the cells of a column, given by key or position, as written but stripped."""
        return self._slices(*self._bounds(key))

    def _bounds(self, key: str | int) -> CellBounds:
        place = key if isinstance(key, int) else self._places.get(key)
        if place is None:
            none = np.zeros(len(self), np.int64)
            return none, none
        begin, end = self._cells.column(place)
        return (begin, end) if self._held.all() else (begin[self._held], end[self._held])

    def _slices(self, begin: Int64, end: Int64) -> list[bytes]:
        widest = int((end - begin).max(initial=0))
        characters, data = self._cells.lines.characters, self._cells.lines.data
        if 0 < widest <= _SHORT_CELL_BYTES:
            places = begin[:, None] + np.arange(widest)
            letters = characters[np.minimum(places, len(characters) - 1)]
            letters[places >= end[:, None]] = 0
            short: list[bytes] = letters.view(f"S{widest}").reshape(-1).tolist()
            return short
        return [data[at:to] for at, to in zip(begin.tolist(), end.tolist(), strict=True)]

    def texts(self, key: str) -> list[str]:
        """Return the cells of a column as strings without quotes and blanks."""
        cells = self.cells(key)
        texts = {cell: unquoted(cell).strip() for cell in dict.fromkeys(cells)}
        return [texts[cell] for cell in cells]

    def codes(self, key: str, strings: StringPool, meaning: Callable[[str], str]) -> Codes:
        """Return `meaning(cell)` as string codes; it is called once per distinct cell."""
        return self._coded(key, lambda text: strings.code(meaning(text)))

    def positions(self, key: str, known: dict[str, int]) -> Codes:
        """Return the number of each cell's text in `known`, to which new texts are added."""
        return self._coded(key, lambda text: known.setdefault(text.strip(), len(known)))

    def _coded(self, key: str, code: Callable[[str], int]) -> Codes:
        cells = self.cells(key)
        codes = {cell: code(unquoted(cell)) for cell in dict.fromkeys(cells)}
        return np.array([codes[cell] for cell in cells], np.int32)

    def integers(self, key: str, absent: int) -> Int64:
        """Return a column of integers, also if written as reals (2.0); `absent` for other cells."""
        begin, end = self._bounds(key)
        characters = self._cells.lines.characters
        length = end - begin
        values = np.zeros(len(begin), np.int64)
        are_plain = (length > 0) & (length <= _MOST_DIGITS)
        last = len(characters) - 1
        for place in range(min(int(length.max(initial=0)), _MOST_DIGITS)):
            inside = length > place
            digit = characters[np.minimum(begin + place, last)] - np.uint8(ord("0"))
            are_plain &= ~inside | (digit < 10)
            values = np.where(inside, values * 10 + digit, values)
        rest = np.flatnonzero(~are_plain)
        if len(rest):
            cells = self._slices(begin[rest], end[rest])
            numbers = {
                cell: number(unquoted(cell).strip().removesuffix(".0"), absent)
                for cell in dict.fromkeys(cells)
            }
            values[rest] = [numbers[cell] for cell in cells]
        return values

    def lines_without(self, key: str, values: Int64, absent: int) -> Int64:
        """Return the line numbers of present cells for which `integers` returned `absent`."""
        rows = np.flatnonzero(values == absent)
        begin, end = self._bounds(key)
        cells = self._slices(begin[rows], end[rows])
        are_odd = [unquoted(cell).strip() not in NOT_GIVEN for cell in cells]
        return self.lines[rows[np.array(are_odd, np.bool_)]]

    def reals(self, key: str | int) -> tuple[Float64, Bool]:
        """Return a column as (n,) float64, NaN if not a number, and a mask of present cells."""
        cells = self.cells(key)
        with contextlib.suppress(ValueError):
            values = np.array(list(map(float, cells)), np.float64)
            if not np.isnan(values).any():
                return values, np.ones(len(cells), np.bool_)
        texts = [unquoted(cell).strip() for cell in cells]
        given = np.fromiter((text not in NOT_GIVEN for text in texts), np.bool_, len(texts))
        return np.array([_real(text) for text in texts], np.float64), given


def _real(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def read_blocks(
    path: Path,
    wanted: ColumnNames | None,
    required: Sequence[str],
    damage: LossLog,
    rows: RowShape = RowShape.RAGGED,
) -> Iterator[Block]:
    """Yield blocks of the wanted columns of a table.

    Blank lines and repeated headers are not rows. Cells that a short row lacks are empty. Lines
    that are not rows according to `rows` are recorded as damage.

    Args:
        wanted: the names of columns by key; None for all columns, with their names as keys.
        required: keys of columns that must exist.

    Raises:
        SourceError: the file cannot be read, has no header, or lacks a required column.
    """
    header: tuple[str, ...] = ()
    places: dict[str, int] = {}
    for block in read_lines(path, damage):
        lines = block
        if not header:
            header, lines = _header(block)
            if not header:
                continue
            names = wanted or {name: (name,) for name in header}
            places = _places(path, header, names, required)
            if not len(lines) and not block.ended:
                damage.add_lines(NO_ROWS, block.numbers[-1:])
        if len(lines):
            mark = places[required[0]] if required else 0
            yield _block(Cells.of(lines), header, places, mark, damage, rows)
    if not header:
        if not required:
            raise SourceError(path, "is empty.")
        expected = wanted[required[0]] if wanted else (required[0],)
        raise SourceError(path, f"has no column {' or '.join(expected)}: it is empty.")


def read_last_cells(path: Path, names: tuple[str, ...], damage: LossLog) -> Iterator[Block]:
    """Yield blocks of a table that may lack a header, and whose first cells may contain commas.

    Lines are split from their end. Lines with too few cells, and a last line without line break,
    are recorded as damage.

    Raises:
        SourceError: the file cannot be read, or is empty.
    """
    places = {name: place for place, name in enumerate(names)}
    is_empty = True
    for lines in filter(len, read_lines(path, damage)):  # a byte order mark alone has no line
        cells = Cells.from_end(lines, len(names))
        begin, end = cells.column(0)
        held = (cells.count > 1) | (end > begin)
        if not lines.ended:
            damage.add_lines(CUT_OFF, lines.numbers[-1:])
            held[-1] = False
        first = lines.data[begin[0] : end[0]].strip(b'" ')
        if is_empty and held[0] and first == names[0].encode():
            held[0] = False
        is_empty = False
        short = held & (cells.count < len(names))
        damage.add_lines(TOO_FEW_OR_MANY, lines.numbers[short])
        held &= ~short
        yield Block(names, lines.numbers[held], cells.count[held], cells, held, places)
    if is_empty:
        raise SourceError(path, "is empty.")


def _header(lines: Lines) -> tuple[tuple[str, ...], Lines]:
    """Return the column names in the first line that is not blank, and the lines after it."""
    cells = Cells.of(lines)
    for line in range(len(lines)):
        names = _names(cells, line)
        if any(names):
            return names, lines.behind(line + 1)
    return (), lines


def _names(cells: Cells, line: int) -> tuple[str, ...]:
    """Return the cells of a line as column names, without byte order marks of joined files."""
    return tuple(text.strip().strip(_BYTE_ORDER_MARK) for text in cells.texts(line))


def _places(
    path: Path, header: tuple[str, ...], wanted: ColumnNames, required: Sequence[str]
) -> dict[str, int]:
    places = {
        key: header.index(name)
        for key, names in wanted.items()
        for name in names[::-1]
        if name in header
    }
    for key in required:
        if key not in places:
            names = wanted.get(key, (key,))
            raise SourceError(
                path, f"has no column {' or '.join(names)}; found {', '.join(header)[:200]}."
            )
    return places


def _block(
    cells: Cells,
    header: tuple[str, ...],
    places: Mapping[str, int],
    mark: int,
    damage: LossLog,
    rows: RowShape,
) -> Block:
    """Return the rows among a table's lines; `mark` is a column to recognise repeated headers."""
    lines = cells.lines
    begin, end = cells.column(0)
    held = (cells.count > 1) | (end > begin)
    if held[-1] and not lines.ended:
        cells = _drop_cut_off(cells, held, len(header), damage, rows)
    for row in np.flatnonzero(held & cells.equal(mark, header[mark].encode())).tolist():
        held[row] = _names(cells, row) != header
    if rows is RowShape.FULL:
        odd = held & (cells.count != len(header))
        longer = odd & (cells.count > len(header))
        if longer.any():
            odd &= ~longer | cells.hold_more(len(header))
        damage.add_lines(TOO_FEW_OR_MANY, lines.numbers[odd])
        held &= ~odd
    return Block(header, lines.numbers[held], cells.count[held], cells, held, places)


def _drop_cut_off(cells: Cells, held: Bool, width: int, damage: LossLog, rows: RowShape) -> Cells:
    """Drop the last cell or row, which lacks a line break, if it may be cut off; see RowShape."""
    if rows is RowShape.ENDED and cells.count[-1] > 1:
        return cells.without_last()
    if rows is RowShape.ENDED or cells.count[-1] < width:
        damage.add_lines(CUT_OFF, cells.lines.numbers[-1:])
        held[-1] = False
    return cells
