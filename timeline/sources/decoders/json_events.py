"""Reads events of Chrome-trace JSON files of any size, block by block, into columns."""

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
"""Maximum number of offsets at which a block is cut before a larger block is read."""
MOST_CUTS_OF_DAMAGE = 1_000
"""Maximum number of offsets at which text before damage is cut."""
MOST_EVENT_BYTES = 64 << 20
"""Maximum size of an event; longer text without the end of an event is damaged."""
NEXT_DOCUMENT = "another trace in the same file, which is not read"
_EVENTS = b"traceEvents"
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_OBJECT = b'{"traceEvents":['
_WHITE = b" \t\r\n"
MOST_METADATA_BYTES = 512
"""Maximum size of a metadata event for `look_for_metadata`."""
MOST_BRACES = 3
"""Number of braces before and after the phase that are tried as begin and end of the event."""
HELD_EVENTS = 1 << 15
"""Number of events in a batch, as decoded objects, after which it should be taken."""
COLUMNS_PER_OBJECT = 4
"""Number of events in columns that take as much memory as one decoded object."""
LEAST_PER_BLOCK = 2048
"""Number of events that a decoded block counts for at least: its objects keep its text in memory,
even if it holds only a few events, with call stacks or shapes of thousands of bytes."""


@dataclass(frozen=True)
class ScannedEvents:
    """Counts and metadata of events that the compiled scanner has read and still holds.

    held: intervals, arrows and other events that become columns. others: events of a phase that is
    not drawn. unread: counter events, if counters were not requested.
    """

    held: int
    metadata: list[Metadata]
    others: int
    unread: int

    def __len__(self) -> int:
        return self.held + len(self.metadata) + self.others + self.unread


Events = Any
"""A list of decoded events, or ScannedEvents."""
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

    Blocks of the file are cut where an event seems to end. If the part before a cut does not
    decode, the cut was inside an event: earlier cuts are tried, then a larger block is read. So
    files with an unusual layout can be read too, only with larger blocks.

    Events that cannot be decoded are skipped and recorded in `damage`; all whole events before and
    after them are read. Compressed files are decompressed; offsets refer to decompressed content.

    scan: a faster reader of whole events at the start of a text. It returns the events and their
    length in bytes, or None if only the decoder can read the first event.

    Raises:
        SourceError: the file cannot be opened, is not a trace, or none of its events can be
            decoded; with the byte offset.
    """
    damage = LossLog(path) if damage is None else damage
    with open_profile_file(path) as file:
        yield from _Blocks(decoder, path, damage, scan).read(file, block_bytes)


class EventBatch:
    """A buffer of events of one format, from one or more files, until they are taken as columns.

    Events are read by the compiled scanner, which numbers distinct values and holds the events
    itself; the decoder reads events that the scanner cannot, or all if it is not installed.
    """

    def __init__(self, events: EventFormat, strings: StringPool, *, counters: bool) -> None:
        """Begin empty; `counters`: whether to read counter events."""
        self._format, self._strings, self._with_counters = events, strings, counters
        self._decoded: list[Any] = []
        self._runs: list[EventColumns] = []
        self._size = 0
        """The memory of held events, expressed as a number of decoded objects."""
        self.others = 0
        """Number of events read so far of a phase that is not drawn."""
        self.unread = 0
        """Number of scanned counter events that were skipped because counters are not read."""
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
        """Read a file into the batch; yield the metadata events of each block after reading it.

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
        """Return whether the batch should be taken to limit memory.

        times: a factor for the limit.
        """
        return self._size > HELD_EVENTS * times

    def scan(self, text: bytes) -> tuple[ScannedEvents, int] | None:
        """Scan whole events at the start of a text; return them and their length in bytes.

        Scanning stops at the first event that only the decoder can read; None if that is the first
        one. Once a value could not be decoded, nothing more is scanned, as the same value may occur
        again. Times that are not plain decimals are converted when the batch is taken.
        """
        if not self._scanner or self._has_undecoded:
            return None
        scanned = self._scanner.scan(text)
        used, texts, groups, held, metadata, odd_times, others, unread = scanned
        self._has_undecoded = not self._values.add_texts(texts, groups)
        if not used:
            return None
        try:
            decoded = [_decode_metadata(event) for event in metadata]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            decoded = None
        if decoded is None or self._has_undecoded:
            self._scanner.undo()
            return None
        self._odd_times += odd_times
        return ScannedEvents(held, decoded, others, unread), used

    def _add_decoded(self, events: Sequence[Any]) -> list[Metadata]:
        """Add decoded events to the batch, and return the metadata events among them."""
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
        """Convert decoded events, and the events scanned after them, to columns."""
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
        """Return all events of the batch in file order, and empty it."""
        self._end_runs()
        parts, self._runs, self._size = self._runs, [], 0
        if self._format.has_whole_args:
            # The scanner keeps all distinct values, of which there may be one per event.
            self._begin_scanning()
        return parts


