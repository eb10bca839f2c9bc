"""Turns counters and samplers of a device and its host into the host's monotonic clock."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from timeline.columns.columns import Float64, Int64
from timeline.records.clock import EARLIEST_WALL_NS
from timeline.records.tables import NO_ID, NO_TIME
from timeline.sources.common.decimals import whole_number
from timeline.sources.common.device_clock import (
    NANOSECOND,
    Anchor,
    CounterClock,
    clock_files,
    first_entry,
    host_moment_ns,
    host_tick_ns,
    read_anchor,
    read_clock_log,
    tick_of,
)
from timeline.sources.common.identity import read_json

__all__ = ["ParsedClock", "read_parsed_clock"]

LONGEST_CAPTURE_US = 1e12
"""Eleven days; clocks that count nanoseconds pass it a quarter of an hour after their start."""


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
        return _unknown(counts) if self.counter is None else _moments_ns(self.counter, counts)

    def host_times_ns(self, counts: Int64) -> Int64:
        """Times that the host wrote."""
        return counts if self.host_counter is None else _moments_ns(self.host_counter, counts)

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


def _moments_ns(clock: CounterClock, counts: Int64) -> Int64:
    """The moments of counts; those that are no count have none."""
    return np.where(counts > 0, clock.moments_ns(np.maximum(counts, 0)), NO_TIME)


def _unknown(times: Int64) -> Int64:
    return np.full(len(times), NO_TIME)


def read_parsed_clock(device: Path, host: Path, wall_offset_ns: int | None) -> ParsedClock:
    """Read dev_start.log, host_start.log and info.json of a device, and those of its host.

    Raises:
        SourceError: one of them is there and cannot be read.
    """
    info = _info(device)
    tick_ns = tick_of(first_entry(info, "DeviceInfo").get("hwts_frequency"))
    anchor = read_anchor(device, info)
    process = whole_number((_info(host) or info).get("pid"))
    return ParsedClock(
        CounterClock(tick_ns, anchor) if anchor and tick_ns else None,
        _host_counter(host),
        host_moment_ns(read_clock_log(device, "host_start.log"), info),
        read_clock_log(device, "dev_start.log").get("clock_monotonic_raw"),
        wall_offset_ns,
        NO_ID if process is None else process,
    )


def _host_counter(host: Path) -> CounterClock | None:
    """The counter of a host that does not count nanoseconds: msprof writes those as they are."""
    log, info = read_clock_log(host, "host_start.log"), _info(host)
    tick_ns, time_ns = host_tick_ns(info), host_moment_ns(log, info)
    if tick_ns == NANOSECOND or time_ns is None or "cntvct" not in log:
        return None
    return CounterClock(tick_ns, Anchor(log["cntvct"], time_ns))


def _info(directory: Path) -> dict[str, Any]:
    return next((read_json(path) for path in clock_files(directory, "info.json")), {})
