"""Tables of figures that profilers computed themselves: sums, links and MindSpore's small files."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TypeVar

import numpy as np

from timeline.columns.columns import Bool, Codes, ColumnTable, Float64, Int64, column
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.not_given import FLOAT_NOT_GIVEN, NO_GRAPH, NO_ID, NO_TIME


class Measure(enum.IntEnum):
    """A figure that the profiler reports."""

    COMPUTING = 0
    COMMUNICATION = 1
    NOT_OVERLAPPED = 2
    FREE = 3
    OPERATOR = 4
    """Total time of all operators of a type."""
    COLLECTIVE = 5
    """Time of a communication op, or total time of all ops of a name."""


class VendorFigures(ColumnTable):
    """Figures that the profiler reports: one row per measure, step and name."""

    measure: Int64 = column(np.int64)
    file: Codes = column(np.int32)
    """The file that holds the figure, as named in messages."""
    step: Int64 = column(np.int64, NO_ID)
    """NO_ID for figures of the whole capture."""
    name: Codes = column(np.int32, NO_NAME)
    """The type of operator, or the communication op."""
    value_ns: Int64 = column(np.int64)
    tolerance_ns: Int64 = column(np.int64)
    """Maximum rounding error of the figure in the file."""


class VendorLinks(ColumnTable):
    """Bytes and time by link, as the profiler sums them up: one row per step, link and group.

    Sources number ranks inside their group; they are global if the group's members are known.
    """

    step: Int64 = column(np.int64, NO_ID)
    source_rank: Int64 = column(np.int64)
    target_rank: Int64 = column(np.int64)
    link: Codes = column(np.int32)
    size_bytes: Int64 = column(np.int64)
    total_ns: Int64 = column(np.int64)
    group: Codes = column(np.int32, NO_NAME)
    """The name of the group, or the number that CANN derives from it."""


@dataclass(frozen=True, order=True)
class UnusedFile:
    """A file, or a table of a database, that belongs to a capture and is not used."""

    file: str
    what: str
    """Description of its content."""


L2_HIT_RATES = "hit rates of the L2 cache by kernel"
"""Description of files that show that the profiler collected metrics of the L2 cache."""


class CollectionSettings(ColumnTable):
    """Settings of the profiler, one row.

    l2_cache: whether it collects metrics of the L2 cache for each kernel.
    """

    l2_cache: Bool = column(np.bool_)


# -- small tables ----------------------------------------------------------------------------------


_Table = TypeVar("_Table", bound=ColumnTable)


@dataclass(frozen=True, slots=True)
class ProfilerTables:
    """The small tables of one rank; strings are codes of `strings`.

    Columns `step` and `graph` hold NO_ID and NO_GRAPH in rows that belong to no step or graph. A
    column `mean` marks rows that average several steps.
    """

    strings: StringPool = field(default_factory=StringPool)
    tables: Mapping[type[ColumnTable], ColumnTable] = field(default_factory=dict)
    step_numbers: tuple[int, ...] = ()
    """Step numbers in the order of the step trace."""

    def __len__(self) -> int:
        """Return the number of rows of all tables."""
        return sum(map(len, self.tables.values()))

    def of(self, kind: type[_Table]) -> _Table:
        """Return the table of a class, which is empty if no file fills it."""
        table = self.tables.get(kind)
        return table if isinstance(table, kind) else kind.empty()

    @property
    def steps(self) -> frozenset[int]:
        """Return the steps that any row belongs to."""
        return self._distinct("step", NO_ID)

    @property
    def graphs(self) -> frozenset[int]:
        """Return the graphs that any row belongs to."""
        return self._distinct("graph", NO_GRAPH)

    def _distinct(self, name: str, absent: int) -> frozenset[int]:
        columns = [getattr(table, name) for table in self.tables.values() if hasattr(table, name)]
        numbers = {number for column in columns for number in np.unique(column).tolist()}
        return frozenset(numbers - {absent})

    def selected(
        self, steps: frozenset[int] | None, graphs: frozenset[int] | None
    ) -> ProfilerTables:
        """Return the rows of some steps and graphs, and rows of no step or graph; None selects all.

        Means that a file holds cover all steps, so they are dropped if steps are selected.
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
    is_selected = np.ones(len(table), np.bool_)
    names = {one.name for one in fields(table)}
    for name, chosen, absent in (("step", steps, NO_ID), ("graph", graphs, NO_GRAPH)):
        if chosen is not None and name in names:
            ids = getattr(table, name)
            is_selected &= np.isin(ids, sorted(chosen)) | (ids == absent)
    if steps is not None and "mean" in names:
        is_selected &= ~getattr(table, "mean")  # noqa: B009 - not every table has it
    return table.take(is_selected)


