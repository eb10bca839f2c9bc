"""Typed args of Ascend trace events, and tables of records from events of each lane kind."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

import msgspec
import numpy as np

from timeline.columns.columns import Codes, Int64
from timeline.columns.constant import constant
from timeline.columns.strings import NO_NAME
from timeline.layers import Layer
from timeline.records.not_given import NO_CONTEXT, NO_ID, NO_TIME
from timeline.records.tables import (
    CommunicationOps,
    HostEvents,
    PlaneTasks,
    StepPart,
    StepParts,
    Steps,
    Tasks,
)
from timeline.records.task_kinds import COPY_TYPES, compute_by_type, have_type
from timeline.sources.ascend_trace.lanes import LaneEvents
from timeline.sources.common.call_stacks import read_stacks
from timeline.sources.decoders.exported_values import Value
from timeline.sources.decoders.trace_events import (
    Counter,
    EventFormat,
    FlowFinish,
    FlowStart,
    FlowStep,
    Metadata,
    Other,
    make_format,
)
from timeline.sources.source import ReadRequest

_EMPTY = msgspec.Raw(b"")


class AscendArgs(
    msgspec.Struct,
    gc=False,
    frozen=True,
    rename={
        "model": "Model Id",
        "task_type": "Task Type",
        "physical_stream": "Physic Stream Id",
        "stream": "Stream Id",
        "task": "Task Id",
        "batch": "Batch Id",
        "subtask": "Subtask Id",
        "connection": "connection_id",
        "notify": "notify_id",
        "plane_stream": "stream id",
        "plane_task": "task id",
        "plane_context": "context id",
        "source_rank": "src rank",
        "target_rank": "dst rank",
        "transport": "transport type",
        "size": "size(Byte)",
        "plane_data_type": "data type",
        "link": "link type",
        "bandwidth": "bandwidth(GB/s)",
        "small_model": "model id",
        "algorithm": "alg_type",
        "iteration": "Iteration ID",
        "fp_start": "FP Start",
        "bp_end": "BP End",
        "sequence": "Sequence number",
        "input_dims": "Input Dims",
        "input_types": "Input type",
        "call_stack": "Call stack",
    },
):
    """The args of device tasks, HCCL tasks, communication ops, host calls, steps and operators.

    Fields are in the order in which msprof writes them, which decodes fastest.
    """

    level: Value = None
    model: Value = None
    task_type: Value = None
    physical_stream: Value = None
    stream: Value = None
    task: Value = None
    batch: Value = None
    subtask: Value = None
    connection: Value = None
    notify: Value = None
    plane_stream: Value = None
    plane_task: Value = None
    plane_context: Value = None
    source_rank: Value = None
    target_rank: Value = None
    transport: Value = None
    size: Value = None
    plane_data_type: Value = None
    link: Value = None
    bandwidth: Value = None
    small_model: Value = None
    data_type: Value = None
    algorithm: Value = None
    count: Value = None
    iteration: Value = None
    fp_start: msgspec.Raw = _EMPTY
    bp_end: msgspec.Raw = _EMPTY
    sequence: Value = None
    input_dims: Value = None
    input_types: Value = None
    call_stack: Value = None


_OTHER_KINDS = Counter | Metadata | FlowStart | FlowStep | FlowFinish | Other
_EVERY_ARG = frozenset({"batch", "notify", "plane_stream", "transport", "plane_data_type"})
"""Args of device and HCCL tasks that only `--args all` shows."""
_PLANES = frozenset(
    {"plane_task", "plane_context", "source_rank", "target_rank", "size", "link", "bandwidth"}
)
"""Further args that only HCCL tasks have."""
_SHAPES = frozenset({"input_dims"})
"""Args with shapes of operator inputs: many distinct strings, read only if wanted."""
_OF_OPERATORS = frozenset({"sequence", "input_types"})
"""Args of operators that only `--args all` shows."""
_STACKS = frozenset({"call_stack"})


def ascend_format(left_out: frozenset[str] = frozenset()) -> EventFormat:
    """Return the format of Ascend events; args in `left_out` are skipped without decoding."""
    return make_format(AscendArgs, _OTHER_KINDS, left_out=left_out)


def format_for(wanted: ReadRequest) -> EventFormat:
    """Return the format that decodes only wanted args, which are most of a trace's bytes."""
    left_out = frozenset[str]()
    if not wanted.every_arg:
        left_out |= _EVERY_ARG | _OF_OPERATORS
    if Layer.COMMUNICATION not in wanted.layers:
        left_out |= _EVERY_ARG - {"batch"} | _PLANES
    if not wanted.with_shapes:
        left_out |= _SHAPES
    if not wanted.with_stacks:
        left_out |= _STACKS
    return ascend_format(left_out)


