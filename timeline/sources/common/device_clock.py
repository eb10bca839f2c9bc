"""Conversion of times of a device's counter and samplers to the clock of its host.

Read from dev_start.log, host_start.log, info.json and start_info of a capture.
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
"""A line of a log: a name and its number, which fits 64 bits."""
_MOST_PRODUCT = 1 << 61
_MOST_COUNT = 1 << 62
_EXACT_REAL = 1 << 53
"""The least whole number from which float64 is no longer exact."""
_NS_OF_A_MHZ_TICK = 1000
_NANOSECOND = Fraction(1)
"""The tick of a host's counter if info.json names no frequency: 1000 MHz."""
_HARDWARE_LOG_TICK_NS = 10
"""The tick of devices in captures of MindSpore 0.7, which write no info.json: 100 MHz."""
_LONGEST_CAPTURE_US = 1e12
"""Eleven days. A clock in nanoseconds exceeds this number a quarter of an hour after its start."""


@dataclass(frozen=True)
class Anchor:
    """One reading of two clocks: a counter, and CLOCK_MONOTONIC_RAW of the host in ns."""

    count: int
    monotonic_ns: int


NO_ANCHOR = Anchor(0, 0)
"""The anchor of a device whose clock is not related to the host's: times count from its start."""


@dataclass(frozen=True)
class CounterClock:
    """A counter of ticks: the exact length of one, and one reading of counter and host clock."""

    tick_ns: Fraction
    anchor: Anchor

    def times_ns(self, counts: npt.NDArray[np.uint64] | Int64) -> Int64:
        """Convert counts to times on the host's CLOCK_MONOTONIC_RAW, (n,) int64.

        As msprof does: (count - anchor's count) / frequency + anchor's CLOCK_MONOTONIC_RAW. NO_TIME
        if that is before the start of the host or years after it: such a count is damaged.
        """
        parts, whole = self.tick_ns.numerator, self.tick_ns.denominator
        most = min(EARLIEST_WALL_NS * whole // parts, _MOST_COUNT)
        good = counts < counts.dtype.type(_MOST_COUNT)
        ticks = np.where(good, counts, 0).astype(np.int64) - self.anchor.count
        good &= (ticks >= -most) & (ticks <= most)
        cycles, rest = np.divmod(np.where(good, ticks, 0), whole)
        whole_ns, remainder = np.divmod(rest * parts, whole)
        time_ns: Int64 = cycles * parts + whole_ns + self.anchor.monotonic_ns
        good &= (time_ns >= 0) & (time_ns < EARLIEST_WALL_NS)
        return np.where(good, time_ns + _rounds_up(time_ns, remainder / whole), NO_TIME)


def _rounds_up(times_ns: Int64, fraction: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Return a mask of times that float64 rounds up to the next nanosecond, as msprof does.

    msprof holds times as float64, and truncates them when it writes a database.
    """
    rounded_up: npt.NDArray[np.bool_] = times_ns + fraction >= times_ns + 1
    return rounded_up & (times_ns < _EXACT_REAL)


@dataclass(frozen=True)
class DeviceClocks:
    """The clocks of a device's tables, related to CLOCK_MONOTONIC_RAW of its host.

    counter is the device's own; host_counter the host's, None if its times are ns already. host_ns
    and device_ns are one reading of both monotonic clocks, wall_offset_ns is wall time minus the
    host's clock. All are None if unknown. process is the id of the captured process.
    """

    counter: CounterClock | None = None
    host_counter: CounterClock | None = None
    host_ns: int | None = None
    device_ns: int | None = None
    wall_offset_ns: int | None = None
    process: int = NO_ID

    def counted_ns(self, counts: Int64) -> Int64:
        """Convert counts of the device's counter to host times."""
        return _unknown(counts) if self.counter is None else _times_ns(self.counter, counts)

    def host_times_ns(self, counts: Int64) -> Int64:
        """Convert counts of the host's counter to host times; times in ns stay as they are."""
        return counts if self.host_counter is None else _times_ns(self.host_counter, counts)

    def sampled_ns(self, times: Int64) -> Int64:
        """Convert times of the device's samplers to host times.

        Older samplers write the monotonic clock of the device, newer ones wall time.
        """
        wall = times >= EARLIEST_WALL_NS
        converted = _unknown(times)
        if self.wall_offset_ns is not None:
            converted = np.where(wall, times - self.wall_offset_ns, converted)
        if self.host_ns is not None and self.device_ns is not None:
            converted = np.where(~wall, times + (self.host_ns - self.device_ns), converted)
        return np.where(times > 0, converted, NO_TIME)

    def memory_ns(self, times: Int64, microseconds: Float64) -> Int64:
        """Convert times of memory samples to host times.

        Older samplers write microseconds since the start of the device, newer ones wall time.
        """
        since = (microseconds >= 0) & (microseconds < _LONGEST_CAPTURE_US)
        if self.host_ns is None or not since.any():
            return self.sampled_ns(times)
        elapsed_ns = np.rint(np.where(since, microseconds, 0) * 1000).astype(np.int64)
        return np.where(since, elapsed_ns + self.host_ns, self.sampled_ns(times))


def _times_ns(clock: CounterClock, counts: Int64) -> Int64:
    return np.where(counts > 0, clock.times_ns(np.maximum(counts, 0)), NO_TIME)


def _unknown(times: Int64) -> Int64:
    return np.full(len(times), NO_TIME)


def read_device_clocks(device: Path, host: Path, wall_offset_ns: int | None) -> DeviceClocks:
    """Read dev_start.log, host_start.log and info.json of a device and of its host.

    Args:
        device, host: the directories of both in a capture.
        wall_offset_ns: wall time minus CLOCK_MONOTONIC_RAW of the host, None if unknown.

    Raises:
        SourceError: one of the files exists and cannot be read.
    """
    info = _info(device)
    tick_ns = parse_tick_ns(device_frequency(info))
    anchor = read_anchor(device, info)
    process = whole_number((_info(host) or info).get("pid"))
    return DeviceClocks(
        CounterClock(tick_ns, anchor) if anchor and tick_ns else None,
        _host_counter(host),
        _host_start_ns(_read_clock_log(device, "host_start.log"), info),
        _read_clock_log(device, "dev_start.log").get("clock_monotonic_raw"),
        wall_offset_ns,
        NO_ID if process is None else process,
    )


def _host_counter(host: Path) -> CounterClock | None:
    """Return a host's counter, None if it counts nanoseconds, which msprof does not convert."""
    log, info = _read_clock_log(host, "host_start.log"), _info(host)
    tick_ns, time_ns = _host_tick_ns(info), _host_start_ns(log, info)
    if tick_ns == _NANOSECOND or time_ns is None or "cntvct" not in log:
        return None
    return CounterClock(tick_ns, Anchor(log["cntvct"], time_ns))


def _info(directory: Path) -> dict[str, Any]:
    return next((read_json(path) for path in find_clock_files(directory, "info.json")), {})


def device_frequency(info: Mapping[str, Any]) -> object:
    """Return the frequency of the device's counter in MHz, as info.json writes it, or ""."""
    return first_entry(info, "DeviceInfo").get("hwts_frequency", "")


def parse_tick_ns(megahertz: object) -> Fraction | None:
    """Return the nanoseconds per tick at a frequency in MHz, None if it is not a valid one."""
    text = str(megahertz).strip()
    if not _FREQUENCY.fullmatch(text) or not Fraction(text):
        return None
    tick_ns = _NS_OF_A_MHZ_TICK / Fraction(text)
    # With a larger product, the remainder of a division would not fit 64 bits.
    fits = tick_ns.numerator * tick_ns.denominator < _MOST_PRODUCT
    return tick_ns if fits else None


def _host_tick_ns(info: Mapping[str, Any]) -> Fraction:
    return parse_tick_ns(first_entry(info, "CPU").get("Frequency")) or _NANOSECOND


def _host_start_ns(log: Mapping[str, int], info: Mapping[str, Any]) -> int | None:
    """Return the host's time in host_start.log at which the counter of the device was read.

    cntvct_diff is the delay between both readings, in ticks of the host's counter.
    """
    monotonic_ns = log.get("clock_monotonic_raw", 0)
    time_ns = monotonic_ns + round(log.get("cntvct_diff", 0) * _host_tick_ns(info))
    return time_ns if monotonic_ns > 0 and 0 < time_ns < EARLIEST_WALL_NS else None


def read_anchor(directory: Path, info: Mapping[str, Any]) -> Anchor | None:
    """Return the reading of both clocks in dev_start.log and host_start.log, None if incomplete.

    Raises:
        SourceError: one of them exists and cannot be read.
    """
    count = _read_clock_log(directory, "dev_start.log").get("cntvct", 0)
    monotonic_ns = _host_start_ns(_read_clock_log(directory, "host_start.log"), info)
    if monotonic_ns is None or not 0 < count < _MOST_COUNT:
        return None
    return Anchor(count, monotonic_ns)


def _read_clock_log(directory: Path, name: str) -> dict[str, int]:
    for path in find_clock_files(directory, name)[:1]:
        return _first_section(path)
    return {}


def _first_section(log: Path) -> dict[str, int]:
    """Return the numbers in the first section of a log by name; the first of a name counts.

    Raises:
        SourceError: the log cannot be read.
    """
    numbers: dict[str, int] = {}
    sections = 0
    for line in read_whole_file(log).decode("utf-8", "replace").splitlines():
        sections += line.lstrip().startswith("[")
        if sections > 1:
            break
        if match := _LINE.fullmatch(line):
            numbers.setdefault(match[1], int(match[2]))
    return numbers


def find_clock_files(directory: Path, name: str) -> list[Path]:
    """Return the files `name` and `name.N` of a directory, but not markers such as `name.N.done`.

    Raises:
        SourceError: the directory cannot be read.
    """
    pattern = re.compile(rf"{re.escape(name)}(?:\.\d+)?")
    if not directory.is_dir():
        return []
    with source_errors_for(directory):
        return sorted(path for path in directory.iterdir() if pattern.fullmatch(path.name))


def first_entry(info: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the first processor or device in a list of info.json, empty if it has none."""
    entries = info.get(key)
    first = entries[0] if isinstance(entries, list) and entries else None
    return first if isinstance(first, dict) else {}


def read_hardware_log_clock(directory: Path, device: int | None) -> Clock:
    """Return the clock of a device in a directory of hardware logs of MindSpore 0.7.

    host_start.log.N holds the wall time at which the counter in dev_start.log.N was read.

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
    """Return wall time minus the raw monotonic clock in a start_info file, None if incomplete.

    It is collectionTimeBegin (us) minus clockMonotonicRaw (ns).

    Raises:
        SourceError: the file cannot be read.
    """
    info = read_json(path)
    begin_us = whole_number(info.get("collectionTimeBegin"))
    monotonic_ns = whole_number(info.get("clockMonotonicRaw"))
    if begin_us is None or monotonic_ns is None:
        return None
    return whole_number(begin_us * 1000 - monotonic_ns)
