"""The tables of one rank: device tasks, communication, steps, host events, counters and flows.

All times are int64 nanoseconds on the clock of the source. Intervals are half-open
[start_ns, end_ns); records of length 0 are kept. Strings are codes of the rank's StringPool.
Missing values are sentinels of `not_given.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Bool, Codes, ColumnTable, Float64, Int64, column
from timeline.columns.strings import NO_NAME, StringPool
from timeline.layers import Layer
from timeline.records.clock import ClockMove, CommunicationRule, FreeRule
from timeline.records.kernel_metrics import CoreCounts, KernelMetrics
from timeline.records.not_given import FLOAT_NOT_GIVEN, NO_CONTEXT, NO_GRAPH, NO_ID, NO_TIME
from timeline.records.profiler_tables import ProfilerTables, UnusedFile, VendorFigures, VendorLinks

NPU = "Ascend Hardware"
"""Name of the devices in profiles of NPUs."""
GPU = "GPU"
"""Name of the devices in PyTorch's own profiles."""
AI_CORE_FREQUENCY = "AI Core Freq"
"""The group of counters with the frequency of the AI Core, in MHz."""
AI_CPU = "AI CPU"
"""The layer of operators run by AI CPUs, if these are not among the device tasks."""
FORWARD_BACKWARD = "fwdbwd"
"""Category of arrows from a forward call to the call that computes its gradient."""
FRAMEWORK_LAUNCH = "async_npu"
"""Category of arrows from an operator of torch_npu to a device task that it launched."""
RUNTIME = "Runtime"
"""Host layer of calls of a GPU's runtime and driver."""
RUNTIME_LAYERS = frozenset({"CANN", RUNTIME})
"""Host layers below the framework, whose calls launch device tasks."""


_Table = TypeVar("_Table", bound="Spans")


class Spans(ColumnTable):
    """Base of all tables of intervals."""

    start_ns: Int64 = column(np.int64, moment=True)
    end_ns: Int64 = column(np.int64, moment=True)

    def shifted(self: _Table, offset_ns: int) -> _Table:
        """Move all times by a constant, before damaged ones are dropped; missing times stay so."""
        return self._with_times(ClockMove(offset_ns).of_recorded)

    def moved(self: _Table, move: ClockMove) -> _Table:
        """Convert all times to another clock; missing times stay so."""
        return self._with_times(move.of)

    def _with_times(self: _Table, moved: Callable[[Int64], Int64]) -> _Table:
        """Apply a function to all columns that are declared as points in time."""
        times = [field.name for field in fields(self) if field.metadata["moment"]]
        return replace(self, **{name: moved(getattr(self, name)) for name in times})


