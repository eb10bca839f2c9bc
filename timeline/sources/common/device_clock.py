"""Reads what relates a counter to its host's CLOCK_MONOTONIC_RAW: logs of both, and info.json."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Int64
from timeline.records.clock import EARLIEST_WALL_NS
from timeline.records.tables import NO_TIME
from timeline.sources.files.opened import readable, whole_text

__all__ = [
    "NANOSECOND",
    "Anchor",
    "CounterClock",
    "clock_files",
    "first_entry",
    "host_moment_ns",
    "host_tick_ns",
    "read_anchor",
    "read_clock_log",
    "tick_of",
]

_FREQUENCY = re.compile(r"\d{1,6}(?:\.\d{1,9})?")
_LINE = re.compile(r"\s*(\w+)\s*[:=]\s*(-?\d{1,19})\s*", re.ASCII)
_MOST_PRODUCT = 1 << 61
_MOST_COUNT = 1 << 62
_EXACT_REAL = 1 << 53
_NS_OF_A_MHZ_TICK = 1000
NANOSECOND = Fraction(1)
"""The tick of a host's counter where info.json names no frequency: 1000 MHz."""


@dataclass(frozen=True)
class Anchor:
    """One moment on both clocks: a counter, and CLOCK_MONOTONIC_RAW of the host in ns."""

    count: int
    monotonic_ns: int


@dataclass(frozen=True)
class CounterClock:
    """The time of a tick, exactly, and one moment on both clocks."""

    tick_ns: Fraction
    anchor: Anchor

    def moments_ns(self, counts: npt.NDArray[np.uint64] | Int64) -> Int64:
        """The moment of each count, (n,) int64.

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
        return np.where(good, found_ns + _carried(found_ns, left / whole), NO_TIME)


def _carried(moments_ns: Int64, fraction: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Where a moment as float64 is the next whole nanosecond.

    msprof holds moments as float64 and cuts them down when it writes a database.
    """
    found: npt.NDArray[np.bool_] = moments_ns + fraction >= moments_ns + 1
    return found & (moments_ns < _EXACT_REAL)


def tick_of(megahertz: object) -> Fraction | None:
    """The nanoseconds of a tick at a frequency as info.json spells it, None where it names none."""
    text = str(megahertz).strip()
    if not _FREQUENCY.fullmatch(text) or not Fraction(text):
        return None
    tick_ns = _NS_OF_A_MHZ_TICK / Fraction(text)
    # Beyond, the remainder of a division would not fit 64 bits.
    fits = tick_ns.numerator * tick_ns.denominator < _MOST_PRODUCT
    return tick_ns if fits else None


def host_tick_ns(info: Mapping[str, Any]) -> Fraction:
    """The tick of the host's own counter, by info.json."""
    return tick_of(first_entry(info, "CPU").get("Frequency")) or NANOSECOND


def host_moment_ns(log: Mapping[str, int], info: Mapping[str, Any]) -> int | None:
    """What the host's clock showed when the counter of the device was read, by host_start.log.

    cntvct_diff tells in ticks of the host's counter how much later the host's clock was read.
    """
    monotonic_ns = log.get("clock_monotonic_raw", 0)
    found = monotonic_ns + round(log.get("cntvct_diff", 0) * host_tick_ns(info))
    return found if monotonic_ns > 0 and 0 < found < EARLIEST_WALL_NS else None


def read_anchor(directory: Path, info: Mapping[str, Any]) -> Anchor | None:
    """The moment that dev_start.log and host_start.log name together; None where one is silent.

    Raises:
        SourceError: one of them is there and cannot be read.
    """
    count = read_clock_log(directory, "dev_start.log").get("cntvct", 0)
    monotonic_ns = host_moment_ns(read_clock_log(directory, "host_start.log"), info)
    if monotonic_ns is None or not 0 < count < _MOST_COUNT:
        return None
    return Anchor(count, monotonic_ns)


def read_clock_log(directory: Path, name: str) -> dict[str, int]:
    """The numbers in the first section of a log, the first of each name; later sections repeat it.

    Raises:
        SourceError: the log is there and cannot be read.
    """
    found: dict[str, int] = {}
    sections = 0
    for path in clock_files(directory, name)[:1]:
        for line in whole_text(path).decode("utf-8", "replace").splitlines():
            sections += line.lstrip().startswith("[")
            if sections > 1:
                break
            if match := _LINE.fullmatch(line):
                found.setdefault(match[1], int(match[2]))
    return found


def clock_files(directory: Path, name: str) -> list[Path]:
    """`name` and `name.N` of a directory, without the marks that they are complete.

    Raises:
        SourceError: the directory cannot be read.
    """
    pattern = re.compile(rf"{re.escape(name)}(?:\.\d+)?")
    if not directory.is_dir():
        return []
    with readable(directory):
        return sorted(path for path in directory.iterdir() if pattern.fullmatch(path.name))


def first_entry(info: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The first of the processors or devices that info.json lists, empty where it lists none."""
    held = info.get(key)
    first = held[0] if isinstance(held, list) and held else None
    return first if isinstance(first, dict) else {}
