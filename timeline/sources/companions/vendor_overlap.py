"""Sums of the Overlap Analysis in a small trace beside a capture, to compare with."""

from __future__ import annotations

from pathlib import Path

import msgspec

from timeline.columns.strings import StringPool
from timeline.errors import SourceError
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.vendor import Measure, VendorFigures
from timeline.sources.common.decimals import moments_ns
from timeline.sources.common.lane_names import device_of
from timeline.sources.common.overlap_analysis import MEASURES, OVERLAP_PROCESS, sum_segments
from timeline.sources.files.opened import open_profile_file

__all__ = ["read_overlap_events"]

_EMPTY = msgspec.Raw(b"")


class _Event(msgspec.Struct, gc=False):
    name: str = ""
    pid: int | str | None = None
    dur: msgspec.Raw = _EMPTY
    args: msgspec.Raw = _EMPTY


class _Names(msgspec.Struct):
    name: str = ""


_decode_events = msgspec.json.Decoder(list[_Event]).decode
_decode_names = msgspec.json.Decoder(_Names).decode


def read_overlap_events(
    path: Path, file: str, device: int | None, strings: StringPool
) -> VendorFigures:
    """Sums of the Overlap Analysis in a small trace that is not read otherwise.

    Args:
        file: what the trace is called, of which this may be a slice.
        device: the one whose processes are meant; None is all.

    Raises:
        SourceError: the file cannot be read, or is no trace.
    """
    try:
        with open_profile_file(path) as stream:
            events = _decode_events(stream.read())
        processes = {
            event.pid
            for event in events
            if event.name == "process_name"
            and _decode_names(event.args).name == OVERLAP_PROCESS
            and (device is None or device_of(event.pid) == device)
        }
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SourceError(path, f"is no trace: {error}.") from error
    lengths: dict[Measure, list[bytes]] = {measure: [] for measure in MEASURES.values()}
    for event in events:
        if event.pid in processes and event.name in MEASURES and len(bytes(event.dur)):
            lengths[MEASURES[event.name]].append(bytes(event.dur))
    parts = {measure: moments_ns(texts) for measure, texts in lengths.items()}
    if any((lengths_ns == NO_TIME).any() for lengths_ns in parts.values()):
        raise SourceError(path, "has events of Overlap Analysis without a valid length.")
    return sum_segments(parts, f"Overlap Analysis of {file}", NO_ID, strings)