class Tasks(Spans):
    """Device tasks: one row per interval on a hardware stream."""

    device: Int64 = column(np.int64, NO_ID)
    stream: Int64 = column(np.int64, NO_ID)
    task: Int64 = column(np.int64, NO_ID)
    batch: Int64 = column(np.int64, NO_ID)
    context: Int64 = column(np.int64, NO_CONTEXT)
    graph: Int64 = column(np.int64, NO_GRAPH)
    iteration: Int64 = column(np.int64, NO_ID)
    connection: Int64 = column(np.int64, NO_ID)
    launch_ns: Int64 = column(np.int64, NO_TIME, moment=True)
    name: Codes = column(np.int32)
    task_type: Codes = column(np.int32, NO_NAME)
    op_type: Codes = column(np.int32, NO_NAME)
    input_shapes: Codes = column(np.int32, NO_NAME)
    output_shapes: Codes = column(np.int32, NO_NAME)
    input_types: Codes = column(np.int32, NO_NAME)
    call: Int64 = column(np.int64, NO_ID)
    """Number of the operator call whose inputs have these shapes, the same in all tasks that it
    launched; NO_ID if the shapes are of the task itself."""
    blocks: Int64 = column(np.int64, NO_ID)
    compute: Bool = column(np.bool_, 0)
    copy: Bool = column(np.bool_, 0)
    """Whether the task copies or fills memory; copies inside a communication op count as
    communication."""
    size_bytes: Int64 = column(np.int64, NO_ID)
    """Bytes moved by a copy or fill, if the source states them for the task itself."""
    listed_length: Int64 = column(np.int64, NO_ID)
    """Length in ns from a table of kernels; both that and the times are rounded, so it may differ
    by 1 ns from end_ns - start_ns."""
    metrics: Int64 = column(np.int64, NO_ID)
    """Row in `Records.metrics`."""
    occupancy: Int64 = column(np.int64, NO_ID)
    """Estimated share of the device's threads that a kernel could use, in percent."""
    launched_by: Codes = column(np.int32, NO_NAME)
    """The outermost framework operator that launched the task. This and the next four columns are
    computed by `analysis/work/launching_operators.py`, not read."""
    operator: Codes = column(np.int32, NO_NAME)
    """The innermost framework operator that launched the task."""
    module: Codes = column(np.int32, NO_NAME)
    """The modules and annotations around the operator, outermost first, joined by slashes."""
    line: Codes = column(np.int32, NO_NAME)
    """The line of the program's own code that asked for the task: `train.py(345): train`."""
    phase: Int64 = column(np.int64, 0)
    """A Phase of a training step."""
    kernel_class: npt.NDArray[np.int8] = column(np.int8, 0)
    """WorkClass in comparisons, by the kernel's name. This and the next column are computed by
    `analysis/work/work_classes.py`."""
    launch_class: npt.NDArray[np.int8] = column(np.int8, 0)
    """WorkClass in comparisons, by the operator that launched the task."""


class PlaneTasks(Spans):
    """HCCL tasks: one row per transfer, reduction or notification on a plane of a group.

    Each is also a row of Tasks with the same stream, task and interval.
    """

    group: Codes = column(np.int32)
    plane: Int64 = column(np.int64)
    name: Codes = column(np.int32)
    op: Codes = column(np.int32, NO_NAME)
    stream: Int64 = column(np.int64, NO_ID)
    task: Int64 = column(np.int64, NO_ID)
    context: Int64 = column(np.int64, NO_CONTEXT)
    graph: Int64 = column(np.int64, NO_GRAPH)
    iteration: Int64 = column(np.int64, NO_ID)
    launch_ns: Int64 = column(np.int64, NO_TIME, moment=True)
    source_rank: Int64 = column(np.int64, NO_ID)
    """Number inside the group as in the source; global if the group's members are known."""
    target_rank: Int64 = column(np.int64, NO_ID)
    size_bytes: Int64 = column(np.int64, NO_ID)
    notify: Codes = column(np.int32, NO_NAME)
    """A string, since ids of notifications exceed 64 bits."""
    transport: Codes = column(np.int32, NO_NAME)
    link: Codes = column(np.int32, NO_NAME)
    data_type: Codes = column(np.int32, NO_NAME)
    bandwidth: Float64 = column(np.float64, FLOAT_NOT_GIVEN)
    """GB/s as in the source."""


class CommunicationOps(Spans):
    """Communication operators: one row per collective or point-to-point call of a group."""

    group: Codes = column(np.int32)
    group_name: Codes = column(np.int32, NO_NAME)
    """The name that all ranks of the group use for it, if it differs from the label."""
    name: Codes = column(np.int32)
    graph: Int64 = column(np.int64, NO_GRAPH)
    iteration: Int64 = column(np.int64, NO_ID)
    connection: Int64 = column(np.int64, NO_ID)
    launch_ns: Int64 = column(np.int64, NO_TIME, moment=True)
    count: Int64 = column(np.int64, NO_ID)
    data_type: Codes = column(np.int32, NO_NAME)
    algorithm: Codes = column(np.int32, NO_NAME)
    moved_bytes: Int64 = column(np.int64, NO_ID)
    """Bytes that the rank sent over links, as the profiler sums them up."""
    sequence: Int64 = column(np.int64, NO_ID)
    """Number of the op in its group, the same on every rank of the group."""
    launched_by: Codes = column(np.int32, NO_NAME)
    """This and the next four columns are as in Tasks."""
    operator: Codes = column(np.int32, NO_NAME)
    module: Codes = column(np.int32, NO_NAME)
    line: Codes = column(np.int32, NO_NAME)
    phase: Int64 = column(np.int64, 0)


