"""Turns step_trace_raw_N_detail_time.csv into steps and their reduces."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from timeline.errors import SourceError
from timeline.records.columns import Bool, Int64
from timeline.records.strings import StringPool
from timeline.records.tables import (
    NO_GRAPH,
    NO_ID,
    NO_TIME,
    CommunicationOps,
    Omission,
    StepPart,
    StepParts,
    Steps,
)
from timeline.sources.microseconds import moments_ns
from timeline.sources.text_rows import TextRows, omitted_rows, read_text_rows

__all__ = ["GROUP", "StepTicks", "read_step_ticks"]

GROUP = "Group 0"
"""This generation does not name the groups of its communication ops."""
_START, _END = "_start_point", "_end_point"
_STEP_COLUMNS = ("step_num", "start_point", "end_point")
_MEAN = "-"
_TICKS_IN_MICROSECOND = 100


@dataclass(frozen=True)
class StepTicks:
    """The steps of a file; each reduce is a part of its step and a communication op."""

    steps: Steps
    parts: StepParts
    reduces: CommunicationOps
    omissions: tuple[Omission, ...] = ()
    warnings: tuple[str, ...] = ()

    @classmethod
    def none(cls) -> StepTicks:
        """What a profile without a step trace has."""
        return cls(Steps.empty(), StepParts.empty(), CommunicationOps.empty())

    def of_graph(self, graph: int) -> StepTicks:
        """The same, as steps of a graph: the file names none."""

        def column(count: int) -> Int64:
            return np.full(count, graph)

        return replace(
            self,
            steps=replace(self.steps, graph=column(len(self.steps))),
            parts=replace(self.parts, graph=column(len(self.parts))),
            reduces=replace(self.reduces, graph=column(len(self.reduces))),
        )

    def shifted(self, offset_ns: int) -> StepTicks:
        """The same on a clock that is moved by a constant."""
        return replace(
            self,
            steps=self.steps.shifted(offset_ns),
            parts=self.parts.shifted(offset_ns),
            reduces=self.reduces.shifted(offset_ns),
        )


def read_step_ticks(path: Path, strings: StringPool, rank: int) -> StepTicks:
    """Read a step trace, whose times are ticks of 10 ns of the device counter.

    A step starts where the one before ends, so it holds the wait for data. The last row, which is
    the mean of the others, is no step: its number is a dash, or all of it is 0. A FP or BP point
    of 0 means that there is none. Reduce columns come in threes, in either order, so they are told
    by their suffixes; a start of 0 means that the step has no such reduce.

    Raises:
        SourceError: the file cannot be read or lacks a column of steps.
    """
    table = read_text_rows(path)
    missing = [name for name in _STEP_COLUMNS if name not in table.header]
    if missing:
        found = ", ".join(table.header[:9])
        raise SourceError(path, f"has no column {missing[0]}; found {found}.")
    numbers = table.column("step_num")
    start_ns, end_ns = _ticks_ns(table, "start_point"), _ticks_ns(table, "end_point")
    mean = np.array([number == _MEAN for number in numbers], np.bool_)
    mean[-1:] |= (numbers[-1:] == ["0"]) & (end_ns[-1:] == 0)
    iteration = np.array([_number(number) for number in numbers], np.int64)
    good = ~mean & (iteration != NO_ID) & (start_ns != NO_TIME) & (end_ns > 0)
    cut = np.array([len(row) < len(table.header) for row in table.rows], np.bool_)
    cut[-1:] |= table.cut_off
    bad = np.flatnonzero(~mean & ~good).tolist()
    steps = Steps.of(
        len(iteration),
        {
            "start_ns": start_ns,
            "end_ns": end_ns,
            "graph": np.full(len(iteration), NO_GRAPH),
            "iteration": iteration,
            "fp_start_ns": _mark_ns(table, "fp_point"),
            "bp_end_ns": _mark_ns(table, "bp_point"),
        },
    )
    parts, reduces = _reduces(table, iteration, good, cut, strings)
    return StepTicks(
        steps.take(good),
        parts,
        reduces,
        (
            *omitted_rows(path, [table.lines[row] for row in bad], rank),
            *_cut_rows(table, np.flatnonzero(good & cut).tolist(), rank),
        ),
        _repeated(path, iteration[good], rank),
    )


def _cut_rows(table: TextRows, rows: list[int], rank: int) -> tuple[Omission, ...]:
    if not rows:
        return ()
    where = f"line {table.lines[rows[0]]}"
    reason = f"rows of {table.path.name} that break off, the first in {where}: their last reduces"
    return (Omission(reason, len(rows), rank, loss=True),)


def _repeated(path: Path, iteration: Int64, rank: int) -> tuple[str, ...]:
    numbers, counts = np.unique(iteration, return_counts=True)
    if not (counts > 1).any():
        return ()
    return (
        f"rank {rank}: {path.name} has step {numbers[counts > 1][0]} more than once: it is of "
        "several graphs and does not say which step is whose.",
    )


def _reduces(
    table: TextRows, iteration: Int64, good: Bool, cut: Bool, strings: StringPool
) -> tuple[StepParts, CommunicationOps]:
    """The reduces of good steps; one that has a start or an end only is left to be counted."""
    parts, reduces = [], []
    names = [
        name.removesuffix(_START)
        for name in table.header
        if name.endswith(_START) and name.removesuffix(_START) + _END in table.header
    ]
    for number, name in enumerate(names):
        start_ns, end_ns = _mark_ns(table, name + _START), _mark_ns(table, name + _END)
        starts, ends = start_ns != NO_TIME, end_ns != NO_TIME
        rows = np.flatnonzero(good & np.where(cut, starts & ends, starts | ends))
        count = len(rows)
        shared = {
            "start_ns": start_ns[rows],
            "end_ns": end_ns[rows],
            "graph": np.full(count, NO_GRAPH),
            "iteration": iteration[rows],
        }
        kind = np.full(count, StepPart.REDUCE)
        parts.append(StepParts.of(count, shared | {"number": np.full(count, number), "kind": kind}))
        codes = {"name": strings.code(name), "group": strings.code(GROUP)}
        reduces.append(
            CommunicationOps.of(
                count, shared | {key: np.full(count, code) for key, code in codes.items()}
            )
        )
    return StepParts.concat(parts), CommunicationOps.concat(reduces)


def _ticks_ns(table: TextRows, name: str) -> Int64:
    """A column of ticks; NO_TIME where there is no number."""
    as_microseconds_ns = moments_ns([cell.encode() for cell in table.column(name)])
    ns = as_microseconds_ns // _TICKS_IN_MICROSECOND
    return np.where(as_microseconds_ns == NO_TIME, NO_TIME, ns)


def _mark_ns(table: TextRows, name: str) -> Int64:
    time_ns = _ticks_ns(table, name)
    return np.where(time_ns > 0, time_ns, NO_TIME)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else NO_ID
