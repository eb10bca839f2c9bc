"""Steps, reduces and data fetches from the step-trace records of a device (ts_track)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from timeline.columns.columns import Bool, ColumnTable, Int64, TableBuilder, column
from timeline.columns.distinct import distinct
from timeline.columns.intervals import only_open_at
from timeline.records.not_given import NO_GRAPH, NO_TIME
from timeline.records.tables import Omission, OmissionCode, StepPart, StepParts, Steps
from timeline.sources.common.losses import counted_losses
from timeline.sources.common.raw_logs import Log, RecordArray, RecordReader, UInt64, record_layout

_START, _END, _FORWARD, _BACKWARD, _ITERATION_END = 0, 1, 2, 3, 4
_REDUCE, _GET_NEXT, _STEP_START, _STEP_END = 10_000, 20_000, 60_000, 60_001


_STEP = ("graph", "iteration", "start_ns", "end_ns", "fp_start_ns", "bp_end_ns")
_PART = ("graph", "iteration", "number", "kind", "start_ns", "end_ns")


@dataclass(eq=False)
class _Iteration:
    """An unfinished iteration of a graph.

    opens: whether it is the first iteration of a run of the graph. last: the last tag added,
    except those of parts.
    """

    start_ns: int
    opens: bool = False
    last: int = 0
    forward_ns: int = int(NO_TIME)
    backward_ns: int = int(NO_TIME)
    end_ns: int = int(NO_TIME)
    part_starts_ns: dict[tuple[StepPart, int, int], int] = field(default_factory=dict)
    """Starts of unfinished parts, by kind, stream and number of the fetch (0 for a reduce)."""
    parts: list[tuple[int, int, StepPart]] = field(default_factory=list)
    """Start, end and kind of each finished part."""


class StepTags:
    """State machine that turns step-trace tags into steps and their parts.

    Tags are added graph by graph, and in order of time within a graph. Tags 0 and 1 are the start
    and end of a run of the graph, 2 forward start, 3 backward end, 4 iteration end, from 10000
    reduces and from 20000 data fetches (even starts, odd ends); 60000 and 60001 are the start and
    end of a step without a run. A run may hold several iterations, and runs of one graph may
    overlap: a tag then belongs to the oldest iteration that it can follow. Iterations are counted
    from 1, as msprof does.

    astray: number of tags outside steps; unfinished, unstarted: of steps without an end or a start;
    halves: of reduces and fetches without an end or a start; others: of unknown tags.
    """

    def __init__(self) -> None:
        self._steps: list[tuple[int, ...]] = []
        self._parts: list[tuple[int, ...]] = []
        self.astray = self.unfinished = self.unstarted = self.halves = self.others = 0
        self._open: deque[_Iteration] = deque()
        self._going: list[_Iteration] = []
        """Open iterations whose end tag was not added yet, oldest first."""
        self._windows: dict[int, int] = {}
        """Start times of open steps without a run, by their index."""
        self._graph, self._count = int(NO_GRAPH), 0

    def add(self, time_ns: int, graph: int, index: int, stream: int, tag: int) -> None:
        """Add the next tag."""
        if graph != self._graph:
            self.close()
            self._graph, self._count = graph, 0
        if tag == _START:
            self._begin(_Iteration(time_ns, opens=True))
        elif tag == _END:
            self._end_run(time_ns)
        elif tag <= _ITERATION_END:
            self._advance(time_ns, tag)
        elif _REDUCE <= tag < _GET_NEXT:
            oldest = self._going[0] if self._going else None
            self._add_part(oldest, StepPart.REDUCE, time_ns, stream, tag)
        elif _GET_NEXT <= tag < _STEP_START:
            self._add_part(self._find_fetching(), StepPart.GET_NEXT, time_ns, stream, tag)
        elif tag == _STEP_START:
            self.unfinished += index in self._windows
            self._windows[index] = time_ns
        elif tag == _STEP_END:
            self._end_window(index, time_ns)
        else:
            self.others += 1

    def tables(self) -> tuple[Steps, StepParts]:
        """Return the steps and their parts."""
        steps = np.array(self._steps, np.int64).reshape(-1, len(_STEP)).T
        parts = np.array(self._parts, np.int64).reshape(-1, len(_PART)).T
        return (
            Steps.of(steps.shape[1], dict(zip(_STEP, steps, strict=True))),
            StepParts.of(parts.shape[1], dict(zip(_PART, parts, strict=True))),
        )

    def close(self) -> None:
        """End the current graph; count its open steps as unfinished."""
        while self._open:
            self._finish(self._open.popleft())
        self.unfinished += len(self._windows)
        self._windows.clear()

    def _advance(self, time_ns: int, tag: int) -> None:
        """Add a forward, backward or iteration-end tag to the oldest iteration it can follow."""
        iteration = next((candidate for candidate in self._going if candidate.last < tag), None)
        if iteration is None:
            iteration = self._begin_next()
        iteration.last = tag
        if tag == _FORWARD:
            iteration.forward_ns = time_ns
        elif tag == _BACKWARD:
            iteration.backward_ns = time_ns
        else:
            iteration.end_ns = time_ns
            self._stop(iteration)

    def _begin(self, iteration: _Iteration) -> _Iteration:
        self._open.append(iteration)
        self._going.append(iteration)
        return iteration

    def _stop(self, iteration: _Iteration) -> None:
        self._going = [other for other in self._going if other is not iteration]

    def _begin_next(self) -> _Iteration:
        """Begin another iteration of the newest run, at the end of its last iteration."""
        return self._begin(_Iteration(self._open[-1].end_ns if self._open else int(NO_TIME)))

    def _find_fetching(self) -> _Iteration | None:
        """Return the iteration that fetches data: the newest, or the next one if that has ended."""
        if self._open and self._open[-1].last == _ITERATION_END:
            self._begin_next()
        return self._open[-1] if self._open else None

    def _add_part(
        self, iteration: _Iteration | None, kind: StepPart, time_ns: int, stream: int, tag: int
    ) -> None:
        if iteration is None:
            self.astray += 1
            return
        key = kind, stream, tag // 2 if kind is StepPart.GET_NEXT else 0
        start_ns = iteration.part_starts_ns.pop(key, None)
        if tag % 2 == 0:
            self.halves += start_ns is not None
            iteration.part_starts_ns[key] = time_ns
        elif start_ns is None:
            self.halves += 1
        else:
            iteration.parts.append((start_ns, time_ns, kind))

    def _end_run(self, time_ns: int) -> None:
        """End a run of the graph: finish its first iteration and all that follow it in the run."""
        if not self._open:
            self.astray += 1
            return
        first = self._open.popleft()
        if first.end_ns == NO_TIME:
            # Graphs that only infer have no iteration ends.
            first.end_ns = time_ns
        self._finish(first)
        while self._open and not self._open[0].opens:
            self._finish(self._open.popleft())

    def _finish(self, iteration: _Iteration) -> None:
        self._stop(iteration)
        if iteration.end_ns == NO_TIME or iteration.start_ns == NO_TIME:
            self.unfinished += iteration.start_ns != NO_TIME
            self.unstarted += iteration.start_ns == NO_TIME
            self.astray += len(iteration.parts) * 2 + len(iteration.part_starts_ns)
            return
        self._count += 1
        self.halves += len(iteration.part_starts_ns)
        ids = self._graph, self._count
        times = iteration.start_ns, iteration.end_ns, iteration.forward_ns, iteration.backward_ns
        self._steps.append((*ids, *times))
        numbers = dict.fromkeys(StepPart, 0)
        for start_ns, end_ns, kind in sorted(iteration.parts):
            self._parts.append((*ids, numbers[kind], int(kind), start_ns, end_ns))
            numbers[kind] += 1

    def _end_window(self, index: int, time_ns: int) -> None:
        start_ns = self._windows.pop(index, None)
        if start_ns is None:
            self.unstarted += 1
            return
        no_mark = int(NO_TIME)
        self._steps.append((self._graph, index, start_ns, time_ns, no_mark, no_mark))


_STEP_TRACE = 10
_KINDS = (_STEP_TRACE, 11, 12, 13, 14, 15, 61)
"""Kinds of records: step trace, memcpy, task type, task flip (old and new), blocks, queue."""
_ROWS = 1 << 16
_HIGHEST_ID = np.uint64(1 << 62)

_HEAD = {"kind": (1, "u1"), "ticks": (8, "<u8"), "index": (16, "<u8"), "graph": (24, "<u8")}
_RECORD = record_layout(40, **_HEAD, stream=(32, "<u2"), tag=(36, "<u2"))
_RECORD_V6 = record_layout(40, **_HEAD, tag=(32, "<u2"), stream=(34, "<u2"))


def track_log(*, is_v6: bool) -> Log:
    """Return the log of the task scheduler, `ts_track.data`; `is_v6` for the records of chip V6."""
    return Log("ts_track", _RECORD_V6 if is_v6 else _RECORD, _has_known_kind)


def _has_known_kind(records: RecordArray) -> Bool:
    return np.isin(records["kind"], _KINDS)


@dataclass(frozen=True)
class StepTrace:
    """Steps and their parts.

    others: number of records that are not of steps.
    """

    steps: Steps
    parts: StepParts
    omissions: tuple[Omission, ...]
    others: int


class _Marks(ColumnTable):
    """Tagged timestamps of the step trace, each of one graph."""

    time_ns: Int64 = column(np.int64)
    graph: Int64 = column(np.int64)
    index: Int64 = column(np.int64)
    stream: Int64 = column(np.int64)
    tag: Int64 = column(np.int64)

    def repeats_row_before(self) -> Bool:
        same = np.zeros(len(self), np.bool_)
        columns = self.columns().values()
        same[1:] = np.all([values[1:] == values[:-1] for values in columns], axis=0)
        return same

    def rows(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Yield rows as Python numbers."""
        for first in range(0, len(self), _ROWS):
            columns = self[first : first + _ROWS].columns().values()
            yield from zip(*(values.tolist() for values in columns), strict=True)


