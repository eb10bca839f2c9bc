"""When a capture was taken, from its start to its end, as its name, files or records tell."""

from __future__ import annotations

import contextlib
from datetime import datetime, timezone
from pathlib import Path

from timeline.errors import SourceError
from timeline.layers import Layer
from timeline.records.clock import EARLIEST_WALL_NS
from timeline.sources.capture import NO_EXTENT, Claim, Extent
from timeline.sources.common.decimals import whole_number
from timeline.sources.common.identity import PROFILER_INFO_NAME, wall_extent
from timeline.sources.common.msprof_files import find_sessions
from timeline.sources.decoders.json_values import read_json
from timeline.sources.files.opened import files_by_name, find_file
from timeline.sources.files.remembered import remember_by_directory
from timeline.sources.source import ReadRequest


def named_time(claim: Claim) -> Extent:
    """The moment in the name of a capture, in the time zone of whoever named it."""
    if not claim.taken:
        return NO_EXTENT
    try:
        day = (int(claim.taken[:4]), int(claim.taken[4:6]), int(claim.taken[6:8]))
        time = (int(claim.taken[8:10]), int(claim.taken[10:12]), int(claim.taken[12:14]))
        moment = datetime(*day, *time, tzinfo=timezone.utc)
    except ValueError:
        return NO_EXTENT
    return int(moment.timestamp()) * 10**9 + int(claim.taken[14:]) * 10**6, None


def recorded_time(claim: Claim) -> Extent:
    """What the files of a capture say of its start and end, in wall time.

    A file that cannot be read tells nothing: its capture is no worse for that.
    """
    with contextlib.suppress(SourceError):
        found = claim.capture.format.recorded_time(claim.capture)
        return found if found != NO_EXTENT else _time_of_files(claim)
    return NO_EXTENT


def _time_of_files(claim: Claim) -> Extent:
    """Return what msprof wrote when it began and ended, or what the framework wrote at its end.

    Of the host before the device.
    """
    directory = claim.capture.directory
    for session in (directory, *find_sessions(directory)):
        inner = [(session / "host", "")]
        if claim.device is not None:
            inner.append((session / f"device_{claim.device}", f".{claim.device}"))
        for where, suffix in inner:
            begun = find_file(where, f"start_info{suffix}")
            ended = find_file(where, f"end_info{suffix}")
            start_us, end_us = (
                None if path is None else whole_number(read_json(path).get(key))
                for path, key in ((begun, "collectionTimeBegin"), (ended, "collectionTimeEnd"))
            )
            if start_us is not None:
                return wall_extent(start_us * 1000, None if end_us is None else end_us * 1000)
    info = _find_profiler_info(directory)
    return NO_EXTENT if info is None else _time_of_profiler_info(info)


@remember_by_directory
def _find_profiler_info(directory: Path) -> Path | None:
    named = files_by_name(directory).items()
    return next((path for name, path in named if PROFILER_INFO_NAME.fullmatch(name)), None)


def _time_of_profiler_info(path: Path) -> Extent:
    """What torch_npu wrote: the wall time of its end, and a monotonic clock at start and end."""
    document = read_json(path)
    start, end = (document.get(key) for key in ("start_info", "end_info"))
    if not isinstance(start, dict) or not isinstance(end, dict):
        return NO_EXTENT
    end_ns = whole_number(end.get("collectionTimeEnd"))
    began_ns = whole_number(start.get("start_monotonic"))
    ended_ns = whole_number(end.get("MonotonicTimeEnd"))
    if end_ns is None or began_ns is None or ended_ns is None:
        return NO_EXTENT
    return wall_extent(end_ns - (ended_ns - began_ns), end_ns)


def read_time(claim: Claim) -> Extent:
    """The first and the last moment of what a capture recorded, in wall time.

    It is read for that, so this is asked only where nothing else tells runs apart. What counts
    ticks of a device tells no wall time and is not read.
    """
    if claim.capture.format.counts_ticks:
        return NO_EXTENT
    try:
        source = claim.capture.format.open(claim, rank=0)
        records = source.read(
            ReadRequest(frozenset({Layer.HARDWARE}), every_arg=False, measures=False)
        )
    except SourceError:
        return NO_EXTENT  # whoever reads the capture gets the error
    tables = [table for table in (records.tasks, records.ops, records.steps) if len(table)]
    if not tables:
        return NO_EXTENT
    start_ns = min(int(table.start_ns.min()) for table in tables)
    end_ns = max(int(table.end_ns.max()) for table in tables)
    moved_ns = 0
    if start_ns < EARLIEST_WALL_NS:
        moved_ns = claim.clock.wall_offset_ns or 0
    return wall_extent(start_ns + moved_ns, end_ns + moved_ns)
