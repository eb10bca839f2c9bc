"""Turns the first and last bytes of a PyTorch trace into its rank and the zero of its times."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from timeline.errors import SourceError
from timeline.sources.json_values import end_of_value, leading_values
from timeline.sources.opened import UTF8_MARK, last_bytes, opened
from timeline.sources.whole_numbers import whole_number

__all__ = ["KinetoHeader", "is_kineto", "read_header"]

GLANCE_BYTES = 1 << 16
"""So many bytes tell what a file is."""
MOST_HEAD_BYTES = 1 << 24
"""What stands before the events grows with the number of process groups."""
TAIL_BYTES = 1 << 20
_OWN = frozenset({b"schemaVersion", b"deviceProperties", b"distributedInfo"})
_SHARED = frozenset({b"traceEvents", b"baseTimeNanoseconds"})
_EVENTS, _DISTRIBUTED, _BASE = b"traceEvents", b"distributedInfo", b"baseTimeNanoseconds"


@dataclass(frozen=True)
class KinetoHeader:
    """What a trace says beside its events.

    `rank` is None where it was not part of a distributed run; `base_ns` is the wall time at which
    its times are zero.
    """

    rank: int | None
    base_ns: int


def is_kineto(path: Path) -> bool:
    """Whether the first bytes of a file are those of a PyTorch trace.

    Two of the keys that it writes before its events have to be there, one of them its own.
    """
    try:
        with opened(path) as file:
            text = file.read(GLANCE_BYTES)
    except SourceError:
        return False  # whoever names the file gets the error when it is read
    values = {key: text[first:end] for key, first, end in leading_values(text, _first_key(text))}
    own = _OWN & values.keys()
    is_text = values.get(b"schemaVersion", b"1").startswith(b'"')
    return bool(own) and len(own | (_SHARED & values.keys())) > 1 and not is_text


def read_header(path: Path) -> KinetoHeader:
    """Read what stands before the events; the rank of a capture on demand stands behind them.

    Raises:
        SourceError: the file cannot be read, or what it says of its rank or time is no JSON.
    """
    head = _head(path)
    if head.get(_EVENTS) is None:
        raise SourceError(
            path,
            "is no PyTorch trace: it has no list of events, or too much before it.",
            offset=0,
            do='Expected an object with "traceEvents".',
        )
    if _DISTRIBUTED not in head:
        head = _tail(path) | head
    info = _decoded(path, head.get(_DISTRIBUTED, b"{}"))
    base = _decoded(path, head.get(_BASE, b"0"))
    return KinetoHeader(_rank_in(info), base if isinstance(base, int) else 0)


def _head(path: Path) -> dict[bytes, bytes]:
    """The values before the events, by key; the events themselves are cut off."""
    with opened(path) as file:
        text = file.read(GLANCE_BYTES)
        while True:
            values = {}
            for key, first, end in leading_values(text, _first_key(text)):
                values[key] = text[first : first + 1] if key == _EVENTS else text[first:end]
                if key == _EVENTS:
                    return values
            more = file.read(len(text)) if len(text) < MOST_HEAD_BYTES else b""
            if not more:
                return values
            text += more


def _first_key(text: bytes) -> int:
    """The place behind the brace that opens an object; the end of the text for anything else."""
    held = text.removeprefix(UTF8_MARK).lstrip()
    return len(text) - len(held) + 1 if held.startswith(b"{") else len(text)


def _tail(path: Path) -> dict[bytes, bytes]:
    """The same values where they stand behind the events."""
    text, values = b"", {}
    with contextlib.suppress(SourceError):  # what breaks off has no tail; reading it tells more
        text = last_bytes(path, TAIL_BYTES)
    for key in (_DISTRIBUTED, _BASE):
        found = list(re.finditer(rb'"%s"\s*:\s*(?=\S)' % key, text))
        end = end_of_value(text, found[-1].end()) if found else None
        if end is not None:
            values[key] = text[found[-1].end() : end]
    return values


def _decoded(path: Path, text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise SourceError(
            path, f"is not valid JSON in what stands beside its events: {error.msg}."
        ) from error


def _rank_in(info: Any) -> int | None:
    rank = whole_number(info.get("rank")) if isinstance(info, dict) else None
    return None if rank is None or rank < 0 else rank