def look_for_metadata(path: Path, text: bytes = b'"M"') -> Iterator[list[Metadata]]:
    """Search a file for metadata events without decoding it; yield those found in each block.

    Events with an unusual layout, or longer than MOST_METADATA_BYTES, may be missed. An event at
    the end of a block is yielded with the next block.

    text: a text that all wanted events contain; by default their phase.

    Raises:
        SourceError: the file cannot be read.
    """
    pattern = re.compile(re.escape(text))
    with open_profile_file(path) as file:
        block, begin, ended = b"", 0, False
        while not ended:
            longer = read_behind(file, block, BLOCK_BYTES)
            ended = len(longer) == len(block)
            block = longer
            stop = len(block) - (0 if ended else MOST_METADATA_BYTES)
            matches = pattern.finditer(block, begin, max(begin, stop + len(text) - 1))
            events = [_metadata_around(block, match.start()) for match in matches]
            yield [event for event in events if event is not None]
            begin = max(begin, stop)
            kept = max(0, begin - MOST_METADATA_BYTES)
            block, begin = block[kept:], begin - kept


def _metadata_around(block: bytes, at: int) -> Metadata | None:
    """Return the metadata event around an offset, None if there is none."""
    first = max(0, at - MOST_METADATA_BYTES)
    before, behind = block[first : at + 1], block[at : at + MOST_METADATA_BYTES]
    begins = [match.start() for match in re.finditer(rb"\{", before)][: -MOST_BRACES - 1 : -1]
    ends = [match.end() for match in re.finditer(rb"\}", behind)][:MOST_BRACES]
    for begin, end in product(begins, ends):
        event = block[first + begin : at + end]
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            if phase_of(event) == Metadata.__struct_config__.tag:
                return _decode_metadata(event)
    return None


