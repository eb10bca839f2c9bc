"""Columns of the events of files of one format, however each part of a file could be read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from timeline.columns.strings import StringPool
from timeline.sources.decoders.decoded_columns import DecodedEvents
from timeline.sources.decoders.event_columns import EventColumns, ScannedColumns
from timeline.sources.decoders.event_format import EventFormat
from timeline.sources.decoders.scanner import EventScanner, ScannedEvents, is_compiled
from timeline.sources.decoders.trace_events import Complete, Counter, Flow, Metadata, Other

__all__ = ["EventBatch"]

COLUMNS_PER_OBJECT = 4
"""Events in columns that take as much memory as one object."""
LEAST_PER_BLOCK = 2048
"""Events that a block of objects counts for at least: each keeps the text of its block alive.

Blocks differ in their number of events: call stacks and shapes take thousands of bytes.
"""


class EventBatch:
    """Events that were read and not used yet."""

    def __init__(self, events: EventFormat[Any], strings: StringPool, *, counters: bool) -> None:
        """counters: whether counter events are asked for."""
        self._strings, self._with_counters = strings, counters
        scanner = EventScanner(events, strings, counters=counters) if is_compiled() else None
        self.scan = scanner.scan if scanner else None
        """See `read_events`."""
        self._scanned: list[ScannedColumns] = []
        self._decoded = DecodedEvents()
        self.size = 0
        """Events that are held, in objects: columns take less memory."""
        self.others = 0
        """Events of a phase that is not drawn, of all that were ever added."""

    def add(self, events: Sequence[Any] | ScannedEvents) -> list[Metadata]:
        """Keep the events that `read_events` gives; the metadata among them is for the caller."""
        if isinstance(events, ScannedEvents):
            self.others += events.others
            self._scanned.append(events.columns)
            self.size += -(-len(events) // COLUMNS_PER_OBJECT)
            return events.metadata
        self.size += max(len(events), LEAST_PER_BLOCK)
        return self._add_decoded(events)

    def _add_decoded(self, events: Sequence[Any]) -> list[Metadata]:
        found = _ByType(self._decoded)
        for event in events:
            found[type(event)](event)
        self.others += len(found.others)
        if not self._with_counters:
            self._decoded.counters.clear()
        return found.metadata

    def take(self) -> list[EventColumns]:
        """The events that are held, which are let go of: those with the same values together."""
        parts: list[EventColumns] = []
        if self._scanned:
            parts.append(ScannedColumns.concat(self._scanned))
        if self._decoded:
            parts.append(self._decoded.columns(self._strings))
        self._scanned, self._decoded, self.size = [], DecodedEvents(), 0
        return parts


class _ByType(dict[type, Callable[[Any], None]]):
    """Where events of each type go."""

    def __init__(self, held: DecodedEvents) -> None:
        super().__init__()
        self._held = held
        self.metadata: list[Metadata] = []
        self.others: list[Other] = []

    def __missing__(self, kind: type) -> Callable[[Any], None]:
        self[kind] = made = self._list_of(kind).append
        return made

    def _list_of(self, kind: type) -> list[Any]:
        held = self._held
        for base, found in (
            (Complete, held.intervals),
            (Counter, held.counters),
            (Flow, held.arrows),
            (Metadata, self.metadata),
            (Other, self.others),
        ):
            if issubclass(kind, base):
                return found
        return held.instants
