"""Turns a Chrome-trace JSON file of any size into lists of typed events, a block at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from timeline.errors import SourceError

__all__ = ["BLOCK_BYTES", "Event", "read_events"]

BLOCK_BYTES = 512 * 1024
"""Blocks of this size stay in the processor's cache; larger ones read slower."""
MOST_CUTS_TRIED = 8
_UTF8_MARK = b"\xef\xbb\xbf"
_STRING = rb'"(?:[^"\\]|\\.)*"'
_KEY = re.compile(rb"\s*(" + _STRING + rb")\s*:\s*(?=\S)", re.DOTALL)
_PLAIN_VALUE = re.compile(rb"(?:" + _STRING + rb"|[^\s,\[\]{}\"]+)\s*,", re.DOTALL)
_BYTE_OF_ERROR = re.compile(r"\(byte (\d+)\)")
_WHITE = b" \t\r\n"


class Event(msgspec.Struct, gc=False):
    """One trace event; times and ids stay text, and args stay undecoded until they are wanted."""

    ph: str = ""
    name: str = ""
    pid: int | str | float = 0
    tid: int | str | float = 0
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: msgspec.Raw = msgspec.Raw(b"")
    cat: str = ""
    id: msgspec.Raw = msgspec.Raw(b"")
    args: msgspec.Raw = msgspec.Raw(b"")


class _File(msgspec.Struct, gc=False):
    traceEvents: list[Event] = []  # noqa: N815 - the key of the format


_decode_list = msgspec.json.Decoder(list[Event]).decode
_decode_file = msgspec.json.Decoder(_File).decode


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
        cut = _split(held)
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


def _split(held: bytes) -> tuple[list[Event], int] | None:
    """Decode up to the last cut that the decoder accepts; also the bytes used."""
    for _, cut in zip(range(MOST_CUTS_TRIED), _cuts(held), strict=False):
        try:
            return _decode_list(b"[" + held[: cut[0]] + b"]"), cut[1]
        except msgspec.DecodeError:
            continue
    return None


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
    try:
        if opening == b"[":
            return _decode_list(opening + held)
        return _decode_file(opening + held).traceEvents
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