class StepTraceMeans(ColumnTable):
    """The mean row of a step trace: MindSpore's average of all steps but the first.

    total_ns = interval_ns + fp_bp_ns + tail_ns. All are 0 if there was only one step.
    """

    step: Int64 = column(np.int64, NO_ID)
    mean: Bool = column(np.bool_, 1)
    total_ns: Int64 = column(np.int64, NO_TIME)
    interval_ns: Int64 = column(np.int64, NO_TIME)
    fp_bp_ns: Int64 = column(np.int64, NO_TIME)
    tail_ns: Int64 = column(np.int64, NO_TIME)


class StepPoints(ColumnTable):
    """A row per graph: the operators at which forward begins and backward ends.

    graph: NO_GRAPH if the file gives one row for all graphs together.
    """

    graph: Int64 = column(np.int64, NO_GRAPH)
    fp_start: Codes = column(np.int32, NO_NAME)
    bp_end: Codes = column(np.int32, NO_NAME)


class FlopLevel(enum.IntEnum):
    """The level at which a row counts floating-point operations."""

    RANK = 0
    STEP = 1
    SCOPE = 2
    OPERATOR = 3


class FlopUnit(enum.IntEnum):
    """The unit of the AI Core whose operations a row counts."""

    ALL = 0
    CUBE = 1
    VECTOR = 2


class FlopRows(ColumnTable):
    """Floating-point operations and their rate: a row per rank, step, scope or operator, and unit.

    flop: operations of one step, or of one run of an operator. flop_per_s: rate as the profiler
    gives it. utilization: the rate as a share of the peak, 0 to 1.
    """

    level: Int64 = column(np.int64)
    name: Codes = column(np.int32, NO_NAME)
    parent: Codes = column(np.int32, NO_NAME)
    """The scope around a scope; `name` and `parent` together identify a scope."""
    step: Int64 = column(np.int64, NO_ID)
    unit: Int64 = column(np.int64, FlopUnit.ALL)
    flop: Int64 = column(np.int64, NO_ID)
    flop_per_s: Int64 = column(np.int64, NO_ID)
    utilization: Float64 = column(np.float64, FLOAT_NOT_GIVEN)


class Queue(enum.IntEnum):
    """A queue of batches on the way to the device."""

    HOST = 0
    """The queue between the pipeline and the sender to the device."""
    DEVICE = 1
    """The queue on the device, sampled whenever the operator GetNext fetches a batch."""
    TO_DEVICE = 2
    """The queue to the device, sampled whenever a batch is put in."""


class QueueRecords(ColumnTable):
    """A row per queue and batch, in order of queues and batches.

    size, capacity: batches. There may be millions of rows, which are reduced to `QueueSums` and
    `QueueCurves`.
    """

    queue: Int64 = column(np.int64)
    step: Int64 = column(np.int64, NO_ID)
    """The number of the batch, from 1, which equals that of the step that takes it."""
    size: Int64 = column(np.int64, NO_ID)
    capacity: Int64 = column(np.int64, NO_ID)
    get_ns: Int64 = column(np.int64, NO_TIME)
    """Time waited for the batch."""
    push_ns: Int64 = column(np.int64, NO_TIME)
    """Time to put the batch into the next queue."""
    total_ns: Int64 = column(np.int64, NO_TIME)


