"""Turns the args of trace events into typed values, whichever version of CANN spelled them."""

from __future__ import annotations

from typing import TypeVar

import msgspec

__all__ = [
    "HostArgs",
    "OpArgs",
    "PlaneArgs",
    "StepArgs",
    "TaskArgs",
    "decode_args",
    "first_int",
    "number",
    "text",
]

Value = int | float | str | None
"""What an arg may be: exports write N/A for numbers, and strings for large ids."""


class TaskArgs(
    msgspec.Struct,
    gc=False,
    rename={
        "task_type": "Task Type",
        "stream": "Physic Stream Id",
        "old_stream": "Stream Id",
        "task": "Task Id",
        "batch": "Batch Id",
        "context": "Subtask Id",
        "graph": "Model Id",
        "other_graph": "model id",
        "connection": "connection_id",
    },
):
    """Args of a device task."""

    task_type: Value = None
    stream: Value = None
    old_stream: Value = None
    task: Value = None
    batch: Value = None
    context: Value = None
    graph: Value = None
    other_graph: Value = None
    connection: Value = None


class PlaneArgs(
    msgspec.Struct,
    gc=False,
    rename={
        "stream": "stream id",
        "task": "task id",
        "context": "context id",
        "graph": "model id",
        "other_graph": "Model Id",
        "source_rank": "src rank",
        "target_rank": "dst rank",
        "size": "size(Byte)",
        "notify": "notify_id",
        "transport": "transport type",
        "link": "link type",
        "data_type": "data type",
        "bandwidth": "bandwidth(GB/s)",
    },
):
    """Args of an HCCL task."""

    stream: Value = None
    task: Value = None
    context: Value = None
    graph: Value = None
    other_graph: Value = None
    source_rank: Value = None
    target_rank: Value = None
    size: Value = None
    notify: Value = None
    transport: Value = None
    link: Value = None
    data_type: Value = None
    bandwidth: Value = None


class OpArgs(
    msgspec.Struct,
    gc=False,
    rename={
        "graph": "model id",
        "other_graph": "Model Id",
        "connection": "connection_id",
        "algorithm": "alg_type",
    },
):
    """Args of a communication op."""

    graph: Value = None
    other_graph: Value = None
    connection: Value = None
    count: Value = None
    data_type: Value = None
    algorithm: Value = None


class HostArgs(
    msgspec.Struct,
    gc=False,
    rename={
        "connection": "connection_id",
        "graph": "Model Id",
    },
):
    """Args of a host call."""

    connection: Value = None
    level: Value = None
    graph: Value = None


class StepArgs(
    msgspec.Struct,
    gc=False,
    rename={
        "iteration": "Iteration ID",
        "fp_start": "FP Start",
        "bp_end": "BP End",
        "end": "Iteration End",
    },
):
    """Args of a step-trace event; times are decimal microseconds."""

    iteration: Value = None
    fp_start: msgspec.Raw = msgspec.Raw(b"")
    bp_end: msgspec.Raw = msgspec.Raw(b"")
    end: msgspec.Raw = msgspec.Raw(b"")


_Args = TypeVar("_Args", TaskArgs, PlaneArgs, OpArgs, HostArgs, StepArgs)


def decode_args(decoder: msgspec.json.Decoder[_Args], raw: msgspec.Raw) -> _Args:
    """Decode the args of one event; an event without args has none set."""
    return decoder.decode(raw or b"{}")


def number(value: Value, default: int) -> int:
    """An id or amount, or the default where the export has none (absent, N/A, not a number)."""
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 63 else default
    if isinstance(value, str):
        stripped = value.strip()
        if stripped.lstrip("-").isdigit():
            return number(int(stripped), default)
        return default
    if isinstance(value, float) and value == int(value):
        return number(int(value), default)
    return default


def first_int(values: tuple[Value, ...], default: int) -> int:
    """The first of several spellings that holds a number."""
    for value in values:
        if value is not None:
            return number(value, default)
    return default


def text(value: Value) -> str:
    """A name, or the empty string where the export has none."""
    return value if isinstance(value, str) else "" if value is None else str(value)
