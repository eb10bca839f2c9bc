"""Sums and links recorded by profilers, and the small tables of MindSpore."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TypeVar

import numpy as np

from timeline.columns.columns import Bool, Codes, ColumnTable, Float64, Int64, column
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.not_given import FLOAT_NOT_GIVEN, NO_GRAPH, NO_ID, NO_TIME

_NO_STEP = -1


class Measure(enum.IntEnum):
    """A kind of number that the profiler reports."""

    COMPUTING = 0
    COMMUNICATION = 1
    NOT_OVERLAPPED = 2
    FREE = 3
    OPERATOR = 4
    """How long all operators of a type took together."""
    COLLECTIVE = 5
    """How long a communication op took, or all of its name together."""


class VendorFigures(ColumnTable):
    """Numbers of the profiler: one row per measure, step and name."""

    measure: Int64 = column(np.int64)
    file: Codes = column(np.int32)
    """The file that holds it, as it is named to people."""
    step: Int64 = column(np.int64, _NO_STEP)
    """NO_ID for one of the whole capture."""
    name: Codes = column(np.int32, NO_NAME)
    """The type of operator, or the op."""
    value_ns: Int64 = column(np.int64)
    tolerance_ns: Int64 = column(np.int64)
    """How far the file may be off by its own rounding."""


class VendorLinks(ColumnTable):
    """The amount that each link moved, as the profiler sums it up.

    Sources give ranks as numbers inside their group; they are global where its members are known.
    """

    step: Int64 = column(np.int64, _NO_STEP)
    source_rank: Int64 = column(np.int64)
    target_rank: Int64 = column(np.int64)
    link: Codes = column(np.int32)
    size_bytes: Int64 = column(np.int64)
    total_ns: Int64 = column(np.int64)
    group: Codes = column(np.int32, NO_NAME)
    """The number that CANN makes of the group's name, or that name."""


@dataclass(frozen=True, order=True)
class UnusedFile:
    """A file, or a table of a database, that lies with a capture and is not used."""

    file: str
    what: str
    """What it holds."""


# -- small tables ----------------------------------------------------------------------------------


_Table = TypeVar("_Table", bound=ColumnTable)


@dataclass(frozen=True, slots=True)
class ProfilerTables:
    """The small tables of one rank; strings are codes of their own pool.

    A table with a column `step` or `graph` holds NO_ID or NO_GRAPH there in rows that are of no
    step or graph. One with a column `mean` marks rows in it that the file makes of several steps.
    """

    strings: StringPool = field(default_factory=StringPool)
    tables: Mapping[type[ColumnTable], ColumnTable] = field(default_factory=dict)
    step_numbers: tuple[int, ...] = ()
    """Numbers of the steps in the step trace, in its order."""

    def __len__(self) -> int:
        """Return the number of rows of all tables."""
        return sum(map(len, self.tables.values()))

    def of(self, kind: type[_Table]) -> _Table:
        """Return the table of a class, without rows where no file fills it."""
        found = self.tables.get(kind)
        return found if isinstance(found, kind) else kind.empty()

    @property
    def steps(self) -> frozenset[int]:
        """The steps that any row is of."""
        return self._distinct("step", NO_ID)

    @property
    def graphs(self) -> frozenset[int]:
        """The graphs that any row is of."""
        return self._distinct("graph", NO_GRAPH)

    def _distinct(self, name: str, absent: int) -> frozenset[int]:
        columns = [getattr(table, name) for table in self.tables.values() if hasattr(table, name)]
        found = {number for column in columns for number in np.unique(column).tolist()}
        return frozenset(found - {absent})

    def selected(
        self, steps: frozenset[int] | None, graphs: frozenset[int] | None
    ) -> ProfilerTables:
        """Return the rows of some steps and graphs, and those of none; None selects all.

        The means that a file makes are of all steps, so they go where steps are selected.
        """
        if steps is None and graphs is None:
            return self
        return ProfilerTables(
            self.strings,
            {kind: _selected(table, steps, graphs) for kind, table in self.tables.items()},
            self.step_numbers,
        )