def read_step_trace(
    reader: RecordReader, convert_ns: Callable[[UInt64], Int64], rank: int
) -> StepTrace:
    """Read steps and their parts from the log of the task scheduler.

    Raises:
        SourceError: a slice cannot be read.
    """
    builder = TableBuilder(_Marks)
    others = 0
    for records in reader.blocks():
        step_records = records[records["kind"] == _STEP_TRACE]
        others += len(records) - len(step_records)
        builder.add(_decode_marks(step_records, convert_ns))
    marks = builder.build()
    is_valid = (marks.time_ns != NO_TIME) & (marks.graph >= 0)
    invalid = int(np.count_nonzero(~is_valid))
    marks = marks.take(is_valid)
    marks = marks.take(np.lexsort((marks.time_ns, marks.graph)))
    repeated = marks.repeats_row_before()
    tags = StepTags()
    for row in marks.take(~repeated).rows():
        tags.add(*row)
    tags.close()
    unplaced = {
        "step trace records without a valid time or graph": invalid,
        "step trace records of no step": tags.astray,
    }
    halves = {
        "steps that started but never ended": tags.unfinished,
        "steps without a start": tags.unstarted,
        "reduces and data fetches with one end only": tags.halves,
    }
    repeats = {"step trace records that repeat others": int(np.count_nonzero(repeated))}
    omissions = (
        *counted_losses(unplaced, rank, OmissionCode.NO_TIME),
        *counted_losses(halves, rank, OmissionCode.UNPAIRED),
        *counted_losses(repeats, rank, OmissionCode.REPEATED, loss=False),
    )
    return StepTrace(*tags.tables(), omissions, others + tags.others)


