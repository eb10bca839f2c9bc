"""The report of a comparison as JSON, lines, HTML and Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from timeline.comparison.comparison import Comparison, Gate
from timeline.comparison.parts import WHOLE
from timeline.fitting.limits import LimitName
from timeline.language import said
from timeline.printable import printable
from timeline.records.tables import Omission
from timeline.reports.comparison_rows import (
    CHANGED_IN_FRAMEWORK,
    class_tables,
    metric_rows,
    notable_memory,
    notable_rows,
    operator_names,
    time_cells,
    time_titles,
    unit_of_sides,
    worst_and_best,
)
from timeline.reports.report_rows import (
    OutputFile,
    ResolutionRow,
    bookkeeping_lines,
    format_omissions,
)
from timeline.reports.valid_json import json_of
from timeline.tables.short_names import shortened
from timeline.tables.table import Table, cell_html, link_html, paragraph_html, table_html
from timeline.units import format_bytes, format_count
from timeline.version import __version__

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class ChangedStep:
    """A step whose duration changed, and the time range that shows it in both runs.

    step: its number in the base. rank: rank on which the corresponding step of the new run took
    longest. start_ns, end_ns: on the clock of the base.
    """

    step: int
    rank: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, repr=False)
class ComparisonReport:
    """The result of a comparison, and the files written; its string is what the command prints.

    shift_ns: shift in time of the new run in the timeline. csv, page, markdown: further files that
    were written. gate: result of the check against `fail_above`, None if it was not set. changed:
    the step that grew most, else changed most; None without steps. by_layer: whether rows are
    grouped by layer before rank. limited_by: the limit that was reached, None if everything is in
    the file. notes: warnings about inputs or assumptions that change what the figures mean.
    """

    comparison: Comparison
    base: Path
    new: Path
    outputs: tuple[OutputFile, ...]
    shift_ns: int
    warnings: tuple[str, ...]
    omissions: tuple[Omission, ...]
    resolutions: tuple[ResolutionRow, ...]
    csv: Path | None = None
    page: Path | None = None
    markdown: Path | None = None
    gate: Gate | None = None
    changed: ChangedStep | None = None
    by_layer: bool = False
    limited_by: LimitName | None = None
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values; the shape is versioned by `schema`."""
        return {
            "schema": SCHEMA_VERSION,
            "status": "ok",
            "base": str(self.base),
            "new": str(self.new),
            "shift_ns": self.shift_ns,
            "comparison": self.comparison.to_dict(),
            "outputs": [
                {key: value for key, value in output.to_dict().items() if key != "steps"}
                for output in self.outputs
            ],
            "csv": None if self.csv is None else str(self.csv),
            "page": None if self.page is None else str(self.page),
            "omitted": [
                {"code": code.value, "reason": reason, "rows": rows}
                for reason, rows, code in format_omissions(self.omissions)
            ],
            "limited_by": self.limited_by,
            "resolution": [row.to_dict() for row in self.resolutions],
            "notes": list(self.notes),
            "warnings": list(self.warnings),
            "markdown": None if self.markdown is None else str(self.markdown),
            "gate": None if self.gate is None else self.gate.to_dict(),
        }

    def to_json(self) -> bytes:
        """Return the report as one JSON object."""
        return json_of(self.to_dict(), orjson.OPT_INDENT_2)

    def lines(self, *, verbose: bool = True) -> list[str]:
        """Return lines for people on what was written and what is missing.

        verbose: list what was merged or left out line by line, instead of in one line.
        """
        return [
            *(
                f"{output.written_line}, {format_count(output.slices, 'slice')} of both runs"
                for output in self.outputs
            ),
            *bookkeeping_lines(
                self.omissions,
                self.resolutions,
                (),
                self.limited_by,
                (),
                aligned=False,
                verbose=verbose,
            ),
            *(f"Wrote {file}" for file in (self.csv, self.markdown) if file is not None),
        ]

    def sentences(self) -> list[str]:
        """Return sentences on what changed, and on the check against the limit, if any."""
        result = [] if self.gate is None else [self.gate.sentence(self.comparison.sides)]
        return [*self.comparison.sentences(), *result]

    def __str__(self) -> str:
        return "\n".join([*self.sentences(), *self.lines()])

    def __repr__(self) -> str:
        lines = (*self.sentences(), *self.lines())
        return f"<ComparisonReport: {' '.join(line.strip() for line in lines)}>"

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: what changed, links to the files, and what is missing."""
        files = [
            (link_html(output.path), format_bytes(output.size_bytes)) for output in self.outputs
        ]
        overall = self.comparison.parts
        return (
            paragraph_html(*self.sentences())
            + table_html(overall.columns, (map(cell_html, row) for row in overall))
            + table_html(("file", "size"), files)
            + paragraph_html(*self.warnings, *(row.describe() for row in self.resolutions))
        )


# -- summary as Markdown ---------------------------------------------------------------------------


MOST_OPERATORS, MOST_CLASSES, MOST_WARNINGS = 5, 5, 5
MOST_OF_NAME = 80
"""Maximum length of the name of an operator."""
INDENT = "\N{NO-BREAK SPACE}" * 4
_MARKS = re.compile(r"([\\`*_{}\[\]<>#|~&$]|:(?=//)|(?<=[wW]{3})\.)")
"""Characters of Markdown markup, except @, by which GitHub mentions users."""


def comparison_markdown(report: ComparisonReport) -> str:
    """Return a summary in Markdown: what changed, the parts of a step, and the top operators."""
    return "".join(f"{line}\n" for line in _lines(report))


def _lines(report: ComparisonReport) -> Iterator[str]:
    comparison = report.comparison
    sentences = list(comparison.sentences())
    if not sentences:
        yield f"### {said('A run holds no device records: there is nothing to compare.')}"
    else:
        headline, *others = sentences
        yield f"### {_escaped(headline).rstrip('.。')}"
        yield ""
        yield from (f"- {_escaped(line)}" for line in others)
    if report.gate is not None:
        yield from ("", f"**{_escaped(report.gate.sentence(comparison.sides))}**")
    if sentences:
        yield ""
        names = [
            f"**{said(metric)}**" if metric == WHOLE else f"{depth * INDENT}{_escaped(metric)}"
            for metric, depth in metric_rows(comparison.parts)
        ]
        title = "per step and rank" if comparison.per_step else "per rank"
        yield from _rows(comparison, title, names, comparison.parts)
        whole_ns = comparison.whole["base_ns"]
        for noun, table in (
            ("operator", comparison.operators),
            ("communication", comparison.collectives),
        ):
            shown = worst_and_best(table, whole_ns, MOST_OPERATORS)
            if len(shown):
                yield ""
                yield from _rows(comparison, noun, _code(operator_names(shown)), shown)
        for by, table in class_tables(comparison.overall):
            shown = notable_rows(table, whole_ns, MOST_CLASSES)
            if len(shown):
                yield ""
                names = list(map(said, shown["metric"].tolist()))
                yield from _rows(comparison, f"work by {by}", names, shown)
        yield from _of_framework(report.comparison)
    yield from _warnings(report)
    yield ""
    sides = comparison.sides
    runs = [_escaped(str(path)) for path in (report.new, report.base)]
    if sides.in_one_run:
        runs = [f"{sides.titles[1]} of {runs[0]}", sides.titles[0]]
    yield f"{' against '.join(runs)}, tlexport {__version__}"


def _of_framework(comparison: Comparison) -> Iterator[str]:
    """Yield tables of the framework's operators and modules, and of memory, that changed most."""
    for one in CHANGED_IN_FRAMEWORK:
        shown = one.rows(comparison, MOST_OPERATORS)
        if len(shown):
            yield ""
            yield from _rows(comparison, one.title, _code(one.names_of(shown)), shown)
    memory = notable_memory(comparison.operator_memory, MOST_OPERATORS)
    if len(memory):
        unit = unit_of_sides(memory, "bytes")
        titles = map(unit.title, comparison.sides.titles)
        heads = " | ".join(map(said, ("allocated by operator", *titles)))
        yield from ("", f"| {heads} |", "|---|--:|--:|")
        columns = (_code(memory["name"].tolist()), memory["base_bytes"], memory["new_bytes"])
        for name, base, new in zip(*columns, strict=True):
            yield f"| {name} | {unit.format(int(base))} | {unit.format(int(new))} |"


def _rows(comparison: Comparison, title: str, names: Sequence[str], table: Table) -> Iterator[str]:
    unit = unit_of_sides(table)
    yield f"| {' | '.join(map(said, (title, *time_titles(comparison, unit))))} |"
    yield "|---|--:|--:|--:|--:|"
    for name, row in zip(names, table.to_dicts(), strict=True):
        yield f"| {' | '.join((name, *time_cells(row, unit)))} |"


def _warnings(report: ComparisonReport) -> Iterator[str]:
    if report.warnings:
        yield ""
        yield from (f"- Note: {_escaped(line)}" for line in report.warnings[:MOST_WARNINGS])
        left = len(report.warnings) - MOST_WARNINGS
        if left > 0:
            yield f"- Note: and {format_count(left, 'more warning')}."


def _escaped(text: str) -> str:
    """Escape text so that it holds no markup and mentions no user."""
    return _MARKS.sub(r"\\\1", printable(said(text))).replace("@", "`@`")


def _code(names: Sequence[str]) -> list[str]:
    """Format names as code; the bar is escaped since it separates cells even in code."""
    shown = shortened([printable(name).replace("`", "'") for name in names], MOST_OF_NAME)
    return [f"`{name}`".replace("|", "\\|") for name in shown]
