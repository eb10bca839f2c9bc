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
    """One iteration while its tags come; `opens` where it is the first of a run of its graph."""

    start_ns: int
    opens: bool = False
    last: int = 0
    forward_ns: int = int(NO_TIME)
    backward_ns: int = int(NO_TIME)
    end_ns: int = int(NO_TIME)
    begun: dict[tuple[StepPart, int, int], int] = field(default_factory=dict)
    """The parts that have begun: by kind, stream and tag, when."""
    parts: list[tuple[int, int, StepPart]] = field(default_factory=list)


class StepTags:
    """The steps of all graphs, made of tags that come graph by graph, in order of time.

    Tags of a graph are 0 and 1 for the start and end of a run of it, 2 forward start, 3 backward
    end, 4 iteration end, from 10000 reduces and from 20000 data fetches (even starts, odd ends);
    60000 and 60001 are steps without a graph. A run may hold several iterations, and runs of one
    graph may overlap: then a tag belongs to the oldest iteration that it can follow. Iterations
    are counted from 1, as msprof does.

    astray: tags of no step; unfinished, unstarted: steps without an end or a start; halves:
    reduces and fetches without one of both; others: tags of something else.
    """

    def __init__(self) -> None:
        self._steps: list[tuple[int, ...]] = []
        self._parts: list[tuple[int, ...]] = []
        self.astray = self.unfinished = self.unstarted = self.halves = self.others = 0
        self._open: deque[_Iteration] = deque()
        self._going: list[_Iteration] = []
        """Those of the open ones whose end has not come."""
        self._windows: dict[int, int] = {}
        self._graph, self._count = int(NO_GRAPH), 0

    def add(self, time_ns: int, graph: int, index: int, stream: int, tag: int) -> None:
        """Take the next tag."""
        if graph != self._graph:
            self.close()
            self._graph, self._count = graph, 0
        if tag == _START:
            self._begin(_Iteration(time_ns, opens=True))
        elif tag == _END:
            self._end_run(time_ns)
        elif tag <= _ITERATION_END:
            self._step_on(time_ns, tag)
        elif _REDUCE <= tag < _GET_NEXT:
            oldest = self._going[0] if self._going else None
            self._part(oldest, StepPart.REDUCE, time_ns, stream, tag)
        elif _GET_NEXT <= tag < _STEP_START:
            self._part(self._fetching(), StepPart.GET_NEXT, time_ns, stream, tag)
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
        """End a graph: what is open has lost its end."""
        while self._open:
            self._finish(self._open.popleft())
        self.unfinished += len(self._windows)
        self._windows.clear()

    def _step_on(self, time_ns: int, tag: int) -> None:
        iteration = next((one for one in self._going if one.last < tag), None)
        if iteration is None:
            iteration = self._next_of_the_run()
        iteration.last = tag
        if tag == _FORWARD:
            iteration.forward_ns = time_ns
        elif tag == _BACKWARD:
            iteration.backward_ns = time_ns
        else:
            iteration.end_ns = time_ns
            self._stop(iteration)

    def _begin(self, one: _Iteration) -> _Iteration:
        self._open.append(one)
        self._going.append(one)
        return one

    def _stop(self, one: _Iteration) -> None:
        self._going = [other for other in self._going if other is not one]

    def _next_of_the_run(self) -> _Iteration:
        """Return a run of several iterations: the next one begins where the last one ended."""
        return self._begin(_Iteration(self._open[-1].end_ns if self._open else int(NO_TIME)))

    def _fetching(self) -> _Iteration | None:
        """Return the iteration that data is fetched for: the newest, or the one after it."""
        if self._open and self._open[-1].last == _ITERATION_END:
            self._next_of_the_run()
        return self._open[-1] if self._open else None

    def _part(
        self, iteration: _Iteration | None, kind: StepPart, time_ns: int, stream: int, tag: int
    ) -> None:
        if iteration is None:
            self.astray += 1
            return
        key = kind, stream, tag // 2 if kind is StepPart.GET_NEXT else 0
        begun_ns = iteration.begun.pop(key, None)
        if tag % 2 == 0:
            self.halves += begun_ns is not None
            iteration.begun[key] = time_ns
        elif begun_ns is None:
            self.halves += 1
        else:
            iteration.parts.append((begun_ns, time_ns, kind))

    def _end_run(self, time_ns: int) -> None:
        """End a run of the graph: the oldest iteration, and those it went on with."""
        if not self._open:
            self.astray += 1
            return
        first = self._open.popleft()
        if first.end_ns == NO_TIME:
            # A graph that is only run, and not trained, has no iteration ends.
            first.end_ns = time_ns
        self._finish(first)
        while self._open and not self._open[0].opens:
            self._finish(self._open.popleft())

    def _finish(self, one: _Iteration) -> None:
        self._stop(one)
        if one.end_ns == NO_TIME or one.start_ns == NO_TIME:
            self.unfinished += one.start_ns != NO_TIME
            self.unstarted += one.start_ns == NO_TIME
            self.astray += len(one.parts) * 2 + len(one.begun)
            return
        self._count += 1
        self.halves += len(one.begun)
        of_graph = self._graph, self._count
        times = one.start_ns, one.end_ns, one.forward_ns, one.backward_ns
        self._steps.append((*of_graph, *times))
        numbers = dict.fromkeys(StepPart, 0)
        for start_ns, end_ns, kind in sorted(one.parts):
            self._parts.append((*of_graph, numbers[kind], int(kind), start_ns, end_ns))
            numbers[kind] += 1

    def _end_window(self, index: int, time_ns: int) -> None:
        start_ns = self._windows.pop(index, None)
        if start_ns is None:
            self.unstarted += 1
            return
        none = int(NO_TIME)
        self._steps.append((self._graph, index, start_ns, time_ns, none, none))


