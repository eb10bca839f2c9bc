"""The HTML page of a comparison of two runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from timeline.columns.columns import Rows
from timeline.comparison.comparison import Comparison
from timeline.comparison.parts import WHOLE
from timeline.comparison.sides import Sides
from timeline.language import said
from timeline.printable import printable
from timeline.reports.comparison_rows import (
    CHANGED,
    CHANGED_IN_FRAMEWORK,
    class_tables,
    count_cell,
    memory_names,
    metric_rows,
    notable_memory,
)
from timeline.reports.html.charts import MOST_DRAWN, draw_both_runs, run_length
from timeline.reports.html.page import (
    Block,
    Tile,
    columns_of_runs,
    folded,
    heading,
    note,
    notice_text,
    number_column,
    omissions_section,
    page_table,
    plain_list,
    render_page,
    section,
    size_column,
    sorted_texts,
    text_column,
    unit_of,
)
from timeline.tables.short_names import operator_label
from timeline.tables.table import Table
from timeline.units import ColumnUnit, format_count, format_duration
from timeline.version import __version__

if TYPE_CHECKING:
    from timeline.reports.comparison_report import ComparisonReport

MOST_ROWS = 64
"""Maximum number of rows of a table, those that changed most."""
INDENT = "\u2003"
MINUS = "\u2212"
_CLASS_CAPTIONS = {"launch": "By the call that launched it", "kernel": "By kernel"}


def render_comparison_page(report: ComparisonReport) -> bytes:
    """Return the report as HTML, a few hundred kB however many ranks and operators there are."""
    comparison = report.comparison
    runs = zip(comparison.sides.heads, (report.base, report.new), strict=True)
    paths = [(f"{name}: ", {"code": printable(str(path))}) for name, path in runs]
    sections = (
        _overall_section(comparison),
        _class_section(comparison),
        _step_section(comparison),
        section("Ranks", folded(_rank_table(comparison.ranks, comparison.sides)))
        if len(comparison.ranks) > 1
        else None,
        _operator_section("operator", comparison.operators, comparison.sides),
        _operator_section("collective", comparison.collectives, comparison.sides),
        section("Details", *map(folded, _sum_tables(comparison))),
        omissions_section(
            report.warnings,
            report.omissions,
            report.outputs,
            report.resolutions,
            first=plain_list(paths),
            of_both=f" of both {_noun(comparison)}, which begin together",
        ),
    )
    nothing = "A run holds no device work of the selection: there is nothing to compare."
    title = "What a change did to a run"
    if comparison.sides.in_one_run:
        title = "Two parts of a run"
    return render_page(
        title,
        comparison_title(report),
        report.sentences() or [nothing],
        "",
        notice_text(report.warnings, report.omissions),
        f"tlexport {__version__}. Figures are those of the selection, from records, whatever the "
        "timeline merges; all of them are in the report that <code>--json</code> prints.",
        _tiles(comparison),
        sections,
    )


def comparison_title(report: ComparisonReport) -> str:
    """Return the ends of both paths, as short as they differ, or the names of parts of one run."""
    sides = report.comparison.sides
    if sides.in_one_run:
        return f"{report.base.absolute().name}: {' → '.join(sides.titles)}"
    parts = [path.absolute().parts for path in (report.base, report.new)]
    shown = next((count for count in (1, 2, 3) if parts[0][-count:] != parts[1][-count:]), 1)
    return " → ".join("/".join(names[-shown:]) for names in parts)


def _noun(comparison: Comparison) -> str:
    return "parts" if comparison.sides.in_one_run else "runs"


def _tiles(comparison: Comparison) -> Iterator[Tile]:
    rows = {row["metric"]: row for row in comparison.parts.to_dicts()}
    whole = rows[WHOLE]
    of = "per step" if comparison.per_step else "per rank"
    for name, key in zip(comparison.sides.titles, ("base_ns", "new_ns"), strict=True):
        unit, scale = unit_of(round(abs(whole[key])))
        yield Tile(f"{whole[key] / scale:#.4g} {unit}", f"{of}, {name}")
    if whole["base_ns"]:
        yield Tile(f"{whole['delta_ns'] / whole['base_ns']:+.1%}".replace("-", MINUS), "change")
    ranks = len(comparison.ranks)
    yield Tile(str(ranks), "rank in both" if ranks == 1 else "ranks in both")


def _overall_section(comparison: Comparison) -> Block | None:
    overall = comparison.parts
    of = "steps of all ranks" if comparison.per_step else "number of ranks"
    between = "" if comparison.per_step else ", from the first kernel to the last"
    remark = (
        f"Sums over all ranks, including time between steps, divided by the {of}. Computing, "
        f"exposed communication, copies and idle time add up to end to end{between}. Operators may "
        "run at the same time, so the classes of computing may add up to more than computing. If "
        "there are enough steps, the first of the recording and those cut off are left out."
    )
    names = [INDENT * depth + said(metric) for metric, depth in metric_rows(overall)]
    columns = [
        {"title": "Part", "kind": "text", "values": names},
        *_times(overall, comparison.sides),
    ]
    title = "Where the time goes"
    return section(title, note(remark), page_table("overall", title, columns))


def _class_section(comparison: Comparison) -> Block | None:
    """Return the section on classes of work, by launch and by kernel."""
    remark = (
        "As in msprof-analyze compare: each kernel is in one class, by the first operator of "
        "attention, convolution or matrix multiplication around the call that launched it, or only "
        "by its own type; cube and vector are all other kernels on those cores. SDMA are tensor "
        "moves of copies and, by launch, copies on streams that compute. Counts are of all steps "
        "and ranks."
    )
    blocks: list[Block | None] = []
    for by, classes in class_tables(comparison.overall):
        names = text_column("Class", list(map(said, classes["metric"].tolist())))
        columns = [names, _counts(classes), *_times(classes, comparison.sides)]
        caption = _CLASS_CAPTIONS[by]
        blocks += [heading(caption), page_table(f"classes-{by}", caption, columns)]
    return section("Classes of work", note(remark), *blocks)


def _step_section(comparison: Comparison) -> Block | None:
    steps = comparison.steps
    if len(steps) < 2:
        return None
    run = run_length(len(steps), MOST_DRAWN)
    remark = (
        "Each step on the rank where it took longest; steps of both runs are compared in order."
        + (
            f" Of each {run} neighbouring steps the longest of each run is drawn."
            if run > 1
            else ""
        )
    )
    table = folded(_step_table(steps, comparison.sides, several=len(comparison.ranks) > 1))
    drawn = draw_both_runs(steps, run, comparison.sides)
    return section("Step by step", note(remark), drawn, table)


def _step_table(steps: Table, sides: Sides, *, several: bool) -> Block | None:
    shown = steps.take(_most_changed(steps))
    base, new = (" (base)", " (other)") if sides.in_one_run else (" before", " now")
    one_name = bool((steps["base_step"] == steps["new_step"]).all())
    return page_table(
        "steps",
        "Each step",
        [
            number_column("Step" if one_name else f"Step{base}", shown["base_step"]),
            None if one_name else number_column(f"Step{new}", shown["new_step"]),
            number_column(f"Rank{base}", shown["base_rank"]) if several else None,
            number_column(f"Rank{new}", shown["new_rank"]) if several else None,
            *_times(shown, sides),
        ],
        _cut_note(steps, shown, "step"),
    )


def _rank_table(ranks: Table, sides: Sides) -> Block | None:
    shown = ranks.take(_most_changed(ranks))
    by_order = sides.by_order
    return page_table(
        "ranks",
        "Each rank of both runs",
        [
            number_column("Rank of the base" if by_order else "Rank", shown["rank"]),
            number_column("Other rank", shown["new_rank"]) if by_order else None,
            *_times(shown, sides),
        ],
        _cut_note(ranks, shown, "rank"),
    )


def _operator_section(noun: str, table: Table, sides: Sides) -> Block | None:
    if not len(table):
        return None
    kept = _most_changed(table)
    shown, rest = table.take(kept), table.take(np.setdiff1d(np.arange(len(table)), kept))
    rest_ns = format_duration(int(rest["delta_ns"].sum()))
    title = f"{noun.capitalize()}s"
    own = page_table(
        f"{noun}s",
        title,
        [
            text_column(
                "Name or type",
                list(map(operator_label, shown["type"].tolist(), shown["name"].tolist())),
            ),
            text_column("Shapes", shown["shapes"]),
            _counts(shown),
            *_times(shown, sides),
            *_spreads(shown, sides),
        ],
        f"{format_count(len(rest), f'more {noun}')} changed by {rest_ns} together; the table that "
        "--csv writes has them."
        if len(rest)
        else "",
    )
    remark = (
        "Largest regression first, largest improvement last. Counts are of all steps and ranks. "
        f"Each {noun} is matched by name and shapes, else by name or type; the table that --csv "
        "writes says by which. Times of single runs are medians, with quartiles."
    )
    return section(title, note(remark), own)


def _sum_tables(comparison: Comparison) -> Iterator[Block | None]:
    """Yield tables of waits, launchers, tasks, framework operators, modules and memory."""
    for one in (*CHANGED, *CHANGED_IN_FRAMEWORK):
        shown = one.rows(comparison, MOST_ROWS)
        if len(shown):
            names = text_column(one.noun, one.names_of(shown))
            columns = [names, _sum_counts(shown), *_times(shown, comparison.sides)]
            yield page_table(one.field.replace("_", "-"), one.caption, columns)
    allocating, memory = notable_memory(comparison.operator_memory, MOST_ROWS), comparison.memory
    if len(allocating):
        names = text_column("Operator", allocating["name"])
        columns = [names, _sum_counts(allocating), *_sizes(allocating, comparison.sides)]
        yield page_table("operator-memory", "What operators allocate", columns)
    if len(memory):
        columns = [text_column("Counter", memory_names(memory)), *_sizes(memory, comparison.sides)]
        yield page_table("memory", "Memory at its peak", columns)


def _sizes(table: Table, sides: Sides) -> list[Block | None]:
    base, new = sides.heads
    return [
        size_column(base, table["base_bytes"]),
        size_column(new, table["new_bytes"]),
        size_column("Change", table["delta_bytes"], signed=True),
    ]


def _sum_counts(table: Table) -> Block | None:
    """Return the counts of both runs, in whichever column the table has them; None for modules."""
    if "direction" in table.columns:
        return None
    return _counts(table, "times" if "base_times" in table.columns else "count")


def _counts(table: Table, name: str = "count") -> Block:
    """Return a column of counts in both runs, over all steps and ranks."""
    base, new = table[f"base_{name}"].tolist(), table[f"new_{name}"].tolist()
    texts = [count_cell(old, now, " → ") for old, now in zip(base, new, strict=True)]
    return sorted_texts("Count", texts, [-1 if now is None else now for now in new])


def _spreads(table: Table, sides: Sides) -> Iterator[Block]:
    """Yield a column per run of the median and quartiles of single times, sorted by the median."""
    if not any(np.ma.count(table[f"{run}_median_ns"]) for run in ("base", "new")):
        return
    for title, run in zip(sides.titles, ("base", "new"), strict=True):
        names = [f"{run}_{name}_ns" for name in ("q1", "median", "q3")]
        rows = list(zip(*(table[name].tolist() for name in names), strict=True))
        unit = ColumnUnit.of_times(q3_ns for _, _, q3_ns in rows)
        texts = [
            "" if None in row else "{1} ({0} to {2})".format(*map(unit.format, row)) for row in rows
        ]
        yield sorted_texts(
            unit.title(f"Each {title}"), texts, [None if None in row else row[1] for row in rows]
        )


def _times(table: Table, sides: Sides) -> list[Block | None]:
    return columns_of_runs(table["base_ns"], table["new_ns"], sides.heads)


def _most_changed(table: Table) -> Rows:
    """Return the rows that changed most, in the order of the table."""
    order = np.argsort(-np.abs(table["delta_ns"]), kind="stable")
    return np.sort(order[:MOST_ROWS])


def _cut_note(table: Table, shown: Table, noun: str) -> str:
    left = len(table) - len(shown)
    if not left:
        return ""
    more = format_count(left, f"more {noun}")
    return f"The {len(shown)} that changed most; {more} in the JSON report (--json)."
