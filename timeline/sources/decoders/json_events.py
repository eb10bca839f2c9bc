"""Events of Chrome-trace JSON files of any size: read in blocks, held until they are columns."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np

from timeline.columns.columns import Int64
from timeline.columns.strings import StringPool
from timeline.errors import SourceError
from timeline.sources.common.decimals import interval_ns
from timeline.sources.common.losses import LossLog
from timeline.sources.decoders.event_columns import (
    COMPLETE,
    EventColumns,
    JsonValues,
    columns_of_decoded,
)
from timeline.sources.decoders.json_values import end_of_value, leading_values, mend_json
from timeline.sources.decoders.trace_events import (
    Counter,
    EventDecoder,
    EventFormat,
    Ignored,
    Metadata,
    Other,
    Piece,
    fault_in,
    next_event,
    phase_of,
)
from timeline.sources.files.opened import UTF8_MARK, open_profile_file, read_behind

try:
    from timeline.sources.decoders._scanner import Scanner as Scanner
except ImportError:
    Scanner = None  # type: ignore[assignment, misc]

BLOCK_BYTES = 512 * 1024
"""Blocks of this size stay in the processor's cache; larger ones read slower."""
MOST_CUTS_TRIED = 8
MOST_CUTS_OF_DAMAGE = 1_000
MOST_EVENT_BYTES = 64 << 20
"""Text of this size without an end of an event is damaged."""
NEXT_DOCUMENT = "another trace in the same file, which is not read"
_EVENTS = b"traceEvents"
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_OBJECT = b'{"traceEvents":['
_WHITE = b" \t\r\n"
MOST_METADATA_BYTES = 512
MOST_BRACES = 3
"""Braces on either side of the phase that may be those of the event."""
HELD_EVENTS = 1 << 15
"""Events that are held as objects before they become columns."""
COLUMNS_PER_OBJECT = 4
"""Events in columns that take as much memory as one object."""
LEAST_PER_BLOCK = 2048
"""Events that a block of objects counts for at least: each keeps the text of its block alive.

Blocks differ in their number of events: call stacks and shapes take thousands of bytes.
"""


@dataclass(frozen=True)
class ScannedEvents:
    """Counts and metadata of the events of one text, which the scanner holds.

    others: events of a phase that is not drawn. unread: counter events that were not asked for.
    """

    held: int
    metadata: list[Metadata]
    others: int
    unread: int

    def __len__(self) -> int:
        return self.held + len(self.metadata) + self.others + self.unread


Events = Any
"""A list of decoded events, or the ScannedEvents that were read instead."""
Scan = Callable[[bytes], tuple[ScannedEvents, int] | None]

_decode_metadata = msgspec.json.Decoder(Metadata).decode


def read_events(
    decoder: EventDecoder,
    path: Path,
    block_bytes: int = BLOCK_BYTES,
    damage: LossLog | None = None,
    *,
    scan: Scan = lambda _: None,
) -> Iterator[Events]:
    """Read the events of a file, which is an array or an object with `traceEvents`.

    The file is cut between events and the decoder proves each cut: a piece that does not decode
    was cut inside an event, so an earlier cut is tried, and in the end a larger block. A file laid
    out in an unusual way therefore reads too, only with larger blocks.

    Events that cannot be decoded are left out and noted in `damage`; all whole ones before and
    behind them are read. A file that is compressed is read as what was compressed, and offsets
    are those in there.

    Args:
        decoder: that of the format.
        scan: a faster way to read whole events at the start of a text, which gives them and their
            bytes; or None, where the first is one that only the decoder can read.

    Raises:
        SourceError: the file cannot be opened, is not a trace, or holds events of which none can be
            decoded, with the byte offset.
    """
    damage = LossLog(path) if damage is None else damage
    with open_profile_file(path) as file:
        yield from _Blocks(decoder, path, damage, scan).read(file, block_bytes)


