"""Relates the clocks of a host's programs to the clock of a capture's records."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from timeline.columns.columns import Bool, Int64
from timeline.errors import SourceError
from timeline.records.clock import EARLIEST_WALL_NS
from timeline.records.not_given import NO_TIME
from timeline.records.tables import Omission, Records
from timeline.sources.common.decimals import whole_number
from timeline.sources.common.device_clock import read_start_info_offset_ns
from timeline.sources.common.losses import unreadable_file
from timeline.sources.common.msprof_files import find_sessions
from timeline.sources.decoders.json_values import read_json
from timeline.sources.source import Clock

__all__ = ["HostClock", "read_host_clock"]

MOST_DRIFT_NS = 3600 * 10**9
"""How far the steady and the raw clock of a host are apart at most: months of corrections."""


@dataclass
class HostClock:
    """What relates the steady clock of a host, its raw clock and wall time.

    wall: whether the records hold wall time; otherwise they are on the raw monotonic clock.
    steady_ns, raw_ns: what turns either clock into wall time, None where nothing tells. A raw
    clock is never corrected; a steady one is, so the two drift apart while a host runs. span_ns:
    the first and the last time of the records: a steady time that has to be taken for a raw one,
    and lies further than they can drift apart from those, is on no clock that is known.
    """

    wall: bool
    steady_ns: int | None
    raw_ns: int | None
    span_ns: tuple[int, int] | None = None
    drifted: bool = field(default=False, init=False)
    """Whether a steady time had to be taken for a raw one."""

    def shift(self, time_ns: Int64) -> tuple[Int64, Bool]:
        """What moves each time to the clock of the records, and whether that is known.

        A time is wall time if it is too large to count from the start of a host: versions of
        MindSpore write the same columns from either clock.
        """
        is_wall = time_ns >= EARLIEST_WALL_NS
        is_steady = ~is_wall & (time_ns != NO_TIME)
        from_wall, from_steady = self._from_wall(), self._from_steady()
        mixed = from_steady is not None and self._is_mixed()
        if mixed and self.span_ns is not None:
            moved_ns = time_ns + (from_steady or 0)
            far = (moved_ns < self.span_ns[0] - MOST_DRIFT_NS) | (
                moved_ns > self.span_ns[1] + MOST_DRIFT_NS
            )
        else:
            far = np.zeros(len(time_ns), np.bool_)
        self.drifted |= mixed and bool((is_steady & ~far).any())
        moved = np.where(is_wall, from_wall or 0, np.where(is_steady, from_steady or 0, 0))
        known = (
            ~(is_wall | is_steady)
            | (is_wall & (from_wall is not None))
            | (is_steady & (from_steady is not None) & ~far)
        )
        return moved.astype(np.int64), known

    def _is_mixed(self) -> bool:
        return self.steady_ns is None or (not self.wall and self.raw_ns is None)

    def _from_wall(self) -> int | None:
        if self.wall:
            return 0
        offset_ns = self.raw_ns if self.raw_ns is not None else self.steady_ns
        return None if offset_ns is None else -offset_ns

    def _from_steady(self) -> int | None:
        if self.wall:
            return self.steady_ns if self.steady_ns is not None else self.raw_ns
        if self.steady_ns is None or self.raw_ns is None:
            return 0
        return self.steady_ns - self.raw_ns


def read_host_clock(
    records: Records, clock: Clock, directories: tuple[Path, ...]
) -> tuple[HostClock, list[Omission]]:
    """What the capture's clock and the files around it tell; files that tell nothing are counted.

    directories: the capture's own first, then those around it, which it may share with other ranks.
    """
    omissions: list[Omission] = []
    steady_ns, raw_ns = None, clock.wall_offset_ns
    try:
        steady_ns = _steady_offset_ns(directories, records.rank)
        if raw_ns is None and directories:
            raw_ns = _raw_offset_ns(directories[0])
    except SourceError as error:
        omissions.append(unreadable_file(error, records.rank))
    span_ns = _span_ns(records)
    wall = span_ns is None or span_ns[0] >= EARLIEST_WALL_NS
    return HostClock(wall, steady_ns, raw_ns, span_ns), omissions


def _span_ns(records: Records) -> tuple[int, int] | None:
    """The first and the last start of what the device did; None where nothing is known of it."""
    for table in (records.tasks, records.ops, records.steps):
        known = table.start_ns[table.start_ns != NO_TIME]
        if len(known):
            return int(known.min()), int(known.max())
    return None


def _steady_offset_ns(directories: tuple[Path, ...], rank: int) -> int | None:
    """diff_time (us) of MindSpore 2.3 and 2.4: wall time less its steady clock."""
    for directory in directories:
        path = directory / f"profiler_info_{rank}.json"
        if path.is_file():
            offset_us = whole_number(read_json(path).get("diff_time"))
            offset_ns = None if offset_us is None else whole_number(offset_us * 1000)
            if offset_ns is not None and offset_ns >= EARLIEST_WALL_NS:
                return offset_ns
    return None


def _raw_offset_ns(capture: Path) -> int | None:
    """What start_info of msprof, inside a framework's capture, says of the raw clock."""
    paths = (path / "host" / "start_info" for path in find_sessions(capture))
    for path in (one for one in paths if one.exists()):
        offset_ns = read_start_info_offset_ns(path)
        if offset_ns is not None and offset_ns >= EARLIEST_WALL_NS:
            return offset_ns
    return None