_PARTS = (
    (StepPart.REDUCE, re.compile(r"Reduce_([0-9]{1,9})_([0-9]{1,9})"), "Reduce"),
    (StepPart.GET_NEXT, re.compile(r"GetNext\D*([0-9]{1,9})_([0-9]{1,9})"), "GetNext Time"),
)
"""Step parts by name pattern, or by category for versions of msprof with unnumbered names."""
_ITERATION_NAME = re.compile(r"Iteration ([0-9]{1,9})")


def build_tasks(
    lanes: LaneEvents, *, streams: Sequence[int | None], device: int, graph: int, every_arg: bool
) -> Tasks:
    """Build device tasks of stream lanes; `graph` is the graph of tasks that name none."""
    count = len(lanes)
    types, names = lanes.arg_names("task_type"), lanes.names()
    return Tasks.of(
        count,
        lanes.spans()
        | {
            "device": constant(device, count, np.int64),
            "stream": _choose_streams(lanes, streams),
            "task": lanes.ids(NO_ID, "task"),
            "graph": lanes.ids(graph, "model", "small_model"),
            "connection": lanes.ids(NO_ID, "connection"),
            "name": names,
            "task_type": types,
            "context": lanes.ids(NO_CONTEXT, "subtask"),
            "compute": compute_by_type(types, lanes.strings, names),
            "copy": have_type(COPY_TYPES, types, lanes.strings),
        }
        | ({"batch": lanes.ids(NO_ID, "batch")} if every_arg else {}),
    )


def _choose_streams(lanes: LaneEvents, streams: Sequence[int | None]) -> Int64:
    """Return the stream of each task, from the name of its lane, else from its args."""
    from_names = lanes.of_lanes([NO_ID if stream is None else stream for stream in streams])
    if None not in streams:
        return from_names
    from_args = lanes.ids(NO_ID, "physical_stream", "stream")
    return (
        from_args
        if set(streams) == {None}
        else np.where(from_names == NO_ID, from_args, from_names)
    )


def build_planes(
    lanes: LaneEvents, *, groups: Sequence[str], planes: Sequence[int], graph: int, every_arg: bool
) -> PlaneTasks:
    """Build HCCL tasks of plane lanes."""
    return PlaneTasks.of(
        len(lanes),
        lanes.spans()
        | {
            "group": lanes.codes_of_lanes(groups),
            "plane": lanes.of_lanes(planes),
            "name": lanes.names(),
            "graph": lanes.ids(graph, "small_model", "model"),
            "task": lanes.ids(NO_ID, "plane_task"),
            "context": lanes.ids(NO_CONTEXT, "plane_context"),
            "source_rank": lanes.ids(NO_ID, "source_rank"),
            "target_rank": lanes.ids(NO_ID, "target_rank"),
            "size_bytes": lanes.ids(NO_ID, "size"),
            "link": lanes.arg_names("link"),
            "bandwidth": lanes.reals("bandwidth"),
        }
        | (
            {
                "stream": lanes.ids(NO_ID, "plane_stream"),
                "notify": lanes.arg_names("notify"),
                "transport": lanes.arg_names("transport"),
                "data_type": lanes.arg_names("plane_data_type"),
            }
            if every_arg
            else {}
        ),
    )


def build_ops(lanes: LaneEvents, *, groups: Sequence[str], graph: int) -> CommunicationOps:
    """Build communication ops of op lanes."""
    return CommunicationOps.of(
        len(lanes),
        lanes.spans()
        | {
            "group": lanes.codes_of_lanes(groups),
            "name": lanes.names(),
            "graph": lanes.ids(graph, "small_model", "model"),
            "connection": lanes.ids(NO_ID, "connection"),
            "count": lanes.ids(NO_ID, "count"),
            "data_type": lanes.arg_names("data_type"),
            "algorithm": lanes.arg_names("algorithm"),
        },
    )