def _decode_marks(records: RecordArray, convert_ns: Callable[[UInt64], Int64]) -> _Marks:
    def ids(values: UInt64) -> Int64:
        return np.where(values < _HIGHEST_ID, values, np.uint64(0)).astype(np.int64)

    graph, index = records["graph"], records["index"]
    is_valid = (graph < _HIGHEST_ID) & (index < _HIGHEST_ID)
    return _Marks(
        convert_ns(records["ticks"].astype(np.uint64)),
        np.where(is_valid, ids(graph), -1),
        ids(index),
        records["stream"].astype(np.int64),
        records["tag"].astype(np.int64),
    )


def find_graphs(start_ns: Int64, steps: Steps) -> tuple[Int64, int]:
    """Return the graph in whose step each task starts, and the number of ambiguous tasks.

    Task records do not name a graph. A task that starts outside all steps, or in steps of several
    graphs (ambiguous), gets none.

    Args:
        start_ns: (n,).

    Returns:
        graph: (n,) int64, NO_GRAPH for none.
    """
    steps = steps.take(steps.graph != NO_GRAPH)
    if not len(steps):
        return np.full(len(start_ns), NO_GRAPH), 0
    row, running = only_open_at(start_ns, steps.start_ns, steps.end_ns)
    if len(distinct(steps.graph)) == 1:
        return np.where(running > 0, steps.graph[0], NO_GRAPH), 0
    graph = np.where(row >= 0, steps.graph[row], NO_GRAPH)
    return graph, int(np.count_nonzero(running > 1))
