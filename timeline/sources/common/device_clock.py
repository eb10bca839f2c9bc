"""The relation of a device's counter and samplers to the clocks of its host.

It is read from dev_start.log, host_start.log, info.json and start_info of a capture.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Float64, Int64
from timeline.records.clock import EARLIEST_WALL_NS, Clock
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.sources.common.decimals import whole_number
from timeline.sources.decoders.json_values import read_json
from timeline.sources.files.opened import read_whole_file, source_errors_for

_FREQUENCY = re.compile(r"\d{1,6}(?:\.\d{1,9})?")
_LINE = re.compile(r"\s*(\w+)\s*[:=]\s*(-?(?:\d{1,18}|[1-8]\d{18}))\s*", re.ASCII)
"""A name and its number, which fits 64 bits."""
_MOST_PRODUCT = 1 << 61
_MOST_COUNT = 1 << 62
_EXACT_REAL = 1 << 53
_NS_OF_A_MHZ_TICK = 1000
_NANOSECOND = Fraction(1)
"""The tick of a host's counter where info.json names no frequency: 1000 MHz."""
_HARDWARE_LOG_TICK_NS = 10
"""The counter of devices that MindSpore 0.7 recorded runs at 100 MHz; no info.json has it."""
_LONGEST_CAPTURE_US = 1e12
"""Eleven days; clocks that count nanoseconds pass it a quarter of an hour after their start."""


@dataclass(frozen=True)
class Anchor:
    """One moment on both clocks: a counter, and CLOCK_MONOTONIC_RAW of the host in ns."""

    count: int
    monotonic_ns: int


NO_ANCHOR = Anchor(0, 0)
"""Nothing relates both clocks: times count from the start of the device."""


