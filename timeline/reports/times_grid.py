"""Rows of device times with their parts and a bar, as wide as a display has room for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.table import Table as Grid
from rich.text import Text

from timeline.figures.mean_step import EDGES, edges_ns
from timeline.figures.table import Table
from timeline.reports.terminal import GAP, ONE_LINE_WIDTH, Display
from timeline.units import spell_share, spell_short

LEAST_BAR, MOST_BAR = 6, 30
"""Characters of a bar."""
ID_WIDTH, TIME_WIDTH, CELL_WIDTH = 4, 7, 12
"""Characters of a number of a rank or step, of a time, and of a time with its share."""
LEAST_HEADS, LEAST_PARTS = 2, 4
"""Columns in front, and columns of times, for which a display of ONE_LINE_WIDTH has room."""


@dataclass(frozen=True)
class _Part:
    """One part of device time, as it is drawn."""

    column: str
    title: str
    short_title: str
    style: str
    mark: str = ""
    plain_mark: str = ""

    @property
    def width(self) -> int:
        """The columns of its title and of a time with its share."""
        return max(CELL_WIDTH, *map(len, self.title.split("\n")))


_PARTS = (
    _Part("computing_ns", "compute", "compute", "green", "█", "#"),
    _Part("communication_ns", "communication", "comm.", ""),
    _Part("not_overlapped_ns", "exposed\ncomm.", "exposed\ncomm.", "yellow", "▒", "="),
    _Part("waiting_ns", "waiting", "waiting", ""),
    _Part("transfer_ns", "transfer", "transfer", ""),
    _Part("copies_ns", "copies", "copies", "cyan", "░", ":"),
    _Part("idle_ns", "idle", "idle", "bright_black", "·", "."),
    _Part("edges_ns", "before,\nbetween", "before,\nbetween", "bright_black", "·", "."),
)
_SPLIT = ("waiting_ns", "transfer_ns")
"""What exposed communication consists of; where that is known, all of it has no column."""
_RARE = (
    "computing_ns",
    "communication_ns",
    "not_overlapped_ns",
    "copies_ns",
)
"""Parts that have a column only where there is any of them; nothing idles where nothing computes,
as far as the profile tells."""
_LEAST_TELLING = ("transfer_ns", "communication_ns")
"""They make room on a narrow display: other parts tell them."""


class TimesGrid:
    """A table of rows of times, whose parts have columns as far as there is room.

    display: where it is shown. heads: titles of the columns before the parts, the last of which
    holds the whole time. table: all rows, with period_ns and the parts of it; the last part is what
    lies before the first kernel and between steps.
    """

    def __init__(self, display: Display, heads: Sequence[str], table: Table) -> None:
        self._display = display
        self._parts = _parts_of(table, display, len(heads))
        self._stacked = display.width < _width_of(len(self._parts), len(heads))
        self._bar_width = self._width_for_bar(len(heads))
        gap = 1 if self._stacked else GAP
        self.grid = Grid(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
        for label in heads:
            self.grid.add_column(label, justify="right", no_wrap=True, vertical="top")
        for part in self._parts:
            title = part.short_title if self._stacked else part.title
            mark = f"{self._mark(part)} " if part.mark and self._bar_width else ""
            head = Text(mark, style=part.style) + Text(title) if mark else Text(title)
            self.grid.add_column(head, justify="right", no_wrap=True)
        if self._bar_width:
            self.grid.add_column("", no_wrap=True)

    def add(self, labels: Sequence[str], row: Mapping[str, Any], style: str = "") -> None:
        """Add a row: what stands before its parts, in a style, and its times."""
        cells: list[Text] = [Text(label, style=style) for label in labels]
        between = "\n" if self._stacked else " "
        row = {**row, "edges_ns": sum(row.get(name) or 0 for name in EDGES)}
        for part in self._parts:
            part_ns = row[part.column]
            if part_ns is None:
                cells.append(Text("-"))
                continue
            share = spell_share(part_ns, row["period_ns"])
            cells.append(Text(f"{spell_short(part_ns)}{between}{share:>4}"))
        if self._bar_width:
            cells.append(self._bar(row))
        self.grid.add_row(*cells)

    def add_gap(self) -> None:
        """Add a row that says that rows are left out."""
        self.grid.add_row("…" if self._display.holds("…") else "...")

    def _width_for_bar(self, heads: int) -> int:
        """The columns that are left for a bar; a pipe has none."""
        if self._stacked or not self._display.terminal:
            return 0
        used = ID_WIDTH + (heads - 1) * TIME_WIDTH + sum(part.width for part in self._parts)
        left = self._display.width - used - (heads + len(self._parts)) * GAP
        return min(left, MOST_BAR) if left >= LEAST_BAR else 0

    def _mark(self, part: _Part) -> str:
        return part.mark if self._display.holds("█▒░·") else part.plain_mark

    def _bar(self, row: Mapping[str, Any]) -> Text:
        bar = Text()
        # A file may say of its steps what no profile does.
        span_ns, upto_ns, drawn = max(row["period_ns"], 1), 0, 0
        for part in _PARTS:
            if part.mark:
                upto_ns += row[part.column] or 0
                cells = round(self._bar_width * min(max(upto_ns, 0), span_ns) / span_ns) - drawn
                bar.append(self._mark(part) * cells, style=part.style)
                drawn += cells
        return bar


def _parts_of(table: Table, display: Display, heads: int) -> tuple[_Part, ...]:
    """The parts that have columns."""

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
        left_out |= {name for name in _LEAST_TELLING if name not in left_out}
    return tuple(part for part in _PARTS if part.column not in left_out)


def _width_of(parts: int, heads: int) -> int:
    """Return the width of a grid of so many columns of times with shares, behind some others."""
    more_heads = max(heads - LEAST_HEADS, 0)
    return (
        ONE_LINE_WIDTH + (parts - LEAST_PARTS) * (CELL_WIDTH + GAP) + more_heads * (ID_WIDTH + GAP)
    )
