"""LAYERS: the declaration of each layer of the timeline, except its painter.

A new layer is a member of `Layer`, its value in `LayerName` and a row of `LAYERS` here, and a
function among the `PAINTERS` of `timeline/tracks/detail.py`. Slices of a new kind have a member of
`SliceKind`; their args that have a type of their own are in `proto/tlexport.proto` too.

Three things might be called layers: a `Layer` is what `--layers` chooses, a `SizeLayer` is what
gets a resolution of its own to keep the size limit, and a host layer, such as CANN, is a group of
calls on the host.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias


class Layer(enum.Enum):
    """A part of the timeline that can be left out."""

    STEPS = "steps"
    OVERLAP = "overlap"
    HARDWARE = "hardware"
    COMMUNICATION = "communication"
    CANN = "cann"
    FRAMEWORK = "framework"
    SCOPES = "scopes"
    COUNTERS = "counters"
    ARROWS = "arrows"
    """Arrows between slices of other layers; the only layer without a row.

    Only arrows with both ends in drawn layers are drawn. Those of rows that belong to no layer, the
    critical path and waits in the time of a rank, are always drawn.
    """


HOST_LAYERS = frozenset({Layer.CANN, Layer.FRAMEWORK})
"""The layers of host calls, which are read together."""

LayerName: TypeAlias = Literal[
    "steps",
    "overlap",
    "hardware",
    "communication",
    "cann",
    "framework",
    "scopes",
    "counters",
    "arrows",
]
"""The values of Layer, which a type checker cannot derive from it."""


class SliceKind(enum.Enum):
    """The kinds of slices, the most important first; the kind determines noun and typed args.

    To keep the size limit, the most important kinds are merged last.
    """

    NOTE = "note"
    STEP = "step"
    PARTITION = "partition"
    OVERLAP = "overlap"
    COMMUNICATION_OP = "communication_op"
    CRITICAL_PATH = "critical_path"
    TASK = "task"
    HCCL_TASK = "hccl_task"
    HOST_CALL = "host_call"
    SCOPE = "scope"


class Category(enum.Enum):
    """The categories of slices, which viewers show and use to group and filter."""

    NOTE = "note"
    STEP = "step"
    PARTITION = "partition"
    OVERLAP = "overlap"
    WAIT = "wait"
    IDLE = "idle"
    COMMUNICATION = "communication"
    PATH = "path"
    TASK = "task"
    HCCL = "hccl"
    API = "api"
    SCOPE = "scope"


SizeLayer: TypeAlias = str
"""The slices of one kind, or all counters: the unit of one resolution under the size limit."""
COUNTERS: SizeLayer = "counters"
SIZE_LAYERS: tuple[SizeLayer, ...] = (*(kind.value for kind in SliceKind), COUNTERS)
"""The most important first: these are refined first and coarsened last."""


class ArgsMessage(NamedTuple):
    """A message of args, as `proto/tlexport.proto` declares it.

    extension, number: the field of TrackEvent that carries it. fields: typed ones, by number from
    1; args without such a field, such as names, are in the message too, as debug annotations.
    """

    name: str
    extension: str
    number: int
    fields: tuple[str, ...]


class SliceSpec(NamedTuple):
    """Slices of one kind: their plural noun, their category, and their args.

    formatted: True if durations, sizes and rates also have a rounded, readable form in addition to
    the exact number, at the cost of some bytes per slice.
    """

    kind: SliceKind
    noun: str
    category: Category
    args: ArgsMessage
    formatted: bool = False


TableName: TypeAlias = Literal["tasks", "planes", "ops", "steps", "host", "samples"]
"""A table of Records."""


class LayerSpec(NamedTuple):
    """The declaration of one layer.

    option: the member that `--layers` names; None if the layer cannot be left out. name: name of
    the row; empty if the profile names the rows. order: position of the row, or of the first of
    several, among those of a rank. description: of the row, where {name} is the name of the row.
    tables: the tables of Records that the layer draws; it is drawn if one of them has rows.
    """

    option: Layer | None
    name: str
    order: int
    description: str
    slices: tuple[SliceSpec, ...] = ()
    tables: tuple[TableName, ...] = ()
    missing: str = ""
    """Warning for a profile without records of the layer, empty for no warning.

    Steps need no warning: the report counts them, and a single run of an operator has no steps.
    """
    in_summary: bool = False
    """True if the summary draws the layer, so that it stays when detail has to be left out."""
    in_detail: bool = True
    """True if the layer is part of the detail by default."""


_HOST_CALLS = SliceSpec(
    SliceKind.HOST_CALL,
    "calls",
    Category.API,
    ArgsMessage("HostCall", "host", 9905, ("connection_id", "process_id")),
)

LAYERS: tuple[LayerSpec, ...] = (
    LayerSpec(
        Layer.STEPS,
        "Step Trace",
        0,
        "When the steps of the rank ran, and how each was spent.",
        (
            SliceSpec(
                SliceKind.STEP,
                "steps",
                Category.STEP,
                ArgsMessage(
                    "Step",
                    "step",
                    9904,
                    (
                        "graph",
                        "iteration",
                        "computing_ns",
                        "communication_ns",
                        "not_overlapped_ns",
                        "free_ns",
                        "slowest_rank",
                        "fastest_rank",
                        "slowest_ns",
                        "fastest_ns",
                        "span_ns",
                        "not_overlapped_percent",
                        "free_percent",
                        "spread_percent",
                        "copies_ns",
                        "idle_ns",
                        "idle_percent",
                    ),
                ),
                formatted=True,
            ),
        ),
        tables=("steps",),
        in_summary=True,
    ),
    LayerSpec(
        Layer.OVERLAP,
        "Overlap Analysis",
        1,
        "How the device spent its time, of the tasks and ops that were selected: computing, "
        "exposed communication and free time add up to the span.",
        (
            SliceSpec(
                SliceKind.OVERLAP,
                "pieces",
                Category.OVERLAP,
                ArgsMessage("Piece", "overlap", 9908, ("last_rank", "rank", "iteration")),
                formatted=True,
            ),
        ),
        in_summary=True,
    ),
    LayerSpec(
        Layer.HARDWARE,
        "",  # such as Ascend Hardware
        2,
        "All tasks of the device, by hardware stream.",
        (
            SliceSpec(
                SliceKind.TASK,
                "tasks",
                Category.TASK,
                ArgsMessage(
                    "DeviceTask",
                    "task",
                    9901,
                    (
                        "task_id",
                        "graph",
                        "stream_id",
                        "batch_id",
                        "context_id",
                        "connection_id",
                        "blocks",
                        "size_bytes",
                        "occupancy_percent",
                        "flop",
                        "flop_per_s",
                        "utilization",
                        "cube_utilization",
                        "vector_utilization",
                    ),
                ),
            ),
        ),
        tables=("tasks",),
        missing="no device tasks",
    ),
    LayerSpec(
        Layer.COMMUNICATION,
        "Communication",
        3,
        "Communication ops by group, each above the HCCL tasks of its planes.",
        (
            SliceSpec(
                SliceKind.COMMUNICATION_OP,
                "ops",
                Category.COMMUNICATION,
                ArgsMessage(
                    "CommunicationOp",
                    "communication",
                    9903,
                    (
                        "count",
                        "graph",
                        "connection_id",
                        "waited_ns",
                        "last_rank",
                        "transfer_ns",
                        "bus_bandwidth_gb_s",
                        "arrived_after_first_ns",
                    ),
                ),
                formatted=True,
            ),
            SliceSpec(
                SliceKind.HCCL_TASK,
                "tasks",
                Category.HCCL,
                ArgsMessage(
                    "HcclTask",
                    "hccl",
                    9902,
                    (
                        "src_rank",
                        "dst_rank",
                        "size_bytes",
                        "bandwidth_gb_s",
                        "stream_id",
                        "task_id",
                        "context_id",
                        "graph",
                    ),
                ),
            ),
        ),
        tables=("ops", "planes"),
        missing="no communication ops",
    ),
    LayerSpec(
        Layer.SCOPES,
        "Scope Layer",
        4,
        "Scopes of operator names such as Default/network/Conv2D, by stream.",
        (
            SliceSpec(
                SliceKind.SCOPE,
                "scopes",
                Category.SCOPE,
                ArgsMessage("Scope", "scope", 9906, ("level",)),
            ),
        ),
        tables=("tasks",),
        in_detail=False,
    ),
    LayerSpec(
        Layer.FRAMEWORK,
        "",  # such as python
        10,
        "What {name} did on the host, by thread.",
        (_HOST_CALLS,),
        tables=("host",),
    ),
    LayerSpec(
        Layer.CANN,
        "",  # such as CANN
        80,
        "Calls of {name} on the host, by thread; arrows lead to the tasks they launched.",
        (_HOST_CALLS,),
        tables=("host",),
        missing="no host calls",
    ),
    LayerSpec(
        None,
        "Not in this file",
        2,
        "Where the size limit left no room for detail.",
        (
            SliceSpec(
                SliceKind.NOTE,
                "notes",
                Category.NOTE,
                ArgsMessage("Note", "note", 9907, ("tasks", "hccl_tasks", "host_calls")),
            ),
        ),
    ),
    LayerSpec(
        Layer.COUNTERS,
        "Counters",
        90,
        "Values that were sampled while the rank ran, by group.",
        tables=("samples",),
        missing="no counters",
    ),
)
"""The layers of one rank in the order in which they are painted."""

OF_NO_LAYER = (
    SliceSpec(
        SliceKind.CRITICAL_PATH,
        "segments",
        Category.PATH,
        ArgsMessage("PathSegment", "path", 9909, ("iteration", "rank")),
        formatted=True,
    ),
    SliceSpec(
        SliceKind.PARTITION,
        "pieces",
        Category.PARTITION,
        ArgsMessage("Part", "partition", 9911, ("rank", "iteration")),
        formatted=True,
    ),
)
"""Slices of rows that belong to no layer, and are always drawn."""
SLICES: Mapping[SliceKind, SliceSpec] = {
    slices.kind: slices
    for slices in (*(slices for layer in LAYERS for slices in layer.slices), *OF_NO_LAYER)
}
"""The declaration of the slices of each kind."""
NOUNS: Mapping[SliceKind, str] = {kind: slices.noun for kind, slices in SLICES.items()}
"""The plural noun for the slices of each kind."""
ARGS_MESSAGES: Mapping[SliceKind, ArgsMessage] = {
    kind: slices.args for kind, slices in SLICES.items()
}
"""The args of the slices of each kind."""
MERGED_ARGS = ArgsMessage("Merged", "merged", 9910, ("count", "busy_ns"))
"""The args of a merged slice, which replace those of its kind."""
_BY_OPTION = {layer.option: layer for layer in LAYERS}


def spec_of(option: Layer) -> LayerSpec:
    """Return the row of LAYERS of a layer that has rows.

    Raises:
        KeyError: arrows have none.
    """
    return _BY_OPTION[option]
