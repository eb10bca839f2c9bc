"""Turns a timeline display of MindSpore 0.7 to 2.2 into typed events, a block at a time.

It is a list of events that one line of code writes, so a plain cut between two events is enough
here; and it may break off, in which case all events before that place are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from timeline.errors import SourceError
from timeline.sources.opened import open_binary

__all__ = ["DisplayEvent", "DisplayReader"]

BLOCK_BYTES = 512 * 1024
MOST_CUTS_TRIED = 8
_EMPTY = msgspec.Raw(b"")
_BYTE_OF_ERROR = re.compile(r"\(byte (\d+)\)")
_ROOM = 64
"""Bytes that may lie between two events."""
_UTF8_MARK = b"\xef\xbb\xbf"
_WHITE = b" \t\r\n"


class DisplayEvent(msgspec.Struct, gc=False):
    """An event; its times stay text, because they are exact only as decimals."""

    name: str = ""
    ph: str = ""
    pid: int | str | float = 0
    tid: int | str | float = 0
    ts: msgspec.Raw = _EMPTY
    dur: msgspec.Raw = _EMPTY
    args: dict[str, Any] | None = None


_decode_list = msgspec.json.Decoder(list[DisplayEvent]).decode
_decode_event = msgspec.json.Decoder(DisplayEvent).decode
_part_list = msgspec.json.Decoder(list[msgspec.Raw]).decode


class DisplayReader:
    """Reads a file once.

    After `blocks`, `misshapen` is the number of events of another shape, and `broken_at` the byte
    at which the file breaks off, None where it is whole.
    """

    def __init__(self, path: Path, block_bytes: int = BLOCK_BYTES) -> None:
        self._path, self._block_bytes = path, block_bytes
        self._offset = 0
        self.misshapen = 0
        self.broken_at: int | None = None

    def blocks(self) -> Iterator[list[DisplayEvent]]:
        """The events in order of the file.

        Raises:
            SourceError: the file cannot be read, or is no list of events.
        """
        try:
            yield from self._read()
        except OSError as error:
            raise SourceError(self._path, f"cannot be read: {error.strerror}.") from error

    def _read(self) -> Iterator[list[DisplayEvent]]:
        with open_binary(self._path) as file:
            held = self._after_opening(file.read(self._block_bytes))
            wanted = self._block_bytes
            while more := file.read(wanted):
                held += more
                cut = self._whole_part(held)
                if cut is None:
                    wanted = len(held)
                    continue
                events, used = cut
                yield events
                self._offset += used
                held = held[used:]
                wanted = self._block_bytes
            yield self._rest(held)

    def _after_opening(self, held: bytes) -> bytes:
        body = held.removeprefix(_UTF8_MARK).lstrip(_WHITE)
        if not body:
            raise SourceError(self._path, "is empty.", offset=0)
        if not body.startswith(b"["):
            raise SourceError(
                self._path,
                f"is no timeline: it opens with {body[:20]!r}.",
                offset=0,
                do="Expected a list of events.",
            )
        self._offset = len(held) - len(body) + 1
        return body[1:]

    def _whole_part(self, held: bytes) -> tuple[list[DisplayEvent], int] | None:
        """The events up to the last cut that the decoder accepts, and the bytes used."""
        for end, begin in islice(_cuts(held), MOST_CUTS_TRIED):
            events = self._decoded(held[:end])
            if events is not None:
                return events, begin
        return None

    def _decoded(self, text: bytes) -> list[DisplayEvent] | None:
        """The events of a text; None where it is not whole."""
        piece = b"[" + text + b"]"
        try:
            return _decode_list(piece)
        except msgspec.ValidationError:
            pass
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        try:
            parts = _part_list(piece)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        return [event for part in parts if (event := self._event(part)) is not None]

    def _event(self, part: msgspec.Raw) -> DisplayEvent | None:
        try:
            return _decode_event(part)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self.misshapen += 1
            return None

    def _rest(self, held: bytes) -> list[DisplayEvent]:
        """What follows the last cut; of a file that breaks off, the events before that."""
        body = held.rstrip(_WHITE + b"\0")
        ended = body.endswith(b"]")
        inner = body.removesuffix(b"]").rstrip(_WHITE).removesuffix(b",")
        for end in (len(inner), *_ends_before(inner, _first_error(inner))):
            events = self._decoded(held[:end])
            if events is not None:
                if not ended or end < len(inner):
                    self.broken_at = self._offset + end
                return events
        self.broken_at = self._offset
        return []


def _ends_before(text: bytes, stop: int) -> list[int]:
    """The ends of the last events before a place; some may lie inside text of an event."""
    return [end for end, _ in islice(_cuts(text[:stop]), MOST_CUTS_TRIED)]


def _first_error(text: bytes) -> int:
    """The place up to which a list of events without its brackets is JSON."""
    try:
        _part_list(b"[" + text + b"]")
    except msgspec.DecodeError as error:
        match = _BYTE_OF_ERROR.search(str(error))
        return int(match[1]) - 1 if match else len(text)
    except UnicodeDecodeError as error:
        return error.start
    return len(text)


def _cuts(held: bytes) -> Iterator[tuple[int, int]]:
    """Places between two events, last first: (end of the left one, start of the right one)."""
    stop = len(held)
    while (start := held.rfind(b"{", 0, stop)) > 0:
        stop = start
        before = held[max(0, start - _ROOM) : start].rstrip(_WHITE)
        if before.endswith(b","):
            left = before[:-1].rstrip(_WHITE)
            if left.endswith(b"}"):
                yield held.rfind(b"}", 0, start) + 1, start
