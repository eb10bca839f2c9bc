"""Turns the ticks of a device's counter into nanoseconds of its host's CLOCK_MONOTONIC_RAW."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from timeline.errors import SourceError
from timeline.records.clock import EARLIEST_WALL_NS
from timeline.records.columns import Int64
from timeline.records.tables import NO_TIME
from timeline.sources.identity import how_to_export, read_json
from timeline.sources.opened import open_file, readable
from timeline.sources.raw_slices import UInt64

__all__ = [
    "NO_ANCHOR",
    "Anchor",
    "DeviceClock",
    "read_anchor",
    "read_device_clock",
    "read_device_info",
]

_FREQUENCY = re.compile(r"\d{1,6}(?:\.\d{1,9})?")
_LINE = re.compile(rb"\s*(\w+)\s*[:=]\s*(\d{1,19})\s*")
_MOST_LOG_BYTES = 1 << 16
_MOST_PRODUCT = 1 << 61
_NS_OF_A_MHZ_TICK = 1000


@dataclass(frozen=True)
class Anchor:
    """One moment on both clocks: the counter of the device, and the host's clock in ns."""

    counter: int
    monotonic_ns: int


NO_ANCHOR = Anchor(0, 0)
"""Nothing relates both clocks: times count from the start of the device."""


@dataclass(frozen=True)
class DeviceClock:
    """The time of a tick, exactly, and one moment on both clocks."""

    tick_ns: Fraction
    anchor: Anchor

    def moments_ns(self, ticks: UInt64) -> Int64:
        """The moment of each tick, (n,) int64, rounded to the nearest nanosecond, half up.

        It is (ticks - cntvct of the device) / frequency + clock_monotonic_raw of the host, as
        msprof has it, in integers. NO_TIME where that is before the start of the host or years
        after it: no counter holds such a value.
        """
        parts, whole = self.tick_ns.numerator, self.tick_ns.denominator
        most = min(EARLIEST_WALL_NS * whole // parts, 1 << 62)
        good = ticks < np.uint64(1 << 62)
        away = np.where(good, ticks, 0).astype(np.int64) - self.anchor.counter
        good &= (away >= -most) & (away <= most)
        turns, rest = np.divmod(np.where(good, away, 0), whole)
        since_ns = turns * parts + (2 * rest * parts + whole) // (2 * whole)
        moments_ns: Int64 = since_ns + self.anchor.monotonic_ns
        good &= (moments_ns >= 0) & (moments_ns < EARLIEST_WALL_NS)
        return np.where(good, moments_ns, NO_TIME)


def read_device_info(directory: Path) -> tuple[Path, dict[str, Any]]:
    """The info.json of a device directory.

    Raises:
        SourceError: there is none, or it cannot be read.
    """
    with readable(directory):
        found = [
            path
            for path in sorted(directory.glob("info.json*"))
            if path.is_file() and not path.name.endswith(".done")
        ]
    if not found:
        raise SourceError(
            directory,
            "holds no info.json, which gives the frequency of the device's counter.",
            do=how_to_export(directory.parent),
        )
    return found[0], read_json(found[0])


def read_device_clock(directory: Path, path: Path, info: dict[str, Any]) -> DeviceClock:
    """The clock of a device directory; without an anchor it counts from the start of the device.

    Args:
        path, info: what `read_device_info` gave.

    Raises:
        SourceError: the frequency is not given, or is none.
    """
    devices = info.get("DeviceInfo")
    first = devices[0] if isinstance(devices, list) and devices else None
    text = str(first.get("hwts_frequency", "")) if isinstance(first, dict) else ""
    tick_ns = _tick_ns(text.strip())
    if tick_ns is None:
        raise SourceError(
            path,
            f"gives no frequency of the device's counter: hwts_frequency is {text!r}.",
            do=how_to_export(directory.parent),
        )
    return DeviceClock(tick_ns, read_anchor(directory, _host_tick_ns(info)) or NO_ANCHOR)


def _tick_ns(megahertz: str) -> Fraction | None:
    if not _FREQUENCY.fullmatch(megahertz) or not Fraction(megahertz):
        return None
    tick_ns = _NS_OF_A_MHZ_TICK / Fraction(megahertz)
    # Beyond, the remainder of a division would not fit 64 bits.
    fits = tick_ns.numerator * tick_ns.denominator < _MOST_PRODUCT
    return tick_ns if fits else None


def _host_tick_ns(info: dict[str, Any]) -> Fraction:
    processors = info.get("CPU")
    first = processors[0] if isinstance(processors, list) and processors else None
    text = str(first.get("Frequency", "")) if isinstance(first, dict) else ""
    return _tick_ns(text.strip()) or Fraction(1)


def read_anchor(directory: Path, host_tick_ns: Fraction = Fraction(1)) -> Anchor | None:
    """The moment that dev_start.log and host_start.log name together; None where one is silent.

    Args:
        host_tick_ns: of the host's own counter, in which cntvct_diff tells how much later than
            the counter of the device the host's clock was read.
    """
    device = _values(directory, "dev_start.log*")
    host = _values(directory, "host_start.log*")
    counter, monotonic_ns = device.get("cntvct", 0), host.get("clock_monotonic_raw", 0)
    late_ns = round(host.get("cntvct_diff", 0) * host_tick_ns)
    if not 0 < counter < 1 << 62 or not 0 < monotonic_ns + late_ns < EARLIEST_WALL_NS:
        return None
    return Anchor(counter, monotonic_ns + late_ns)


def _values(directory: Path, pattern: str) -> dict[str, int]:
    """The numbers in the first section of a small log, the first of each name."""
    found: dict[str, int] = {}
    sections = 0
    try:
        paths = [path for path in sorted(directory.glob(pattern)) if path.suffix != ".done"]
        with open_file(paths[0]) as file:
            lines = file.read(_MOST_LOG_BYTES).splitlines()
    except (OSError, IndexError):
        return {}
    for line in lines:
        sections += line.lstrip().startswith(b"[")
        match = _LINE.fullmatch(line)
        if sections > 1:
            break
        if match:
            found.setdefault(match[1].decode("ascii", "replace"), int(match[2]))
    return found
