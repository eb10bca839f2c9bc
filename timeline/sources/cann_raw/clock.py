"""Reads the clock of a device whose raw data is read: nothing else tells when its tasks ran."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from timeline.errors import SourceError
from timeline.sources.common.device_clock import (
    Anchor,
    CounterClock,
    clock_files,
    first_entry,
    read_anchor,
    tick_of,
)
from timeline.sources.common.identity import how_to_export, read_json

__all__ = ["NO_ANCHOR", "read_device_clock", "read_device_info"]

NO_ANCHOR = Anchor(0, 0)
"""Nothing relates both clocks: times count from the start of the device."""


def read_device_info(directory: Path) -> tuple[Path, dict[str, Any]]:
    """The info.json of a device directory.

    Raises:
        SourceError: there is none, or it cannot be read.
    """
    found = clock_files(directory, "info.json")
    if not found:
        raise SourceError(
            directory,
            "holds no info.json, which gives the frequency of the device's counter.",
            do=how_to_export(directory.parent),
        )
    return found[0], read_json(found[0])


def read_device_clock(directory: Path, path: Path, info: dict[str, Any]) -> CounterClock:
    """The clock of a device directory; without an anchor it counts from the start of the device.

    Args:
        path, info: what `read_device_info` gave.

    Raises:
        SourceError: the frequency is not given, or is none; or a log cannot be read.
    """
    frequency = first_entry(info, "DeviceInfo").get("hwts_frequency", "")
    tick_ns = tick_of(frequency)
    if tick_ns is None:
        raise SourceError(
            path,
            f"gives no frequency of the device's counter: hwts_frequency is {frequency!r}.",
            do=how_to_export(directory.parent),
        )
    return CounterClock(tick_ns, read_anchor(directory, info) or NO_ANCHOR)
