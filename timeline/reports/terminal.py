"""What text for a terminal or a pipe is made of: its display, lines, and tables that fit it."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TextIO

from rich.console import Console, RenderableType, detect_legacy_windows
from rich.table import Table as Grid
from rich.text import Text

from timeline.figures.short_names import CUT, shortened, two_lines
from timeline.printable import encoded, printable, wrapped

PIPE_WIDTH = 110
"""Characters in a line of a pipe or a file."""
LEAST_WIDTH = 60
"""A narrower terminal wraps lines, so that no number is cut."""
ONE_LINE_WIDTH = 72
"""Below this width a share stands below its time."""


@dataclass(frozen=True)
class Display:
    """Where text is shown: its width in characters, its encoding, and whether it is a terminal.

    width: of tables, LEAST_WIDTH or more.
    """

    width: int
    encoding: str
    terminal: bool
    columns: int = 0
    """Of the terminal; as many as `width` if not given."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", self.columns or self.width)

    @classmethod
    def of(cls, stream: TextIO) -> Display:
        """The display that a stream writes to; a pipe or file is PIPE_WIDTH wide."""
        terminal = stream.isatty() and not (os.name == "nt" and detect_legacy_windows())
        width = shutil.get_terminal_size().columns if terminal else PIPE_WIDTH
        return cls(max(width, LEAST_WIDTH), stream.encoding or "utf-8", terminal, width)

    def holds(self, text: str) -> bool:
        """Whether the encoding has these characters."""
        return encoded(text, self.encoding) == text

    @property
    def narrow(self) -> bool:
        """Whether a line has no room for times beside their shares."""
        return self.width < ONE_LINE_WIDTH


GAP = 2
"""Characters between columns; a narrow display has one."""
LEAST_NAME = 16
"""Characters that a column of names has at least."""


def render_blocks(blocks: Iterable[Sequence[RenderableType]], display: Display) -> str:
    """Blocks of lines and tables as text, with an empty line between them."""
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
            console.print(row, soft_wrap=isinstance(row, Text))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    if display.terminal:
        lines = [part for line in lines for part in wrapped(line.rstrip(), display.columns)]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def plain_grid(display: Display, titles: Sequence[str], numbers: Sequence[str]) -> Grid:
    """A table without lines: columns of names, then of numbers."""
    gap = 1 if display.narrow else GAP
    grid = Grid(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    for title in titles:
        grid.add_column(title, overflow="fold")
    for title in numbers:
        grid.add_column(title, justify="right", no_wrap=True)
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
    """A table whose first column holds names: what others leave of the width, in two lines.

    titles: of the names and of columns of words. numbers: of the columns behind them. cells: of
    each row behind its name. styles: of each row, if any.
    """
    gap = 1 if display.narrow else GAP
    grid = plain_grid(display, titles, numbers)
    columns = zip((*titles, *numbers)[1:], *cells, strict=True)
    used = gap + sum(max(map(len, column)) + gap for column in columns)
    lines = _name_lines(names, display, max(width - used, LEAST_NAME))
    for row, (name, row_cells) in enumerate(zip(lines, cells, strict=True)):
        grid.add_row(Text(name), *row_cells, style=styles[row] if styles else None)
    return grid


def name_text(name: str, display: Display) -> Text:
    """A name of the profile, in which nothing is obeyed."""
    return Text(encoded(printable(name), display.encoding))


def _name_lines(names: Sequence[str], display: Display, width: int) -> list[str]:
    """Names of the profile in at most two lines of a width, in which nothing is obeyed."""
    shown = [encoded(printable(name), display.encoding) for name in names]
    cut = CUT if display.holds(CUT) else "..."
    return [two_lines(name, width) for name in shortened(shown, 2 * width, cut)]
