"""Turns the logs of clocks beside raw files into what relates the device counter to wall time."""

from __future__ import annotations

import re
from pathlib import Path

from timeline.sources.files.opened import whole_text
from timeline.sources.source import Clock

__all__ = ["counter_clock"]

_TICK_NS = 10
"""The counter runs at 100 MHz."""


def counter_clock(directory: Path, device: int | None) -> Clock:
    """The clock of a device from what host and device showed at the start of the capture.

    Raises:
        SourceError: a log cannot be read.
    """
    realtime_ns = _logged(directory / f"host_start.log.{device}", "clock_realtime")
    tick = _logged(directory / f"dev_start.log.{device}", "cntvct")
    if realtime_ns is None or tick is None:
        return Clock()
    return Clock(wall_offset_ns=realtime_ns - tick * _TICK_NS)


def _logged(path: Path, name: str) -> int | None:
    """The number behind a name in a log, None where there is none."""
    if not path.is_file():
        return None
    text = whole_text(path).decode("utf-8", "replace")
    match = re.search(rf"\b{name}\s*:\s*(\d{{1,18}}|[1-8]\d{{18}})\b", text, re.ASCII)
    return int(match[1]) if match else None
