"""Turns the JSON of a timeline display of MindSpore 0.7 to 2.2 into typed values."""

from __future__ import annotations

from typing import Any

import msgspec

from timeline.sources.trace_json.event_pieces import EventDecoder
from timeline.sources.trace_json.events import Other

__all__ = ["DISPLAY", "DisplayEvent", "Label"]

_EMPTY = msgspec.Raw(b"")


class DisplayEvent(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """An interval; its times stay text, because they are exact only as decimals."""

    name: str = ""
    pid: int | str | float = 0
    tid: int | str | float = 0
    ts: msgspec.Raw = _EMPTY
    dur: msgspec.Raw = _EMPTY
    args: dict[str, Any] | None = None


class Label(msgspec.Struct, gc=False, tag_field="ph", tag="M"):
    """What rows are called: the numbers of processes and threads tell what they are."""


DISPLAY: EventDecoder[DisplayEvent | Label] = EventDecoder(DisplayEvent | Label | Other)
