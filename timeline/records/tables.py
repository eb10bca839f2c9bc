"""The tables of one rank: device tasks, communication, steps, host events, counters and flows.

All times are int64 nanoseconds on the clock of the source. Intervals are half-open
[start_ns, end_ns); a record whose start equals its end has no length and is kept. Strings are
codes of the rank's StringPool. What a source does not give holds a sentinel of `not_given.py`.
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

GPU = "GPU"
"""What the devices of PyTorch's own profiles are called."""
AI_CORE_FREQUENCY = "AI Core Freq"
"""The group of counters that holds the frequency of the AI Core, in MHz."""
AI_CPU = "AI CPU"
"""The layer of events of what AI CPUs ran, where that is not among the device tasks."""
FORWARD_BACKWARD = "fwdbwd"
"""Category of the arrows from a forward call to the one that works out its gradient."""
FRAMEWORK_LAUNCH = "async_npu"
"""Category of the arrows from the operator of torch_npu that asked for a task to the task."""
RUNTIME = "Runtime"
"""Host layer of the calls of a GPU's runtime and driver."""
RUNTIME_LAYERS = frozenset({"CANN", RUNTIME})
"""Host layers below the framework, which launch what runs on the device."""


_Table = TypeVar("_Table", bound="Spans")


class Spans(ColumnTable):
    """The columns of every table of intervals."""

    start_ns: Int64 = column(np.int64)
    end_ns: Int64 = column(np.int64)

    def shifted(self: _Table, offset_ns: int) -> _Table:
        """Return all times as recorded moved by the same constant; absent times stay absent."""
        return self._with_times(ClockMove(offset_ns).of_recorded)

    def moved(self: _Table, move: ClockMove) -> _Table:
        """Return all times on another clock; absent times stay absent."""
        return self._with_times(move.of)

    def _with_times(self: _Table, moved: Callable[[Int64], Int64]) -> _Table:
        """Move the columns of times, which are those whose names end in _ns."""
        times = [field.name for field in fields(self) if field.name.endswith("_ns")]
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
    launch_ns: Int64 = column(np.int64, NO_TIME)
    name: Codes = column(np.int32)
    task_type: Codes = column(np.int32, NO_NAME)
    op_type: Codes = column(np.int32, NO_NAME)
    input_shapes: Codes = column(np.int32, NO_NAME)
    output_shapes: Codes = column(np.int32, NO_NAME)
    input_types: Codes = column(np.int32, NO_NAME)
    blocks: Int64 = column(np.int64, NO_ID)
    compute: Bool = column(np.bool_, 0)
    copy: Bool = column(np.bool_, 0)
    """Whether it moves or fills memory; those of a communication op lie inside that, and count as
    communication."""
    size_bytes: Int64 = column(np.int64, NO_ID)
    """What a copy or fill moves, where the source tells it of the task itself."""
    listed_length: Int64 = column(np.int64, NO_ID)
    """How many ns it ran as a table of kernels lists it, which is not the source of its times: 1
    ns more or less than those tell, because both were rounded."""
    metrics: Int64 = column(np.int64, NO_ID)
    """Row in `Records.metrics`."""
    occupancy: Int64 = column(np.int64, NO_ID)
    """Estimated share of the device's threads that a kernel could use, in percent."""
    launched_by: Codes = column(np.int32, NO_NAME)
    """The outermost operator of the framework that launched it; this and the next three are found
    by `analysis/launching_operators.py`, not read."""
    operator: Codes = column(np.int32, NO_NAME)
    """The innermost."""
    module: Codes = column(np.int32, NO_NAME)
    """The modules and annotations around that, outermost first, joined by slashes."""
    phase: Int64 = column(np.int64, 0)
    """Part of a training step, a Phase."""
    kernel_class: npt.NDArray[np.int8] = column(np.int8, 0)
    """What it is for a comparison, a WorkClass, by its kernel; this and the next are found by
    `analysis/work/launch_classes.py`."""
    launch_class: npt.NDArray[np.int8] = column(np.int8, 0)
    """The same by what launched it."""


