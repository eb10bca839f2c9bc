"""The page of a comparison: one file of HTML that needs nothing beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from timeline.columns.columns import Rows
from timeline.figures.comparison import Comparison
from timeline.figures.overall_parts import WHOLE
from timeline.figures.short_names import operator_label
from timeline.figures.table import Table
from timeline.printable import printable
from timeline.reports.comparison_rows import (
    class_tables,
    copy_names,
    count_cell,
    framework_names,
    hccl_names,
    launcher_names,
    memory_names,
    metric_rows,
    module_names,
    module_times,
    notable_memory,
    notable_rows,
    waiting_names,
)
from timeline.reports.html.drawing import MOST_DRAWN
from timeline.reports.html.export_tables import MOST_ROWS
from timeline.reports.html.page_table import (
    MINUS,
    Cell,
    Column,
    PageTable,
    columns_of_runs,
    integer_column,
    page_table,
    size_column,
    text_column,
)
from timeline.reports.html.palette import SIDES
from timeline.reports.html.pictures import draw_both_runs
from timeline.reports.html.rendering import (
    Tile,
    render_page,
    spell_four_digits,
    warnings_and_losses,
)
from timeline.reports.html.step_grid import run_length
from timeline.reports.html.svg import StyleSheet
from timeline.units import spell_count, spell_duration, spell_short

if TYPE_CHECKING:
    from timeline.reports.comparison_report import ComparisonReport

INDENT = "\u2003"


def render_comparison_page(report: ComparisonReport) -> bytes:
    """The report as HTML: a few hundred kB, whatever the number of ranks, steps and operators."""
    comparison, sheet = report.comparison, StyleSheet()
    steps = comparison.steps
    run = run_length(len(steps), MOST_DRAWN)
    drawn = longest_of_runs(steps, run)
    content = {
        "title": printable(comparison_title(report.base, report.new)),
        "sentences": [printable(sentence) for sentence in report.sentences()],
        "tiles": list(_tiles(comparison)),
        "report": report,
        "per_step": comparison.per_step,
        "sides": SIDES,
        "run": run,
        "overall_table": _overall(comparison.parts),
        "class_tables": list(_classes(comparison.overall)),
        "steps_picture": draw_both_runs(drawn, _labels(drawn), sheet) if len(steps) > 1 else None,
        "steps_table": _steps(steps, several=len(comparison.ranks) > 1),
        "ranks_table": _ranks(comparison.ranks),
        "operator_tables": [
            _operators(noun, table)
            for noun, table in (
                ("operator", comparison.operators),
                ("collective", comparison.collectives),
            )
            if len(table)
        ],
        "sum_tables": list(_sums(comparison)),
        **warnings_and_losses(report.warnings, report.omissions),
    }
    return render_page("comparison.html", content, sheet)


def comparison_title(base: Path, new: Path) -> str:
    """The ends of both paths, as far as they tell them apart."""
    parts = [path.absolute().parts for path in (base, new)]
    shown = next((count for count in (1, 2, 3) if parts[0][-count:] != parts[1][-count:]), 1)
    return " → ".join("/".join(names[-shown:]) for names in parts)


def _tiles(comparison: Comparison) -> Iterator[Tile]:
    rows = {row["metric"]: row for row in comparison.parts.to_dicts()}
    whole = rows[WHOLE]
    unit = "per step" if comparison.per_step else "per rank"
    yield Tile(spell_four_digits(whole["base_ns"]), f"{unit}, before")
    yield Tile(spell_four_digits(whole["new_ns"]), f"{unit}, now")
    if whole["base_ns"]:
        yield Tile(f"{whole['delta_ns'] / whole['base_ns']:+.1%}".replace("-", MINUS), "change")
    ranks = len(comparison.ranks)
    yield Tile(str(ranks), "rank in both" if ranks == 1 else "ranks in both")


def _overall(overall: Table) -> PageTable:
    names = [Cell(INDENT * depth + metric) for metric, depth in metric_rows(overall)]
    return page_table(
        "overall",
        "Where the time goes",
        [Column("Part", False, tuple(names)), *_times(overall)],
    )


def _steps(steps: Table, *, several: bool) -> PageTable:
    shown = steps.take(_most_changed(steps))
    one_name = bool((steps["base_step"] == steps["new_step"]).all())
    return page_table(
        "steps",
        "Each step",
        [
            integer_column("Step" if one_name else "Step before", shown["base_step"]),
            None if one_name else integer_column("Step now", shown["new_step"]),
            integer_column("Rank before", shown["base_rank"]) if several else None,
            integer_column("Rank now", shown["new_rank"]) if several else None,
            *_times(shown),
        ],
        _cut_note(steps, shown, "step"),
    )


def _ranks(ranks: Table) -> PageTable:
    shown = ranks.take(_most_changed(ranks))
    return page_table(
        "ranks",
        "Each rank of both runs",
        [integer_column("Rank", shown["rank"]), *_times(shown)],
        _cut_note(ranks, shown, "rank"),
    )


def _operators(noun: str, table: Table) -> PageTable:
    kept = _most_changed(table)
    shown, rest = table.take(kept), table.take(np.setdiff1d(np.arange(len(table)), kept))
    rest_ns = spell_duration(int(rest["delta_ns"].sum()))
    labels = list(map(operator_label, shown["type"].tolist(), shown["name"].tolist()))
    return page_table(
        f"{noun}s",
        f"{noun.capitalize()}s",
        [
            text_column("Name or type", np.array(labels, object)),
            text_column("Shapes", shown["shapes"]),
            _counts(shown),
            *_times(shown),
            *_spreads(shown),
        ],
        f"{spell_count(len(rest), f'more {noun}')} changed by {rest_ns} together; the table that "
        "--csv writes has them."
        if len(rest)
        else "",
    )


def _classes(overall: Table) -> Iterator[PageTable]:
    """Classes of work, by what launched it and by kernel."""
    for by, classes in class_tables(overall):
        columns = [text_column("Class", classes["metric"]), _counts(classes), *_times(classes)]
        yield page_table(f"classes-{by}", _CLASS_CAPTIONS[by], columns)


_CLASS_CAPTIONS = {"launch": "By the call that launched it", "kernel": "By kernel"}


def _sums(comparison: Comparison) -> Iterator[PageTable]:
    """What is paired besides operators: whom ranks waited for, who launched, tasks, memory."""
    whole_ns = comparison.whole["base_ns"]
    for name, caption, noun, table, names_of in (
        ("waiting", "Whom ranks waited for", "Waited for", comparison.waiting, waiting_names),
        ("launchers", "Who launched it", "Operator", comparison.launchers, launcher_names),
        ("copies", "Copies", "Task", comparison.copies, copy_names),
        ("hccl-tasks", "HCCL tasks", "Task", comparison.hccl_tasks, hccl_names),
        (
            "framework-operators",
            "Operators of the framework, by what they and those inside launched",
            "Operator",
            comparison.framework_operators,
            framework_names,
        ),
        (
            "modules",
            "Modules, without those inside",
            "Module",
            module_times(comparison.modules),
            module_names,
        ),
    ):
        shown = notable_rows(table, whole_ns, MOST_ROWS)
        if len(shown):
            columns = [_names(noun, names_of(shown)), _sum_counts(shown), *_times(shown)]
            yield page_table(name, caption, columns)
    allocating = notable_memory(comparison.operator_memory, MOST_ROWS)
    if len(allocating):
        yield page_table(
            "operator-memory",
            "What operators allocate",
            [
                text_column("Operator", allocating["name"]),
                _sum_counts(allocating),
                size_column("Before", allocating["base_bytes"]),
                size_column("Now", allocating["new_bytes"]),
                size_column("Change", allocating["delta_bytes"], signed=True),
            ],
        )
    memory = comparison.memory
    if len(memory):
        yield page_table(
            "memory",
            "Memory at its peak",
            [
                _names("Counter", memory_names(memory)),
                size_column("Before", memory["base_bytes"]),
                size_column("Now", memory["new_bytes"]),
                size_column("Change", memory["delta_bytes"], signed=True),
            ],
        )


def _names(title: str, names: list[str]) -> Column | None:
    return text_column(title, np.array(names, object))


def _sum_counts(table: Table) -> Column | None:
    """How often; whom ranks waited for is counted in times, modules are not counted."""
    if "direction" in table.columns:
        return None
    name = "times" if "base_times" in table.columns else "count"
    pairs = zip(table[f"base_{name}"].tolist(), table[f"new_{name}"].tolist(), strict=True)
    return _count_column(pairs)


def _counts(table: Table) -> Column:
    """How often operators ran in each run, all steps and ranks together."""
    pairs = zip(table["base_count"].tolist(), table["new_count"].tolist(), strict=True)
    return _count_column(pairs)


def _count_column(pairs: Iterable[tuple[int | None, int | None]]) -> Column:
    cells = (Cell(count_cell(base, new, " → "), -1 if new is None else new) for base, new in pairs)
    return Column("Count", True, tuple(cells))


def _spreads(table: Table) -> list[Column]:
    """The median and the quartiles of single times in both runs; none where nothing tells."""
    given = ~np.ma.getmaskarray(table["base_median_ns"]) | ~np.ma.getmaskarray(
        table["new_median_ns"]
    )
    if not given.any():
        return []
    columns = (
        _spread(title, *(table[f"{run}_{name}_ns"].tolist() for name in ("q1", "median", "q3")))
        for title, run in (("Each before", "base"), ("Each now", "new"))
    )
    return list(columns)


def _spread(
    title: str, firsts: list[int | None], medians: list[int | None], thirds: list[int | None]
) -> Column:
    """Cells are sorted by the median, which stands before the quartiles."""
    cells = (
        Cell("–", -1)
        if first is None or median is None or third is None
        else Cell(f"{spell_short(median)} ({spell_short(first)} to {spell_short(third)})", median)
        for first, median, third in zip(firsts, medians, thirds, strict=True)
    )
    return Column(title, True, tuple(cells))


def _times(table: Table) -> list[Column]:
    return columns_of_runs(table["base_ns"], table["new_ns"])


def _most_changed(table: Table) -> Rows:
    """The rows that changed most, in the order of the table."""
    order = np.argsort(-np.abs(table["delta_ns"]), kind="stable")
    return np.sort(order[:MOST_ROWS])


def _cut_note(table: Table, shown: Table, noun: str) -> str:
    left = len(table) - len(shown)
    if not left:
        return ""
    more = spell_count(left, f"more {noun}")
    return f"The {len(shown)} that changed most; {more} in the JSON report (--json)."


def _labels(steps: Table) -> list[str]:
    return [str(step) for step in steps["base_step"].tolist()]


def longest_of_runs(steps: Table, run: int) -> Table:
    """The steps in fewer columns: of each run of neighbours the longest of each side."""
    if run == 1:
        return steps
    starts = np.arange(0, len(steps), run)
    longest = {side.column: np.maximum.reduceat(steps[side.column], starts) for side in SIDES}
    return Table({"base_step": steps["base_step"][starts], **longest})
