"""The events of Ascend traces as typed values, whichever version of CANN spelled them."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from timeline.layers import Layer
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
        "input_dims": "Input Dims",
    },
):
    """The args of device tasks, HCCL tasks, communication ops, host calls, steps and operators.

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
    input_dims: Value = None


class AscendComplete(Complete, gc=False, tag_field="ph", tag="X"):
    """An interval on a lane of a device or of the host."""

    args: AscendArgs | None = None


AscendEvent = AscendComplete | Counter | Metadata | FlowStart | FlowStep | FlowFinish | Other

_EVERY_ARG = frozenset({"batch", "notify", "plane_stream", "transport", "plane_data_type"})
"""Args of tasks that only `--args all` shows."""
_PLANES = frozenset(
    {
        "plane_task",
        "plane_context",
        "source_rank",
        "target_rank",
        "size",
        "link",
        "bandwidth",
    }
)
"""Args that only HCCL tasks have, beside those."""
_SHAPES = frozenset({"input_dims"})
"""Many texts, which few ask for."""


@cache
def ascend_format(left_out: frozenset[str] = frozenset()) -> EventFormat[Any]:
    """The format of the events of Ascend traces; args that are left out are skipped unread."""
    fields = [field for field in msgspec.structs.fields(AscendArgs) if field.name not in left_out]
    args: Any = msgspec.defstruct(
        AscendArgs.__name__,
        [(field.name, field.type, field.default) for field in fields],
        rename={field.name: field.encode_name for field in fields},
        gc=False,
        frozen=True,
    )
    complete: Any = msgspec.defstruct(
        AscendComplete.__name__,
        [("args", args | None, None)],
        bases=(Complete,),
        gc=False,
        tag_field="ph",
        tag="X",
    )
    kinds = complete | Counter | Metadata | FlowStart | FlowStep | FlowFinish | Other
    return EventFormat(kinds, args=(args,))


def format_for(wanted: ReadRequest) -> EventFormat[Any]:
    """The format that reads what is wanted, and no other arg: most of a trace is args."""
    left_out = frozenset[str]()
    if not wanted.every_arg:
        left_out |= _EVERY_ARG
    if Layer.COMMUNICATION not in wanted.layers:
        left_out |= _EVERY_ARG - {"batch"} | _PLANES
    if not wanted.shapes:
        left_out |= _SHAPES
    return ascend_format(left_out)