class PlaneTasks(Spans):
    """HCCL tasks: one row per transfer, reduction or notification on a plane of a group.

    Each has a twin in Tasks with the same stream, task and interval.
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
    launch_ns: Int64 = column(np.int64, NO_TIME)
    source_rank: Int64 = column(np.int64, NO_ID)
    """Sources give numbers inside the group; they are global where its members are known."""
    target_rank: Int64 = column(np.int64, NO_ID)
    size_bytes: Int64 = column(np.int64, NO_ID)
    notify: Codes = column(np.int32, NO_NAME)
    """Opaque: ids exceed 64 bits."""
    transport: Codes = column(np.int32, NO_NAME)
    link: Codes = column(np.int32, NO_NAME)
    data_type: Codes = column(np.int32, NO_NAME)
    bandwidth: Float64 = column(np.float64, FLOAT_NOT_GIVEN)
    """GB/s as the source gives it."""


class CommunicationOps(Spans):
    """Communication operators: one row per collective or point-to-point call of a group."""

    group: Codes = column(np.int32)
    group_name: Codes = column(np.int32, NO_NAME)
    """What all ranks of the group call it, where that is not its label."""
    name: Codes = column(np.int32)
    graph: Int64 = column(np.int64, NO_GRAPH)
    iteration: Int64 = column(np.int64, NO_ID)
    connection: Int64 = column(np.int64, NO_ID)
    launch_ns: Int64 = column(np.int64, NO_TIME)
    count: Int64 = column(np.int64, NO_ID)
    data_type: Codes = column(np.int32, NO_NAME)
    algorithm: Codes = column(np.int32, NO_NAME)
    moved_bytes: Int64 = column(np.int64, NO_ID)
    """What its rank sent over links, as the profiler sums it up."""
    sequence: Int64 = column(np.int64, NO_ID)
    """Its number among all ops of its group, as every rank of the group counts them."""
    launched_by: Codes = column(np.int32, NO_NAME)
    """This and the next three are as in Tasks."""
    operator: Codes = column(np.int32, NO_NAME)
    module: Codes = column(np.int32, NO_NAME)
    phase: Int64 = column(np.int64, 0)


class GroupMembers(ColumnTable):
    """Who is in a group of ranks: a row per group and member.

    group: what the source calls it, as ops and HCCL tasks do (`group_name`, or their label), or
    the number that CANN makes of that; NO_NAME for all ranks of the run together. name: what the
    program calls it: dp, tp, default_group.
    """

    group: Codes = column(np.int32)
    name: Codes = column(np.int32, NO_NAME)
    rank: Int64 = column(np.int64, NO_ID)
    """A member, by its number among all ranks; NO_ID in a row that tells the size alone."""
    size: Int64 = column(np.int64)
    """How many members there are."""


class Steps(Spans):
    """Steps: one row per graph and iteration.

    `host` marks steps whose interval is the window on the host (ProfilerStep#N of torch_npu and
    MindSpore); their device work starts later and may end later.
    """

    graph: Int64 = column(np.int64)
    iteration: Int64 = column(np.int64)
    fp_start_ns: Int64 = column(np.int64, NO_TIME)
    bp_end_ns: Int64 = column(np.int64, NO_TIME)
    host: Bool = column(np.bool_, 0)


class StepPart(enum.IntEnum):
    """A kind of part of a step."""

    REDUCE = 0
    GET_NEXT = 1


class StepParts(Spans):
    """Reduces and data fetches inside steps, distinguished by `kind` (StepPart)."""

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
    """Of the inputs of an operator, where that is asked for."""


class Allocations(Spans):
    """Device memory that operators of the framework allocated: one row each, on the host's clock.

    end_ns is when it was released, NO_TIME where that is not recorded.
    """

    name: Codes = column(np.int32, NO_NAME)
    """What the profiler says allocated it."""
    size_bytes: Int64 = column(np.int64)


class CounterSeries(ColumnTable):
    """Names of counters: one row per series."""

    group: Codes = column(np.int32)
    name: Codes = column(np.int32)
    unit: Codes = column(np.int32)


class CounterSamples(ColumnTable):
    """Samples of counters; `series` is a row of CounterSeries."""

    time_ns: Int64 = column(np.int64)
    series: Int64 = column(np.int64)
    value: Float64 = column(np.float64)


class FlowEnd(enum.IntEnum):
    """The table in which an end of a flow lies."""

    HOST = 0
    TASK = 1
    OP = 2
    PLANE = 3


class Flows(ColumnTable):
    """Arrows that a source gives explicitly: from a row of one table to a row of another."""

    category: Codes = column(np.int32)
    source_kind: Int64 = column(np.int64)
    source_row: Int64 = column(np.int64)
    target_kind: Int64 = column(np.int64)
    target_row: Int64 = column(np.int64)


class OmissionCode(str, enum.Enum):
    """Kinds of reasons for which records are not in the output; programs may rely on them."""

    DAMAGED = "damaged"
    """A file or a part of one cannot be read."""
    NOT_READ = "not_read"
    """Files that are known and not read."""
    NOT_DRAWN = "not_drawn"
    """Records of a kind that is not drawn."""
    NO_TIME = "no_time"
    """Without a valid time, or a value."""
    FAR_TIME = "far_time"
    """At a time that cannot be of this run."""
    NO_CLOCK = "no_clock"
    """On a clock that nothing relates to the rest."""
    UNPAIRED = "unpaired"
    """A start without an end, or an end without a start."""
    NO_TASK = "no_task"
    """Of the host or of HCCL, of which the device recorded nothing."""
    REPEATED = "repeated"
    """There twice, or better known from other records."""
    FFTS_WHOLE = "ffts_whole"
    """FFTS+ tasks as a whole, beside their sub-tasks."""
    IDLE_COUNTER = "idle_counter"
    """Samples of counters that stay zero."""
    ARROW_HALF = "arrow_half"
    """Arrows of which the profile has one end only."""
    ARROW_CUT = "arrow_cut"
    """Arrows with an end that is not selected, not drawn or merged with others; or no room left."""
    ARROW_BACKWARDS = "arrow_backwards"
    """Arrows to what began before the call: too long before it, or unlike nearly all launches."""
    WRITER_LIMIT = "writer_limit"
    """What the profiler itself cut off."""
    SIZE_LIMIT = "size_limit"
    """What the limit of the file left no room for."""


@dataclass(frozen=True, slots=True)
class Omission:
    """Records that are not in the output, with the reason and their number.

    loss: whether something the user asked for is missing; otherwise the rows only repeat others,
    or one of their ends was not asked for. code: the kind of the reason. layers: those that would
    draw the records, where they matter to nothing else; none where they matter to all.
    """

    reason: str
    rows: int
    rank: int | None = None
    steps: tuple[int, ...] = ()
    loss: bool = False
    code: OmissionCode = field(kw_only=True)
    layers: frozenset[Layer] = field(default=frozenset(), kw_only=True, compare=False)


def rows_by_reason(omissions: Iterable[Omission]) -> dict[str, int]:
    """Return how many rows are left out for each reason, over all ranks, in order of reasons."""
    rows: dict[str, int] = {}
    for omission in omissions:
        rows[omission.reason] = rows.get(omission.reason, 0) + omission.rows
    return rows


@dataclass(frozen=True)
class Records:
    """All tables of one rank.

    warnings: what is wrong or missing in them. notes: what their reader assumed or left out that
    changes what the figures are about; both begin with "rank N: ".
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
    hardware: str = "Ascend Hardware"
    """What the devices are, as the layer of their tasks is called."""
    tells_copies: bool = True
    """Whether tasks that copy or fill memory are among the tasks, if there were any."""
    tells_free: bool = True
    """Whether what neither computes nor communicates is free: not where MindSpore left a step trace
    and its reduces and no task of the device, so that nothing tells what ran between them."""
    free_rule: FreeRule = FreeRule()
    communication_rule: CommunicationRule = CommunicationRule()
    numbered_ops: bool = True
    """Whether names tell the communication ops of a step apart, as HCCL's numbers do; otherwise
    they say what ops do, and ops are distinguished by the order in which they were launched."""
    host_offset_ns: int = 0
    """What host times were moved by, so that nothing starts before the call that launched it."""
    members: GroupMembers = field(default_factory=GroupMembers.empty)
    metrics: KernelMetrics = KernelMetrics()
    cores: CoreCounts = CoreCounts()
    profiler_tables: ProfilerTables = field(default_factory=ProfilerTables)
    """The small tables beside the capture."""
    allocations: Allocations = field(default_factory=Allocations.empty)
    """Read where a comparison asks for them."""

    unrecorded: Spans = field(default_factory=Spans.empty)
    """When kernels may have run that were launched and not recorded; this is found by
    `analysis/idle/launches.py`, not read."""
    reserved_bytes: int = NO_ID
    """The most memory that was reserved, of the framework or in all, as far as that is recorded and
    asked for."""
    tables_only: bool = False
    """Whether the capture is nothing but such tables; a step trace may tell when its steps ran."""
    untimed_steps: bool = False
    """Whether nothing tells when any of it ran, so that its steps follow each other from 0 on."""

    @property
    def timed(self) -> bool:
        """Return whether anything has a time, or may have in a layer that was not read."""
        tables = (self.tasks, self.planes, self.ops, self.steps, self.host, self.samples)
        return not self.tables_only or any(map(len, tables))

    def holds_layer(self, name: str) -> bool:
        """Return whether there are host events of a layer of this name."""
        code = self.strings.find(name)
        return code is not None and bool((self.host.layer == code).any())

    def arrows(self, category: str, target: FlowEnd) -> tuple[Int64, Int64]:
        """Return the ends of arrows of a category: rows of host events, and rows of target."""
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
        """Keep the rows whose mask is true in each table; flows follow the rows they join.

        A flow that loses an end is dropped and counted.
        """
        ends = {FlowEnd.HOST: host, FlowEnd.TASK: tasks, FlowEnd.OP: ops, FlowEnd.PLANE: planes}
        some = {kind: mask for kind, mask in ends.items() if mask is not None and not mask.all()}
        flows, cut = _follow(self.flows, some) if some else (self.flows, 0)
        omissions = self.omissions
        if cut:
            omissions += (
                Omission(
                    "arrows with an end outside the selection",
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


def _follow(flows: Flows, masks: dict[FlowEnd, Bool]) -> tuple[Flows, int]:
    """Renumber the ends of flows after rows were dropped; also the number of flows cut."""
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
    followed = replace(flows, source_row=ends[0], target_row=ends[1]).take(whole)
    return followed, int(len(flows) - len(followed))
