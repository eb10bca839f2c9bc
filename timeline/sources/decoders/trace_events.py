"""JSON trace events as typed values, but for the args of intervals, which differ by format.

What an event has beyond these fields is skipped.
"""

from __future__ import annotations

from typing import Any

import msgspec

from timeline.sources.decoders.exported_values import Value

_EMPTY = msgspec.Raw(b"")


class Complete(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """An interval; its times stay text, because they are exact only as decimals.

    Each format adds its own `args`.
    """

    name: str = ""
    pid: int | str | float = 0
    tid: int | str | float = 0
    ts: msgspec.Raw = _EMPTY
    dur: msgspec.Raw = _EMPTY
    cat: str = ""


class Counter(msgspec.Struct, gc=False, tag_field="ph", tag="C"):
    """Samples of one or more counters at one moment."""

    name: str = ""
    pid: int | str | float = 0
    ts: msgspec.Raw = _EMPTY
    args: dict[str, Any] | None = None


class _MetadataArgs(msgspec.Struct, gc=False):
    name: Value = None
    labels: Value = None


class Metadata(msgspec.Struct, gc=False, tag_field="ph", tag="M"):
    """The name of a process or thread, or the labels of a process."""

    name: str = ""
    pid: int | str | float = 0
    tid: int | str | float = 0
    args: _MetadataArgs | None = None


class Flow(msgspec.Struct, gc=False):
    """One end of an arrow; those of an arrow have the same category and id."""

    pid: int | str | float = 0
    tid: int | str | float = 0
    ts: msgspec.Raw = _EMPTY
    cat: str = ""
    id: msgspec.Raw = _EMPTY


class FlowStart(Flow, gc=False, tag_field="ph", tag="s"):
    """Where an arrow begins."""


class FlowStep(Flow, gc=False, tag_field="ph", tag="t"):
    """Where an arrow passes."""


class FlowFinish(Flow, gc=False, tag_field="ph", tag="f"):
    """Where an arrow ends."""


class Other(msgspec.Struct, gc=False, tag_field="ph", tag="i"):
    """An event of a phase that no layout uses for anything."""


class Ignored(msgspec.Struct, gc=False):
    """An event that is known and tells nothing."""
