"""Turns counters and samplers of a device and its host into the host's monotonic clock."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from timeline.records.clock import EARLIEST_WALL_NS
from timeline.records.columns import Float64, Int64
from timeline.records.tables import NO_ID, NO_TIME
from timeline.sources.identity import read_json
from timeline.sources.opened import readable, whole_text
from timeline.sources.whole_numbers import whole_number

__all__ = ["CounterClock", "ParsedClock", "read_parsed_clock"]

_LINE = re.compile(r"\s*(\w+)\s*[:=]\s*(-?[0-9]{1,18})\s*")
LONGEST_CAPTURE_US = 1e12
"""Eleven days; clocks that count nanoseconds pass it a quarter of an hour after their start."""
NANOSECONDS_MHZ = 1000
"""The frequency of a counter that counts nanoseconds: msprof writes such times as they are."""


@dataclass(frozen=True)
class CounterClock:
    """A counter that showed `count` at `time_ns`, and counts so many times a microsecond."""

    count: int
    time_ns: int
    megahertz: Fraction

    def times_ns(self, counts: Int64) -> Int64:
        """The moments of counts; those that are no count, or out of reach, have no time.

        t = (count - first count) / MHz * 1000 + first time, as msprof has it, to the nearest ns.
        """
        known = counts > 0
        elapsed = self.lengths_ns(np.where(known, counts - self.count, 0))
        return np.where(known & (elapsed != NO_TIME), elapsed + self.time_ns, NO_TIME)

    def lengths_ns(self, counts: Int64) -> Int64:
        """How long so many counts last."""
        times, parts = (1000 / self.megahertz).as_integer_ratio()
        reach = np.iinfo(np.int64).max // (2 * times)
        near = np.abs(counts) < reach
        return np.where(near, (np.where(near, counts, 0) * times + parts // 2) // parts, NO_TIME)


@dataclass(frozen=True)
class ParsedClock:
    """What relates the clocks of one device's tables to CLOCK_MONOTONIC_RAW of its host.

    counter: the device's own. host_counter: the host's, None where its times are ns already.
    host_ns and device_ns: what both monotonic clocks showed at one moment. wall_offset_ns: wall
    time less the host's clock. What is None is not known. process: the one that was captured.
    """

    counter: CounterClock | None = None
    host_counter: CounterClock | None = None
    host_ns: int | None = None
    device_ns: int | None = None
    wall_offset_ns: int | None = None
    process: int = NO_ID

    def counted_ns(self, counts: Int64) -> Int64:
        """Times that the device counted."""
        return _unknown(counts) if self.counter is None else self.counter.times_ns(counts)

    def host_times_ns(self, counts: Int64) -> Int64:
        """Times that the host wrote."""
        return counts if self.host_counter is None else self.host_counter.times_ns(counts)

    def sampled_ns(self, times: Int64) -> Int64:
        """Times that samplers of the device wrote: on its monotonic clock, later as wall time."""
        wall = times >= EARLIEST_WALL_NS
        found = _unknown(times)
        if self.wall_offset_ns is not None:
            found = np.where(wall, times - self.wall_offset_ns, found)
        if self.host_ns is not None and self.device_ns is not None:
            found = np.where(~wall, times + (self.host_ns - self.device_ns), found)
        return np.where(times > 0, found, NO_TIME)

    def memory_ns(self, times: Int64, microseconds: Float64) -> Int64:
        """Times of memory samples: microseconds since the device started, later as wall time."""
        since = (microseconds >= 0) & (microseconds < LONGEST_CAPTURE_US)
        if self.host_ns is None or not since.any():
            return self.sampled_ns(times)
        elapsed_ns = np.rint(np.where(since, microseconds, 0) * 1000).astype(np.int64)
        return np.where(since, elapsed_ns + self.host_ns, self.sampled_ns(times))


def _unknown(times: Int64) -> Int64:
    return np.full(len(times), NO_TIME)


def read_parsed_clock(device: Path, host: Path, wall_offset_ns: int | None) -> ParsedClock:
    """Read dev_start.log, host_start.log and info.json of a device, and those of its host.

    Raises:
        SourceError: one of them is there and cannot be read.
    """
    info = _info(device)
    of_device, of_host = _log(device, "dev_start.log"), _log(device, "host_start.log")
    processor = _first(info, "CPU").get("Frequency")
    host_ns = _corrected(of_host, _frequency(processor))
    counter = None
    ticks = _frequency(_first(info, "DeviceInfo").get("hwts_frequency"))
    if host_ns is not None and ticks is not None and "cntvct" in of_device:
        counter = CounterClock(of_device["cntvct"], host_ns, ticks)
    device_ns = of_device.get("clock_monotonic_raw")
    process = whole_number((_info(host) or info).get("pid"))
    return ParsedClock(
        counter,
        _host_counter(host),
        host_ns,
        device_ns,
        wall_offset_ns,
        NO_ID if process is None else process,
    )


def _host_counter(host: Path) -> CounterClock | None:
    log = _log(host, "host_start.log")
    megahertz = _frequency(_first(_info(host), "CPU").get("Frequency"))
    time_ns = _corrected(log, megahertz)
    if megahertz in (None, NANOSECONDS_MHZ) or time_ns is None or "cntvct" not in log:
        return None
    assert megahertz is not None
    return CounterClock(log["cntvct"], time_ns, megahertz)


def _corrected(log: dict[str, int], megahertz: Fraction | None) -> int | None:
    """The monotonic clock, and what its reading took in counts of the processor."""
    time_ns = log.get("clock_monotonic_raw")
    late = log.get("cntvct_diff", 0)
    if time_ns is None or not late or megahertz is None:
        return time_ns
    return time_ns + round(late * 1000 / megahertz)


def _log(directory: Path, name: str) -> dict[str, int]:
    """The numbers of a log by name, the first of each; later sections repeat them."""
    found: dict[str, int] = {}
    for path in _files(directory, name):
        for line in whole_text(path).decode("utf-8", "replace").splitlines():
            if match := _LINE.fullmatch(line):
                found.setdefault(match[1], int(match[2]))
    return found


def _info(directory: Path) -> dict[str, Any]:
    return next((read_json(path) for path in _files(directory, "info.json")), {})


def _files(directory: Path, name: str) -> list[Path]:
    """`name` and `name.N`, without the marks that they are complete."""
    pattern = re.compile(rf"{re.escape(name)}(?:\.\d+)?")
    if not directory.is_dir():
        return []
    with readable(directory):
        return sorted(path for path in directory.iterdir() if pattern.fullmatch(path.name))


def _first(info: dict[str, Any], key: str) -> dict[str, Any]:
    held = info.get(key)
    first = held[0] if isinstance(held, list) and held else None
    return first if isinstance(first, dict) else {}


def _frequency(value: object) -> Fraction | None:
    """A frequency in MHz, None where there is none."""
    try:
        megahertz = Fraction(str(value).strip())
    except (ValueError, ZeroDivisionError):
        return None
    return megahertz if megahertz > 0 else None
