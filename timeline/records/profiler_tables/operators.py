"""Sums of operators that the profiler made, and what it knows of each."""

from __future__ import annotations

import enum

import numpy as np

from timeline.columns.columns import Bool, Codes, ColumnTable, Int64, column
from timeline.columns.strings import NO_NAME
from timeline.records.not_given import NO_GRAPH, NO_ID, NO_TIME

__all__ = ["FrameworkOperators", "OperatorRuns", "OperatorSource", "OperatorSums", "RunLevel"]


class OperatorSource(enum.IntEnum):
    """Which file a sum of operators is of."""

    AICORE_INTERMEDIATE = 0
    AICPU_INTERMEDIATE = 1
    AICPU = 2


class RunLevel(enum.IntEnum):
    """What operators are told apart by."""

    TYPE = 0
    NAME = 1
    KERNEL = 2


class OperatorSums(ColumnTable):
    """A row per source and type of operator, and per operator where the file tells those apart.

    count, total_ns and mean_ns: as far as the file tells them.
    """

    source: Int64 = column(np.int64)
    level: Int64 = column(np.int64)
    kind: Codes = column(np.int32, NO_NAME)
    name: Codes = column(np.int32, NO_NAME)
    """NO_NAME in the row of a type."""
    core: Codes = column(np.int32, NO_NAME)
    count: Int64 = column(np.int64, NO_ID)
    total_ns: Int64 = column(np.int64, NO_TIME)
    mean_ns: Int64 = column(np.int64, NO_TIME)
    dispatch_ns: Int64 = column(np.int64, NO_TIME)
    run_ns: Int64 = column(np.int64, NO_TIME)


class OperatorRuns(ColumnTable):
    """A row per step and type, operator or kernel: how often and how long it ran.

    rest: whether the row sums up all types that have none of their own; without a step it is of
    several.
    """

    step: Int64 = column(np.int64, NO_ID)
    level: Int64 = column(np.int64)
    side: Codes = column(np.int32, NO_NAME)
    kind: Codes = column(np.int32, NO_NAME)
    name: Codes = column(np.int32, NO_NAME)
    shapes: Codes = column(np.int32, NO_NAME)
    count: Int64 = column(np.int64)
    total_ns: Int64 = column(np.int64)
    rest: Bool = column(np.bool_, False)


class FrameworkOperators(ColumnTable):
    """A row per operator that the host described to the device.

    inputs, outputs: JSON lists of objects with format, type and shape.
    """

    graph: Int64 = column(np.int64, NO_GRAPH)
    stream: Int64 = column(np.int64, NO_ID)
    task: Int64 = column(np.int64, NO_ID)
    name: Codes = column(np.int32)
    kind: Codes = column(np.int32, NO_NAME)
    blocks: Int64 = column(np.int64, NO_ID)
    inputs: Codes = column(np.int32, NO_NAME)
    outputs: Codes = column(np.int32, NO_NAME)