class GroupMembers(ColumnTable):
    """Members of groups of ranks: a row per group and member.

    group: the group's name or label as in ops and HCCL tasks (`group_name`, or `group`), or the
    number that CANN derives from it; NO_NAME for all ranks of the run together. name: the name in
    the program, such as dp, tp, default_group.
    """

    group: Codes = column(np.int32)
    name: Codes = column(np.int32, NO_NAME)
    rank: Int64 = column(np.int64, NO_ID)
    """Global rank of a member; NO_ID in a row that gives only the size."""
    size: Int64 = column(np.int64)
    """Number of members of the group."""


class Steps(Spans):
    """Steps: one row per graph and iteration.

    host: whether the interval is that of the step on the host (ProfilerStep#N of torch_npu and
    MindSpore); its device work starts later and may end later.
    """

    graph: Int64 = column(np.int64)
    iteration: Int64 = column(np.int64)
    fp_start_ns: Int64 = column(np.int64, NO_TIME, moment=True)
    bp_end_ns: Int64 = column(np.int64, NO_TIME, moment=True)
    host: Bool = column(np.bool_, 0)


class StepPart(enum.IntEnum):
    """A kind of part of a step."""

    REDUCE = 0
    GET_NEXT = 1


class StepParts(Spans):
    """Reduces and data fetches inside steps; kind: a StepPart."""

    graph: Int64 = column(np.int64)
    iteration: Int64 = column(np.int64)
    number: Int64 = column(np.int64)
    kind: Int64 = column(np.int64)


class HostEvents(Spans):
    """Events on the host: one row per call, range or mark, by layer and thread."""

    layer: Codes = column(np.int32)
    process: Int64 = column(np.int64, NO_ID)
    thread: Int64 = column(np.int64)
    name: Codes = column(np.int32)
    level: Codes = column(np.int32, NO_NAME)
    connection: Int64 = column(np.int64, NO_ID)
    graph: Int64 = column(np.int64, NO_GRAPH)
    iteration: Int64 = column(np.int64, NO_ID)
    shapes: Codes = column(np.int32, NO_NAME)
    """Shapes of an operator's inputs, if requested."""
    input_types: Codes = column(np.int32, NO_NAME)
    """Data types of the same inputs."""
    sequence: Int64 = column(np.int64, NO_ID)
    """Number that a forward operator shares with the one that computes its gradient."""
    stack: Codes = column(np.int32, NO_NAME)
    """Python frames around an operator, innermost first, a frame a line."""


class Allocations(Spans):
    """Allocations of device memory by operators of the framework, on the host's clock.

    end_ns: time of release, NO_TIME if it was not recorded.
    """

    name: Codes = column(np.int32, NO_NAME)
    """The operator that allocated the memory, according to the profiler."""
    size_bytes: Int64 = column(np.int64)


class CounterSeries(ColumnTable):
    """Groups, names and units of counters: one row per series."""

    group: Codes = column(np.int32)
    name: Codes = column(np.int32)
    unit: Codes = column(np.int32)


class CounterSamples(ColumnTable):
    """Samples of counters; `series` is a row of CounterSeries."""

    time_ns: Int64 = column(np.int64)
    series: Int64 = column(np.int64)
    value: Float64 = column(np.float64)


class FlowEnd(enum.IntEnum):
    """The table that holds one end of a flow."""

    HOST = 0
    TASK = 1
    OP = 2
    PLANE = 3


class Flows(ColumnTable):
    """Arrows from a row of one table to a row of another, as recorded or by their connection.

    source_kind, target_kind: a FlowEnd.
    """

    category: Codes = column(np.int32)
    source_kind: Int64 = column(np.int64)
    source_row: Int64 = column(np.int64)
    target_kind: Int64 = column(np.int64)
    target_row: Int64 = column(np.int64)


