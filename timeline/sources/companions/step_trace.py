"""MindSpore's step trace: steps, their reduces and means, and the operators that delimit them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from timeline.columns.columns import Bool, Int64
from timeline.columns.strings import StringPool
from timeline.records.not_given import NO_GRAPH, NO_ID, NO_TIME
from timeline.records.profiler_tables import StepPoints, StepTraceMeans
from timeline.records.tables import CommunicationOps, Omission, StepPart, StepParts, Steps
from timeline.sources.common.decimals import parse_times_ns
from timeline.sources.common.losses import LossLog
from timeline.sources.companions.delimited import TableReader, TablesBuilder, read_rows
from timeline.sources.companions.file_kinds import NumberedFile, NumberedFiles
from timeline.sources.decoders.csv_blocks import Block, RowShape, read_blocks
from timeline.sources.decoders.json_values import read_json_value

GROUP = "Group 0"
"""The group of communication ops in the step trace, which does not name groups."""
_START, _END = "_start_point", "_end_point"


@dataclass(frozen=True)
class StepTicks:
    """The content of a step trace; each reduce is both a part of its step and a communication op.

    `means` is the last row of means: for a single step MindSpore 2.1 writes two.
    """

    steps: Steps
    parts: StepParts
    reduces: CommunicationOps
    means: StepTraceMeans
    numbers: tuple[int, ...] = ()
    """The step numbers of all rows that have one, damaged or not."""
    omissions: tuple[Omission, ...] = ()
    warnings: tuple[str, ...] = ()

    @classmethod
    def none(cls) -> StepTicks:
        """Return the empty content of a profile without a step trace."""
        tables = Steps.empty(), StepParts.empty(), CommunicationOps.empty(), StepTraceMeans.empty()
        return cls(*tables)

    def of_graph(self, graph: int) -> StepTicks:
        """Set the graph of all rows, since the file does not name it."""
        return replace(
            self,
            steps=replace(self.steps, graph=np.full(len(self.steps), graph)),
            parts=replace(self.parts, graph=np.full(len(self.parts), graph)),
            reduces=replace(self.reduces, graph=np.full(len(self.reduces), graph)),
        )


def read_step_ticks(path: Path, strings: StringPool, rank: int) -> StepTicks:
    """Read a step trace, whose times are ticks of 10 ns of the device counter.

    A step starts at the end of the previous one, so it includes the wait for data. The last row is
    the mean of the others, with a dash or 0 as its number. A FP or BP point of 0 means none. Each
    reduce has three columns, whose order varies, so they are recognised by their suffixes; a start
    of 0 means that the step has no such reduce.

    Raises:
        SourceError: the file cannot be read or lacks a column of steps.
    """
    damage = LossLog(path)
    blocks = read_blocks(path, None, STEP_COLUMNS, damage, RowShape.ENDED)
    parts = [_of_block(block, mean, strings, damage) for block, mean in with_mean_rows(blocks)]
    steps = Steps.concat(part.steps for part in parts)
    return StepTicks(
        steps,
        StepParts.concat(part.parts for part in parts),
        CommunicationOps.concat(part.reduces for part in parts),
        StepTraceMeans.concat([part.means for part in parts if len(part.means)][-1:]),
        tuple(number for part in parts for number in part.numbers),
        damage.omissions(rank),
        _repeated(path, steps.iteration, rank),
    )


def _of_block(block: Block, mean: Bool, strings: StringPool, damage: LossLog) -> StepTicks:
    start_ns, end_ns = ticks_ns(block, "start_point"), ticks_ns(block, "end_point")
    iteration = block.integers("step_num", NO_ID)
    good = (iteration >= 0) & (start_ns != NO_TIME) & (end_ns > 0)
    good &= ~mean
    cut = block.cells_of < len(block.header)
    damage.add_lines("rows without a number, a start and an end", block.lines[~mean & ~good])
    damage.add_lines("rows that break off, without their last reduces", block.lines[good & cut])
    damage.add_lines("means that break off, without their last time", block.lines[mean & cut])
    steps = Steps.of(
        len(block),
        start_ns=start_ns,
        end_ns=end_ns,
        graph=NO_GRAPH,
        iteration=iteration,
        fp_start_ns=_mark_ns(block, "fp_point"),
        bp_end_ns=_mark_ns(block, "bp_point"),
    )
    parts, reduces = _reduces(block, iteration, good, cut, strings)
    return StepTicks(steps.take(good), parts, reduces, _means_of(block, mean), _numbers_of(block))


def _numbers_of(block: Block) -> tuple[int, ...]:
    return tuple(number for number in block.integers("step_num", NO_ID).tolist() if number > 0)


def _means_of(block: Block, mean: Bool) -> StepTraceMeans:
    last = np.flatnonzero(mean)[-1:]
    means = {field: ticks_ns(block, name)[last] for field, name in _TIMES.items()}
    return StepTraceMeans.of(len(last), means)


def _repeated(path: Path, iteration: Int64, rank: int) -> tuple[str, ...]:
    numbers, counts = np.unique(iteration, return_counts=True)
    if not (counts > 1).any():
        return ()
    return (
        f"rank {rank}: {path.name} has step {numbers[counts > 1][0]} more than once: it covers "
        "several graphs and does not say which step belongs to which.",
    )


def _reduces(
    block: Block, iteration: Int64, good: Bool, cut: Bool, strings: StringPool
) -> tuple[StepParts, CommunicationOps]:
    """Return the reduces of good steps; those with one end only are kept unless the row is cut."""
    parts, reduces = [], []
    names = [
        name.removesuffix(_START)
        for name in block.header
        if name.endswith(_START) and name.removesuffix(_START) + _END in block.header
    ]
    for number, name in enumerate(names):
        start_ns, end_ns = _mark_ns(block, name + _START), _mark_ns(block, name + _END)
        starts, ends = start_ns != NO_TIME, end_ns != NO_TIME
        rows = np.flatnonzero(good & np.where(cut, starts & ends, starts | ends))
        count = len(rows)
        shared = {
            "start_ns": start_ns[rows],
            "end_ns": end_ns[rows],
            "graph": NO_GRAPH,
            "iteration": iteration[rows],
        }
        parts.append(StepParts.of(count, shared, number=number, kind=StepPart.REDUCE))
        codes = {"name": strings.code(name), "group": strings.code(GROUP)}
        reduces.append(CommunicationOps.of(count, shared, **codes))
    return StepParts.concat(parts), CommunicationOps.concat(reduces)


def _mark_ns(block: Block, name: str) -> Int64:
    time_ns = ticks_ns(block, name)
    return np.where(time_ns > 0, time_ns, NO_TIME)


_TIMES = {
    "total_ns": "total",
    "interval_ns": "iteration_interval",
    "fp_bp_ns": "fp_and_bp",
    "tail_ns": "tail",
}
STEP_COLUMNS = ("step_num", "start_point", "end_point")
_MEAN = b"-"
_FIRST_LINE = 2
"""The line of the first row; a 0 there is the number of a step, not of the mean."""
_TICKS_IN_MICROSECOND = 100
_FP_START, _BP_END = "1", "2"
"""Tags of the operators that delimit FP and BP in the framework's own file."""
_GRAPH = re.compile(r"(?:graph|model)_?(\d{1,9})", re.ASCII | re.IGNORECASE)