class _Blocks:
    """A reader of one file, which holds a text: the part of the file not yet read as events."""

    def __init__(self, decoder: EventDecoder, path: Path, damage: LossLog, scan: Scan) -> None:
        self._decoder, self._path, self._damage, self._scan = decoder, path, damage, scan
        self._offset = 0
        """The offset of the held text in the file."""
        self._grown = False
        """True if the held text may be longer than in the file, because it was repaired."""
        self._mended_until = -1
        """The offset in the file up to which the text was repaired."""
        self._events = 0
        self._first_fault: tuple[int, str] | None = None

    def read(self, file: BinaryIO, block_bytes: int) -> Iterator[Events]:
        opening, text = self._open(file, block_bytes)
        wanted = block_bytes
        while (longer := self._longer(file, text, wanted)) is not None:
            text = longer
            scanned, piece = self._whole(text)
            fault = None if scanned or piece else self._fault(opening, text)
            if fault is not None and (end := _end_of_document(opening, text, fault)) is not None:
                text = self._without_next_document(text, end)
                break
            if fault is not None and (mended := self._mended(text, fault)) != text:
                text = mended
                scanned, piece = self._whole(text)
                fault = None if scanned or piece else self._fault(opening, text)
            if scanned is not None:
                events, used = scanned
                self._events += len(events)
                yield events
                text, wanted = self._behind(text, used), block_bytes
                continue
            used = piece.behind if piece else 0
            if fault is not None:
                piece = self._before_or_at(text, fault)
                used = next_event(text, max(piece.behind, 1))
                if used == len(text) < MOST_EVENT_BYTES:
                    piece = None
                else:
                    self._note("places that are not valid JSON", fault)
            if piece is None:
                wanted = len(text)
                continue
            yield self._accepted(piece)
            text, wanted = self._behind(text, used), block_bytes
        yield from self._rest(opening, text)
        if not self._events and self._first_fault is not None:
            raise self._unreadable(*self._first_fault)

    def _whole(self, text: bytes) -> tuple[tuple[ScannedEvents, int] | None, Piece | None]:
        """Return whole events at the start of a text, as read by the scanner, else the decoder."""
        scanned = self._scan(text)
        return scanned, self._before(text, len(text), MOST_CUTS_TRIED) if scanned is None else None

    def _mended(self, text: bytes, fault: int) -> bytes:
        """Return the repaired text; unchanged if the object at the fault was repaired before."""
        if self._offset + fault < self._mended_until:
            return text
        mended = mend_json(text, fault)
        self._offset -= len(mended) - len(text)
        self._grown |= len(mended) != len(text)
        self._mended_until = self._offset + mended.rfind(b"}")
        return mended

    def _open(self, file: BinaryIO, block_bytes: int) -> tuple[bytes, bytes]:
        """Return the opening of the file, and the text after it.

        The opening replaces everything before the first event: `[` or `{"traceEvents":[`. It is
        empty if the file must be decoded as a whole.
        """
        text, result = b"", None
        while result is None:
            if len(text) > MOST_EVENT_BYTES:
                raise SourceError(self._path, "holds too much before its events.")
            more = file.read(max(block_bytes, len(text)))
            text += more
            result = _opening(text, self._path, ended=not more)
        opening, skipped = result
        return opening, self._behind(text, skipped)

    def _longer(self, file: BinaryIO, text: bytes, count: int) -> bytes | None:
        """Return the text with up to `count` more bytes of the file; None at its end.

        Damaged compressed content is recorded, and treated as the end.
        """
        try:
            longer = text + file.read(count) if self._grown else read_behind(file, text, count)
        except SourceError:
            self._note("compressed content that cannot be unpacked", 0)
            return None
        return longer if len(longer) > len(text) else None

    def _behind(self, text: bytes, used: int) -> bytes:
        self._offset += used
        return text[used:]

    def _before(self, text: bytes, stop: int, tries: int) -> Piece | None:
        """Return the whole events before an offset, as many as the decoder accepts."""
        for _, (end, behind) in zip(range(tries), _cuts(text, stop), strict=False):
            piece = self._decoder.whole_events(memoryview(text)[:end])
            if piece is not None:
                return replace(piece, behind=behind)
        return None

    def _fault(self, opening: bytes, text: bytes) -> int | None:
        """Return the offset of the first byte that makes the text invalid, whatever follows."""
        if not opening:
            return None
        fault = fault_in(opening + text)
        if fault is None:
            return 0 if len(text) > MOST_EVENT_BYTES else None
        return max(0, fault - len(opening))

    def _without_next_document(self, text: bytes, end: int) -> bytes:
        """Return the text up to the end of its JSON document; note the other trace after it."""
        self._note(NEXT_DOCUMENT, end)
        self._damage.remarks.append(
            f"{self._path.name} holds another trace behind the first, from byte "
            f"{self._offset + end} on, which is not read. Put it into a file of its own."
        )
        return text[:end]

    def _rest(self, opening: bytes, text: bytes) -> Iterator[Events]:
        """Yield the remaining events when the whole file was read."""
        if opening and (scanned := self._scan(text)) is not None:
            self._events += len(scanned[0])
            yield scanned[0]
            text = self._behind(text, scanned[1])
        while True:
            piece = self._decoder.whole_file(opening, text)
            if piece is not None:
                yield self._accepted(piece)
                return
            if not opening:
                opening, skipped = self._opening_within(text)
                text = self._behind(text, skipped)
                continue
            fault = fault_in(opening + text)
            end = None if fault is None else _end_of_document(opening, text, fault - len(opening))
            if end is not None:
                text = self._without_next_document(text, end)
                continue
            cut_off = fault is None
            stop = len(text) if fault is None else max(0, fault - len(opening))
            if (mended := self._mended(text, stop)) != text:
                text = mended
                continue
            piece = self._before_or_at(text, stop)
            rest = text[piece.behind :].rstrip(_WHITE)
            left = rest.strip(_WHITE + b",]")
            # Some writers leave a comma after the last event of a list.
            is_whole = cut_off and not left and opening == b"[" and rest.endswith(b"]")
            used = len(text) if cut_off or not left else next_event(text, max(piece.behind, 1))
            events = self._accepted(piece)
            if cut_off and not is_whole:
                what = "an event is cut off" if left else "the end is missing"
                after = f"{what} after {self._events} whole events"
                self._note(after, stop, rows=1 if left else 0)
            elif not cut_off:
                self._note("places that are not valid JSON", stop)
            yield events
            if used == len(text):
                return
            text = self._behind(text, used)

    def _before_or_at(self, text: bytes, stop: int) -> Piece:
        """Return the whole events before a damaged offset.

        Closing braces before it are tried as the end of the last whole event, then cuts between
        two events.
        """
        end = stop
        for _ in range(MOST_CUTS_TRIED):
            end = text.rfind(b"}", 0, end)
            piece = self._decoder.whole_events(text[: end + 1]) if end >= 0 else None
            if piece is not None:
                return replace(piece, behind=end + 1)
        return self._before(text, stop, MOST_CUTS_OF_DAMAGE) or Piece([], [], 0)

    def _opening_within(self, text: bytes) -> tuple[bytes, int]:
        """Return the opening of a damaged object, and the number of bytes before its events."""
        if match := _EVENTS_KEY.search(text):
            return _OBJECT, match.end()
        raise self._unreadable(len(text), "it ends before its events")

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

    def _unreadable(self, offset: int, problem: str) -> SourceError:
        return SourceError(
            self._path,
            f"holds no event that can be read: {problem}.",
            offset=offset,
            do="The run was probably interrupted while it wrote; export it again.",
        )


