"""Turns text at the start of which are events into their columns, where the compiled scanner is.

The package is whole without it: events are then decoded into objects, and read slower.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from timeline.columns.columns import Int64
from timeline.columns.strings import StringPool
from timeline.sources.common.decimals import interval_ns
from timeline.sources.trace_json.event_columns import COMPLETE, ScannedEvents
from timeline.sources.trace_json.events import Args, Metadata
from timeline.sources.trace_json.spellings import Spellings

try:
    from timeline.sources.trace_json._scanner import Scanner
except ImportError:
    Scanner = None  # type: ignore[assignment, misc]

__all__ = ["ARG_NUMBERS", "EventScanner", "is_compiled"]

_ARGS = msgspec.structs.fields(Args)
ARG_NUMBERS = {arg.name: number for number, arg in enumerate(_ARGS)}
"""The number that the scanner gives each arg."""
_FIRST_RAW = min(number for number, arg in enumerate(_ARGS) if arg.type is msgspec.Raw)
_decode_metadata = msgspec.json.Decoder(Metadata).decode


def is_compiled() -> bool:
    """Whether this installation has the compiled scanner."""
    return Scanner is not None


class EventScanner:
    """Reads the events of some files, whose distinct values it numbers."""

    def __init__(self, strings: StringPool, *, counters: bool) -> None:
        self.spellings = Spellings(strings)
        keys = [msgspec.json.encode(arg.encode_name) for arg in _ARGS]
        self._scanner = Scanner(keys, _FIRST_RAW, counters)

    def scan(self, text: bytes) -> tuple[ScannedEvents, int] | None:
        """Whole events, up to the last one or one that only the decoder can read, and their bytes.

        None where that is the first, or where a value cannot be decoded.
        """
        scanned = self._scanner.scan(text)
        used, texts, groups, columns, metadata, odd_times, others, unread = scanned
        if not self.spellings.add(texts, groups) or not used:
            return None
        try:
            named = [_decode_metadata(event) for event in metadata]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        events = ScannedEvents.of(columns, named, others, unread)
        return _with_times(events, odd_times), used


def _with_times(events: ScannedEvents, odd: Sequence[tuple[int, bytes, bytes]]) -> ScannedEvents:
    """The events with the times of those rows that are not spelled as plain decimals."""
    if not odd:
        return events
    rows: Int64 = np.array([row for row, _, _ in odd])
    start_ns, end_ns = interval_ns([ts for _, ts, _ in odd], [dur for _, _, dur in odd])
    is_interval = events.phase[rows] == COMPLETE
    return events.with_times(rows, start_ns, rows[is_interval], end_ns[is_interval])
