"""What the profiler sampled of the preparation of data: queues, the pipeline, processors."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np

from timeline.columns.columns import Codes, ColumnTable, Float64, Int64, column
from timeline.columns.strings import NO_NAME
from timeline.records.not_given import FLOAT_NOT_GIVEN, NO_ID, NO_TIME

__all__ = ["PipelineOperations", "ProcessorUse", "Queue", "QueueRecords"]


class Queue(enum.IntEnum):
    """A queue of batches on the way to the device."""

    HOST = 0
    """From the pipeline to what sends."""
    DEVICE = 1
    """On the device, as the operator that fetches from it found it."""
    TO_DEVICE = 2
    """To the device, when a batch was put in."""


@dataclass(frozen=True)
class QueueRecords(ColumnTable):
    """A row per queue and batch, in order of batches."""

    queue: Int64 = column(np.int64)
    batch: Int64 = column(np.int64)
    size: Int64 = column(np.int64, NO_ID)
    capacity: Int64 = column(np.int64, NO_ID)
    get_ns: Int64 = column(np.int64, NO_TIME)
    push_ns: Int64 = column(np.int64, NO_TIME)
    total_ns: Int64 = column(np.int64, NO_TIME)


@dataclass(frozen=True)
class PipelineOperations(ColumnTable):
    """A row per operation of the pipeline that has a queue behind it, or is the root."""

    op: Int64 = column(np.int64)
    kind: Codes = column(np.int32)
    workers: Int64 = column(np.int64, NO_ID)
    parent: Int64 = column(np.int64, NO_ID)
    samples: Int64 = column(np.int64, 0)
    capacity: Int64 = column(np.int64, NO_ID)
    total_size: Int64 = column(np.int64, 0)
    """The sum over its samples."""
    empty_samples: Int64 = column(np.int64, 0)
    """Samples at which its queue was empty."""


@dataclass(frozen=True)
class ProcessorUse(ColumnTable):
    """Mean use of processors in percent: of the host (op NO_ID, process 0), process, operation."""

    op: Int64 = column(np.int64, NO_ID)
    process: Int64 = column(np.int64, 0)
    """1 in the row of the whole process."""
    name: Codes = column(np.int32, NO_NAME)
    user: Float64 = column(np.float64, FLOAT_NOT_GIVEN)
    system: Float64 = column(np.float64, FLOAT_NOT_GIVEN)
    idle: Float64 = column(np.float64, FLOAT_NOT_GIVEN)
