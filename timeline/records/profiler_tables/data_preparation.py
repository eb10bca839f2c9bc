"""What the profiler sampled of the preparation of data: queues, the pipeline, processors."""

from __future__ import annotations

import enum

import numpy as np

from timeline.columns.columns import Codes, ColumnTable, Float64, Int64, column
from timeline.columns.strings import NO_NAME
from timeline.records.not_given import FLOAT_NOT_GIVEN, NO_ID, NO_TIME

__all__ = [
    "PipelineOperations",
    "ProcessorUse",
    "ProcessorUser",
    "Queue",
    "QueueRecords",
]


class Queue(enum.IntEnum):
    """A queue of batches on the way to the device."""

    HOST = 0
    """Between the pipeline and what sends to the device."""
    DEVICE = 1
    """On the device, as the operator that fetches from it found it."""
    TO_DEVICE = 2
    """To the device, as it was when a batch was put in."""


class QueueRecords(ColumnTable):
    """A row per queue and batch, in order of queues and batches.

    size, capacity: in batches. There may be millions of rows; `QueueSums` and `QueueCurves` are
    what is kept of them.
    """

    queue: Int64 = column(np.int64)
    step: Int64 = column(np.int64, NO_ID)
    """The number of the batch, from 1, which is that of the step that takes it."""
    size: Int64 = column(np.int64, NO_ID)
    capacity: Int64 = column(np.int64, NO_ID)
    get_ns: Int64 = column(np.int64, NO_TIME)
    """How long the batch was waited for."""
    push_ns: Int64 = column(np.int64, NO_TIME)
    """How long it took to put it into the queue behind."""
    total_ns: Int64 = column(np.int64, NO_TIME)


class PipelineOperations(ColumnTable):
    """A row per operation that has a queue behind it, and the root, which is the first row.

    Operations without a queue count as part of the one that takes from them. op: the id. kind: the
    type. capacity: of the queue, in batches.
    """

    op: Int64 = column(np.int64)
    kind: Codes = column(np.int32, NO_NAME)
    workers: Int64 = column(np.int64, NO_ID)
    parent: Int64 = column(np.int64, NO_ID)
    """The operation that takes from its queue; NO_ID of the root."""
    samples: Int64 = column(np.int64, NO_ID)
    """How often its queue was looked at; NO_ID where it has none."""
    capacity: Int64 = column(np.int64, NO_ID)
    total_size: Int64 = column(np.int64, 0)
    """The sum of the sizes of its queue over all samples."""
    empty_samples: Int64 = column(np.int64, 0)
    """Samples at which its queue was empty."""


class ProcessorUser(enum.IntEnum):
    """Who uses processors."""

    HOST = 0
    PROCESS = 1
    OPERATION = 2


class ProcessorUse(ColumnTable):
    """A row per user of processors: means over all samples, 0 to 100 percent of all processors."""

    user: Int64 = column(np.int64)
    op: Int64 = column(np.int64, NO_ID)
    """The id of an operation of the pipeline, NO_ID of other users."""
    in_user: Float64 = column(np.float64, FLOAT_NOT_GIVEN)
    in_system: Float64 = column(np.float64, FLOAT_NOT_GIVEN)
    idle: Float64 = column(np.float64, FLOAT_NOT_GIVEN)
