"""Sums of operators that the profiler made, and how it describes each."""

from __future__ import annotations

import enum

import numpy as np

from timeline.columns.columns import Bool, Codes, ColumnTable, Int64, column
from timeline.columns.strings import NO_NAME
from timeline.records.not_given import NO_GRAPH, NO_ID, NO_TIME

__all__ = ["FrameworkOperators", "OperatorRuns", "OperatorSource", "OperatorSums", "RunLevel"]


class OperatorSource(enum.IntEnum):
    """The file that a sum of operators is from."""

    AICORE_INTERMEDIATE = 0
    """AI Core, in a mean step."""
    AICPU_INTERMEDIATE = 1
    """AI CPU, in all steps."""
    AICPU = 2
    """The log of the AI CPUs, which has each run."""


class RunLevel(enum.IntEnum):
    """What the rows of a table of operators are of."""

    TYPE = 0
    NAME = 1
    """An operator, with its shapes where these are known."""
    KERNEL = 2
    """A kernel of a GPU."""


class OperatorSums(ColumnTable):
    """A row per source and type of operator, and one per operator where the file tells them apart.

    kind: the type. count, total_ns, mean_ns: of runs, as far as the file tells them; dispatch_ns
    and run_ns: of AI CPUs, sums of the time until the task began and of its own.
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
    """A row per step and type, operator or kernel: how often it ran, and how long in all.

    level: a RunLevel. side: cpu or gpu. kind: the type. shapes: of inputs. rest: whether the row
    sums up the types that have no row of their own; one without a step is of several steps.
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

    task: its id there. kind: the type. blocks: how many it is split into. inputs, outputs: JSON
    lists of objects with format, type and shape.
    """

    graph: Int64 = column(np.int64, NO_GRAPH)
    stream: Int64 = column(np.int64, NO_ID)
    task: Int64 = column(np.int64, NO_ID)
    name: Codes = column(np.int32)
    kind: Codes = column(np.int32, NO_NAME)
    blocks: Int64 = column(np.int64, NO_ID)
    inputs: Codes = column(np.int32, NO_NAME)
    outputs: Codes = column(np.int32, NO_NAME)