class OmissionCode(str, enum.Enum):
    """Reason codes of records that are not in the output; part of the JSON interface."""

    DAMAGED = "damaged"
    """A file, or a part of one, that cannot be read."""
    NOT_READ = "not_read"
    """Files of known kinds that are not read."""
    NOT_DRAWN = "not_drawn"
    """Records of a kind that is not drawn."""
    NO_TIME = "no_time"
    """Records without a valid time or value."""
    FAR_TIME = "far_time"
    """Records at a time that cannot be part of this run."""
    NO_CLOCK = "no_clock"
    """Records on a clock that cannot be related to the others."""
    UNPAIRED = "unpaired"
    """A start without an end, or an end without a start."""
    NO_TASK = "no_task"
    """Records of the host or of HCCL without the device task that they describe."""
    REPEATED = "repeated"
    """Duplicate records, or ones that other records describe better."""
    FFTS_WHOLE = "ffts_whole"
    """FFTS+ tasks whose sub-tasks are drawn."""
    IDLE_COUNTER = "idle_counter"
    """Samples of counters that stay zero."""
    ARROW_HALF = "arrow_half"
    """Arrows of which a trace has only one end; other formats join ends, and count none."""
    ARROW_CUT = "arrow_cut"
    """Arrows with an end that is invalid, not selected, not drawn or merged, or without room."""
    ARROW_BACKWARDS = "arrow_backwards"
    """Arrows to what began before its call: by over 1 ms, or at all once clocks are fitted."""
    WRITER_LIMIT = "writer_limit"
    """Records that the profiler itself cut off."""
    SIZE_LIMIT = "size_limit"
    """Records for which the size limit of the file left no room."""


@dataclass(frozen=True, slots=True)
class Omission:
    """Records that are not in the output, with the reason and their number.

    loss: whether something that the user requested is missing; otherwise the rows only repeat
    others, or one of their ends was not requested. layers: the layers that would draw the records,
    if they matter to nothing else; empty if they matter to all.
    """

    reason: str
    rows: int
    rank: int | None = None
    steps: tuple[int, ...] = ()
    loss: bool = False
    code: OmissionCode = field(kw_only=True)
    layers: frozenset[Layer] = field(default=frozenset(), kw_only=True, compare=False)


def rows_by_reason(omissions: Iterable[Omission]) -> dict[str, int]:
    """Return the number of omitted rows by reason, over all ranks, in order of first appearance."""
    rows: dict[str, int] = {}
    for omission in omissions:
        rows[omission.reason] = rows.get(omission.reason, 0) + omission.rows
    return rows


