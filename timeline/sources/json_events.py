"""Turns a Chrome-trace JSON file of any size into lists of typed events, a block at a time."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import BinaryIO, get_args

import msgspec

from timeline.errors import SourceError
from timeline.sources.trace_events import Event, Metadata, Other

__all__ = ["BLOCK_BYTES", "look_for_metadata", "read_events"]

BLOCK_BYTES = 512 * 1024
"""Blocks of this size stay in the processor's cache; larger ones read slower."""
MOST_CUTS_TRIED = 8
_UTF8_MARK = b"\xef\xbb\xbf"
_STRING = rb'"(?:[^"\\]|\\.)*"'
_KEY = re.compile(rb"\s*(" + _STRING + rb")\s*:\s*(?=\S)", re.DOTALL)
_PLAIN_VALUE = re.compile(rb"(?:" + _STRING + rb"|[^\s,\[\]{}\"]+)\s*,", re.DOTALL)
_BYTE_OF_ERROR = re.compile(r"\(byte (\d+)\)")
_WHITE = b" \t\r\n"
_METADATA_PHASE = b'"M"'
_OPEN, _CLOSE = b"{}"
MOST_METADATA_BYTES = 512
MOST_BRACES = 3
"""Braces on either side of the phase that may be those of the event."""


class _Whole(msgspec.Struct, gc=False):
    """A file that is an object."""

    traceEvents: list[Event] = []  # noqa: N815 - the key of the format


class _WholeUndecoded(msgspec.Struct, gc=False):
    traceEvents: list[msgspec.Raw] = []  # noqa: N815


class _Phase(msgspec.Struct, gc=False):
    ph: str = ""


_decode_event: Callable[[bytes], Event] = msgspec.json.Decoder(Event).decode
_decode_list = msgspec.json.Decoder(list[Event]).decode
_decode_whole = msgspec.json.Decoder(_Whole).decode
_decode_metadata = msgspec.json.Decoder(Metadata).decode
_decode_phase = msgspec.json.Decoder(_Phase).decode
_part_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_part_whole = msgspec.json.Decoder(_WholeUndecoded).decode
_DRAWN_PHASES = frozenset(
    kind.__struct_config__.tag for kind in get_args(Event) if kind is not Other
)


def read_events(path: Path, block_bytes: int = BLOCK_BYTES) -> Iterator[list[Event]]:
    """Read the events of a file, which is an array or an object with `traceEvents`.

    The file is cut between events and the decoder proves each cut: a piece that does not decode
    was cut inside an event, so an earlier cut is tried, and in the end a larger block. A file laid
    out in an unusual way therefore reads too, only with larger blocks.

    Raises:
        SourceError: the file cannot be opened, or is not JSON of that shape, with the byte offset.
    """
    try:
        with path.open("rb") as file:
            yield from _read_blocks(file, path, block_bytes)
    except OSError as error:
        raise SourceError(path, f"cannot be read: {error.strerror}.") from error


