"""Steps and their parts from step_trace_*.csv, and what exports repeat of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from timeline.columns.columns import Bool, Int64
from timeline.columns.constant import constant
from timeline.columns.group_by import group_by
from timeline.records.not_given import NO_GRAPH, NO_ID, NO_TIME
from timeline.records.tables import StepPart, StepParts, Steps
from timeline.sources.common.decimals import interval_ns, moments_ns
from timeline.sources.common.losses import LossLog
from timeline.sources.decoders.csv_blocks import Block, read_blocks

_END, _LENGTH, _FP_START, _BP_END = (
    "Iteration End(us)",
    "Iteration Time(us)",
    "FP Start(us)",
    "BP End(us)",
)
_ITERATION, _GRAPH, _DEVICE = "Iteration ID", "Model ID", "Device_id"
_COLUMNS = (_ITERATION, _FP_START, _BP_END, _END, _LENGTH)
_REDUCE_START = "Reduce Start"


def read_step_table(path: Path, device: int | None, damage: LossLog) -> tuple[Steps, StepParts]:
    """Read one table; with a device, only its rows.

    A step starts at Iteration End less Iteration Time. Rows are ragged: each has as many pairs of
    reduce columns as it had reduces. N/A and 0 in FP Start and BP End mean that there is none.

    Raises:
        SourceError: the file cannot be read or lacks a column.
    """
    steps, parts = [], []
    for block in read_blocks(path, None, _COLUMNS, damage):
        end_ns, length_ns = moments_ns(block.cells(_END)), moments_ns(block.cells(_LENGTH))
        iteration = block.integers(_ITERATION, NO_ID)
        of_device = _of_device(block, device)
        good = of_device & (end_ns > 0) & (length_ns >= 0) & (iteration >= 0)
        damage.add_lines("rows without a step, an end and a length", block.lines[of_device & ~good])
        found = Steps.of(
            len(block),
            {
                "graph": block.integers(_GRAPH, NO_GRAPH),
                "iteration": iteration,
                "start_ns": end_ns - np.where(good, length_ns, 0),
                "end_ns": end_ns,
                "fp_start_ns": _marks_ns(block, _FP_START),
                "bp_end_ns": _marks_ns(block, _BP_END),
            },
        )
        steps.append(found.take(good))
        parts += _reduces(block, found, good)
    return Steps.concat(steps), StepParts.concat(parts)


def _of_device(block: Block, device: int | None) -> Bool:
    """Rows of a device; those of a table that names none are of any."""
    if device is None or _DEVICE not in block:
        return np.ones(len(block), np.bool_)
    of_device: Bool = block.integers(_DEVICE, NO_ID) == device
    return of_device


def _marks_ns(block: Block, key: str) -> Int64:
    time_ns = moments_ns(block.cells(key))
    return np.where(time_ns > 0, time_ns, NO_TIME)


def _reduces(block: Block, steps: Steps, good: Bool) -> list[StepParts]:
    """The reduces of good rows, one column after the other; a row may have more than the header."""
    names = (at for at, name in enumerate(block.header) if name.startswith(_REDUCE_START))
    first = next(names, None)
    if first is None:
        return []
    parts = []
    for number, place in enumerate(range(first, int(block.cells_of.max(initial=0)) - 1, 2)):
        start_ns, end_ns = interval_ns(block.cells(place), block.cells(place + 1))
        count = len(block)
        reduces = StepParts.of(
            count,
            {
                "graph": steps.graph,
                "iteration": steps.iteration,
                "number": constant(number, count, np.int64),
                "kind": constant(StepPart.REDUCE, count, np.int64),
                "start_ns": start_ns,
                "end_ns": end_ns,
            },
        )
        parts.append(reduces.take(good & (start_ns > 0)))
    return parts


def distinct_steps(steps: Steps) -> Steps:
    """One row per graph and iteration: exports repeat the step trace in several files."""
    return steps.take(group_by(len(steps), (steps.graph, steps.iteration)).first)


def distinct_parts(parts: StepParts) -> StepParts:
    """One row per part of a step."""
    keys = (parts.graph, parts.iteration, parts.kind, parts.number, parts.start_ns)
    return parts.take(group_by(len(parts), keys).first)
