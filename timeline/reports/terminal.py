"""Text output for a terminal or a pipe: the display, and lines and tables that fit it."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import numpy as np
from rich.console import Console, RenderableType, detect_legacy_windows
from rich.table import Table as Grid
from rich.text import Text

from timeline.language import said
from timeline.printable import cells_of, encoded, printable, wrapped
from timeline.tables.short_names import CUT, shortened, two_lines
from timeline.tables.table import Table
from timeline.tracks.colours import Colour
from timeline.units import ColumnUnit, format_share
from timeline.verdict.mean_step import EDGES, edges_ns

PIPE_WIDTH = 110
"""Width that lines are formatted for in a pipe or a file, in characters."""
LEAST_WIDTH = 60
"""Minimum width of tables; a narrower terminal wraps their lines, so that no number is cut."""
ONE_LINE_WIDTH = 72
"""Minimum width at which a share is printed beside its time, instead of below it."""


@dataclass(frozen=True)
class Display:
    """An output that text is formatted for.

    width: of tables in characters, at least LEAST_WIDTH. terminal: whether it is a terminal, which
    shows colours and bars. columns: actual width of the terminal; 0 for `width`.
    """

    width: int
    encoding: str
    terminal: bool
    columns: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", self.columns or self.width)

    @classmethod
    def of(cls, stream: TextIO) -> Display:
        """Return the display that a stream writes to; a pipe or file is PIPE_WIDTH wide."""
        terminal = stream.isatty() and not (os.name == "nt" and detect_legacy_windows())
        width = shutil.get_terminal_size().columns if terminal else PIPE_WIDTH
        return cls(max(width, LEAST_WIDTH), stream.encoding or "utf-8", terminal, width)

    def can_show(self, text: str) -> bool:
        """Return whether the encoding has all these characters."""
        return encoded(text, self.encoding) == text

    @property
    def narrow(self) -> bool:
        """Return whether lines have no room for shares beside their times."""
        return self.width < ONE_LINE_WIDTH


GAP = 2
"""Number of spaces between columns; a narrow display has one."""
LEAST_NAME = 16
"""Minimum width of a column of names, in characters."""


def render_blocks(blocks: Iterable[Sequence[RenderableType]], display: Display) -> str:
    """Format blocks of lines and tables as text, separated by empty lines."""
    console = Console(
        file=io.StringIO(),
        width=display.width,
        force_terminal=display.terminal,
        color_system="auto" if display.terminal else None,
        force_jupyter=False,
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
    )
    for number, block in enumerate(blocks):
        if number:
            console.print()
        for row in block:
            if isinstance(row, Text):
                console.print(_said(row, display), soft_wrap=True)
            else:
                console.print(row)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    if display.terminal:
        lines = [part for line in lines for part in wrapped(line.rstrip(), display.columns)]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _said(line: Text, display: Display) -> Text:
    """Return a line, which has one style, in the spoken language."""
    style = line.spans[0].style if line.spans else line.style
    return Text(encoded(said(line.plain), display.encoding), style=style)


def plain_grid(display: Display, titles: Sequence[str], numbers: Sequence[str]) -> Grid:
    """Return an empty table without rules: text columns, then number columns, by their headings."""
    gap = 1 if display.narrow else GAP
    grid = Grid(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    for title in titles:
        grid.add_column(said(title), overflow="fold")
    for title in numbers:
        grid.add_column(said(title), justify="right", no_wrap=True)
    return grid


def named_grid(
    display: Display,
    width: int,
    titles: Sequence[str],
    numbers: Sequence[str],
    names: Sequence[str],
    cells: Sequence[Sequence[str | Text]],
    styles: Sequence[str] = (),
) -> Grid:
    """Return a table whose first column holds names, in at most two lines per row.

    The names are shortened to the width that the other columns leave.

    titles: headings of the names and of further text columns. numbers: headings of the number
    columns after them. cells: the cells of each row after its name, texts from profiles as Text.
    styles: of each row, if any.
    """
    gap = 1 if display.narrow else GAP
    grid = plain_grid(display, titles, numbers)
    shown = [[said(one, "cell") if isinstance(one, str) else one for one in row] for row in cells]
    columns = zip(map(said, (*titles, *numbers)[1:]), *shown, strict=True)
    used = gap + sum(max(cells_of(str(one)) for one in column) + gap for column in columns)
    lines = _name_lines(names, display, max(width - used, LEAST_NAME))
    for row, (name, row_cells) in enumerate(zip(lines, shown, strict=True)):
        grid.add_row(Text(name), *row_cells, style=styles[row] if styles else None)
    return grid


def name_text(name: str, display: Display) -> Text:
    """Return a name from a profile, with characters escaped that a terminal would interpret."""
    return Text(encoded(printable(name), display.encoding))


def _name_lines(names: Sequence[str], display: Display, width: int) -> list[str]:
    """Escape names and shorten them to at most two lines of a width."""
    shown = [encoded(printable(name), display.encoding) for name in names]
    cut = CUT if display.can_show(CUT) else "..."
    return [two_lines(name, width) for name in shortened(shown, 2 * width, cut)]


# -- rows of device times --------------------------------------------------------------------------


LEAST_BAR, MOST_BAR = 6, 30
"""Minimum and maximum width of a bar, in characters."""
ID_WIDTH, TIME_WIDTH, CELL_WIDTH = 4, 7, 12
"""Widths of a rank or step number, of a time, and of a time with its share, in characters."""
LEAST_HEADS, LEAST_PARTS = 2, 4
"""Number of leading columns and of time columns that fit into ONE_LINE_WIDTH."""


@dataclass(frozen=True)
class _Part:
    """A part of device time: its column, headings, and the style and characters of its bar."""

    column: str
    title: str
    short_title: str
    style: str
    mark: str = ""
    plain_mark: str = ""

    @property
    def width(self) -> int:
        """Return the width of its column, which fits the title and a time with its share."""
        return max(CELL_WIDTH, *map(cells_of, said(self.title).split("\n")))


_PARTS = (
    _Part("computing_ns", "compute", "compute", Colour.COMPUTING.shown, "█", "#"),
    _Part("communication_ns", "communication", "comm.", ""),
    _Part("not_overlapped_ns", "exposed\ncomm.", "exposed\ncomm.", Colour.EXPOSED.shown, "░", "="),
    _Part("waiting_ns", "waiting", "waiting", Colour.WAITING.shown, "▓", "x"),
    _Part("transfer_ns", "transfer", "transfer", Colour.TRANSFER.shown, "▒", "+"),
    _Part("copies_ns", "copies", "copies", Colour.COPIES.shown, "≡", ":"),
    _Part("idle_ns", "idle", "idle", Colour.IDLE.shown, "·", "."),
    _Part("edges_ns", "before,\nbetween", "before,\nbetween", "bright_black", "·", "."),
)
_SPLIT = ("waiting_ns", "transfer_ns")
"""Parts of exposed communication; if both are known, all communication has no column."""
_RARE = (
    "computing_ns",
    "communication_ns",
    "not_overlapped_ns",
    "copies_ns",
)
"""Parts without a column if they are 0 in all rows; without computing, idle time has none either,
since the profile cannot show it."""
_DISPENSABLE = ("transfer_ns", "communication_ns")
"""Parts that a narrow display leaves out."""


class TimesGrid:
    """A table with a row of times per rank or step: the whole and its parts, as far as they fit.

    All times have one unit, that of the longest whole, which the headings name.

    heads: titles of the columns before the parts, the last of which holds the whole time. table:
    all rows, with period_ns and its parts. The last part is the time before the first kernel and
    between steps.
    """

    def __init__(self, display: Display, heads: Sequence[str], table: Table) -> None:
        self._display = display
        self._parts = _parts_of(table, display, len(heads))
        self._stacked = display.width < _width_of(len(self._parts), len(heads))
        self._bar_width = self._width_for_bar(len(heads))
        gap = 1 if self._stacked else GAP
        self.grid = Grid(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
        self._unit = ColumnUnit.of_times(table["period_ns"].tolist())
        for label in (*heads[:-1], self._unit.title(heads[-1])):
            self.grid.add_column(said(label), justify="right", no_wrap=True, vertical="top")
        for part in self._parts:
            title = said(part.short_title if self._stacked else part.title)
            between = " " if "\n" in title and not self._stacked else "\n"
            title = f"{title}{between}({self._unit.name})"
            mark = f"{self._mark(part)} " if part.mark and self._bar_width else ""
            head = Text(mark, style=part.style) + Text(title) if mark else Text(title)
            self.grid.add_column(head, justify="right", no_wrap=True)
        if self._bar_width:
            self.grid.add_column("", no_wrap=True)

    def add(self, labels: Sequence[str], row: Mapping[str, Any], style: str = "") -> None:
        """Add a row: its labels before the whole time in a style, and its times."""
        whole = self._unit.format(row["period_ns"])
        texts = [said(label, "cell") for label in (*labels, whole)]
        cells: list[Text] = [Text(text, style=style) for text in texts]
        between = "\n" if self._stacked else " "
        row = {**row, "edges_ns": sum(row.get(name) or 0 for name in EDGES)}
        for part in self._parts:
            part_ns = row[part.column]
            if part_ns is None:
                cells.append(Text("-"))
                continue
            share = format_share(part_ns, row["period_ns"])
            cells.append(Text(f"{self._unit.format(part_ns)}{between}{share:>4}"))
        if self._bar_width:
            cells.append(self._bar(row))
        self.grid.add_row(*cells)

    def add_gap(self) -> None:
        """Add a row of dots for rows that are left out."""
        self.grid.add_row("…" if self._display.can_show("…") else "...")

    def _width_for_bar(self, heads: int) -> int:
        """Return the width that is left for a bar, 0 for none; a pipe has none."""
        if self._stacked or not self._display.terminal:
            return 0
        used = ID_WIDTH + (heads - 1) * TIME_WIDTH + sum(part.width for part in self._parts)
        left = self._display.width - used - (heads + len(self._parts)) * GAP
        return min(left, MOST_BAR) if left >= LEAST_BAR else 0

    def _mark(self, part: _Part) -> str:
        return part.mark if self._display.can_show("█▓▒░≡·") else part.plain_mark

    def _bar(self, row: Mapping[str, Any]) -> Text:
        bar = Text()
        # A file with impossible numbers must not break the bar: periods below 1 and negative parts.
        span_ns, upto_ns, drawn = max(row["period_ns"], 1), 0, 0
        split_ns = sum(row[part.column] or 0 for part in self._parts if part.column in _SPLIT)
        for part in self._parts:
            if part.mark:
                upto_ns += row[part.column] or 0
                upto_ns -= split_ns if part.column == "not_overlapped_ns" else 0
                cells = round(self._bar_width * min(max(upto_ns, 0), span_ns) / span_ns) - drawn
                bar.append(self._mark(part) * cells, style=part.style)
                drawn += cells
        return bar


def _parts_of(table: Table, display: Display, heads: int) -> tuple[_Part, ...]:
    """Return the parts that have columns."""

    def has(name: str) -> bool:
        return name in table.columns and not np.ma.getmaskarray(table[name]).all()

    left_out = {name for name in _SPLIT if not has(name)}
    if not left_out:
        left_out = {"communication_ns"}
    left_out |= {name for name in _RARE if not np.ma.filled(table[name], 0).any()}
    if not (100 * edges_ns(table) >= table["period_ns"]).any():
        left_out.add("edges_ns")
    if "computing_ns" in left_out:
        left_out.add("idle_ns")
    if display.width < _width_of(len(_PARTS) - len(left_out), heads):
        left_out.update(_DISPENSABLE)
    return tuple(part for part in _PARTS if part.column not in left_out)


def _width_of(parts: int, heads: int) -> int:
    """Return the width of a grid with this many columns of times, after `heads` other columns."""
    more_heads = max(heads - LEAST_HEADS, 0)
    return (
        ONE_LINE_WIDTH + (parts - LEAST_PARTS) * (CELL_WIDTH + GAP) + more_heads * (ID_WIDTH + GAP)
    )
