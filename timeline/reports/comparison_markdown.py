"""A comparison in short, as GitHub-flavoured Markdown for a merge request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from timeline.figures.comparison import Comparison
from timeline.figures.overall_parts import WHOLE
from timeline.figures.short_names import shortened
from timeline.figures.table import Table
from timeline.printable import printable
from timeline.reports.comparison_report import ComparisonReport
from timeline.reports.comparison_rows import (
    TIMES,
    class_tables,
    framework_names,
    metric_rows,
    module_names,
    module_times,
    notable_memory,
    notable_rows,
    operator_names,
    time_cells,
    worst_and_best,
)
from timeline.units import spell_bytes, spell_count
from timeline.version import __version__

MOST_OPERATORS, MOST_CLASSES, MOST_WARNINGS = 5, 5, 5
MOST_OF_NAME = 80
"""Characters of the name of an operator."""
INDENT = "\N{NO-BREAK SPACE}" * 4
_MARKS = re.compile(r"([\\`*_{}\[\]<>#|~])")
"""What Markdown could take for markup; GitHub takes @ for the name of a user."""


def comparison_markdown(report: ComparisonReport) -> str:
    """The first sentence as a heading, the others, the parts of a step, and the top operators."""
    return "".join(f"{line}\n" for line in _lines(report))


def _lines(report: ComparisonReport) -> Iterator[str]:
    comparison = report.comparison
    sentences = list(comparison.sentences())
    if not sentences:
        yield "### A run holds no device records: there is nothing to compare"
    else:
        headline, *others = sentences
        yield f"### {_escaped(headline.removesuffix('.'))}"
        yield ""
        yield from (f"- {_escaped(line)}" for line in others)
    if report.gate is not None:
        yield from ("", f"**{_escaped(report.gate.sentence())}**")
    if sentences:
        yield ""
        yield from _parts(comparison.parts, per_step=comparison.per_step)
        whole_ns = comparison.whole["base_ns"]
        for noun, table in (
            ("operator", comparison.operators),
            ("communication", comparison.collectives),
        ):
            shown = worst_and_best(table, whole_ns, MOST_OPERATORS)
            if len(shown):
                yield ""
                yield from _rows(noun, _code(operator_names(shown)), shown)
        for by, table in class_tables(comparison.overall):
            shown = notable_rows(table, whole_ns, MOST_CLASSES)
            if len(shown):
                yield ""
                yield from _rows(f"work by {by}", shown["metric"].tolist(), shown)
        yield from _of_framework(report.comparison, whole_ns)
    yield from _warnings(report)
    yield ""
    runs = " against ".join(_escaped(str(path)) for path in (report.new, report.base))
    yield f"{runs}, tlexport {__version__}"


def _of_framework(comparison: Comparison, whole_ns: int) -> Iterator[str]:
    """The operators and modules of the framework that changed most, and what they allocate."""
    for title, table, names_of in (
        ("operator of the framework", comparison.framework_operators, framework_names),
        ("module, without those inside", module_times(comparison.modules), module_names),
    ):
        shown = notable_rows(table, whole_ns, MOST_OPERATORS)
        if len(shown):
            yield ""
            yield from _rows(title, _code(names_of(shown)), shown)
    memory = notable_memory(comparison.operator_memory, MOST_OPERATORS)
    if len(memory):
        yield from ("", "| allocated by operator | before | now |", "|---|--:|--:|")
        columns = (_code(memory["name"].tolist()), memory["base_bytes"], memory["new_bytes"])
        for name, base, new in zip(*columns, strict=True):
            yield f"| {name} | {spell_bytes(int(base))} | {spell_bytes(int(new))} |"


def _parts(overall: Table, *, per_step: bool) -> Iterator[str]:
    names = [
        f"**{metric}**" if metric == WHOLE else f"{depth * INDENT}{_escaped(metric)}"
        for metric, depth in metric_rows(overall)
    ]
    yield from _rows("per step and rank" if per_step else "per rank", names, overall)


def _rows(title: str, names: Sequence[str], table: Table) -> Iterator[str]:
    yield f"| {' | '.join((title, *TIMES))} |"
    yield "|---|--:|--:|--:|--:|"
    for name, row in zip(names, table.to_dicts(), strict=True):
        yield f"| {' | '.join((name, *time_cells(row)))} |"


def _warnings(report: ComparisonReport) -> Iterator[str]:
    if report.warnings:
        yield ""
        yield from (f"- Note: {_escaped(line)}" for line in report.warnings[:MOST_WARNINGS])
        left = len(report.warnings) - MOST_WARNINGS
        if left > 0:
            yield f"- Note: and {spell_count(left, 'more warning')}."


def _escaped(text: str) -> str:
    """Text in which nothing is markup, nor calls anybody."""
    return _MARKS.sub(r"\\\1", printable(text)).replace("@", "`@`")


def _code(names: Sequence[str]) -> list[str]:
    """Names as code, in which a table takes nothing but the bar for markup."""
    shown = shortened([printable(name).replace("`", "'") for name in names], MOST_OF_NAME)
    return [f"`{name}`".replace("|", "\\|") for name in shown]