@dataclass(frozen=True)
class CounterClock:
    """The time of a tick, exactly, and one moment on both clocks."""

    tick_ns: Fraction
    anchor: Anchor

    def moments_ns(self, counts: npt.NDArray[np.uint64] | Int64) -> Int64:
        """Return the moment of each count, (n,) int64.

        It is (count - first count) / frequency + CLOCK_MONOTONIC_RAW at the first one, as msprof
        has it. NO_TIME where that is before the start of the host or years after it: no counter
        holds such a value.
        """
        parts, whole = self.tick_ns.numerator, self.tick_ns.denominator
        most = min(EARLIEST_WALL_NS * whole // parts, _MOST_COUNT)
        good = counts < counts.dtype.type(_MOST_COUNT)
        away = np.where(good, counts, 0).astype(np.int64) - self.anchor.count
        good &= (away >= -most) & (away <= most)
        turns, rest = np.divmod(np.where(good, away, 0), whole)
        cut, left = np.divmod(rest * parts, whole)
        found_ns: Int64 = turns * parts + cut + self.anchor.monotonic_ns
        good &= (found_ns >= 0) & (found_ns < EARLIEST_WALL_NS)
        return np.where(good, found_ns + _rounds_up(found_ns, left / whole), NO_TIME)


def _rounds_up(moments_ns: Int64, fraction: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Return where a timestamp as float64 is the next whole nanosecond.

    msprof holds moments as float64 and cuts them down when it writes a database.
    """
    found: npt.NDArray[np.bool_] = moments_ns + fraction >= moments_ns + 1
    return found & (moments_ns < _EXACT_REAL)


@dataclass(frozen=True)
class DeviceClocks:
    """The relation of the clocks of a device's tables to CLOCK_MONOTONIC_RAW of its host.

    counter: the device's own. host_counter: the host's, None if its times are ns already.
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
        """Return times that the device counted."""
        return _unknown(counts) if self.counter is None else _moments_ns(self.counter, counts)

    def host_times_ns(self, counts: Int64) -> Int64:
        """Return times that the host wrote."""
        return counts if self.host_counter is None else _moments_ns(self.host_counter, counts)

    def sampled_ns(self, times: Int64) -> Int64:
        """Return times of samplers of the device: on its monotonic clock, later as wall time."""
        wall = times >= EARLIEST_WALL_NS
        found = _unknown(times)
        if self.wall_offset_ns is not None:
            found = np.where(wall, times - self.wall_offset_ns, found)
        if self.host_ns is not None and self.device_ns is not None:
            found = np.where(~wall, times + (self.host_ns - self.device_ns), found)
        return np.where(times > 0, found, NO_TIME)

    def memory_ns(self, times: Int64, microseconds: Float64) -> Int64:
        """Return times of memory samples: us since the device started, later wall time."""
        since = (microseconds >= 0) & (microseconds < _LONGEST_CAPTURE_US)
        if self.host_ns is None or not since.any():
            return self.sampled_ns(times)
        elapsed_ns = np.rint(np.where(since, microseconds, 0) * 1000).astype(np.int64)
        return np.where(since, elapsed_ns + self.host_ns, self.sampled_ns(times))


def _moments_ns(clock: CounterClock, counts: Int64) -> Int64:
    return np.where(counts > 0, clock.moments_ns(np.maximum(counts, 0)), NO_TIME)


def _unknown(times: Int64) -> Int64:
    return np.full(len(times), NO_TIME)


def read_device_clocks(device: Path, host: Path, wall_offset_ns: int | None) -> DeviceClocks:
    """Read dev_start.log, host_start.log and info.json of a device, and those of its host.

    Args:
        device, host: the directories of both in a capture.
        wall_offset_ns: wall time less CLOCK_MONOTONIC_RAW of the host, None if unknown.

    Raises:
        SourceError: one of them is there and cannot be read.
    """
    info = _info(device)
    tick_ns = parse_tick_ns(device_frequency(info))
    anchor = read_anchor(device, info)
    process = whole_number((_info(host) or info).get("pid"))
    return DeviceClocks(
        CounterClock(tick_ns, anchor) if anchor and tick_ns else None,
        _host_counter(host),
        _host_moment_ns(_read_clock_log(device, "host_start.log"), info),
        _read_clock_log(device, "dev_start.log").get("clock_monotonic_raw"),
        wall_offset_ns,
        NO_ID if process is None else process,
    )


def _host_counter(host: Path) -> CounterClock | None:
    """Return a host's counter that does not count nanoseconds: msprof keeps those as they are."""
    log, info = _read_clock_log(host, "host_start.log"), _info(host)
    tick_ns, time_ns = _host_tick_ns(info), _host_moment_ns(log, info)
    if tick_ns == _NANOSECOND or time_ns is None or "cntvct" not in log:
        return None
    return CounterClock(tick_ns, Anchor(log["cntvct"], time_ns))


def _info(directory: Path) -> dict[str, Any]:
    return next((read_json(path) for path in find_clock_files(directory, "info.json")), {})


def device_frequency(info: Mapping[str, Any]) -> object:
    """Return the MHz of the device's counter as info.json has them, empty without any."""
    return first_entry(info, "DeviceInfo").get("hwts_frequency", "")


def parse_tick_ns(megahertz: object) -> Fraction | None:
    """Return the nanoseconds of a tick at a frequency of info.json, None without one."""
    text = str(megahertz).strip()
    if not _FREQUENCY.fullmatch(text) or not Fraction(text):
        return None
    tick_ns = _NS_OF_A_MHZ_TICK / Fraction(text)
    # Beyond, the remainder of a division would not fit 64 bits.
    fits = tick_ns.numerator * tick_ns.denominator < _MOST_PRODUCT
    return tick_ns if fits else None


def _host_tick_ns(info: Mapping[str, Any]) -> Fraction:
    return parse_tick_ns(first_entry(info, "CPU").get("Frequency")) or _NANOSECOND


def _host_moment_ns(log: Mapping[str, int], info: Mapping[str, Any]) -> int | None:
    """Return the host's time when the counter of the device was read, by host_start.log.

    cntvct_diff is how much later the host's clock was read, in ticks of the host's counter.
    """
    monotonic_ns = log.get("clock_monotonic_raw", 0)
    found = monotonic_ns + round(log.get("cntvct_diff", 0) * _host_tick_ns(info))
    return found if monotonic_ns > 0 and 0 < found < EARLIEST_WALL_NS else None


def read_anchor(directory: Path, info: Mapping[str, Any]) -> Anchor | None:
    """Return the timestamp that dev_start.log and host_start.log share; None without one.

    Raises:
        SourceError: one of them is there and cannot be read.
    """
    count = _read_clock_log(directory, "dev_start.log").get("cntvct", 0)
    monotonic_ns = _host_moment_ns(_read_clock_log(directory, "host_start.log"), info)
    if monotonic_ns is None or not 0 < count < _MOST_COUNT:
        return None
    return Anchor(count, monotonic_ns)


def _read_clock_log(directory: Path, name: str) -> dict[str, int]:
    for path in find_clock_files(directory, name)[:1]:
        return _first_section(path)
    return {}


def _first_section(log: Path) -> dict[str, int]:
    """Return the numbers in the first section of a log, the first of each name.

    Raises:
        SourceError: the log cannot be read.
    """
    found: dict[str, int] = {}
    sections = 0
    for line in read_whole_file(log).decode("utf-8", "replace").splitlines():
        sections += line.lstrip().startswith("[")
        if sections > 1:
            break
        if match := _LINE.fullmatch(line):
            found.setdefault(match[1], int(match[2]))
    return found


def find_clock_files(directory: Path, name: str) -> list[Path]:
    """Return `name` and `name.N` of a directory, without the marks that they are complete.

    Raises:
        SourceError: the directory cannot be read.
    """
    pattern = re.compile(rf"{re.escape(name)}(?:\.\d+)?")
    if not directory.is_dir():
        return []
    with source_errors_for(directory):
        return sorted(path for path in directory.iterdir() if pattern.fullmatch(path.name))


def first_entry(info: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the first processor or device that info.json lists, empty without any."""
    entries = info.get(key)
    first = entries[0] if isinstance(entries, list) and entries else None
    return first if isinstance(first, dict) else {}


def read_hardware_log_clock(directory: Path, device: int | None) -> Clock:
    """Return the clock of hardware logs of MindSpore 0.7, whose directory holds several.

    host_start.log.N has the wall time at which dev_start.log.N read the counter of device N.

    Raises:
        SourceError: a log cannot be read.
    """
    logs = [directory / f"{name}.log.{device}" for name in ("host_start", "dev_start")]
    host_log, device_log = (_first_section(path) if path.is_file() else {} for path in logs)
    realtime_ns, count = host_log.get("clock_realtime", -1), device_log.get("cntvct", -1)
    if realtime_ns < 0 or count < 0:
        return Clock()
    return Clock(wall_offset_ns=whole_number(realtime_ns - count * _HARDWARE_LOG_TICK_NS))


def read_start_info_offset_ns(path: Path) -> int | None:
    """Return wall time less the raw monotonic clock, as a start_info says; None if it does not.

    It is collectionTimeBegin (us) less clockMonotonicRaw (ns).

    Raises:
        SourceError: the file cannot be read.
    """
    info = read_json(path)
    begin_us = whole_number(info.get("collectionTimeBegin"))
    monotonic_ns = whole_number(info.get("clockMonotonicRaw"))
    if begin_us is None or monotonic_ns is None:
        return None
    return whole_number(begin_us * 1000 - monotonic_ns)
