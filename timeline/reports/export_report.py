"""The report of an export as JSON, lines, HTML and CSV."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from timeline.errors import format_ids
from timeline.fitting.limits import LimitName
from timeline.records.tables import Omission
from timeline.reports.report_rows import (
    CsvFile,
    ExactStep,
    OutputFile,
    RankReport,
    ResolutionRow,
    bookkeeping_lines,
    exact_steps_dict,
    format_omissions,
    omission_dict,
)
from timeline.reports.valid_json import json_of
from timeline.tables.parallel import ParallelIndices
from timeline.tables.table import Table, link_html, paragraph_html, table_html
from timeline.units import format_bytes, format_count, format_duration
from timeline.verdict.figures import Figures
from timeline.verdict.verdict import Verdict

SCHEMA_VERSION = 1
VIEWER = "https://ui.perfetto.dev"
_DRAG_HTML = f'<p>Drag the file into <a href="{VIEWER}" target="_blank">{VIEWER}</a>.</p>'


@dataclass(frozen=True, repr=False)
class ExportReport:
    """The result of one export; its string is what the command prints."""

    kind: str
    outputs: tuple[OutputFile, ...]
    ranks: tuple[RankReport, ...]
    steps: tuple[int, ...]
    figures: Figures
    verdict: Verdict
    omissions: tuple[Omission, ...] = ()
    warnings: tuple[str, ...] = ()
    """Sentences on problems, missing data and assumptions, including the notes."""
    notes: tuple[str, ...] = ()
    """Warnings about inputs or assumptions that change what the figures mean."""
    suggestion: str = ""
    limit_bytes: int = 0
    max_events: int = 0
    resolutions: tuple[ResolutionRow, ...] = ()
    limited_by: LimitName | None = None
    """The limit that was reached, None if everything is in the file."""
    exact_steps: tuple[ExactStep, ...] = ()
    """Steps in which nothing is merged, if other steps are merged."""
    csv: CsvFile | None = None
    see_why: str = ""
    """The command that shows the cause of the first finding in detail; empty for none."""
    by_layer: bool = False
    """Rows are grouped by layer before rank."""
    removed: tuple[Path, ...] = ()
    """Deleted files of an earlier export with the same default name that no new file replaced."""

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values; the shape is versioned by `schema`."""
        return {
            "schema": SCHEMA_VERSION,
            "status": "ok",
            "kind": self.kind,
            "limit_bytes": self.limit_bytes,
            "max_events": self.max_events,
            "limited_by": self.limited_by,
            **exact_steps_dict(self.exact_steps),
            "outputs": [output.to_dict() for output in self.outputs],
            "removed": [str(part) for part in self.removed],
            "csv": None if self.csv is None else self.csv.to_dict(),
            "ranks": [rank.to_dict() for rank in self.ranks],
            "verdict": self.verdict.to_dict(),
            "omitted": [omission_dict(omission) for omission in self.omissions],
            "resolution": [row.to_dict() for row in self.resolutions],
            "notes": list(self.notes),
            "warnings": list(self.warnings),
            "suggestion": self.suggestion,
            "see_why": self.see_why,
            **self.figures.in_json(),
        }

    def step_times(self) -> Table:
        """Return the times of each rank and step, in the columns of step_trace_time.csv."""
        devices = {rank.rank: rank.device for rank in self.ranks}
        return step_times(self.figures, devices, {rank.rank: rank.indices for rank in self.ranks})

    def to_json(self) -> bytes:
        """Return the report as one JSON object."""
        return json_of(self.to_dict(), orjson.OPT_INDENT_2)

    def lines(self, *, verbose: bool = True) -> list[str]:
        """Return lines for people on what was written and what is missing.

        verbose: list what was merged, left out or moved line by line, instead of in one line.
        """
        return [
            *self._written_lines(),
            *bookkeeping_lines(
                self.omissions,
                self.resolutions,
                self.exact_steps,
                self.limited_by,
                self._clock_lines(),
                aligned=any(rank.align == "collectives" for rank in self.ranks),
                verbose=verbose,
            ),
            *self._exact_lines(),
        ]

    def verbose_lines(self) -> list[str]:
        """Return lines on checks against the profiler's own numbers, and on unused files."""
        return [*check_lines(self.figures.checks), *unused_lines(self.figures.unused)]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        lines = (*self._written_lines(), *self._omitted_lines())
        return f"<ExportReport: {'; '.join(line.strip() for line in lines)}>"

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: links to the files, the verdict, and what is missing."""
        files = [
            (
                link_html(output.path),
                format_bytes(output.size_bytes),
                format_ids(rank.rank for rank in self.ranks),
                format_ids(output.steps),
                format_count(output.slices, "slice"),
            )
            for output in self.outputs
        ]
        return (
            table_html(("file", "size", "ranks", "steps", ""), files)
            + paragraph_html(*self.verdict.sentences())
            + paragraph_html(*self.warnings, *(row.describe() for row in self.resolutions))
            + paragraph_html(*self._omitted_lines())
            + (_DRAG_HTML if self.outputs else "")
        )

    def _clock_lines(self) -> list[str]:
        """Return lines on how far the clocks of ranks differ according to collectives."""
        lines = []
        for align, remark in (
            ("collectives", "moved by their collectives, whose ends now differ"),
            ("recorded", "as recorded; the ends of their collectives differ"),
        ):
            compared = [rank for rank in self.ranks if rank.align == align and rank.matched_ops]
            spread_ns = max((rank.spread_ns or 0 for rank in compared), default=0)
            if compared:
                ranks = format_ids(rank.rank for rank in compared)
                lines.append(f"ranks {ranks} {remark} by {format_duration(spread_ns)}")
        return lines

    def _written_lines(self) -> list[str]:
        lines = [
            f"{output.written_line}, {format_count(len(self.ranks), 'rank')}, "
            f"{format_count(output.slices, 'slice')}{self._steps_of(output)}"
            for output in self.outputs
        ]
        if self.csv is not None:
            size = format_bytes(self.csv.size_bytes)
            lines.append(f"Wrote {self.csv.path}  {size}, {format_count(self.csv.rows, 'row')}")
        return [*lines, *(f"Removed {part}, part of an earlier answer" for part in self.removed)]

    def _steps_of(self, output: OutputFile) -> str:
        if not self.steps:
            return ", no step marks"
        of = f" of {len(self.steps)}" if len(output.steps) < len(self.steps) else ""
        noun = "step" if len(output.steps) == 1 else "steps"
        return f", {noun} {format_ids(output.steps)}{of}"

    def _omitted_lines(self) -> list[str]:
        return [
            *(f"left out: {text}" for text, *_ in format_omissions(self.omissions)),
            *self._exact_lines(),
        ]

    def _exact_lines(self) -> list[str]:
        """Return a line with the command that exports without merging, if one is suggested."""
        return [f"  exact: {self.suggestion}"] if self.suggestion else []


# -- differences from the profiler's numbers -------------------------------------------------------


MOST_FILES = 12
"""Maximum number of unused files named in a line."""
_NUMBERS = re.compile(r"(?:_\d+)+(?=\.)")
"""Rank and timestamp in a file name."""


def check_lines(checks: Table) -> Iterator[str]:
    """Yield a line per file: how many of its numbers equal or differ from the computed ones."""
    for file, rows in _by(checks, "file").items():
        ranks = _ranks(rows)
        some = format_count(sum(row["numbers"] for row in rows), "number")
        different = [row for row in rows if not row["equal"]]
        if different:
            yield f"  checked: {len(different)} of {some} of {ranks} differ from {file}"
        else:
            within_ns = max(row["tolerance"] for row in rows)
            yield f"  checked: {some} of {ranks} equal to {file} within {within_ns} ns"


def check_warnings(checks: Table) -> Iterator[str]:
    """Yield a sentence per file and reason for differences, with the largest difference."""
    different = [row for row in checks.to_dicts() if not row["equal"]]
    by_reason: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in different:
        reason = row["reason"] or "the reason is not known"
        by_reason.setdefault((row["file"], reason), []).append(row)
    for (file, reason), rows in by_reason.items():
        worst = max(rows, key=_off_ns)
        ours = "not known" if worst["ours"] is None else f"{worst['ours']} ns"
        more = len(rows) - 1
        others = f" ({format_count(more, 'more number')} of {_ranks(rows)} so)" if more else ""
        yield (
            f"rank {worst['rank']}: {worst['what']} is {worst['theirs']} ns in {file} and {ours} "
            f"here{others}: {reason}."
        )


def unused_lines(unused: Table) -> Iterator[str]:
    """Yield the unused files and tables, one line for all ranks with the same ones."""
    ranks_by_files: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for rank, rows in _by(unused, "rank").items():
        files = dict.fromkeys((_NUMBERS.sub("", row["file"]), row["what"]) for row in rows)
        ranks_by_files.setdefault(tuple(files), []).append(rank)
    for named_files, ranks in ranks_by_files.items():
        which = f"{'rank' if len(ranks) == 1 else 'ranks'} {format_ids(ranks)}"
        named = ", ".join(f"{file} ({what})" for file, what in named_files[:MOST_FILES])
        more = len(named_files) - MOST_FILES
        yield f"  not used of {which}: {named}" + (f", {more} more in --json" if more > 0 else "")


def _by(table: Table, column: str) -> dict[Any, list[dict[str, Any]]]:
    """Return the rows of a table by their value in a column."""
    rows: dict[Any, list[dict[str, Any]]] = {}
    for row in table.to_dicts():
        rows.setdefault(row[column], []).append(row)
    return rows


def _ranks(rows: list[dict[str, Any]]) -> str:
    ranks = sorted({row["rank"] for row in rows})
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {format_ids(ranks)}"


def _off_ns(row: dict[str, Any]) -> int:
    return abs(int(row["theirs"]) - int(row["ours"] or 0))


# -- the times of each step as a table -------------------------------------------------------------


TIMES = (
    "Computing",
    "Communication(Not Overlapped)",
    "Overlapped",
    "Communication",
    "Free",
    "Stage",
    "Bubble",
    "Communication(Not Overlapped and Exclude Receive)",
    "Preparing",
)
_RECEIVE = "Receive"


def step_times(
    figures: Figures,
    devices: Mapping[int, int | None],
    indices: Mapping[int, ParallelIndices],
) -> Table:
    """Return a row per rank and step (and graph, if a rank has several) with device work.

    A single rank gets the columns of torch_npu's step_trace_time.csv, with Device_id first. Several
    get those of cluster_step_trace_time.csv, which msprof-analyze writes: Step, Type ("rank") and
    Index (the rank). msprof-analyze takes any unknown column for a time, so Graph is the only
    additional column, and only if steps are ambiguous without it. A rank without steps has one row
    with an empty Step.

    Times are decimal strings in us with all digits of ns. Stage is the span of the device work less
    Bubble, the time in receive ops. Preparing is the time from the start of the step on the host to
    its first device work; it is empty if steps are not marked on the host.

    devices: the device of each rank, None if unknown. indices: data, pipeline and tensor parallel
    index of each rank; they get columns if there are several ranks and any index is known.
    """
    rows = [*_step_rows(figures.steps), *_whole_rows(figures)]
    rows.sort(key=lambda row: row["rank"])  # stable: steps stay in order of time
    several = len(devices) > 1
    graphs = {(row["rank"], row["graph"]) for row in rows}
    columns: dict[str, list[Any]] = {}
    if several:
        columns["Step"] = [_number_text(row["step"]) for row in rows]
        columns["Type"] = ["rank"] * len(rows)
        columns["Index"] = [str(row["rank"]) for row in rows]
    else:
        columns["Device_id"] = [_number_text(devices.get(row["rank"])) for row in rows]
        columns["Step"] = [_number_text(row["step"]) for row in rows]
    times = [_times_ns(row) for row in rows]
    for at, name in enumerate(TIMES):
        columns[name] = [_microseconds(times_ns[at]) for times_ns in times]
    if several and set(indices.values()) - {ParallelIndices()}:
        for name in ("dp", "pp", "tp"):
            values = [getattr(indices[row["rank"]], name) for row in rows]
            columns[f"{name.upper()} Index"] = ["NA" if at is None else str(at) for at in values]
    if len(graphs) > len({rank for rank, _ in graphs}):
        columns["Graph"] = [_number_text(row["graph"]) for row in rows]
    return Table({name: np.array(cells, object) for name, cells in columns.items()})


def _step_rows(steps: Table) -> list[dict[str, Any]]:
    if not len(steps):
        return []
    return steps.take(np.ma.filled(steps["span_ns"], 0) > 0).to_dicts()


def _whole_rows(figures: Figures) -> Iterator[dict[str, Any]]:
    """Yield a row for each rank without device work in steps, of all its device work."""
    in_steps = {row["rank"] for row in _step_rows(figures.steps)}
    receive_ns: dict[int, int] = {}
    for row in figures.operators.to_dicts():
        if row["communication"] and row["type"] == _RECEIVE:
            receive_ns[row["rank"]] = receive_ns.get(row["rank"], 0) + row["total_ns"]
    for row in figures.overlap.to_dicts():
        if row["span_ns"] and row["rank"] not in in_steps:
            row["receive_ns"] = receive_ns.get(row["rank"], 0)
            yield {**row, "graph": None, "step": None, "preparing_ns": None}


def _times_ns(row: Mapping[str, Any]) -> tuple[int | None, ...]:
    """Return the times of a row in the order of TIMES, None if they are not recorded."""
    receive_ns, exposed_ns = row["receive_ns"], row["not_overlapped_ns"]
    has_overlap = exposed_ns is not None
    return (
        row["computing_ns"],
        exposed_ns,
        row["communication_ns"] - exposed_ns if has_overlap else None,
        row["communication_ns"],
        row["free_ns"],
        row["span_ns"] - receive_ns,
        receive_ns,
        max(exposed_ns - receive_ns, 0) if has_overlap else None,
        row["preparing_ns"],
    )


def _microseconds(time_ns: int | None) -> str:
    if time_ns is None:
        return ""
    whole, rest = divmod(abs(time_ns), 1000)
    return f"{'-' if time_ns < 0 else ''}{whole}.{rest:03d}"


def _number_text(number: int | None) -> str:
    return "" if number is None else str(number)
