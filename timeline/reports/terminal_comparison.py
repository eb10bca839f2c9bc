"""A comparison as text, for a terminal of any width and kind, or for a pipe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.table import Table as Grid
from rich.text import Text

from timeline.comparison.comparison import Comparison, Gate
from timeline.comparison.parts import WHOLE
from timeline.comparison.sentences import NOTABLE
from timeline.language import said
from timeline.reports.comparison_rows import (
    CHANGED,
    CHANGED_IN_FRAMEWORK,
    LEAST,
    class_tables,
    count_cell,
    memory_names,
    metric_rows,
    notable_memory,
    operator_names,
    time_cells,
    time_titles,
    unit_of_sides,
    worst_and_best,
)
from timeline.reports.terminal import Display, name_text, named_grid, render_blocks
from timeline.tables.table import Table
from timeline.units import ColumnUnit, format_count

MOST_STEPS, MOST_RANKS, MOST_OPERATORS = 12, 12, 6
MOST_VERBOSE = 40
_WORSE, _BETTER = "red", "green"


def comparison_text(
    comparison: Comparison, display: Display, *, gate: Gate | None = None, verbose: bool = False
) -> str:
    """Return what changed between two runs, in lines that fit the display.

    gate: result of the check against the allowed slowdown, if one was set. verbose: whether to add
    rows and tables that few people need.
    """
    return render_blocks(_blocks(comparison, display, gate, verbose=verbose), display)


def _blocks(
    comparison: Comparison, display: Display, gate: Gate | None, *, verbose: bool
) -> Iterator[Sequence[RenderableType]]:
    sentences = [name_text(line, display) for line in comparison.sentences()]
    if sentences and gate is not None:
        style = _WORSE if gate.failed else ""
        sentences.append(Text(gate.sentence(comparison.sides), style=style))
    if not sentences:
        yield [Text("A run holds no device records: there is nothing to compare.")]
        return
    sentences[0].stylize("bold")
    yield sentences
    title = "per step and rank" if comparison.per_step else "per rank"
    indented = [2 * depth * " " + said(metric) for metric, depth in metric_rows(comparison.parts)]
    yield [_grid(comparison.parts, display, title, indented, comparison, bold=said(WHOLE))]
    most = (MOST_VERBOSE,) * 3 if verbose else (MOST_RANKS, MOST_STEPS, MOST_OPERATORS)
    if len(comparison.ranks) > 1:
        count = comparison.row_counts["ranks"]
        yield _first("rank", _named(comparison.ranks, "rank"), display, most[0], comparison, count)
    if len(comparison.steps) > 1:
        title = "step on the device" + (", slowest rank" if len(comparison.ranks) > 1 else "")
        count = comparison.row_counts["steps"]
        yield _first(title, _named(comparison.steps, "step"), display, most[1], comparison, count)
    for title, column, table in (
        ("operator", "operators", comparison.operators),
        ("communication", "collectives", comparison.collectives),
    ):
        if len(table):
            alone = comparison.in_one_run[column]
            yield _operators(title, table, display, comparison, most[2], alone)
    for one in CHANGED if verbose else CHANGED[:FIRST_TABLES]:
        shown = one.rows(comparison, most[2])
        if len(shown):
            yield [_grid(shown, display, one.title, one.names_of(shown), comparison)]
    if verbose:
        yield from _verbose(comparison, display)


FIRST_TABLES = 2
"""Number of tables of CHANGED that are shown unless all are requested."""


def _verbose(comparison: Comparison, display: Display) -> Iterator[Sequence[RenderableType]]:
    whole_ns = comparison.whole["base_ns"]
    for title, table in (
        ("operator, each", comparison.operators),
        ("communication, each", comparison.collectives),
    ):
        shown = worst_and_best(table, whole_ns, MOST_VERBOSE)
        if len(shown) and not np.ma.getmaskarray(shown["new_median_ns"]).all():
            yield [_spread(shown, display, title, comparison)]
    for by, table in class_tables(comparison.overall):
        yield [_classes(table, display, f"class of work, by {by}", comparison)]
    for one in CHANGED_IN_FRAMEWORK:
        shown = one.rows(comparison, MOST_VERBOSE)
        if len(shown):
            yield [_grid(shown, display, one.title, one.names_of(shown), comparison)]
    allocating = notable_memory(comparison.operator_memory, MOST_VERBOSE)
    if len(allocating):
        names = allocating["name"].tolist()
        yield [_memory(allocating, display, "memory, allocated by operator", names, comparison)]
    if len(comparison.memory):
        names = memory_names(comparison.memory)
        yield [_memory(comparison.memory, display, "memory, peak", names, comparison)]


def _spread(operators: Table, display: Display, title: str, comparison: Comparison) -> Grid:
    """Return a table of the median and quartiles of single runs of operators on both sides."""
    cells = []
    quartiles_ns = (operators[f"{run}_q3_ns"].tolist() for run in ("base", "new"))
    unit = ColumnUnit.of_times(chain.from_iterable(quartiles_ns))
    for row in operators.to_dicts():
        row_cells = []
        for run in ("base", "new"):
            median, first, third = (
                unit.format(row[f"{run}_{name}_ns"]) for name in ("median", "q1", "q3")
            )
            known = row[f"{run}_median_ns"] is not None
            quartiles = f"{first} - {third}" if known else "-"
            row_cells += [median] if display.narrow else [median, quartiles]
        cells.append(tuple(row_cells))
    medians = [f"median {side}" for side in comparison.sides.titles]
    heads = medians if display.narrow else [medians[0], "q1 - q3", medians[1], "q1 - q3"]
    names = operator_names(operators)
    return named_grid(display, display.width, [unit.title(title)], heads, names, cells)


def _classes(classes: Table, display: Display, title: str, comparison: Comparison) -> Grid:
    """Return a table of the count and time of each class of device work in both runs."""
    cells, whole_ns, unit = [], comparison.whole["base_ns"], unit_of_sides(classes)
    for row in classes.to_dicts():
        count = count_cell(row["base_count"], row["new_count"], " -> ")
        cells.append((count, *_time_cells(row, whole_ns, unit)))
    heads = ("count", *time_titles(comparison, unit))
    names = list(map(said, classes["metric"].tolist()))
    return named_grid(display, display.width, [title], heads, names, cells)


def _memory(
    memory: Table, display: Display, title: str, names: Sequence[str], comparison: Comparison
) -> Grid:
    """Return a table of sizes in both runs, and their differences."""
    unit = unit_of_sides(memory, "bytes")
    cells = [
        (
            *(unit.format(row[f"{side}_bytes"]) for side in ("base", "new")),
            unit.format(row["delta_bytes"], signed=True),
        )
        for row in memory.to_dicts()
    ]
    heads = [*map(unit.title, (*comparison.sides.titles, "change"))]
    return named_grid(display, display.width, [title], heads, names, cells)


def _named(rows: Table, noun: str) -> Table:
    """Return the times of steps or ranks, named by their numbers in the two runs."""
    of_base = rows[noun if noun in rows.columns else f"base_{noun}"]
    pairs = zip(of_base.tolist(), rows[f"new_{noun}"].tolist(), strict=True)
    names = [str(base) if base == new else f"{base}, {new}" for base, new in pairs]
    times = {name: rows[name] for name in ("base_ns", "new_ns", "delta_ns")}
    return Table({noun: np.array(names, object), **times})


def _first(
    title: str,
    table: Table,
    display: Display,
    most: int,
    comparison: Comparison,
    rows_of_all: int,
) -> list[RenderableType]:
    """Return the rows that changed most, in the order of the table, and a note if others exist.

    The first column of the table names its rows. rows_of_all: number of rows of the whole table, of
    which a file may hold only some.
    """
    noun = next(iter(table.columns))
    changed = sorted(range(len(table)), key=lambda at: -abs(int(table["delta_ns"][at])))
    shown = table.take(np.array(sorted(changed[:most]), np.intp))
    rows: list[RenderableType] = [_grid(shown, display, title, shown[noun].tolist(), comparison)]
    if len(shown) < rows_of_all:
        count = format_count(rows_of_all, noun)
        rows.append(Text(f"{count}: the {len(shown)} that changed most; all: --json"))
    return rows


def _operators(
    title: str, table: Table, display: Display, comparison: Comparison, most: int, alone: int
) -> list[RenderableType]:
    """Return the largest regressions, then the largest improvements, and notes on other rows.

    alone: number of kinds that ran in only one of the runs.
    """
    rows: list[RenderableType] = []
    shown = worst_and_best(table, comparison.whole["base_ns"], most)
    if len(shown):
        rows.append(_grid(shown, display, title, operator_names(shown), comparison))
    else:
        rows.append(Text(f"No {title} changed by {LEAST:.1%} of a whole."))
    if alone:
        kinds = format_count(alone, "kind")
        where = "on one side" if comparison.sides.in_one_run else "in one run"
        rows.append(Text(f"{kinds} of {title} ran {where} only; all: --csv FILE"))
    return rows


def _grid(
    table: Table,
    display: Display,
    title: str,
    names: Iterable[object],
    comparison: Comparison,
    *,
    bold: str = "",
) -> Grid:
    """Return a table of times in both runs and their changes; notable changes are coloured.

    bold: name of the row to emphasize.
    """
    labels, whole_ns = [str(name) for name in names], comparison.whole["base_ns"]
    unit = unit_of_sides(table)
    cells = [_time_cells(row, whole_ns, unit) for row in table.to_dicts()]
    styles = ["bold" if label == bold else "" for label in labels]
    heads = time_titles(comparison, unit)
    return named_grid(display, display.width, [title], heads, labels, cells, styles)


def _time_cells(
    row: dict[str, Any], whole_ns: int, unit: ColumnUnit
) -> tuple[str, str, Text, Text]:
    """Return the cells of a time before, now, its change, and the change as a share."""
    delta_ns = row["delta_ns"] or 0
    style = _WORSE if delta_ns > 0 else _BETTER
    if abs(delta_ns) < NOTABLE * whole_ns:
        style = ""
    base, new, change, share = time_cells(row, unit)
    return base, new, Text(change, style=style), Text(share, style=style)
