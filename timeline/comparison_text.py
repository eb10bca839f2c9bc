"""Turns a comparison of two runs into text for a terminal of any width and kind, or for a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.table import Table as Grid
from rich.text import Text

from timeline.comparison import Comparison
from timeline.page import Page
from timeline.table import Table
from timeline.terminal import name_text, plain_grid, rendered
from timeline.units import spell_count, spell_short

__all__ = ["comparison_text"]

MOST_STEPS, MOST_RANKS, MOST_OPERATORS = 12, 12, 6
_TIMES = ("before", "now", "change", "")
_WORSE, _BETTER = "red", "green"


def comparison_text(comparison: Comparison, page: Page) -> str:
    """What changed, in lines that fit the page."""
    return rendered(_blocks(comparison, page), page)


def _blocks(comparison: Comparison, page: Page) -> Iterator[Sequence[RenderableType]]:
    sentences = [Text(line) for line in comparison.sentences()]
    if not sentences:
        yield [Text("A run holds no device records: there is nothing to compare.")]
        return
    sentences[0].stylize("bold")
    yield sentences
    unit = "mean of a step and rank" if comparison.per_step else "mean of a rank"
    yield [_grid(comparison.overall, page, unit, ["metric"])]
    if len(comparison.ranks) > 1:
        yield _first("rank", comparison.ranks, page, MOST_RANKS)
    if len(comparison.steps) > 1:
        yield _first("step", _steps(comparison.steps), page, MOST_STEPS)
    for title, table in (
        ("operator", comparison.operators),
        ("communication", comparison.collectives),
    ):
        if len(table):
            yield _operators(title, table, page)


def _steps(steps: Table) -> Table:
    return Table({"step": steps["base_step"]} | dict(list(steps.columns.items())[4:]))


def _first(name: str, table: Table, page: Page, most: int) -> list[RenderableType]:
    """The rows that changed most, in their own order."""
    rows: list[RenderableType] = []
    changed = sorted(range(len(table)), key=lambda at: -abs(int(table["delta_ns"][at])))
    shown = sorted(changed[:most])
    rows.append(_grid(table.take(np.array(shown, np.intp)), page, name, [name]))
    if len(shown) < len(table):
        count = spell_count(len(table), name)
        rows.append(Text(f"{count}: the {most} that changed most; all: --json"))
    return rows


def _operators(title: str, table: Table, page: Page) -> list[RenderableType]:
    """What lost most, then what won most."""
    lost = [at for at in range(len(table)) if table["delta_ns"][at] > 0][:MOST_OPERATORS]
    won = [at for at in range(len(table)) if table["delta_ns"][at] < 0][-MOST_OPERATORS:]
    rows: list[RenderableType] = []
    if lost or won:
        rows.append(
            _grid(table.take(np.array([*lost, *won], np.intp)), page, title, ["name", "type"])
        )
    else:
        rows.append(Text(f"No {title} changed."))
    alone = sum(how == "one run only" for how in table["matched"].tolist())
    if alone:
        kinds = spell_count(alone, "kind")
        rows.append(Text(f"{kinds} of {title} ran in one run only; all: --csv FILE"))
    return rows


def _grid(table: Table, page: Page, title: str, names: Sequence[str]) -> Grid:
    grid = plain_grid(page, [title], _TIMES)
    for row in table.to_dicts():
        name = next(str(row[own]) for own in names if row[own] != "")
        grid.add_row(
            name_text(name, page),
            spell_short(row["base_ns"]),
            spell_short(row["new_ns"]),
            *_change(row),
        )
    return grid


def _change(row: dict[str, Any]) -> tuple[Text, Text]:
    delta_ns, base_ns = row["delta_ns"], row["base_ns"]
    sign = "+" if delta_ns > 0 else "-" if delta_ns < 0 else ""
    style = _WORSE if delta_ns > 0 else _BETTER if delta_ns < 0 else ""
    if not base_ns:
        share = "new" if delta_ns else ""
    elif not row["new_ns"]:
        share = "gone"
    else:
        share = f"{delta_ns / base_ns:+.1%}"
    return Text(f"{sign}{spell_short(abs(delta_ns))}", style=style), Text(share, style=style)
