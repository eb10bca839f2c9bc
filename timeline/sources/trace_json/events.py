"""Turns the JSON of trace events into typed values, whichever version of CANN spelled them.

Each phase has its own type, and the args of a complete event are decoded in the same pass: one
call of the decoder for thousands of events. What an event has beyond these fields is skipped.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

__all__ = [
    "NO_ARGS",
    "Args",
    "Complete",
    "Counter",
    "Event",
    "FlowFinish",
    "FlowStart",
    "FlowStep",
    "Metadata",
    "Other",
    "Value",
    "number",
    "text",
]

Value = int | float | str | None
"""What an arg may be: exports write N/A for numbers, and strings for large ids."""
_EMPTY = msgspec.Raw(b"")
_DECIMAL = re.compile(r"\s*(-?)0*([0-9]{1,19})\s*")
"""int() also takes digits of other scripts, and refuses thousands of them."""


class Args(
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


NO_ARGS = Args()
"""Args of an event without any."""


class Complete(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """An interval; its times stay text, because they are exact only as decimals."""

    name: str = ""
    pid: int | str | float = 0
    tid: int | str | float = 0
    ts: msgspec.Raw = _EMPTY
    dur: msgspec.Raw = _EMPTY
    cat: str = ""
    args: Args | None = None


class Counter(msgspec.Struct, gc=False, tag_field="ph", tag="C"):
    """Samples of one or more counters at one moment."""

    name: str = ""
    pid: int | str | float = 0
    ts: msgspec.Raw = _EMPTY
    args: dict[str, Any] | None = None


class _MetadataArgs(msgspec.Struct, gc=False):
    name: Value = None


class Metadata(msgspec.Struct, gc=False, tag_field="ph", tag="M"):
    """The name of a process or thread."""

    name: str = ""
    pid: int | str | float = 0
    tid: int | str | float = 0
    args: _MetadataArgs | None = None


class _Flow(msgspec.Struct, gc=False):
    pid: int | str | float = 0
    tid: int | str | float = 0
    ts: msgspec.Raw = _EMPTY
    cat: str = ""
    id: msgspec.Raw = _EMPTY


class FlowStart(_Flow, gc=False, tag_field="ph", tag="s"):
    """Where an arrow begins."""


class FlowStep(_Flow, gc=False, tag_field="ph", tag="t"):
    """Where an arrow passes."""


class FlowFinish(_Flow, gc=False, tag_field="ph", tag="f"):
    """Where an arrow ends."""


class Other(msgspec.Struct, gc=False, tag_field="ph", tag="i"):
    """An event of a phase that no layout uses for anything."""


Event = Complete | Counter | Metadata | FlowStart | FlowStep | FlowFinish | Other


def number(value: Value, default: int) -> int:
    """An id or amount, or the default where the export has none (absent, N/A, not a number)."""
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 63 else default
    if isinstance(value, str):
        match = _DECIMAL.fullmatch(value)
        return number(int(match[1] + match[2]), default) if match else default
    if isinstance(value, float) and value.is_integer():
        return number(int(value), default)
    return default


def text(value: Value) -> str:
    """A name, or the empty string where the export has none."""
    return value if isinstance(value, str) else "" if value is None else str(value)