def _opening(text: bytes, path: Path, *, ended: bool) -> tuple[bytes, int] | None:
    """Return the opening and the bytes before the first event; None if more must be read first."""
    mark = len(UTF8_MARK) if text.startswith(UTF8_MARK) else 0
    begin = len(text) - len(text[mark:].lstrip(_WHITE))
    first = text[begin : begin + 1]
    if not ended and (not first or (UTF8_MARK.startswith(text) and text)):
        return None
    if not first:
        raise SourceError(path, "is empty.")
    if first == b"[":
        return b"[", begin + 1
    if first == b"{":
        opening = _object_opening(text, begin, ended=ended)
        if opening is not None or not ended:
            return opening
    raise SourceError(
        path,
        f"is no trace: it opens with {text[:20]!r}.",
        offset=0,
        do='Expected a list of events or an object with "traceEvents".',
    )


def _object_opening(text: bytes, begin: int, *, ended: bool) -> tuple[bytes, int] | None:
    """Return what `_opening` does, for a file with an object; None also if it is not a trace."""
    for key, first, _ in leading_values(text, begin + 1, _EVENTS):
        if key == _EVENTS and text[first : first + 1] == b"[":
            return _OBJECT, first + 1
    # The key was not reached because of invalid JSON before it: decoding the object as a whole
    # yields the offset of the error.
    return (b"", begin) if ended and b'"traceEvents"' in text else None


def _end_of_document(opening: bytes, text: bytes, fault: int) -> int | None:
    """Return the end of the JSON document if the fault is the start of another one, else None."""
    end = end_of_value(opening + text[: fault + 1], 0)
    if end is None:
        return None
    end -= len(opening)
    return end if text[end : fault + 1].strip(_WHITE)[:1] in (b"{", b"[") else None


def _cuts(text: bytes, stop: int) -> Iterator[tuple[int, int]]:
    """Yield (end of an object, start of the next one) for offsets between objects, last first."""
    start = stop
    while (start := text.rfind(b"{", 0, start)) > 0:
        before = text[max(0, start - 64) : start].rstrip(_WHITE)
        if before.endswith(b","):
            left = before[:-1].rstrip(_WHITE)
            if left.endswith(b"}"):
                yield text.rfind(b"}", 0, start) + 1, start
