"""How a run is split over ranks, and what each rank computes, communicates and moves in a step."""

from __future__ import annotations

import enum

import numpy as np

from timeline.columns.columns import Bool, Codes, ColumnTable, Int64, column
from timeline.columns.strings import NO_NAME
from timeline.records.not_given import NO_ID, NO_TIME

__all__ = [
    "CollectiveSums",
    "LinkSums",
    "ParallelSource",
    "ParallelStrategies",
    "ParallelTimes",
]


class ParallelSource(enum.IntEnum):
    """A file that tells how the run is split; where several do, the first of these is believed."""

    TIMES = 0
    """The name of the file of parallel times."""
    STRATEGY = 1
    PROFILER_INFO = 2
    METADATA = 3


class ParallelStrategies(ColumnTable):
    """A row per file that tells how the run is split.

    source: a ParallelSource. file: its name. mode: in the file's words. stages, ranks: how many.
    tensors, contexts: over how many ranks a tensor and a sequence are split.
    """

    source: Int64 = column(np.int64)
    file: Codes = column(np.int32)
    mode: Codes = column(np.int32, NO_NAME)
    stages: Int64 = column(np.int64, NO_ID)
    ranks: Int64 = column(np.int64, NO_ID)
    tensors: Int64 = column(np.int64, NO_ID)
    contexts: Int64 = column(np.int64, NO_ID)
    stage: Int64 = column(np.int64, NO_ID)
    """Of the rank itself, from 0."""


class ParallelTimes(ColumnTable):
    """A row per step: how long a rank computes, and communicates while it does not compute.

    communication_alone_ns = receive_alone_ns + collective_alone_ns. In MindSpore's cluster tables
    stage_ns = computing_ns + collective_alone_ns; in step_trace_time.csv it is the span of the
    step's device work without receives, and the last three columns are given.
    """

    step: Int64 = column(np.int64, NO_ID)
    first: Bool = column(np.bool_, 0)
    """Whether it is the first step of the file, which means leave out."""
    mean: Bool = column(np.bool_, 0)
    """Whether it is the mean that the file holds."""
    computing_ns: Int64 = column(np.int64, NO_TIME)
    communication_alone_ns: Int64 = column(np.int64, NO_TIME)
    stage_ns: Int64 = column(np.int64, NO_TIME)
    receive_alone_ns: Int64 = column(np.int64, NO_TIME)
    collective_alone_ns: Int64 = column(np.int64, NO_TIME)
    communication_ns: Int64 = column(np.int64, NO_TIME)
    free_ns: Int64 = column(np.int64, NO_TIME)
    preparing_ns: Int64 = column(np.int64, NO_TIME)
    """From the start of the step on the host to its first device work."""


class LinkSums(ColumnTable):
    """A row per step and link: what moved over it, and how long that took.

    source_rank, target_rank: as the file writes them, which is numbers inside a group that it does
    not name. link: the kind, such as SDMA.
    """

    step: Int64 = column(np.int64, NO_ID)
    source_rank: Int64 = column(np.int64)
    target_rank: Int64 = column(np.int64)
    link: Codes = column(np.int32)
    size_bytes: Int64 = column(np.int64)
    total_ns: Int64 = column(np.int64)


class CollectiveSums(ColumnTable):
    """A row per step and kind of communication op, and per group where the file names groups."""

    step: Int64 = column(np.int64, NO_ID)
    kind: Codes = column(np.int32)
    count: Int64 = column(np.int64)
    waited_ns: Int64 = column(np.int64)
    """While its tasks waited for a signal of another rank."""
    transfer_ns: Int64 = column(np.int64)
    """While its tasks moved data."""
    group: Codes = column(np.int32, NO_NAME)
    """Its label."""
