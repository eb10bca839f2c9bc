"""Turns a capture into the time from its start to its end, as its names, files or records tell."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from timeline.errors import SourceError
from timeline.records.clock import EARLIEST_WALL_NS
from timeline.selection import Layer
from timeline.sources.common.decimals import whole_number
from timeline.sources.common.identity import INFO_NAME, Claim
from timeline.sources.decoders.json_values import read_json
from timeline.sources.decoders.sqlite import open_database
from timeline.sources.files.opened import held_file, named_files
from timeline.sources.formats import source_of
from timeline.sources.kineto.header import a_moment_ns
from timeline.sources.source import Layout, Wanted

__all__ = ["Extent", "named_time", "read_time", "recorded_time"]

Extent = tuple[int | None, int | None]
"""Start and end in ns, None where not known."""
_UNKNOWN: Extent = (None, None)


def named_time(claim: Claim) -> Extent:
    """The moment in the name of a capture, in the time zone of whoever named it."""
    if not claim.taken:
        return _UNKNOWN
    try:
        moment = datetime.strptime(claim.taken[:14] + "+0000", "%Y%m%d%H%M%S%z")
    except ValueError:
        return _UNKNOWN
    return int(moment.timestamp()) * 10**9 + int(claim.taken[14:]) * 10**6, None


def recorded_time(claim: Claim) -> Extent:
    """What the files of a capture say of its start and end, in wall time.

    A file that cannot be read tells nothing: its capture is no worse for that.
    """
    with contextlib.suppress(SourceError):
        if claim.capture.layout is Layout.KINETO:
            return a_moment_ns(claim.capture.content), None
        if claim.capture.layout is Layout.DATABASE:
            found = _of_database(claim.capture.database)
            if found != _UNKNOWN:
                return found
        return _of_files(claim)
    return _UNKNOWN


def _of_database(path: Path) -> Extent:
    with open_database(path) as database:
        if not database.has("SESSION_TIME_INFO", "startTimeNs", "endTimeNs"):
            return _UNKNOWN
        rows = database.rows("SELECT startTimeNs, endTimeNs FROM SESSION_TIME_INFO LIMIT 1")
    return _wall(*rows[0]) if rows else _UNKNOWN


def _of_files(claim: Claim) -> Extent:
    for start, end in _clock_files(claim):
        start_us = whole_number(read_json(start).get("collectionTimeBegin"))
        end_us = None
        if end is not None:
            end_us = whole_number(read_json(end).get("collectionTimeEnd"))
        if start_us is not None:
            return _wall(start_us * 1000, None if end_us is None else end_us * 1000)
    for path in named_files(claim.capture.directory).items():
        if INFO_NAME.fullmatch(path[0]):
            return _of_profiler_info(path[1])
    return _UNKNOWN


def _clock_files(claim: Claim) -> Iterator[tuple[Path, Path | None]]:
    """What msprof wrote when it began and ended, of the host before the device."""
    directory = claim.capture.directory
    sessions = [directory, *sorted(directory.glob("PROF_*"))]
    for session in sessions:
        places = [(session / "host", "")]
        if claim.device is not None:
            places.append((session / f"device_{claim.device}", f".{claim.device}"))
        for place, suffix in places:
            start = held_file(place, f"start_info{suffix}")
            if start is not None:
                yield start, held_file(place, f"end_info{suffix}")


def _of_profiler_info(path: Path) -> Extent:
    """What torch_npu wrote: the wall time of its end, and a monotonic clock at start and end."""
    document = read_json(path)
    start, end = (document.get(key) for key in ("start_info", "end_info"))
    if not isinstance(start, dict) or not isinstance(end, dict):
        return _UNKNOWN
    end_ns = whole_number(end.get("collectionTimeEnd"))
    began_ns = whole_number(start.get("start_monotonic"))
    ended_ns = whole_number(end.get("MonotonicTimeEnd"))
    if end_ns is None or began_ns is None or ended_ns is None:
        return _UNKNOWN
    return _wall(end_ns - (ended_ns - began_ns), end_ns)


def read_time(claim: Claim) -> Extent:
    """The first and the last moment of what a capture recorded, in wall time.

    It is read for that, so this is asked only where nothing else tells runs apart. What counts
    ticks of a device, as MindSpore's own files do, tells no wall time and is not read.
    """
    if claim.capture.layout in (Layout.TEXT, Layout.STEP_TICKS):
        return _UNKNOWN
    try:
        source = source_of(claim.capture, claim.identity(0), claim.clock, claim.several)
        records = source.read(Wanted(frozenset({Layer.HARDWARE}), every_arg=False, measures=False))
    except SourceError:
        return _UNKNOWN  # whoever reads the capture gets the error
    tables = [own for own in (records.tasks, records.ops, records.steps) if len(own)]
    if not tables:
        return _UNKNOWN
    start_ns = min(int(own.start_ns.min()) for own in tables)
    end_ns = max(int(own.end_ns.max()) for own in tables)
    moved_ns = 0
    if start_ns < EARLIEST_WALL_NS:
        moved_ns = claim.clock.wall_offset_ns or 0
    return _wall(start_ns + moved_ns, end_ns + moved_ns)


def _wall(start: object, end: object) -> Extent:
    """Times where they are wall times, and the start is not behind the end."""
    start_ns, end_ns = whole_number(start), whole_number(end)
    if start_ns is None or start_ns < EARLIEST_WALL_NS:
        return _UNKNOWN
    return start_ns, None if end_ns is None or end_ns < start_ns else end_ns
