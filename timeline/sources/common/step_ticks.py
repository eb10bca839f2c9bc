"""What rows of step_trace_raw_N_detail_time.csv hold: ticks, and which row is the mean."""

from __future__ import annotations

import numpy as np

from timeline.columns.columns import Bool, Int64
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.sources.common.decimals import moments_ns
from timeline.sources.decoders.csv_blocks import Block

__all__ = ["STEP_COLUMNS", "mean_rows", "ticks_ns"]

STEP_COLUMNS = ("step_num", "start_point", "end_point")
_MEAN = b"-"
_TICKS_IN_MICROSECOND = 100


def ticks_ns(block: Block, name: str) -> Int64:
    """A column of ticks of 10 ns as nanoseconds; NO_TIME where there is no number."""
    as_microseconds_ns = moments_ns(block.cells(name))
    ns = as_microseconds_ns // _TICKS_IN_MICROSECOND
    return np.where(as_microseconds_ns == NO_TIME, NO_TIME, ns)


def mean_rows(block: Block) -> Bool:
    """Which rows are the mean of the others: their number is a dash, or 0 and so is their end."""
    dashes = np.array([cell == _MEAN for cell in block.cells("step_num")], np.bool_)
    zeros = (block.integers("step_num", NO_ID) == 0) & (ticks_ns(block, "end_point") == 0)
    either: Bool = dashes | zeros
    return either