class PipelineOperations(ColumnTable):
    """A row per operation with an output queue, after a first row for the root.

    An operation without a queue counts as part of its consumer. op: id of the operation. kind:
    type. capacity: of the queue, in batches.
    """

    op: Int64 = column(np.int64)
    kind: Codes = column(np.int32, NO_NAME)
    workers: Int64 = column(np.int64, NO_ID)
    parent: Int64 = column(np.int64, NO_ID)
    """The operation that takes from the queue; NO_ID for the root."""
    samples: Int64 = column(np.int64, NO_ID)
    """Number of samples of the queue; NO_ID without a queue."""
    capacity: Int64 = column(np.int64, NO_ID)
    total_size: Int64 = column(np.int64, 0)
    """Sum of the queue's sizes over all samples."""
    empty_samples: Int64 = column(np.int64, 0)
    """Number of samples at which the queue was empty."""


class ProcessorUser(enum.IntEnum):
    """A kind of user of processor time."""

    HOST = 0
    PROCESS = 1
    OPERATION = 2


class ProcessorUse(ColumnTable):
    """A row per user of processor time: means over all samples, in percent of all processors."""

    user: Int64 = column(np.int64)
    op: Int64 = column(np.int64, NO_ID)
    """The id of an operation of the pipeline, NO_ID for other users."""
    in_user: Float64 = column(np.float64, FLOAT_NOT_GIVEN)
    in_system: Float64 = column(np.float64, FLOAT_NOT_GIVEN)
    idle: Float64 = column(np.float64, FLOAT_NOT_GIVEN)


class OperatorSource(enum.IntEnum):
    """The file from which sums of operators come."""

    AICORE_INTERMEDIATE = 0
    """Operators of the AI Core in a mean step."""
    AICPU_INTERMEDIATE = 1
    """Operators of the AI CPU in all steps."""
    AICPU = 2
    """The log of the AI CPUs, with each run."""


class RunLevel(enum.IntEnum):
    """The level of a row in a table of operators."""

    TYPE = 0
    NAME = 1
    """An operator, with its shapes if they are known."""
    KERNEL = 2
    """A kernel of a GPU."""


class OperatorSums(ColumnTable):
    """A row per source and type of operator, and one per operator if the file lists them.

    kind: type. count, total_ns, mean_ns: number and time of runs, if the file has them.
    dispatch_ns, run_ns: for AI CPUs, total time until tasks began, and of the tasks themselves.
    """

    source: Int64 = column(np.int64)
    level: Int64 = column(np.int64)
    kind: Codes = column(np.int32, NO_NAME)
    name: Codes = column(np.int32, NO_NAME)
    """NO_NAME in rows of types."""
    core: Codes = column(np.int32, NO_NAME)
    count: Int64 = column(np.int64, NO_ID)
    total_ns: Int64 = column(np.int64, NO_TIME)
    mean_ns: Int64 = column(np.int64, NO_TIME)
    dispatch_ns: Int64 = column(np.int64, NO_TIME)
    run_ns: Int64 = column(np.int64, NO_TIME)


class OperatorRuns(ColumnTable):
    """Runs of a type, operator or kernel by step: their number and total time.

    level: a RunLevel. side: cpu or gpu. kind: type. shapes: of inputs. rest: whether the row sums
    up the types without rows of their own; such a row without a step covers several steps.
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

    task: id of its task on the device. kind: type. blocks: number of blocks that it is split into.
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


class Life(enum.IntEnum):
    """The range of nodes, both ends included, during which a tensor is allocated."""

    NODES = 0
    """From the tensor's first node to its last."""
    GRAPH = 1
    """From the graph's first node to its last."""
    GRAPH_START = 2
    """From the graph's first node to the tensor's last."""
    GRAPH_END = 3
    """From the tensor's first node to the graph's last."""
    NOT_KNOWN = 4


class MemoryGraphs(ColumnTable):
    """A row per graph: its static memory, and the capacity of the device."""

    graph: Int64 = column(np.int64, NO_GRAPH)
    static_bytes: Int64 = column(np.int64, NO_ID)
    capacity_bytes: Int64 = column(np.int64, NO_ID)


