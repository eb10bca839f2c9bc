"""Events of trace files of one format, gathered until there are enough to become columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from timeline.columns.strings import StringPool
from timeline.sources.decoders.decoded_columns import DecodedEvents
from timeline.sources.decoders.event_columns import EventColumns
from timeline.sources.decoders.event_format import EventFormat
from timeline.sources.decoders.scanner import EventScanner, ScannedEvents, is_compiled
from timeline.sources.decoders.trace_events import Complete, Counter, Flow, Ignored, Metadata, Other

HELD_EVENTS = 1 << 15
"""Events that are held as objects before they become columns."""

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
        self._format, self._strings, self._with_counters = events, strings, counters
        self._scanner = self._new_scanner() if is_compiled() else None
        self._runs: list[EventColumns | DecodedEvents] = []
        self.size = 0
        """Events that are held, in objects: columns take less memory."""
        self.others = 0
        """Events of a phase that is not drawn, of all that were added."""
        self.unread = 0
        """Counter events that were not asked for, of those that were scanned."""

    def _new_scanner(self) -> EventScanner:
        return EventScanner(self._format, self._strings, counters=self._with_counters)

    @property
    def scan(self) -> Callable[[bytes], tuple[ScannedEvents, int] | None] | None:
        """The faster way to read events, where there is one; see `read_events`."""
        return self._scan if self._scanner else None

    def _scan(self, text: bytes) -> tuple[ScannedEvents, int] | None:
        assert self._scanner is not None
        return self._scanner.scan(text)

    def add(self, events: Sequence[Any] | ScannedEvents) -> list[Metadata]:
        """Keep the events that `read_events` gives; the metadata among them is for the caller."""
        if isinstance(events, ScannedEvents):
            self.others += events.others
            self.unread += events.unread
            self.size += -(-len(events) // COLUMNS_PER_OBJECT)
            return events.metadata
        self.size += max(len(events), LEAST_PER_BLOCK)
        return self._add_decoded(events)

    def _take_scanned(self) -> None:
        """Put what the scanner holds behind the runs."""
        if self._scanner and len(held := self._scanner.take()):
            self._runs.append(held)

    def _last_decoded(self) -> DecodedEvents:
        """Where the next decoded events go: to those that were read just before."""
        self._take_scanned()
        last = self._runs[-1] if self._runs else None
        if isinstance(last, DecodedEvents):
            return last
        run = DecodedEvents()
        self._runs.append(run)
        return run

    def _add_decoded(self, events: Sequence[Any]) -> list[Metadata]:
        decoded = self._last_decoded()
        found = _ByType(decoded)
        for event in events:
            found[type(event)](event)
        self.others += len(found.others)
        if not self._with_counters:
            decoded.counters.clear()
        return found.metadata

    def take(self) -> list[EventColumns]:
        """The events that are held, which are let go of: parts in file order."""
        self._take_scanned()
        parts = [
            run.columns(self._strings) if isinstance(run, DecodedEvents) else run
            for run in self._runs
            if run
        ]
        self._runs, self.size = [], 0
        if self._scanner and self._format.has_whole_args:
            # They may differ from event to event, and the scanner keeps what it has seen.
            self._scanner = self._new_scanner()
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
            (Ignored, []),
        ):
            if issubclass(kind, base):
                return found
        return held.instants