def _selected(
    table: ColumnTable, steps: frozenset[int] | None, graphs: frozenset[int] | None
) -> ColumnTable:
    stays = np.ones(len(table), np.bool_)
    names = {one.name for one in fields(table)}
    for name, chosen, absent in (("step", steps, NO_ID), ("graph", graphs, NO_GRAPH)):
        if chosen is not None and name in names:
            ids = getattr(table, name)
            stays &= np.isin(ids, sorted(chosen)) | (ids == absent)
    if steps is not None and "mean" in names:
        stays &= ~getattr(table, "mean")  # noqa: B009 - not every table has it
    return table.take(stays)


class StepTraceMeans(ColumnTable):
    """The mean row of a step trace, which MindSpore makes of all steps but the first.

    total_ns = interval_ns + fp_bp_ns + tail_ns. All of it is 0 where there was one step only.
    """

    step: Int64 = column(np.int64, NO_ID)
    mean: Bool = column(np.bool_, 1)
    total_ns: Int64 = column(np.int64, NO_TIME)
    interval_ns: Int64 = column(np.int64, NO_TIME)
    fp_bp_ns: Int64 = column(np.int64, NO_TIME)
    tail_ns: Int64 = column(np.int64, NO_TIME)


class StepPoints(ColumnTable):
    """A row per graph: the operators at which forward begins and backward ends.

    graph: NO_GRAPH where the file tells it of all graphs together.
    """

    graph: Int64 = column(np.int64, NO_GRAPH)
    fp_start: Codes = column(np.int32, NO_NAME)
    bp_end: Codes = column(np.int32, NO_NAME)


class FlopLevel(enum.IntEnum):
    """The level that the operations of a row belong to."""

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
    """The scope around a scope; its name and that together identify a scope."""
    step: Int64 = column(np.int64, NO_ID)
    unit: Int64 = column(np.int64, FlopUnit.ALL)
    flop: Int64 = column(np.int64, NO_ID)
    flop_per_s: Int64 = column(np.int64, NO_ID)
    utilization: Float64 = column(np.float64, FLOAT_NOT_GIVEN)


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


class OperatorSource(enum.IntEnum):
    """The file that a sum of operators is from."""

    AICORE_INTERMEDIATE = 0
    """AI Core, in a mean step."""
    AICPU_INTERMEDIATE = 1
    """AI CPU, in all steps."""
    AICPU = 2
    """The log of the AI CPUs, which has each run."""


class RunLevel(enum.IntEnum):
    """The level of a row in a table of operators."""

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


class Life(enum.IntEnum):
    """From which node of its graph to which a tensor lives, both included."""

    NODES = 0
    """From its first node to its last."""
    GRAPH = 1
    """From the graph's first node to its last."""
    GRAPH_START = 2
    """From the graph's first node to its own last."""
    GRAPH_END = 3
    """From its own first node to the graph's last."""
    NOT_KNOWN = 4


class MemoryGraphs(ColumnTable):
    """A row per graph: what it holds throughout, and how much memory the device has."""

    graph: Int64 = column(np.int64, NO_GRAPH)
    static_bytes: Int64 = column(np.int64, NO_ID)
    capacity_bytes: Int64 = column(np.int64, NO_ID)


class MemoryNodes(ColumnTable):
    """A row per node; those of a graph follow each other in the order in which it runs them."""

    graph: Int64 = column(np.int64, NO_GRAPH)
    node: Int64 = column(np.int64)
    """Its place in that order, from 0."""
    name: Codes = column(np.int32)


class MemoryTensors(ColumnTable):
    """A row per tensor: its size, and from which node of its graph to which it lives.

    kind: the type, such as Workspace. first, last: places of nodes in the execution order. Where
    `life` says so, it lives from the graph's first or to its last node instead; one that ends
    before it begins never lives. No two of a graph have the same number.
    """

    graph: Int64 = column(np.int64, NO_GRAPH)
    tensor: Int64 = column(np.int64)
    size_bytes: Int64 = column(np.int64)
    kind: Codes = column(np.int32, NO_NAME)
    first: Int64 = column(np.int64)
    last: Int64 = column(np.int64)
    life: Int64 = column(np.int64, Life.NODES)
    """A Life."""


class NodeTensors(ColumnTable):
    """A row per node and tensor that it puts out, or uses as a workspace."""

    graph: Int64 = column(np.int64, NO_GRAPH)
    node: Int64 = column(np.int64)
    tensor: Int64 = column(np.int64)


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
