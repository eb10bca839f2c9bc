"""Floating-point operations that the profiler counted."""

from __future__ import annotations

import enum

import numpy as np

from timeline.columns.columns import Codes, ColumnTable, Float64, Int64, column
from timeline.columns.strings import NO_NAME
from timeline.records.not_given import FLOAT_NOT_GIVEN, NO_ID

__all__ = ["FlopLevel", "FlopRows", "FlopUnit"]


class FlopLevel(enum.IntEnum):
    """What the operations of a row belong to."""

    RANK = 0
    STEP = 1
    SCOPE = 2
    OPERATOR = 3


class FlopUnit(enum.IntEnum):
    """The units of the AI Core whose operations a row counts."""

    ALL = 0
    CUBE = 1
    VECTOR = 2


class FlopRows(ColumnTable):
    """A row per rank, step, scope and operator, and unit: its operations, and how fast they were.

    flop: of one step, or of one run of an operator. flop_per_s: as the profiler tells it.
    utilization: that as a share of the peak, 0 to 1.
    """

    level: Int64 = column(np.int64)
    name: Codes = column(np.int32, NO_NAME)
    parent: Codes = column(np.int32, NO_NAME)
    """The scope around a scope; a scope is told by its name and that together."""
    step: Int64 = column(np.int64, NO_ID)
    unit: Int64 = column(np.int64, FlopUnit.ALL)
    flop: Int64 = column(np.int64, NO_ID)
    flop_per_s: Int64 = column(np.int64, NO_ID)
    utilization: Float64 = column(np.float64, FLOAT_NOT_GIVEN)
