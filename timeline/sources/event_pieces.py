"""Turns pieces of JSON text into typed events, or says where a piece is not valid."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import msgspec

from timeline.sources.trace_events import Event, Other

__all__ = ["Piece", "fault_in", "next_event", "whole_events", "whole_file"]

MOST_ENDS_TRIED = 32
"""Closing braces that may be that of the event that opens at a place."""
LONGEST_TOKEN = 12
"""Bytes of a literal or an escaped character, which may be cut off itself."""
_STARTS = re.compile(rb'\{\s*"')
_BYTE_OF_ERROR = re.compile(r"\(byte (\d+)\)")


@dataclass(frozen=True)
class Piece:
    """Events, what is wrong with some (and at which byte), and where the next one starts."""

    events: list[Event]
    faults: list[tuple[str, int]]
    behind: int


class _Whole(msgspec.Struct, gc=False):
    """A file that is an object."""

    traceEvents: list[Event] = []  # noqa: N815 - the key of the format


class _WholeUndecoded(msgspec.Struct, gc=False):
    traceEvents: list[msgspec.Raw] = []  # noqa: N815


class _Phase(msgspec.Struct, gc=False):
    ph: str = ""


_decode_event = msgspec.json.Decoder(Event).decode
_decode_list = msgspec.json.Decoder(list[Event]).decode
_decode_whole = msgspec.json.Decoder(_Whole).decode
_decode_phase = msgspec.json.Decoder(_Phase).decode
_part_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_part_whole = msgspec.json.Decoder(_WholeUndecoded).decode
_part_event = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_DRAWN_PHASES = frozenset(
    kind.__struct_config__.tag for kind in get_args(Event) if kind is not Other
)


def whole_events(text: bytes) -> Piece | None:
    """The events of a piece that was cut between two events; None where it was not."""
    return _decoded(b"[" + text + b"]", 1)


def whole_file(opening: bytes, text: bytes) -> Piece | None:
    """The events from somewhere in a file to its end; None where it is not valid.

    opening: what the file opens with, empty where the text has it.
    """
    return _decoded(opening + text, len(opening))


def _decoded(text: bytes, opened: int) -> Piece | None:
    is_list = text.startswith(b"[")
    try:
        events = _decode_list(text) if is_list else _decode_whole(text).traceEvents
        return Piece(events, [], len(text))
    except (msgspec.ValidationError, UnicodeDecodeError):
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            parts = _part_list(text) if is_list else _part_whole(text).traceEvents
            return _one_by_one(parts, text, opened)
    except (msgspec.DecodeError, RecursionError):
        pass
    return None


def _one_by_one(parts: Sequence[msgspec.Raw], text: bytes, opened: int) -> Piece:
    """Decode events of which at least one is of no known phase, or of a wrong shape."""
    events: list[Event] = []
    faults: list[tuple[str, int]] = []
    at = opened
    for part in parts:
        own = bytes(part)
        at = text.index(own, at)
        event, fault = _read_as_far_as_possible(own)
        if event is not None:
            events.append(event)
        if fault:
            faults.append((fault, at - opened))
        at += len(own)
    return Piece(events, faults, len(text))


def _read_as_far_as_possible(text: bytes) -> tuple[Event | None, str]:
    """An event, and what is wrong with it if anything is."""
    try:
        return _decode_event(text), ""
    except UnicodeDecodeError:
        repaired = text.decode("utf-8", errors="replace").encode()
        with contextlib.suppress(msgspec.ValidationError):
            return _decode_event(
                repaired
            ), "events with text that is not UTF-8, drawn as \N{REPLACEMENT CHARACTER}"
    except RecursionError:
        return None, "events that nest too deeply"
    except msgspec.ValidationError:
        if _is_other(text):
            return Other(), ""
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            return _decode_event(_without_args(text)), "events whose args are of another shape"
    return None, "events of another shape"


def _is_other(text: bytes) -> bool:
    try:
        return _decode_phase(text).ph not in _DRAWN_PHASES
    except (msgspec.ValidationError, UnicodeDecodeError):
        return False


def _without_args(text: bytes) -> bytes:
    """An interval without its args; other events are nothing without theirs."""
    event = _part_event(text)
    if bytes(event.get("ph", b"")) == b'"X"':
        event.pop("args", None)
    return msgspec.json.encode(event)


def fault_in(text: bytes) -> int | None:
    """The byte at which text is not valid JSON, whatever follows; None where it only ends early."""
    try:
        _part_list(text) if text.startswith(b"[") else _part_whole(text)
    except msgspec.ValidationError:
        return None
    except msgspec.DecodeError as error:
        match = _BYTE_OF_ERROR.search(str(error))
        at = int(match[1]) if match else len(text)
        return at if at < len(text) - LONGEST_TOKEN else None
    except RecursionError:
        return _too_deep(text)
    return None


def _too_deep(text: bytes) -> int:
    """The byte by which text nests too deeply."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high) // 2
        try:
            with contextlib.suppress(msgspec.DecodeError):
                _part_list(text[:middle]) if text.startswith(b"[") else _part_whole(text[:middle])
            low = middle + 1
        except RecursionError:
            high = middle
    return low


def next_event(text: bytes, begin: int) -> int:
    """Where the next event starts that is whole; the end of the text where there is none."""
    for match in _STARTS.finditer(text, begin):
        start = end = match.start()
        for _ in range(MOST_ENDS_TRIED):
            end = text.find(b"}", end) + 1
            if not end:
                break
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                if _decode_phase(text[start:end]).ph:
                    return start
                break
    return len(text)
