"""A comparison as text, for a terminal of any width and kind, or for a pipe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.table import Table as Grid
from rich.text import Text

from timeline.comparison.comparison import Comparison, Gate
from timeline.comparison.parts import WHOLE
from timeline.comparison.sentences import NOTABLE
from timeline.reports.comparison_rows import (
    CHANGED,
    CHANGED_IN_FRAMEWORK,
    LEAST,
    TIMES,
    class_tables,
    count_cell,
    memory_names,
    metric_rows,
    notable_memory,
    operator_names,
    time_cell,
    time_cells,
    worst_and_best,
)
from timeline.reports.terminal import Display, name_text, named_grid, render_blocks
from timeline.tables.table import Table
from timeline.units import format_bytes, format_count

MOST_STEPS, MOST_RANKS, MOST_OPERATORS = 12, 12, 6
MOST_VERBOSE = 40
_WORSE, _BETTER = "red", "green"


def comparison_text(
    comparison: Comparison, display: Display, *, gate: Gate | None = None, verbose: bool = False
) -> str:
    """Return what changed, in lines that fit the display.

    gate: how that was judged. verbose: more rows, and what few people ask for.
    """
    return render_blocks(_blocks(comparison, display, gate, verbose=verbose), display)


def _blocks(
    comparison: Comparison, display: Display, gate: Gate | None, *, verbose: bool
) -> Iterator[Sequence[RenderableType]]:
    sentences = [name_text(line, display) for line in comparison.sentences()]
    if sentences and gate is not None:
        style = _WORSE if gate.failed else ""
        sentences.append(Text(gate.sentence(), style=style))
    if not sentences:
        yield [Text("A run holds no device records: there is nothing to compare.")]
        return
    sentences[0].stylize("bold")
    yield sentences
    whole_ns = comparison.whole["base_ns"]
    yield [_overall(comparison, display, whole_ns)]
    most = (MOST_VERBOSE,) * 3 if verbose else (MOST_RANKS, MOST_STEPS, MOST_OPERATORS)
    if len(comparison.ranks) > 1:
        count = comparison.row_counts["ranks"]
        yield _first("rank", comparison.ranks, display, most[0], whole_ns, count)
    if len(comparison.steps) > 1:
        title = "step on the device" + (", slowest rank" if len(comparison.ranks) > 1 else "")
        count = comparison.row_counts["steps"]
        yield _first(title, _named_steps(comparison.steps), display, most[1], whole_ns, count)
    for title, column, table in (
        ("operator", "operators", comparison.operators),
        ("communication", "collectives", comparison.collectives),
    ):
        if len(table):
            alone = comparison.in_one_run[column]
            yield _operators(title, table, display, whole_ns, most[2], alone)
    for one in CHANGED if verbose else CHANGED[:TOLD_TABLES]:
        shown = one.rows(comparison, most[2])
        if len(shown):
            yield [_grid(shown, display, one.title, one.names_of(shown), whole_ns)]
    if verbose:
        yield from _verbose(comparison, display, whole_ns)


TOLD_TABLES = 2
"""Tables of what changed on devices that are shown unasked."""


def _verbose(
    comparison: Comparison, display: Display, whole_ns: int
) -> Iterator[Sequence[RenderableType]]:
    for title, table in (
        ("operator, each time", comparison.operators),
        ("communication, each time", comparison.collectives),
    ):
        shown = worst_and_best(table, whole_ns, MOST_VERBOSE)
        if len(shown) and not np.ma.getmaskarray(shown["new_median_ns"]).all():
            yield [_spread(shown, display, title)]
    for by, table in class_tables(comparison.overall):
        yield [_classes(table, display, f"class of work, by {by}", whole_ns)]
    for one in CHANGED_IN_FRAMEWORK:
        shown = one.rows(comparison, MOST_VERBOSE)
        if len(shown):
            yield [_grid(shown, display, one.title, one.names_of(shown), whole_ns)]
    allocating = notable_memory(comparison.operator_memory, MOST_VERBOSE)
    if len(allocating):
        names = allocating["name"].tolist()
        yield [_memory(allocating, display, "memory, allocated by operator", names)]
    if len(comparison.memory):
        names = memory_names(comparison.memory)
        yield [_memory(comparison.memory, display, "memory, peak", names)]


def _spread(operators: Table, display: Display, title: str) -> Grid:
    """Return the median and the quartiles of single times in both runs."""
    cells = []
    for row in operators.to_dicts():
        row_cells = []
        for run in ("base", "new"):
            median, first, third = (
                time_cell(row[f"{run}_{name}_ns"]) for name in ("median", "q1", "q3")
            )
            known = row[f"{run}_median_ns"] is not None
            quartiles = f"{first} - {third}" if known else "-"
            row_cells += [median] if display.narrow else [median, quartiles]
        cells.append(tuple(row_cells))
    medians = ["median before", "median now"]
    heads = medians if display.narrow else [medians[0], "q1 - q3", medians[1], "q1 - q3"]
    names = operator_names(operators)
    return named_grid(display, display.width, [title], heads, names, cells)


def _classes(classes: Table, display: Display, title: str, whole_ns: int) -> Grid:
    """Return the time and count of each class of device work in both runs."""
    cells = []
    for row in classes.to_dicts():
        count = count_cell(row["base_count"], row["new_count"], " -> ")
        cells.append((count, *_time_cells(row, whole_ns)))
    heads = ("count", *TIMES)
    return named_grid(display, display.width, [title], heads, classes["metric"].tolist(), cells)


def _memory(memory: Table, display: Display, title: str, names: Sequence[str]) -> Grid:
    """Return the sizes of both runs, and by how much they differ."""
    cells = []
    for row in memory.to_dicts():
        base, new, delta = (row[f"{name}_bytes"] for name in ("base", "new", "delta"))
        sign = "-" if (delta or 0) < 0 else "+" if delta else ""
        change = "-" if delta is None else f"{sign}{format_bytes(abs(delta))}"
        cells.append((*("-" if one is None else format_bytes(one) for one in (base, new)), change))
    heads = ["before", "now", "change"]
    return named_grid(display, display.width, [title], heads, names, cells)


def _overall(comparison: Comparison, display: Display, whole_ns: int) -> Grid:
    """Metrics, each below and inside of what it is part of."""
    table = comparison.parts
    indented = [2 * depth * " " + metric for metric, depth in metric_rows(table)]
    title = "per step and rank" if comparison.per_step else "per rank"
    return _grid(table, display, title, indented, whole_ns, bold=WHOLE)


def _named_steps(steps: Table) -> Table:
    """Return steps under the numbers that they have in both runs."""
    pairs = zip(steps["base_step"].tolist(), steps["new_step"].tolist(), strict=True)
    names = [str(base) if base == new else f"{base}, {new}" for base, new in pairs]
    times = {name: steps[name] for name in ("base_ns", "new_ns", "delta_ns")}
    return Table({"step": np.array(names, object), **times})


def _first(
    title: str, table: Table, display: Display, most: int, whole_ns: int, rows_of_all: int
) -> list[RenderableType]:
    """Return the rows that changed most, in their own order; the first column names them."""
    noun = next(iter(table.columns))
    changed = sorted(range(len(table)), key=lambda at: -abs(int(table["delta_ns"][at])))
    shown = table.take(np.array(sorted(changed[:most]), np.intp))
    rows: list[RenderableType] = [_grid(shown, display, title, shown[noun].tolist(), whole_ns)]
    if len(shown) < rows_of_all:
        count = format_count(rows_of_all, noun)
        rows.append(Text(f"{count}: the {len(shown)} that changed most; all: --json"))
    return rows


def _operators(
    title: str, table: Table, display: Display, whole_ns: int, most: int, alone: int
) -> list[RenderableType]:
    """Return what lost most, then what won most; a change that no step notices is none.

    alone: how many kinds ran in one run only.
    """
    rows: list[RenderableType] = []
    shown = worst_and_best(table, whole_ns, most)
    if len(shown):
        rows.append(_grid(shown, display, title, operator_names(shown), whole_ns))
    else:
        rows.append(Text(f"No {title} changed by {LEAST:.1%} of a whole."))
    if alone:
        kinds = format_count(alone, "kind")
        rows.append(Text(f"{kinds} of {title} ran in one run only; all: --csv FILE"))
    return rows


def _grid(
    table: Table,
    display: Display,
    title: str,
    names: Iterable[object],
    whole_ns: int,
    *,
    bold: str = "",
) -> Grid:
    """Return times of both runs, and what changed; a notable change has a colour."""
    cells, styles = [], []
    spelled = [str(name) for name in names]
    for name, row in zip(spelled, table.to_dicts(), strict=True):
        cells.append(_time_cells(row, whole_ns))
        styles.append("bold" if name == bold else "")
    return named_grid(display, display.width, [title], TIMES, spelled, cells, styles)


def _time_cells(row: dict[str, Any], whole_ns: int) -> tuple[str, str, Text, Text]:
    """Return a time before, now, how it changed, and that as a share."""
    delta_ns = row["delta_ns"] or 0
    style = _WORSE if delta_ns > 0 else _BETTER
    if abs(delta_ns) < NOTABLE * whole_ns:
        style = ""
    base, new, change, share = time_cells(row)
    return base, new, Text(change, style=style), Text(share, style=style)
