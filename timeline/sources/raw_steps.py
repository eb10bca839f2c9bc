"""Turns the step-trace records of a device (ts_track) into steps, reduces and data fetches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from timeline.columns.columns import Bool, Columns, Int64, Pile, column
from timeline.columns.distinct import distinct_values
from timeline.records.tables import NO_GRAPH, NO_TIME, Omission, OmissionCode, StepParts, Steps
from timeline.sources.common.damage import left_out
from timeline.sources.raw_slices import Log, RecordArray, RecordReader, UInt64, layout
from timeline.sources.step_tags import StepTags

__all__ = ["StepTrace", "graphs_of", "read_step_trace", "track_log"]

_STEP_TRACE = 10
_KINDS = (_STEP_TRACE, 11, 12, 13, 14, 15, 61)
"""All kinds of records: step trace, memcpy, task type, task flip (old and new), blocks, queue."""
_ROWS = 1 << 16
_HIGHEST_ID = np.uint64(1 << 62)

_HEAD = {"kind": (1, "u1"), "ticks": (8, "<u8"), "index": (16, "<u8"), "graph": (24, "<u8")}
_RECORD = layout(40, **_HEAD, stream=(32, "<u2"), tag=(36, "<u2"))
_RECORD_V6 = layout(40, **_HEAD, tag=(32, "<u2"), stream=(34, "<u2"))


def track_log(*, is_v6: bool) -> Log:
    """The log of the task scheduler, `ts_track.data`; `is_v6` for the records of chip V6."""
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


@dataclass(frozen=True)
class _Marks(Columns):
    """Moments of the step trace, each of a graph and with the tag that says what it is."""

    time_ns: Int64 = column(np.int64)
    graph: Int64 = column(np.int64)
    index: Int64 = column(np.int64)
    stream: Int64 = column(np.int64)
    tag: Int64 = column(np.int64)

    def repeated(self) -> Bool:
        """Which rows equal the row before them."""
        same = np.zeros(len(self), np.bool_)
        columns = (self.time_ns, self.graph, self.index, self.stream, self.tag)
        same[1:] = np.all([values[1:] == values[:-1] for values in columns], axis=0)
        return same

    def rows(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Row by row, as Python numbers."""
        for first in range(0, len(self), _ROWS):
            own = slice(first, first + _ROWS)
            columns = (self.time_ns, self.graph, self.index, self.stream, self.tag)
            yield from zip(*(values[own].tolist() for values in columns), strict=True)


def read_step_trace(
    reader: RecordReader, moments_ns: Callable[[UInt64], Int64], rank: int
) -> StepTrace:
    """Read the log and put the tags of each graph together.

    Raises:
        SourceError: a slice cannot be read.
    """
    pile = Pile(_Marks)
    others = 0
    for records in reader.blocks():
        own = records[records["kind"] == _STEP_TRACE]
        others += len(records) - len(own)
        pile.add(_marks(own, moments_ns))
    marks = pile.joined()
    good = (marks.time_ns != NO_TIME) & (marks.graph >= 0)
    strange = int(np.count_nonzero(~good))
    marks = marks.take(good)
    marks = marks.take(np.lexsort((marks.time_ns, marks.graph)))
    again = marks.repeated()
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
        *left_out(strangers, rank, OmissionCode.NO_TIME),
        *left_out(halves, rank, OmissionCode.UNPAIRED),
        *left_out(repeats, rank, OmissionCode.REPEATED, loss=False),
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


def graphs_of(start_ns: Int64, steps: Steps) -> tuple[Int64, int]:
    """The graph that runs when each task starts, and how many tasks start while several do.

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
    begins, ends = np.argsort(steps.start_ns), np.argsort(steps.end_ns)
    begun = np.searchsorted(steps.start_ns[begins], start_ns, side="right")
    over = np.searchsorted(steps.end_ns[ends], start_ns, side="right")
    running = begun - over
    graphs, place = distinct_values(steps.graph)
    if len(graphs) == 1:
        return np.where(running > 0, graphs[0], NO_GRAPH), 0
    # Places of graphs, summed over the steps that run: of a single one, it is its own.
    sums = [np.concatenate([[0], np.cumsum(place[order])]) for order in (begins, ends)]
    own = sums[0][begun] - sums[1][over]
    graph = graphs[np.where(running == 1, own, 0)]
    return np.where(running == 1, graph, NO_GRAPH), int(np.count_nonzero(running > 1))