def look_for_metadata(path: Path) -> Iterator[Metadata]:
    """Metadata events of a file, found by their phase without decoding the rest.

    One that is laid out in an unusual way may be missed.

    Raises:
        SourceError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            yield from _metadata_in(file)
    except OSError as error:
        raise SourceError(path, f"cannot be read: {error.strerror}.") from error


def _metadata_in(file: BinaryIO) -> Iterator[Metadata]:
    """Search block by block; an event at the edge of a block is found with the next one."""
    held, begin = b"", 0
    while True:
        more = file.read(BLOCK_BYTES)
        held += more
        stop = len(held) - (MOST_METADATA_BYTES if more else 0)
        at = held.find(_METADATA_PHASE, begin)
        while 0 <= at < stop:
            first = max(0, at - MOST_METADATA_BYTES)
            event = _metadata_around(held[first : at + MOST_METADATA_BYTES], at - first)
            if event is not None:
                yield event
            at = held.find(_METADATA_PHASE, at + 1)
        if not more:
            return
        begin = max(begin, stop)
        kept = max(0, begin - MOST_METADATA_BYTES)
        held, begin = held[kept:], begin - kept


def _metadata_around(text: bytes, at: int) -> Metadata | None:
    """The metadata event whose phase is at a place of the text."""
    begins = [place for place in range(at, -1, -1) if text[place] == _OPEN]
    ends = [place + 1 for place in range(at, len(text)) if text[place] == _CLOSE]
    for begin, end in product(begins[:MOST_BRACES], ends[:MOST_BRACES]):
        with contextlib.suppress(msgspec.DecodeError):
            return _decode_metadata(text[begin:end])
    return None


def _read_blocks(file: BinaryIO, path: Path, block_bytes: int) -> Iterator[list[Event]]:
    held, found = b"", None
    while found is None:
        more = file.read(max(block_bytes, len(held)))
        held += more
        found = _opening(held, path, ended=not more)
    opening, skipped = found
    offset = skipped
    held = held[skipped:]
    wanted = block_bytes
    while True:
        more = file.read(wanted)
        if not more:
            break
        held += more
        cut = _split(held, path, offset)
        if cut is None:
            wanted = len(held)
            continue
        events, used = cut
        yield events
        offset += used
        held = held[used:]
        wanted = block_bytes
    yield _last(opening, held, path, offset)


def _opening(held: bytes, path: Path, *, ended: bool) -> tuple[bytes, int] | None:
    """What the file opens with, and the number of bytes before that; None to read on first."""
    mark = len(_UTF8_MARK) if held.startswith(_UTF8_MARK) else 0
    begin = len(held) - len(held[mark:].lstrip(_WHITE))
    first = held[begin : begin + 1]
    if not ended and (not first or (_UTF8_MARK.startswith(held) and held)):
        return None
    if not first:
        raise SourceError(path, "is empty.", offset=0)
    if first == b"[":
        return b"[", begin + 1
    if first == b"{":
        found = _object_opening(held, begin)
        if found is not None:
            return found
        if not ended:
            return None
    raise SourceError(
        path,
        f"is no trace: it opens with {held[:20]!r}.",
        offset=0,
        do='Expected a list of events or an object with "traceEvents".',
    )


def _object_opening(held: bytes, begin: int) -> tuple[bytes, int] | None:
    """The same for an object: step over its plain values to the list of events."""
    at = begin + 1
    while key := _KEY.match(held, at):
        value = held[key.end() : key.end() + 1]
        if key[1] == b'"traceEvents"' and value == b"[":
            return b'{"traceEvents":[', key.end() + 1
        plain = _PLAIN_VALUE.match(held, key.end())
        if plain is None:
            # The events come after a nested value: decode as one object in the end.
            return (b"", begin) if value in b"[{" and b'"traceEvents"' in held else None
        at = plain.end()
    return None


def _split(held: bytes, path: Path, offset: int) -> tuple[list[Event], int] | None:
    """Decode up to the last cut that the decoder accepts; also the bytes used."""
    for _, cut in zip(range(MOST_CUTS_TRIED), _cuts(held), strict=False):
        piece = b"[" + held[: cut[0]] + b"]"
        try:
            return _decode_list(piece), cut[1]
        except msgspec.ValidationError:
            with contextlib.suppress(msgspec.DecodeError):
                return _one_by_one(_part_list(piece), held, path, offset), cut[1]
        except msgspec.DecodeError:
            continue
    return None


def _one_by_one(parts: Sequence[msgspec.Raw], held: bytes, path: Path, offset: int) -> list[Event]:
    """Decode events of which at least one is of no known phase, or of a wrong shape.

    Raises:
        SourceError: one is of a known phase and of a wrong shape; the message says where.
    """
    events: list[Event] = []
    at = 0
    for part in parts:
        at = held.index(bytes(part), at)
        try:
            events.append(_decode_event(part))
        except msgspec.ValidationError as error:
            if not _is_other(part):
                raise SourceError(
                    path, f"holds an event of another shape: {error}.", offset=offset + at
                ) from error
            events.append(Other())
        at += len(bytes(part))
    return events


def _is_other(part: msgspec.Raw) -> bool:
    try:
        return _decode_phase(part).ph not in _DRAWN_PHASES
    except msgspec.ValidationError:
        return False


def _cuts(held: bytes) -> Iterator[tuple[int, int]]:
    """Places between two objects, last first: (end of the left one, start of the right one)."""
    start = len(held)
    while (start := held.rfind(b"{", 0, start)) > 0:
        before = held[max(0, start - 64) : start].rstrip(_WHITE)
        if before.endswith(b","):
            left = before[:-1].rstrip(_WHITE)
            if left.endswith(b"}"):
                yield held.rfind(b"}", 0, start) + 1, start


def _last(opening: bytes, held: bytes, path: Path, offset: int) -> list[Event]:
    whole = opening + held
    try:
        try:
            return _decode_list(whole) if opening == b"[" else _decode_whole(whole).traceEvents
        except msgspec.ValidationError:
            parts = _part_list(whole) if opening == b"[" else _part_whole(whole).traceEvents
            return _one_by_one(parts, held, path, offset)
    except msgspec.ValidationError as error:
        raise SourceError(
            path, f"holds an event of another shape: {error}.", offset=offset
        ) from error
    except msgspec.DecodeError as error:
        match = _BYTE_OF_ERROR.search(str(error))
        at = int(match[1]) - len(opening) if match else len(held)
        raise SourceError(
            path,
            f"is not valid JSON: {_BYTE_OF_ERROR.sub('', str(error)).strip()}.",
            offset=offset + max(0, at),
            do="The run was probably interrupted while it wrote; export it again.",
        ) from error