def build_host_events(
    lanes: LaneEvents,
    *,
    layers: Sequence[str],
    processes: Sequence[int],
    threads: Sequence[int],
    graph: int,
    wanted: ReadRequest,
) -> HostEvents:
    """Build host events of host threads."""
    count = len(lanes)
    return HostEvents.of(
        count,
        lanes.spans()
        | {
            "layer": lanes.codes_of_lanes(layers),
            "process": lanes.of_lanes(processes)
            if wanted.every_arg
            else constant(NO_ID, count, np.int64),
            "thread": lanes.of_lanes(threads),
            "name": lanes.names(),
            "level": lanes.levels()
            if wanted.every_arg or wanted.operators
            else constant(NO_NAME, count, np.int32),
            "connection": lanes.ids(NO_ID, "connection"),
            "graph": lanes.ids(graph, "model"),
        }
        | ({"shapes": _read_inputs(lanes, "input_dims")} if wanted.with_shapes else {})
        | (
            {
                "input_types": _read_inputs(lanes, "input_types"),
                "sequence": lanes.ids(NO_ID, "sequence"),
            }
            if wanted.every_arg
            else {}
        )
        | ({"stack": read_stacks(lanes)} if wanted.with_stacks else {}),
    )


def _read_inputs(lanes: LaneEvents, arg: str) -> Codes:
    """Return the shapes or types of inputs, without the line breaks between them."""
    strings = lanes.strings
    return strings.translate(lanes.arg_names(arg), strings, _format_parts)


def _format_parts(text: str) -> str:
    return "".join(text.split())


def build_steps(lanes: LaneEvents, graphs: Sequence[int]) -> tuple[Steps, StepParts]:
    """Build steps and their parts from step-trace lanes; `graphs` has one graph id per lane.

    FP start and BP end of 0 or N/A mean that the step has none (inference, step mode).
    """
    steps: dict[str, list[int]] = defaultdict(list)
    parts: dict[str, list[int]] = defaultdict(list)
    spans = lanes.spans()
    columns = (
        spans["start_ns"],
        spans["end_ns"],
        lanes.of_lanes(graphs),
        lanes.ids(NO_ID, "iteration"),
        _read_marks_ns(lanes, "fp_start"),
        _read_marks_ns(lanes, "bp_end"),
    )
    for name, category, start_ns, end_ns, graph, arg_iteration, fp_start_ns, bp_end_ns in zip(
        lanes.format_names(),
        lanes.format_categories(),
        *(values.tolist() for values in columns),
        strict=True,
    ):
        if match := _ITERATION_NAME.fullmatch(name):
            _append(
                steps,
                start_ns=start_ns,
                end_ns=end_ns,
                graph=graph,
                iteration=int(match[1]) if arg_iteration == NO_ID else arg_iteration,
                fp_start_ns=fp_start_ns,
                bp_end_ns=bp_end_ns,
            )
            continue
        for kind, pattern, kind_category in _PARTS:
            match = pattern.match(name)
            if match or category == kind_category:
                iteration, number = (int(match[1]), int(match[2])) if match else (NO_ID, 0)
                _append(
                    parts,
                    start_ns=start_ns,
                    end_ns=end_ns,
                    graph=graph,
                    kind=kind,
                    iteration=iteration if arg_iteration == NO_ID else arg_iteration,
                    number=number,
                )
                break
    return (
        Steps.of(len(steps["graph"]), steps) if steps else Steps.empty(),
        StepParts.of(len(parts["graph"]), parts) if parts else StepParts.empty(),
    )


def _append(columns: dict[str, list[int]], **row: int) -> None:
    for name, value in row.items():
        columns[name].append(value)


def _read_marks_ns(lanes: LaneEvents, arg: str) -> Int64:
    times_ns = lanes.moments(arg)
    return np.where(times_ns > 0, times_ns, NO_TIME)
