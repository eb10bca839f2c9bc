"""What the step trace tells beside the steps: its mean row, and the operators that mark it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from timeline.columns.columns import Bool, Int64
from timeline.errors import SourceError
from timeline.patterns import compile_late
from timeline.records.not_given import NO_GRAPH, NO_ID, NO_TIME
from timeline.records.profiler_tables.step_trace import StepPoints, StepTraceMeans
from timeline.sources.common.decimals import moments_ns
from timeline.sources.common.losses import LossLog
from timeline.sources.decoders.csv_blocks import Block, read_blocks
from timeline.sources.files.opened import read_whole_file
from timeline.sources.profiler_tables.builder import TablesBuilder
from timeline.sources.profiler_tables.delimited import read_rows
from timeline.sources.profiler_tables.file_kinds import TableFile, TableFiles

__all__ = ["STEP_COLUMNS", "read_step_trace", "ticks_ns", "with_mean_rows"]

_TIMES = {
    "total_ns": "total",
    "interval_ns": "iteration_interval",
    "fp_bp_ns": "fp_and_bp",
    "tail_ns": "tail",
}
STEP_COLUMNS = ("step_num", "start_point", "end_point")
_MEAN = b"-"
_FIRST_LINE = 2
"""Of rows; a step 0 there is a step."""
_TICKS_IN_MICROSECOND = 100
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


def ticks_ns(block: Block, name: str) -> Int64:
    """A column of ticks of 10 ns as nanoseconds; NO_TIME where there is no number."""
    as_microseconds_ns = moments_ns(block.cells(name))
    ns = as_microseconds_ns // _TICKS_IN_MICROSECOND
    return np.where(as_microseconds_ns == NO_TIME, NO_TIME, ns)


def with_mean_rows(blocks: Iterable[Block]) -> Iterator[tuple[Block, Bool]]:
    """Each block of a file, and which of its rows are the mean of the others.

    Their number is a dash, or 0 where their end is 0 too or they are the last of several.
    """
    waiting: Block | None = None
    for block in filter(len, blocks):
        if waiting is not None:
            yield waiting, _mean_rows(waiting)
        waiting = block
    if waiting is not None:
        mean = _mean_rows(waiting)
        numbers = waiting.integers("step_num", NO_ID)
        mean[-1] |= numbers[-1] == 0 and waiting.lines[-1] > _FIRST_LINE
        yield waiting, mean


def _mean_rows(block: Block) -> Bool:
    dashes = np.array([cell == _MEAN for cell in block.cells("step_num")], np.bool_)
    zeros = (block.integers("step_num", NO_ID) == 0) & (ticks_ns(block, "end_point") == 0)
    either: Bool = dashes | zeros
    return either