class EventBatch:
    """Events of some files of one format that were read and not used yet.

    The compiled scanner numbers the distinct values of what it reads, and holds it; the decoder
    reads the rest, or everything in an installation without the scanner.
    """

    def __init__(self, events: EventFormat, strings: StringPool, *, counters: bool) -> None:
        """Begin empty; counters: whether counter events are asked for."""
        self._format, self._strings, self._with_counters = events, strings, counters
        self._decoded: list[Any] = []
        self._runs: list[EventColumns] = []
        self._size = 0
        """Events that are held, in objects: columns take less memory."""
        self.others = 0
        """Events of a phase that is not drawn, of all that were read."""
        self.unread = 0
        """Counter events that were not asked for, of those that were scanned."""
        self._begin_scanning()

    def _begin_scanning(self) -> None:
        self._values, self._has_undecoded = JsonValues(self._strings), False
        self._odd_times: list[tuple[int, bytes, bytes]] = []
        self._has_scanned = False
        self._scanner = None
        if Scanner is not None:
            events = self._format
            self._scanner = Scanner(
                events.keys,
                events.first_loose,
                events.first_raw,
                self._with_counters,
                events.has_instants,
                events.has_whole_args,
            )

    def read(self, path: Path, damage: LossLog | None = None) -> Iterator[list[Metadata]]:
        """Read a file, and return the metadata of each block once its other events are held.

        Raises:
            SourceError: as `read_events`.
        """
        for events in read_events(self._format.decoder, path, BLOCK_BYTES, damage, scan=self.scan):
            if isinstance(events, ScannedEvents):
                self.others += events.others
                self.unread += events.unread
                self._size += -(-len(events) // COLUMNS_PER_OBJECT)
                self._has_scanned = True
                yield events.metadata
            else:
                self._size += max(len(events), LEAST_PER_BLOCK)
                yield self._add_decoded(events)

    def is_full(self, times: int = 1) -> bool:
        """Return whether so many events are held that they should be taken.

        times: as many times more may be held.
        """
        return self._size > HELD_EVENTS * times

    def scan(self, text: bytes) -> tuple[ScannedEvents, int] | None:
        """Read whole events up to the last, or one that only the decoder can read, and their bytes.

        None if that is the first, or from the first value on that cannot be decoded, because the
        same value may come again. Times that are not plain decimals are read when events are taken.
        """
        if not self._scanner or self._has_undecoded:
            return None
        scanned = self._scanner.scan(text)
        used, texts, groups, held, metadata, odd_times, others, unread = scanned
        self._has_undecoded = not self._values.add_texts(texts, groups)
        if not used:
            return None
        try:
            named = [_decode_metadata(event) for event in metadata]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            named = None
        if named is None or self._has_undecoded:
            self._scanner.undo()
            return None
        self._odd_times += odd_times
        return ScannedEvents(held, named, others, unread), used

    def _add_decoded(self, events: Sequence[Any]) -> list[Metadata]:
        """Keep decoded events, together with those that were read just before."""
        if self._has_scanned:
            self._end_runs()
        metadata = []
        for event in events:
            if isinstance(event, Metadata):
                metadata.append(event)
            elif isinstance(event, Other):
                self.others += 1
            elif not isinstance(event, Ignored if self._with_counters else (Ignored, Counter)):
                self._decoded.append(event)
        return metadata

    def _end_runs(self) -> None:
        """Make columns of the decoded events, and of what was scanned behind them."""
        if self._decoded:
            self._runs.append(columns_of_decoded(self._decoded, self._format, self._strings))
            self._decoded = []
        if self._scanner and (scanned := self._take_scanned()):
            self._runs.append(scanned)
        self._has_scanned = False

    def _take_scanned(self) -> EventColumns:
        assert self._scanner is not None
        events = EventColumns.of_scanned(
            self._scanner.take(), self._values, self._format.arg_numbers
        )
        odd, self._odd_times = self._odd_times, []
        if not odd:
            return events
        rows: Int64 = np.array([row for row, _, _ in odd])
        start_ns, end_ns = interval_ns([ts for _, ts, _ in odd], [dur for _, _, dur in odd])
        is_interval = events.phase[rows] == COMPLETE
        every_start_ns, every_end_ns = events.start_ns.copy(), events.end_ns.copy()
        every_start_ns[rows], every_end_ns[rows[is_interval]] = start_ns, end_ns[is_interval]
        return replace(events, start_ns=every_start_ns, end_ns=every_end_ns)

    def take(self) -> list[EventColumns]:
        """Return the events that are held, parts in file order, and let go of them."""
        self._end_runs()
        parts, self._runs, self._size = self._runs, [], 0
        if self._format.has_whole_args:
            # They may differ from event to event, and the scanner keeps what it has seen.
            self._begin_scanning()
        return parts


def look_for_metadata(path: Path, text: bytes = b'"M"') -> Iterator[list[Metadata]]:
    """Return metadata events of a file, block by block, found by a text without decoding the rest.

    One that is laid out in an unusual way may be missed; an event at the edge of a block is found
    with the next one.

    text: what the events hold that are wanted; for all it is their phase.

    Raises:
        SourceError: the file cannot be read.
    """
    pattern = re.compile(re.escape(text))
    with open_profile_file(path) as file:
        held, begin, ended = b"", 0, False
        while not ended:
            longer = read_behind(file, held, BLOCK_BYTES)
            ended = len(longer) == len(held)
            held = longer
            stop = len(held) - (0 if ended else MOST_METADATA_BYTES)
            matches = pattern.finditer(held, begin, max(begin, stop + len(text) - 1))
            events = [_metadata_around(held, match.start()) for match in matches]
            yield [event for event in events if event is not None]
            begin = max(begin, stop)
            kept = max(0, begin - MOST_METADATA_BYTES)
            held, begin = held[kept:], begin - kept


def _metadata_around(held: bytes, at: int) -> Metadata | None:
    """Return the metadata event around a place of a text."""
    first = max(0, at - MOST_METADATA_BYTES)
    before, behind = held[first : at + 1], held[at : at + MOST_METADATA_BYTES]
    begins = [match.start() for match in re.finditer(rb"\{", before)][: -MOST_BRACES - 1 : -1]
    ends = [match.end() for match in re.finditer(rb"\}", behind)][:MOST_BRACES]
    for begin, end in product(begins, ends):
        event = held[first + begin : at + end]
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            if phase_of(event) == Metadata.__struct_config__.tag:
                return _decode_metadata(event)
    return None


class _Blocks:
    """One file while it is read."""

    def __init__(self, decoder: EventDecoder, path: Path, damage: LossLog, scan: Scan) -> None:
        self._decoder, self._path, self._damage, self._scan = decoder, path, damage, scan
        self._offset = 0
        """Of the text at hand, in the file."""
        self._grown = False
        self._mended_until = -1
        """Whether the text at hand may be longer than it is in the file, because it was mended."""
        self._events = 0
        self._first_fault: tuple[int, str] | None = None

    def read(self, file: BinaryIO, block_bytes: int) -> Iterator[Events]:
        opening, held = self._open(file, block_bytes)
        wanted = block_bytes
        while (longer := self._longer(file, held, wanted)) is not None:
            held = longer
            scanned, piece = self._whole(held)
            fault = None if scanned or piece else self._fault(opening, held)
            if fault is not None and (end := _end_of_document(opening, held, fault)) is not None:
                held = self._without_next_document(held, end)
                break
            if fault is not None and (mended := self._mended(held, fault)) != held:
                held = mended
                scanned, piece = self._whole(held)
                fault = None if scanned or piece else self._fault(opening, held)
            if scanned is not None:
                events, used = scanned
                self._events += len(events)
                yield events
                held, wanted = self._behind(held, used), block_bytes
                continue
            used = piece.behind if piece else 0
            if fault is not None:
                piece = self._before_or_at(held, fault)
                used = next_event(held, max(piece.behind, 1))
                if used == len(held) < MOST_EVENT_BYTES:
                    piece = None
                else:
                    self._note("places that are not valid JSON", fault)
            if piece is None:
                wanted = len(held)
                continue
            yield self._accepted(piece)
            held, wanted = self._behind(held, used), block_bytes
        yield from self._rest(opening, held)
        if not self._events and self._first_fault is not None:
            raise self._unreadable(*self._first_fault)

    def _whole(self, held: bytes) -> tuple[tuple[ScannedEvents, int] | None, Piece | None]:
        """Whole events at the start of a text, as the scanner reads them, or else the decoder."""
        scanned = self._scan(held)
        return scanned, self._before(held, len(held), MOST_CUTS_TRIED) if scanned is None else None

    def _mended(self, held: bytes, fault: int) -> bytes:
        """Return the text mended, or as it is if the object at the fault was mended before."""
        if self._offset + fault < self._mended_until:
            return held
        mended = mend_json(held, fault)
        self._offset -= len(mended) - len(held)
        self._grown |= len(mended) != len(held)
        self._mended_until = self._offset + mended.rfind(b"}")
        return mended

    def _open(self, file: BinaryIO, block_bytes: int) -> tuple[bytes, bytes]:
        """Return what the file opens with, and the text behind that."""
        held, found = b"", None
        while found is None:
            if len(held) > MOST_EVENT_BYTES:
                raise SourceError(self._path, "holds too much before its events.")
            more = file.read(max(block_bytes, len(held)))
            held += more
            found = _opening(held, self._path, ended=not more)
        opening, skipped = found
        return opening, self._behind(held, skipped)

    def _longer(self, file: BinaryIO, held: bytes, count: int) -> bytes | None:
        """Return the text at hand and so many bytes more; None at the end.

        Where compressed content breaks off, what came before is all there is.
        """
        try:
            longer = held + file.read(count) if self._grown else read_behind(file, held, count)
        except SourceError:
            self._note("compressed content that cannot be unpacked", 0)
            return None
        return longer if len(longer) > len(held) else None

    def _behind(self, held: bytes, used: int) -> bytes:
        self._offset += used
        return held[used:]

    def _before(self, held: bytes, stop: int, tries: int) -> Piece | None:
        """Return the whole events before a place, as many as the decoder accepts."""
        for _, (end, behind) in zip(range(tries), _cuts(held, stop), strict=False):
            piece = self._decoder.whole_events(memoryview(held)[:end])
            if piece is not None:
                return replace(piece, behind=behind)
        return None

    def _fault(self, opening: bytes, held: bytes) -> int | None:
        """Return where no text that follows could make the events valid."""
        if not opening:
            return None
        fault = fault_in(opening + held)
        if fault is None:
            return 0 if len(held) > MOST_EVENT_BYTES else None
        return max(0, fault - len(opening))

    def _without_next_document(self, held: bytes, end: int) -> bytes:
        """Return the text of its document; what follows is of another trace and noted."""
        self._note(NEXT_DOCUMENT, end)
        self._damage.remarks.append(
            f"{self._path.name} holds another trace behind the first, from byte "
            f"{self._offset + end} on, which is not read. Put it into a file of its own."
        )
        return held[:end]

    def _rest(self, opening: bytes, held: bytes) -> Iterator[list[Any]]:
        """Return what is left when all of the file is at hand."""
        while True:
            piece = self._decoder.whole_file(opening, held)
            if piece is not None:
                yield self._accepted(piece)
                return
            if not opening:
                opening, skipped = self._opening_within(held)
                held = self._behind(held, skipped)
                continue
            fault = fault_in(opening + held)
            end = None if fault is None else _end_of_document(opening, held, fault - len(opening))
            if end is not None:
                held = self._without_next_document(held, end)
                continue
            cut_off = fault is None
            stop = len(held) if fault is None else max(0, fault - len(opening))
            if (mended := self._mended(held, stop)) != held:
                held = mended
                continue
            piece = self._before_or_at(held, stop)
            rest = held[piece.behind :].rstrip(_WHITE)
            left = rest.strip(_WHITE + b",]")
            # Some writers leave a comma behind the last event of a list.
            is_whole = cut_off and not left and opening == b"[" and rest.endswith(b"]")
            used = len(held) if cut_off or not left else next_event(held, max(piece.behind, 1))
            events = self._accepted(piece)
            if cut_off and not is_whole:
                what = "an event is cut off" if left else "the end is missing"
                after = f"{what} after {self._events} whole events"
                self._note(after, stop, rows=1 if left else 0)
            elif not cut_off:
                self._note("places that are not valid JSON", stop)
            yield events
            if used == len(held):
                return
            held = self._behind(held, used)

    def _before_or_at(self, held: bytes, stop: int) -> Piece:
        """Return the whole events before a place, or all up to the last brace before it.

        Between two events anything may be missing.
        """
        end = stop
        for _ in range(MOST_CUTS_TRIED):
            end = held.rfind(b"}", 0, end)
            piece = self._decoder.whole_events(held[: end + 1]) if end >= 0 else None
            if piece is not None:
                return replace(piece, behind=end + 1)
        return self._before(held, stop, MOST_CUTS_OF_DAMAGE) or Piece([], [], 0)

    def _opening_within(self, held: bytes) -> tuple[bytes, int]:
        """Return what a damaged object opens with, and the bytes before its events."""
        if match := _EVENTS_KEY.search(held):
            return _OBJECT, match.end()
        raise self._unreadable(len(held), "it ends before its events")

    def _accepted(self, piece: Piece) -> list[Any]:
        for what, at in piece.faults:
            self._note(what, at)
        self._events += len(piece.events)
        return piece.events

    def _note(self, what: str, at: int, rows: int = 1) -> None:
        offset = self._offset + at
        self._damage.add(what, f"byte {offset}", rows)
        if self._first_fault is None:
            self._first_fault = (offset, what)

    def _unreadable(self, offset: int, found: str) -> SourceError:
        return SourceError(
            self._path,
            f"holds no event that can be read: {found}.",
            offset=offset,
            do="The run was probably interrupted while it wrote; export it again.",
        )


def _opening(held: bytes, path: Path, *, ended: bool) -> tuple[bytes, int] | None:
    """Return what the file opens with and the bytes up to its events; None to read on first."""
    mark = len(UTF8_MARK) if held.startswith(UTF8_MARK) else 0
    begin = len(held) - len(held[mark:].lstrip(_WHITE))
    first = held[begin : begin + 1]
    if not ended and (not first or (UTF8_MARK.startswith(held) and held)):
        return None
    if not first:
        raise SourceError(path, "is empty.")
    if first == b"[":
        return b"[", begin + 1
    if first == b"{":
        found = _object_opening(held, begin, ended=ended)
        if found is not None or not ended:
            return found
    raise SourceError(
        path,
        f"is no trace: it opens with {held[:20]!r}.",
        offset=0,
        do='Expected a list of events or an object with "traceEvents".',
    )


def _object_opening(held: bytes, begin: int, *, ended: bool) -> tuple[bytes, int] | None:
    """Return what an object opens with, and the bytes before its events; None to read on first."""
    for key, first, _ in leading_values(held, begin + 1, _EVENTS):
        if key == _EVENTS and held[first : first + 1] == b"[":
            return _OBJECT, first + 1
    # What cannot be stepped over is decoded as one object, for the byte where it is wrong.
    return (b"", begin) if ended and b'"traceEvents"' in held else None


def _end_of_document(opening: bytes, held: bytes, fault: int) -> int | None:
    """Return where a document ends if the fault is the beginning of another one; else None."""
    end = end_of_value(opening + held[: fault + 1], 0)
    if end is None:
        return None
    end -= len(opening)
    return end if held[end : fault + 1].strip(_WHITE)[:1] in (b"{", b"[") else None


def _cuts(held: bytes, stop: int) -> Iterator[tuple[int, int]]:
    """Places between two objects, last first: (end of the left one, start of the right one)."""
    start = stop
    while (start := held.rfind(b"{", 0, start)) > 0:
        before = held[max(0, start - 64) : start].rstrip(_WHITE)
        if before.endswith(b","):
            left = before[:-1].rstrip(_WHITE)
            if left.endswith(b"}"):
                yield held.rfind(b"}", 0, start) + 1, start