_STEP_TRACE = 10
_KINDS = (_STEP_TRACE, 11, 12, 13, 14, 15, 61)
"""All kinds of records: step trace, memcpy, task type, task flip (old and new), blocks, queue."""
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
    """Steps and their parts; others: records of the log that are of something else."""

    steps: Steps
    parts: StepParts
    omissions: tuple[Omission, ...]
    others: int


class _Marks(ColumnTable):
    """Moments of the step trace, each of a graph and with the tag that says what it is."""

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
        """Row by row, as Python numbers."""
        for first in range(0, len(self), _ROWS):
            part = self[first : first + _ROWS].columns().values()
            yield from zip(*(values.tolist() for values in part), strict=True)


def read_step_trace(
    reader: RecordReader, moments_ns: Callable[[UInt64], Int64], rank: int
) -> StepTrace:
    """Read the log and put the tags of each graph together.

    Raises:
        SourceError: a slice cannot be read.
    """
    builder = TableBuilder(_Marks)
    others = 0
    for records in reader.blocks():
        tags = records[records["kind"] == _STEP_TRACE]
        others += len(records) - len(tags)
        builder.add(_marks(tags, moments_ns))
    marks = builder.build()
    good = (marks.time_ns != NO_TIME) & (marks.graph >= 0)
    strange = int(np.count_nonzero(~good))
    marks = marks.take(good)
    marks = marks.take(np.lexsort((marks.time_ns, marks.graph)))
    again = marks.repeats_row_before()
    trace = StepTags()
    for row in marks.take(~again).rows():
        trace.add(*row)
    trace.close()
    strangers = {
        "step trace records without a valid time or graph": strange,
        "step trace records of no step": trace.astray,
    }
    halves = {
        "steps that started but never ended": trace.unfinished,
        "steps without a start": trace.unstarted,
        "reduces and data fetches with one end only": trace.halves,
    }
    repeats = {"step trace records that repeat others": int(np.count_nonzero(again))}
    omissions = (
        *counted_losses(strangers, rank, OmissionCode.NO_TIME),
        *counted_losses(halves, rank, OmissionCode.UNPAIRED),
        *counted_losses(repeats, rank, OmissionCode.REPEATED, loss=False),
    )
    return StepTrace(*trace.tables(), omissions, others + trace.others)


def _marks(records: RecordArray, moments_ns: Callable[[UInt64], Int64]) -> _Marks:
    def ids(values: UInt64) -> Int64:
        return np.where(values < _HIGHEST_ID, values, np.uint64(0)).astype(np.int64)

    graph, index = records["graph"], records["index"]
    known = (graph < _HIGHEST_ID) & (index < _HIGHEST_ID)
    return _Marks(
        moments_ns(records["ticks"].astype(np.uint64)),
        np.where(known, ids(graph), -1),
        ids(index),
        records["stream"].astype(np.int64),
        records["tag"].astype(np.int64),
    )


def find_graphs(start_ns: Int64, steps: Steps) -> tuple[Int64, int]:
    """Return the graph that runs when each task starts, and how many tasks start while several do.

    Records of tasks name no graph. A task that starts outside all steps of graphs, or in steps of
    several of them, belongs to none.

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
