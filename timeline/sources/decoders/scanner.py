"""Columns of events from text that starts with events, where the compiled scanner is.

The package is whole without it: events are then decoded into objects first, and read slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from timeline.columns.columns import Int64
from timeline.columns.strings import StringPool
from timeline.sources.common.decimals import interval_ns
from timeline.sources.decoders.event_columns import COMPLETE, ScannedColumns
from timeline.sources.decoders.event_format import EventFormat
from timeline.sources.decoders.event_values import JsonValues
from timeline.sources.decoders.trace_events import Metadata

try:
    from timeline.sources.decoders._scanner import Scanner
except ImportError:
    Scanner = None  # type: ignore[assignment, misc]

_decode_metadata = msgspec.json.Decoder(Metadata).decode


def is_compiled() -> bool:
    """Whether this installation has the compiled scanner."""
    return Scanner is not None


@dataclass(frozen=True)
class ScannedEvents:
    """What is told of the events of one text; most of them are held by the scanner."""

    held: int
    metadata: list[Metadata]
    others: int
    """Events of a phase that is not drawn."""
    unread: int
    """Counter events that were not asked for."""

    def __len__(self) -> int:
        return self.held + len(self.metadata) + self.others + self.unread


class EventScanner:
    """Reads the events of some files of one format, whose distinct values it numbers.

    It holds them until they are taken.
    """

    def __init__(self, events: EventFormat[Any], strings: StringPool, *, counters: bool) -> None:
        self._values = JsonValues(strings)
        self._has_undecoded = False
        self._odd_times: list[tuple[int, bytes, bytes]] = []
        self._arg_numbers = events.arg_numbers
        self._scanner = Scanner(
            events.keys,
            events.first_loose,
            events.first_raw,
            counters,
            events.has_instants,
            events.has_whole_args,
        )

    def scan(self, text: bytes) -> tuple[ScannedEvents, int] | None:
        """Whole events, up to the last one or one that only the decoder can read, and their bytes.

        None where that is the first, or where a value cannot be decoded: from there on, for the
        same value may come again.
        """
        if self._has_undecoded:
            return None
        scanned = self._scanner.scan(text)
        used, texts, groups, held, metadata, odd_times, others, unread = scanned
        self._has_undecoded = not self._values.add_texts(texts, groups)
        if not used:
            return None
        named = None if self._has_undecoded else _decoded(metadata)
        if named is None:
            self._scanner.undo()
            return None
        self._odd_times += odd_times
        return ScannedEvents(held, named, others, unread), used

    def take(self) -> ScannedColumns:
        """The events that are held, which are let go of."""
        events = ScannedColumns.of(self._scanner.take(), self._values, self._arg_numbers)
        odd, self._odd_times = self._odd_times, []
        return _with_times(events, odd)


def _decoded(metadata: Sequence[bytes]) -> list[Metadata] | None:
    """Metadata events; None where one cannot be decoded."""
    try:
        return [_decode_metadata(event) for event in metadata]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _with_times(events: ScannedColumns, odd: Sequence[tuple[int, bytes, bytes]]) -> ScannedColumns:
    """The events with the times of those rows that are not spelled as plain decimals."""
    if not odd:
        return events
    rows: Int64 = np.array([row for row, _, _ in odd])
    start_ns, end_ns = interval_ns([ts for _, ts, _ in odd], [dur for _, _, dur in odd])
    is_interval = events.phase[rows] == COMPLETE
    return events.with_times(rows, start_ns, rows[is_interval], end_ns[is_interval])