def read_step_trace(files: NumberedFiles, into: TablesBuilder) -> None:
    """Read StepPoints, and StepTraceMeans unless the source has read them with its steps."""
    readers: dict[NumberedFile, TableReader] = {NumberedFile.STEP_POINTS: _read_points}
    if not into.holds(StepTraceMeans):
        readers[NumberedFile.STEP_TRACE] = _read_means
    if NumberedFile.STEP_POINTS not in files:
        readers[NumberedFile.STEP_MARKS] = _read_marks
    into.read_files(files, readers)


def _read_means(path: Path, losses: LossLog, into: TablesBuilder) -> None:
    means = []
    for block, mean in with_mean_rows(read_blocks(path, None, STEP_COLUMNS, losses)):
        means += [_means_of(block, mean)] if mean.any() else []
        into.step_numbers += _numbers_of(block)
    into.add(StepTraceMeans.concat(means[-1:]))


def _read_points(path: Path, losses: LossLog, into: TablesBuilder) -> None:
    """Read one object for the rank or for each graph; on GPUs a list with one for each step."""
    points = [(graph, point) for graph, point in _points(read_json_value(path)) if any(point)]
    if not points:
        losses.add("objects without fp_start and bp_end", "its beginning")
    for graph, point in points:
        _add_point(into, graph, *point)


def _points(document: Any) -> Iterator[tuple[int, tuple[str, str]]]:
    """Yield graph, and first operator of FP and last of BP, from a document."""
    if isinstance(document, list):
        document = document[0] if document else None
    if not isinstance(document, dict):
        return
    yield NO_GRAPH, (_text(document, "fp_start"), _text(document, "bp_end"))
    for key, value in document.items():
        graph = _GRAPH.fullmatch(key)
        if graph and isinstance(value, dict):
            yield int(graph[1]), (_text(value, "fp_start"), _text(value, "bp_end"))


def _text(values: dict[str, Any], key: str) -> str:
    value = values.get(key)
    return value if isinstance(value, str) else ""


def _read_marks(path: Path, losses: LossLog, into: TablesBuilder) -> None:
    """Read lines of a tag and an operator."""
    rows = (row.cells for row in read_rows(path, losses, None))
    operators = {cells[0]: cells[1] for cells in rows if len(cells) > 1}
    if _FP_START in operators or _BP_END in operators:
        _add_point(into, NO_GRAPH, operators.get(_FP_START, ""), operators.get(_BP_END, ""))


def _add_point(into: TablesBuilder, graph: int, fp_start: str, bp_end: str) -> None:
    code = into.strings.code
    into.add(StepPoints.of(1, graph=graph, fp_start=code(fp_start), bp_end=code(bp_end)))


def ticks_ns(block: Block, name: str) -> Int64:
    """Convert a column of ticks of 10 ns to nanoseconds; NO_TIME where it is not a number."""
    as_microseconds_ns = parse_times_ns(block.cells(name))
    ns = as_microseconds_ns // _TICKS_IN_MICROSECOND
    return np.where(as_microseconds_ns == NO_TIME, NO_TIME, ns)


def with_mean_rows(blocks: Iterable[Block]) -> Iterator[tuple[Block, Bool]]:
    """Yield each block of a file, and a mask of its rows that are the mean of the others.

    The number of such a row is a dash, or it is 0 and either its end is 0 too or it is the last of
    several rows.
    """
    previous: Block | None = None
    for block in filter(len, blocks):
        if previous is not None:
            yield previous, _mean_rows(previous)
        previous = block
    if previous is not None:
        mean = _mean_rows(previous)
        numbers = previous.integers("step_num", NO_ID)
        mean[-1] |= numbers[-1] == 0 and previous.lines[-1] > _FIRST_LINE
        yield previous, mean


def _mean_rows(block: Block) -> Bool:
    """Return a mask of the rows whose number is a dash, or whose number and end are 0."""
    dashes = np.array([cell == _MEAN for cell in block.cells("step_num")], np.bool_)
    zeros = (block.integers("step_num", NO_ID) == 0) & (ticks_ns(block, "end_point") == 0)
    either: Bool = dashes | zeros
    return either
