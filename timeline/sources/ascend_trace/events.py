"""The events of Ascend traces as typed values, whichever version of CANN spelled them."""

from __future__ import annotations

from typing import Any

import msgspec

from timeline.sources.decoders.event_format import EventFormat
from timeline.sources.decoders.exported_values import Value
from timeline.sources.decoders.trace_events import (
    Complete,
    Counter,
    FlowFinish,
    FlowStart,
    FlowStep,
    Metadata,
    Other,
)
from timeline.sources.source import ReadRequest

__all__ = ["ASCEND", "AscendArgs", "AscendComplete", "AscendEvent", "format_for"]

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
    },
):
    """The args of device tasks, HCCL tasks, communication ops, host calls and steps.

    They are in the order in which msprof writes them, which decodes fastest.
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


class AscendComplete(Complete, gc=False, tag_field="ph", tag="X"):
    """An interval on a lane of a device or of the host."""

    args: AscendArgs | None = None


AscendEvent = AscendComplete | Counter | Metadata | FlowStart | FlowStep | FlowFinish | Other
ASCEND: EventFormat[AscendEvent] = EventFormat(AscendEvent, args=(AscendArgs,))


class ShapedArgs(AscendArgs, gc=False, frozen=True, rename={"input_dims": "Input Dims"}):
    """The same, and the shapes of the inputs of an operator of the framework."""

    input_dims: Value = None


class ShapedComplete(Complete, gc=False, tag_field="ph", tag="X"):
    """An interval whose shapes are read."""

    args: ShapedArgs | None = None


ShapedEvent = ShapedComplete | Counter | Metadata | FlowStart | FlowStep | FlowFinish | Other
SHAPED: EventFormat[ShapedEvent] = EventFormat(ShapedEvent, args=(ShapedArgs,))


def format_for(wanted: ReadRequest) -> EventFormat[Any]:
    """The format that decodes what is wanted: shapes are many texts, which few ask for."""
    return SHAPED if wanted.shapes else ASCEND