class MemoryNodes(ColumnTable):
    """A row per node of a graph, in the order of execution."""

    graph: Int64 = column(np.int64, NO_GRAPH)
    node: Int64 = column(np.int64)
    """The position of the node in its graph, from 0."""
    name: Codes = column(np.int32)


class MemoryTensors(ColumnTable):
    """A row per tensor: its size, and the nodes during which it is allocated.

    tensor: number, unique in the graph. kind: type, such as Workspace. first, last: positions of
    its first and last node, which `life` may extend to the whole graph. A tensor whose last node
    precedes its first is never allocated.
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
    """A row per node and tensor that is an output or a workspace of the node."""

    graph: Int64 = column(np.int64, NO_GRAPH)
    node: Int64 = column(np.int64)
    tensor: Int64 = column(np.int64)


class ParallelSource(enum.IntEnum):
    """A file that states how the run is parallelised, in descending order of trust."""

    TIMES = 0
    """The file of parallel times, whose name states it."""
    STRATEGY = 1
    PROFILER_INFO = 2
    METADATA = 3


class ParallelStrategies(ColumnTable):
    """A row per file that states how the run is parallelised.

    source: a ParallelSource. file: name. mode: as worded in the file. stages, ranks: numbers of
    them. tensors, contexts: numbers of ranks over which a tensor and a sequence are split.
    """

    source: Int64 = column(np.int64)
    file: Codes = column(np.int32)
    mode: Codes = column(np.int32, NO_NAME)
    stages: Int64 = column(np.int64, NO_ID)
    ranks: Int64 = column(np.int64, NO_ID)
    tensors: Int64 = column(np.int64, NO_ID)
    contexts: Int64 = column(np.int64, NO_ID)
    stage: Int64 = column(np.int64, NO_ID)
    """The pipeline stage of the rank itself, from 0."""


class ParallelTimes(ColumnTable):
    """A row per step: the time that a rank computes, and communicates without computing.

    communication_alone_ns = receive_alone_ns + collective_alone_ns. In MindSpore's cluster tables
    stage_ns = computing_ns + collective_alone_ns; in step_trace_time.csv it is the span of the
    step's device work without receives, and the last three columns are given.
    """

    step: Int64 = column(np.int64, NO_ID)
    first: Bool = column(np.bool_, 0)
    """Whether it is the first step of the file, which its means exclude."""
    mean: Bool = column(np.bool_, 0)
    """Whether the row is a mean over steps that the file holds."""
    computing_ns: Int64 = column(np.int64, NO_TIME)
    communication_alone_ns: Int64 = column(np.int64, NO_TIME)
    stage_ns: Int64 = column(np.int64, NO_TIME)
    receive_alone_ns: Int64 = column(np.int64, NO_TIME)
    collective_alone_ns: Int64 = column(np.int64, NO_TIME)
    communication_ns: Int64 = column(np.int64, NO_TIME)
    free_ns: Int64 = column(np.int64, NO_TIME)
    preparing_ns: Int64 = column(np.int64, NO_TIME)
    """Time from the start of the step on the host to its first device work."""


class LinkSums(ColumnTable):
    """A row per step and link: the bytes that moved over it, and the time that took.

    source_rank, target_rank: as in the file, numbers inside a group that it does not name. link:
    kind of link, such as SDMA.
    """

    step: Int64 = column(np.int64, NO_ID)
    source_rank: Int64 = column(np.int64)
    target_rank: Int64 = column(np.int64)
    link: Codes = column(np.int32)
    size_bytes: Int64 = column(np.int64)
    total_ns: Int64 = column(np.int64)


class CollectiveSums(ColumnTable):
    """A row per step and kind of communication op, and per group if the file names groups."""

    step: Int64 = column(np.int64, NO_ID)
    kind: Codes = column(np.int32)
    count: Int64 = column(np.int64)
    waited_ns: Int64 = column(np.int64)
    """Time in which its tasks waited for a signal of another rank."""
    transfer_ns: Int64 = column(np.int64)
    """Time in which its tasks moved data."""
    group: Codes = column(np.int32, NO_NAME)
    """The label of the group."""