@dataclass(frozen=True)
class Records:
    """All tables of one rank.

    warnings: problems and gaps in the data. notes: assumptions and omissions of the reader that
    change the meaning of figures. Both begin with "rank N: ".
    """

    rank: int
    strings: StringPool
    tasks: Tasks = field(default_factory=Tasks.empty)
    planes: PlaneTasks = field(default_factory=PlaneTasks.empty)
    ops: CommunicationOps = field(default_factory=CommunicationOps.empty)
    steps: Steps = field(default_factory=Steps.empty)
    parts: StepParts = field(default_factory=StepParts.empty)
    host: HostEvents = field(default_factory=HostEvents.empty)
    series: CounterSeries = field(default_factory=CounterSeries.empty)
    samples: CounterSamples = field(default_factory=CounterSamples.empty)
    flows: Flows = field(default_factory=Flows.empty)
    omissions: tuple[Omission, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    vendor: VendorFigures = field(default_factory=VendorFigures.empty)
    vendor_links: VendorLinks = field(default_factory=VendorLinks.empty)
    unused: tuple[UnusedFile, ...] = ()
    hardware: str = NPU
    """The kind of devices, which names the layer of their tasks."""
    records_copies: bool = True
    """Whether the source records tasks that copy or fill memory."""
    free_is_known: bool = True
    """Whether time without computing or communication is free. False if MindSpore recorded only a
    step trace with reduces and no device tasks: what ran between these is unknown."""
    free_rule: FreeRule = FreeRule()
    communication_rule: CommunicationRule = CommunicationRule()
    numbered_ops: bool = True
    """Whether communication ops have unique names within a step, as HCCL numbers them; otherwise
    names give only the kind, and ops are distinguished by launch order."""
    host_offset_ns: int = 0
    """Offset that was added to host times, so that no task starts before the call launching it."""
    members: GroupMembers = field(default_factory=GroupMembers.empty)
    metrics: KernelMetrics = KernelMetrics()
    cores: CoreCounts = CoreCounts()
    profiler_tables: ProfilerTables = field(default_factory=ProfilerTables)
    """The small tables stored with the capture."""
    allocations: Allocations = field(default_factory=Allocations.empty)
    """Read only if requested, as by comparisons."""

    unrecorded: Spans = field(default_factory=Spans.empty)
    """Intervals in which kernels may have run that were launched but not recorded; computed by
    `analysis/idle/launches.py`, not read."""
    reserved_bytes: int = NO_ID
    """Peak of reserved memory, of the framework or in all, if recorded and requested."""
    tables_only: bool = False
    """Whether the capture consists of small tables only; a step trace may still time its steps."""
    untimed_steps: bool = False
    """Whether no start times are recorded, so that steps are laid end to end from 0 on."""

    @property
    def timed(self) -> bool:
        """Return whether any record has a time, or records in layers not read may have one."""
        tables = (self.tasks, self.planes, self.ops, self.steps, self.host, self.samples)
        return not self.tables_only or any(map(len, tables))

    def holds_layer(self, name: str) -> bool:
        """Return whether the layer of this name has host events."""
        code = self.strings.find(name)
        return code is not None and bool((self.host.layer == code).any())

    def arrows(self, category: str, target: FlowEnd) -> tuple[Int64, Int64]:
        """Return the ends of a category of arrows from host events: rows of host and of target."""
        flows = self.flows
        rows = np.flatnonzero(
            (flows.category == (NO_ID if (code := self.strings.find(category)) is None else code))
            & (flows.source_kind == FlowEnd.HOST)
            & (flows.target_kind == target)
        )
        return flows.source_row[rows], flows.target_row[rows]

    def filter(
        self,
        *,
        tasks: Bool | None = None,
        planes: Bool | None = None,
        ops: Bool | None = None,
        steps: Bool | None = None,
        parts: Bool | None = None,
        host: Bool | None = None,
        samples: Bool | None = None,
    ) -> Records:
        """Keep the rows of each table whose mask is true; renumber the ends of flows.

        A flow that loses one or both ends is dropped, and counted as an omission.
        """
        ends = {FlowEnd.HOST: host, FlowEnd.TASK: tasks, FlowEnd.OP: ops, FlowEnd.PLANE: planes}
        some = {kind: mask for kind, mask in ends.items() if mask is not None and not mask.all()}
        flows, cut = _renumber(self.flows, some) if some else (self.flows, 0)
        omissions = self.omissions
        if cut:
            omissions += (
                Omission(
                    "arrows with one or both ends outside the selection",
                    cut,
                    self.rank,
                    code=OmissionCode.ARROW_CUT,
                    layers=frozenset({Layer.ARROWS}),
                ),
            )
        masks = {"tasks": tasks, "planes": planes, "ops": ops, "steps": steps, "parts": parts}
        masks |= {"host": host, "samples": samples}
        kept = {
            name: getattr(self, name).take(mask) for name, mask in masks.items() if mask is not None
        }
        return replace(self, **kept, flows=flows, omissions=omissions)


def _renumber(flows: Flows, masks: dict[FlowEnd, Bool]) -> tuple[Flows, int]:
    """Renumber the ends of flows after rows are dropped; return also the number of flows cut."""
    whole = np.ones(len(flows), np.bool_)
    ends: list[Int64] = []
    for kinds, old_rows in (
        (flows.source_kind, flows.source_row),
        (flows.target_kind, flows.target_row),
    ):
        rows = old_rows.copy()
        for kind, mask in masks.items():
            here = kinds == kind
            position = np.cumsum(mask) - 1
            whole[here] &= mask[old_rows[here]]
            rows[here] = position[old_rows[here]]
        ends.append(rows)
    renumbered = replace(flows, source_row=ends[0], target_row=ends[1]).take(whole)
    return renumbered, int(len(flows) - len(renumbered))
