"""What rows of step_trace_raw_N_detail_time.csv hold: ticks, and which row is the mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from timeline.columns.columns import Bool, Int64
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.sources.common.decimals import moments_ns
from timeline.sources.decoders.csv_blocks import Block

__all__ = ["STEP_COLUMNS", "ticks_ns", "with_mean_rows"]

STEP_COLUMNS = ("step_num", "start_point", "end_point")
_MEAN = b"-"
_FIRST_LINE = 2
"""Of rows; a step 0 there is a step."""
_TICKS_IN_MICROSECOND = 100


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
