"""What the step trace tells beside the steps: its mean row, and the operators that mark it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from timeline.errors import SourceError
from timeline.patterns import compile_late
from timeline.records.not_given import NO_GRAPH
from timeline.records.profiler_tables.step_trace import StepPoints, StepTraceMeans
from timeline.sources.common.losses import LossLog
from timeline.sources.common.step_trace_rows import STEP_COLUMNS, ticks_ns, with_mean_rows
from timeline.sources.decoders.csv_blocks import read_blocks
from timeline.sources.files.opened import read_whole_file
from timeline.sources.profiler_tables.builder import TablesBuilder
from timeline.sources.profiler_tables.delimited import read_rows
from timeline.sources.profiler_tables.file_kinds import TableFile, TableFiles

__all__ = ["read_step_trace"]

_TIMES = {
    "total_ns": "total",
    "interval_ns": "iteration_interval",
    "fp_bp_ns": "fp_and_bp",
    "tail_ns": "tail",
}
_FP_START, _BP_END = "1", "2"
"""Tags in what the framework tells of the marks."""
_GRAPH = compile_late(r"(?:graph|model)_?(\d{1,9})", re.ASCII | re.IGNORECASE)


def read_step_trace(files: TableFiles, into: TablesBuilder) -> None:
    """Read StepTraceMeans and StepPoints; the steps themselves are read by their source."""
    for path in files.get(TableFile.STEP_TRACE, ()):
        _read_mean(path, into)
    for path in files.get(TableFile.STEP_POINTS, ()):
        _read_points(path, into)
    if not files.get(TableFile.STEP_POINTS):
        for path in files.get(TableFile.STEP_MARKS, ()):
            _read_marks(path, into)


def _read_mean(path: Path, into: TablesBuilder) -> None:
    """The last of the rows that are a mean: of a single step MindSpore 2.1 writes two."""
    with into.reading(path):
        damage = LossLog(path)  # counted where the steps are read
        times_ns: dict[str, list[int]] = {}
        for block, mean in with_mean_rows(read_blocks(path, None, STEP_COLUMNS, damage)):
            at = np.flatnonzero(mean)
            if len(at):
                times_ns = {
                    field: [int(ticks_ns(block, name)[at[-1]])] for field, name in _TIMES.items()
                }
        if times_ns:
            into.add(StepTraceMeans, 1, times_ns)


def _read_points(path: Path, into: TablesBuilder) -> None:
    """One object for the rank, or one for each graph; on GPUs a list with one for each step."""
    with into.reading(path) as losses:
        try:
            held = orjson.loads(read_whole_file(path))
        except orjson.JSONDecodeError as error:
            raise SourceError(path, f"is not valid JSON: {error.msg}.", offset=error.pos) from error
        found = [(graph, point) for graph, point in _points(held) if any(point)]
        if not found:
            losses.add("objects without fp_start and bp_end", "its beginning")
        for graph, point in found:
            _add_point(into, graph, *point)


def _points(held: Any) -> Iterator[tuple[int, tuple[str, str]]]:
    """The points of each graph."""
    if isinstance(held, list):
        held = held[0] if held else None
    if not isinstance(held, dict):
        return
    yield NO_GRAPH, (_text(held, "fp_start"), _text(held, "bp_end"))
    for key, value in held.items():
        graph = _GRAPH.fullmatch(key)
        if graph and isinstance(value, dict):
            yield int(graph[1]), (_text(value, "fp_start"), _text(value, "bp_end"))


def _text(held: dict[str, Any], key: str) -> str:
    value = held.get(key)
    return value if isinstance(value, str) else ""


def _read_marks(path: Path, into: TablesBuilder) -> None:
    """Lines of a tag and the operator that it marks."""
    with into.reading(path) as losses:
        rows = (row.cells for row in read_rows(path, losses, None))
        named = {cells[0]: cells[1] for cells in rows if len(cells) > 1}
        if _FP_START in named or _BP_END in named:
            _add_point(into, NO_GRAPH, named.get(_FP_START, ""), named.get(_BP_END, ""))


def _add_point(into: TablesBuilder, graph: int, fp_start: str, bp_end: str) -> None:
    names = {"fp_start": into.strings.code(fp_start), "bp_end": into.strings.code(bp_end)}
    into.add(StepPoints, 1, {"graph": [graph], **{key: [code] for key, code in names.items()}})
