"""Steps and their reduces from step_trace_raw_N_detail_time.csv."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from timeline.columns.columns import Bool, Int64
from timeline.columns.constant import constant
from timeline.columns.strings import StringPool
from timeline.frozen import dataclass
from timeline.records.not_given import NO_GRAPH, NO_ID, NO_TIME
from timeline.records.tables import CommunicationOps, Omission, StepPart, StepParts, Steps
from timeline.sources.common.losses import LossLog
from timeline.sources.decoders.csv_blocks import Block, RowShape, read_blocks
from timeline.sources.profiler_tables.step_trace import STEP_COLUMNS, ticks_ns, with_mean_rows

__all__ = ["GROUP", "StepTicks", "read_step_ticks"]

GROUP = "Group 0"
"""This generation does not name the groups of its communication ops."""
_START, _END = "_start_point", "_end_point"


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
        """These steps as those of a graph: the file names none."""

        def column(count: int) -> Int64:
            return np.full(count, graph)

        return replace(
            self,
            steps=replace(self.steps, graph=column(len(self.steps))),
            parts=replace(self.parts, graph=column(len(self.parts))),
            reduces=replace(self.reduces, graph=column(len(self.reduces))),
        )

    def shifted(self, offset_ns: int) -> StepTicks:
        """These steps on a clock that is moved by a constant."""
        return replace(
            self,
            steps=self.steps.shifted(offset_ns),
            parts=self.parts.shifted(offset_ns),
            reduces=self.reduces.shifted(offset_ns),
        )


def read_step_ticks(path: Path, strings: StringPool, rank: int) -> StepTicks:
    """Read a step trace, whose times are ticks of 10 ns of the device counter.

    A step starts where the one before ends, so it holds the wait for data. The last row, which is
    the mean of the others, is no step: its number is a dash or 0. A FP or BP point
    of 0 means that there is none. Reduce columns come in threes, in either order, so they are told
    by their suffixes; a start of 0 means that the step has no such reduce.

    Raises:
        SourceError: the file cannot be read or lacks a column of steps.
    """
    damage = LossLog(path)
    blocks = read_blocks(path, None, STEP_COLUMNS, damage, RowShape.ENDED)
    found = [_of_block(block, mean, strings, damage) for block, mean in with_mean_rows(blocks)]
    steps = Steps.concat(part.steps for part in found)
    return StepTicks(
        steps,
        StepParts.concat(part.parts for part in found),
        CommunicationOps.concat(part.reduces for part in found),
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
    steps = Steps.of(
        len(block),
        {
            "start_ns": start_ns,
            "end_ns": end_ns,
            "graph": constant(NO_GRAPH, len(block), np.int64),
            "iteration": iteration,
            "fp_start_ns": _mark_ns(block, "fp_point"),
            "bp_end_ns": _mark_ns(block, "bp_point"),
        },
    )
    return StepTicks(steps.take(good), *_reduces(block, iteration, good, cut, strings))


def _repeated(path: Path, iteration: Int64, rank: int) -> tuple[str, ...]:
    numbers, counts = np.unique(iteration, return_counts=True)
    if not (counts > 1).any():
        return ()
    return (
        f"rank {rank}: {path.name} has step {numbers[counts > 1][0]} more than once: it is of "
        "several graphs and does not say which step is whose.",
    )


def _reduces(
    block: Block, iteration: Int64, good: Bool, cut: Bool, strings: StringPool
) -> tuple[StepParts, CommunicationOps]:
    """The reduces of good steps; one that has a start or an end only is left to be counted."""
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


def _mark_ns(block: Block, name: str) -> Int64:
    time_ns = ticks_ns(block, name)
    return np.where(time_ns > 0, time_ns, NO_TIME)
