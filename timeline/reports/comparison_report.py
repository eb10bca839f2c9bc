"""The report of a comparison: what was found and written, as JSON, lines and HTML."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from timeline.figures.comparison import Comparison, Gate
from timeline.figures.table import cell_html, link_html, paragraph_html, table_html
from timeline.fitting.limits import LimitName
from timeline.records.tables import Omission
from timeline.reports.bookkeeping import bookkeeping_lines
from timeline.reports.report_rows import (
    OutputFile,
    ResolutionRow,
    spell_omissions,
)
from timeline.reports.valid_json import json_of
from timeline.units import spell_bytes, spell_count

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class ChangedStep:
    """A step of the base, on which rank its like of the new run took longest, and when to look.

    Both are in view from start_ns to end_ns on the clock of the base.
    """

    step: int
    rank: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, repr=False)
class ComparisonReport:
    """What a comparison found, and what it wrote; print it for what the command says.

    csv, page, markdown: what was written beside the timeline. shift_ns: by how much the new
    run is moved in time there. gate: how `fail_above` was judged, None where it was not asked for.
    changed: the step that became longest, None without steps. by_layer: whether rows are grouped by
    layer before rank. limited_by: the limit that binds, None where everything is in the file.
    notes: those of the warnings that change what the answer is about.
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
        """The report as plain values; the shape is versioned by `schema`."""
        return {
            "schema": SCHEMA_VERSION,
            "status": "ok",
            "base": str(self.base),
            "new": str(self.new),
            "shift_ns": self.shift_ns,
            "comparison": self.comparison.to_dict(),
            "outputs": [
                {
                    "path": str(output.path),
                    "format": output.format,
                    "bytes": output.size_bytes,
                    "slices": output.slices,
                    "elements": output.elements,
                    "replaced": output.replaced,
                }
                for output in self.outputs
            ],
            "csv": None if self.csv is None else str(self.csv),
            "page": None if self.page is None else str(self.page),
            "omitted": [
                {"code": code.value, "reason": said, "rows": rows}
                for said, rows, code in spell_omissions(self.omissions)
            ],
            "limited_by": self.limited_by,
            "resolution": [row.to_dict() for row in self.resolutions],
            "notes": list(self.notes),
            "warnings": list(self.warnings),
            "markdown": None if self.markdown is None else str(self.markdown),
            "gate": None if self.gate is None else self.gate.to_dict(),
        }

    def to_json(self) -> bytes:
        """The report as one JSON object."""
        return json_of(self.to_dict(), orjson.OPT_INDENT_2)

    def lines(self, *, verbose: bool = True) -> list[str]:
        """What was written, and what is not in it, for people; see `comparison_text` too.

        verbose: with a line for all that was merged or left out, which is one line else.
        """
        return [
            *(
                f"{output.written_line}, {spell_count(output.slices, 'slice')} of both runs"
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
        """What changed, and how that was judged."""
        judged = [] if self.gate is None else [self.gate.sentence()]
        return [*self.comparison.sentences(), *judged]

    def __str__(self) -> str:
        return "\n".join([*self.sentences(), *self.lines()])

    def __repr__(self) -> str:
        said = (*self.sentences(), *self.lines())
        return f"<ComparisonReport: {' '.join(line.strip() for line in said)}>"

    def _repr_html_(self) -> str:
        """What changed, what was written, with links, and what is missing."""
        files = [
            (link_html(output.path), spell_bytes(output.size_bytes)) for output in self.outputs
        ]
        overall = self.comparison.parts
        return (
            paragraph_html(*self.sentences())
            + table_html(overall.columns, (map(cell_html, row) for row in overall))
            + table_html(("file", "size"), files)
            + paragraph_html(*self.warnings, *(row.spelled() for row in self.resolutions))
        )
