"""The verdict as text, for a terminal of any width and kind, or for a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from timeline.figures.rank_tables import PARTS, Figures, extent_ns
from timeline.figures.table import Table
from timeline.figures.verdict import Verdict
from timeline.reports.terminal import (
    GAP,
    ONE_LINE_WIDTH,
    Display,
    name_text,
    named_grid,
    plain_grid,
    render_blocks,
)
from timeline.units import spell_count, spell_share, spell_short

__all__ = ["verdict_text"]

SIDE_BY_SIDE_WIDTH = 116
"""From this width on, operators and collectives stand side by side."""
LEAST_BAR, MOST_BAR = 6, 30
"""Characters of a bar."""
MOST_RANKS = 8
"""More are not all told: the slowest, the fastest and the mean are."""
SLOWEST_RANKS = 5
MOST_STEPS = 40
MOST_OPS = 5
MOST_STRAGGLERS = 3
ID_WIDTH, TIME_WIDTH, CELL_WIDTH = 4, 7, 12
"""Characters of a number of a rank or step, of a time, and of a time with its share."""
LEAST_PARTS = 4
"""Columns of times for which a display of ONE_LINE_WIDTH has room."""


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
    _Part("computing_ns", "computing", "computing", "green", "█", "#"),
    _Part("communication_ns", "communication", "comm.", ""),
    _Part("not_overlapped_ns", "not\noverlapped", "not\noverlapped", "yellow", "▒", "="),
    _Part("copies_ns", "copies", "copies", "cyan", "░", ":"),
    _Part("idle_ns", "idle", "idle", "bright_black", "·", "."),
)
assert {part.column for part in _PARTS} <= set(PARTS)
_RARE = "copies_ns"
"""A part that has a column only where there is any of it."""
_LEAST_TELLING = "communication_ns"
"""What makes room for that on a narrow display: shares add up without it."""
_SLOW, _FAST = "bold red", "green"


def verdict_text(
    verdict: Verdict, figures: Figures, display: Display, *, verbose: bool = False
) -> str:
    """The answer to "what is slow", in lines that fit the display.

    verbose: each step too, and the longest communication ops one by one.
    """
    return render_blocks(_Blocks(verdict, figures, display, verbose).all(), display)


@dataclass(frozen=True)
class _Blocks:
    """The parts of the text, which are blocks of lines and tables."""

    verdict: Verdict
    figures: Figures
    display: Display
    verbose: bool

    def all(self) -> Iterator[Sequence[RenderableType]]:
        ranks = self.verdict.ranks
        used = Table({**ranks.columns, "span_ns": extent_ns(ranks)}).take(ranks["span_ns"] > 0)
        sentences = [Text(line) for line in self.verdict.sentences()]
        if not len(used):
            yield [Text("The selection holds no device records: there is nothing to compare.")]
            return
        sentences[0].stylize("bold")
        yield sentences
        yield list(self._ranks(used))
        if self.verbose and len(self.verdict.steps):
            yield list(self._steps())
        if len(self.verdict.stragglers):
            yield [self._stragglers()]
        operators, collectives = self.verdict.operators, self.verdict.collectives
        if len(operators) and len(collectives) and self._side_by_side:
            both = Grid.grid(padding=(0, 3 * GAP, 0, 0))
            left = self.display.width - 3 * GAP
            second = self._collectives(left // 2)
            rest = left - Console(width=left).measure(second).maximum
            both.add_row(self._operators(rest), second)
            yield [both]
        else:
            if len(operators):
                yield [self._operators(self.display.width)]
            if len(collectives):
                yield [self._collectives(self.display.width)]
        if self.verbose and len(self.figures.longest_ops):
            yield [self._longest_ops()]

    # -- ranks and steps ---------------------------------------------------------------------------

    def _ranks(self, used: Table) -> Iterator[RenderableType]:
        rows = used.to_dicts()
        steps = all(row["step_ns"] is not None for row in rows)
        time = "step_ns" if steps else "span_ns"
        heads = ["rank", "mean\nstep" if any(row["steps"] > 1 for row in rows) else "step"]
        grid = self._grid(heads if steps else ["rank", "time"])
        few = self.verdict.used_ranks <= MOST_RANKS
        if not few:
            ordered = sorted(rows, key=lambda row: (-row[time], row["rank"]))
            rows = [*ordered[:SLOWEST_RANKS], ordered[-1]]
        for row in rows:
            if not few and row is rows[-1]:
                grid.add_row("…" if self.display.holds("…") else "...")
            labels = [str(row["rank"]), spell_short(row[time])]
            self._add(grid, labels, row, self._style_of(row["rank"]))
        if not few:
            mean = self.verdict.mean_ns
            self._add(grid, ["mean", spell_short(mean[time] or 0)], mean, "bold")
        yield grid
        if steps and any(row["steps"] > 1 for row in rows):
            yield Text("Other times are sums over all steps and what is between them.", style="dim")
        if not few:
            ranks = spell_count(self.verdict.used_ranks, "rank")
            yield Text(
                f"{ranks}: the slowest {SLOWEST_RANKS}, the fastest, the mean; all: --csv FILE"
            )
        if unused := self.verdict.unused_ranks:
            yield Text(f"{spell_count(unused, 'rank')} without device records.")

    def _steps(self) -> Iterator[RenderableType]:
        rows = self.verdict.steps.to_dicts()
        slowest = sorted(range(len(rows)), key=lambda at: -rows[at]["span_ns"])
        shown = sorted(slowest[:MOST_STEPS])
        pairs = {(row["rank"], row["graph"]) for row in self.figures.steps.to_dicts()}
        graphs = len(pairs) > len({rank for rank, _ in pairs})
        ranks = len(self.verdict.ranks) > 1
        heads = ["step", *(["graph"] if graphs else []), *(["on\nrank"] if ranks else [])]
        grid = self._grid([*heads, "time"])
        for at in shown:
            row = rows[at]
            graph = "-" if row["graph"] is None else str(row["graph"])
            labels = [
                str(row["step"]),
                *([graph] if graphs else []),
                *([str(row["rank"])] if ranks else []),
                spell_short(row["span_ns"]),
            ]
            self._add(grid, labels, row, _SLOW if len(rows) > 1 and at == slowest[0] else "")
        yield grid
        if len(shown) < len(rows):
            yield Text(
                f"{spell_count(len(rows), 'step')}: the slowest {MOST_STEPS}; all: --csv FILE"
            )

    def _grid(self, heads: Sequence[str]) -> Grid:
        grid = Grid(box=None, pad_edge=False, padding=(0, self._gap, 0, 0), header_style="bold")
        for label in heads:
            grid.add_column(label, justify="right", no_wrap=True, vertical="top")
        for part in self._parts:
            title = part.short_title if self._stacked else part.title
            mark = f"{self._mark(part)} " if part.mark and self._bar_width(heads) else ""
            head = Text(mark, style=part.style) + Text(title)
            grid.add_column(head, justify="right", no_wrap=True)
        if self._bar_width(heads):
            grid.add_column("", no_wrap=True)
        return grid

    def _add(self, grid: Grid, labels: Sequence[str], row: dict[str, Any], style: str) -> None:
        cells: list[Text] = [Text(label, style=style) for label in labels]
        between = "\n" if self._stacked else " "
        for part in self._parts:
            part_ns = row[part.column]
            if part_ns is None:
                cells.append(Text("-"))
                continue
            share = spell_share(part_ns, row["span_ns"])
            cells.append(Text(f"{spell_short(part_ns)}{between}{share:>4}"))
        if len(grid.columns) > len(cells):
            cells.append(self._bar(row, self._bar_width(labels)))
        grid.add_row(*cells)

    def _style_of(self, rank: int) -> str:
        extreme = self.verdict.rank_extreme
        if extreme is None or extreme.slowest_ns == extreme.fastest_ns:
            return ""
        return {extreme.slowest: _SLOW, extreme.fastest: _FAST}.get(rank, "")

    def _bar_width(self, labels: Sequence[str]) -> int:
        """The columns that are left for a bar; a pipe has none."""
        if self._stacked or not self.display.terminal:
            return 0
        used = ID_WIDTH + (len(labels) - 1) * TIME_WIDTH + sum(part.width for part in self._parts)
        left = self.display.width - used - (len(labels) + len(self._parts)) * GAP
        return min(left, MOST_BAR) if left >= LEAST_BAR else 0

    @property
    def _parts(self) -> tuple[_Part, ...]:
        """The parts of device time that have columns, as far as there is room."""
        tables = (self.verdict.ranks, self.verdict.steps)
        is_there = any(np.ma.filled(table[_RARE], 0).any() for table in tables if len(table))
        left_out = (_LEAST_TELLING if self.display.narrow else "") if is_there else _RARE
        return tuple(part for part in _PARTS if part.column != left_out)

    @property
    def _stacked(self) -> bool:
        """Whether shares stand below their times."""
        more = (len(self._parts) - LEAST_PARTS) * (CELL_WIDTH + GAP)
        return self.display.width < ONE_LINE_WIDTH + more

    @property
    def _gap(self) -> int:
        return 1 if self._stacked else GAP

    def _mark(self, part: _Part) -> str:
        return part.mark if self.display.holds("█▒░·") else part.plain_mark

    def _bar(self, row: dict[str, Any], width: int) -> Text:
        bar = Text()
        span_ns, upto_ns, drawn = row["span_ns"], 0, 0
        for part in self._parts:
            if part.mark:
                upto_ns += row[part.column] or 0
                cells = round(width * upto_ns / span_ns) - drawn
                bar.append(self._mark(part) * cells, style=part.style)
                drawn += cells
        return bar

    def _stragglers(self) -> Grid:
        """The ranks that others waited for most."""
        numbers = ["came last", "others waited", "for computing", "for its host", "at most"]
        grid = plain_grid(
            self.display, [], ["rank", *numbers[: 2 if self.display.narrow else None]]
        )
        for row in self.verdict.stragglers.take(slice(MOST_STRAGGLERS)).to_dicts():
            cells = [
                f"{row['times_last']} of {row['shared']}",
                spell_short(row["caused_ns"]),
                spell_short(row["compute_late_ns"]),
                spell_short(row["host_late_ns"]),
                spell_short(row["slowest_ns"]),
            ]
            grid.add_row(str(row["rank"]), *cells[: 2 if self.display.narrow else None])
        return grid

    # -- operators ---------------------------------------------------------------------------------

    @property
    def _side_by_side(self) -> bool:
        return self.display.terminal and self.display.width >= SIDE_BY_SIDE_WIDTH

    def _operators(self, width: int) -> Grid:
        return self._totals(width, "operator type", self.verdict.operators, "core")

    def _collectives(self, width: int) -> Grid:
        return self._totals(width, "communication", self.verdict.collectives)

    def _totals(self, width: int, title: str, rows: Table, *more: str) -> Grid:
        mean = [] if self.display.narrow else ["mean"]
        cells = [
            (
                *(str(name_text(row[name], self.display)) for name in more),
                f"{row['count']:,}".replace(",", " "),
                spell_short(row["total_ns"]),
                *(spell_short(round(row["total_ns"] / row["count"])) for _ in mean),
                spell_share(row["share"], 1),
            )
            for row in rows.to_dicts()
        ]
        heads = [title, *more], ["count", "time", *mean, "share"]
        return named_grid(self.display, width, *heads, rows["type"].tolist(), cells)

    def _longest_ops(self) -> Grid:
        ops = self.figures.longest_ops
        order = np.argsort(-ops["duration_ns"], kind="stable")[:MOST_OPS]
        shown = ops.take(order)
        cells = [
            (
                str(row["rank"]),
                "-" if row["step"] is None else str(row["step"]),
                spell_short(row["duration_ns"]),
            )
            for row in shown.to_dicts()
        ]
        heads = ["longest communication op"], ["rank", "step", "time"]
        return named_grid(self.display, self.display.width, *heads, shown["name"].tolist(), cells)
