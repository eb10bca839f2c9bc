"""Small JSON objects, keys and values at the beginning of large ones, and JSON that is mended."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from timeline.errors import SourceError
from timeline.sources.files.opened import read_whole_file

_ESCAPE = re.compile(
    rb'\\(?:["\\/bfnrt]|u(?:[0-9a-fA-F]{4}|[0-9a-fA-F]{0,3}\Z)|\Z)|(\\)', re.DOTALL
)
"""An escape, which may be cut off at the end of the text, or a backslash that begins none."""
_CONTROL = re.compile(rb"[\x00-\x1f]")
_NO_VALUE = re.compile(
    rb"(?<=[:,\[])\s*(?:[+-]?(?:1\.#)?(?:inf(?:inity)?|[qs]?nan|ind)(?:\(\w*\))?(?=\s*[,\]}])"
    rb"|(?<=:)(?=\s*[,}]))",
    re.IGNORECASE,
)
"""What C++ and Python write for numbers that are none, or nothing where a value should be."""
_NEXT_OBJECT = re.compile(rb'\}\s*,\s*(?=\{\s*")')


def mend_json(text: bytes, fault: int = 0) -> bytes:
    r"""Return text as valid JSON where strings and numbers are not; the text itself if it is.

    Backslashes that begin no escape stand for themselves, as do control characters in strings; a
    number that is none, and a value that is missing, are null. An object with an odd number of
    quotes stays as it is.

    Args:
        text: objects of a list, or one; the last may be cut off.
        fault: a place before which all is valid.

    >>> mend_json(rb'{"name": "C:\x.py", "bytes": inf}')
    b'{"name": "C:\\\\x.py", "bytes":null}'
    """
    mended = _ESCAPE.sub(lambda match: rb"\\" if match[1] else match[0], text)
    # What is escaped counts neither as a backslash nor as a quote.
    plain = mended.replace(rb"\\", b"..").replace(rb"\"", b"..")
    starts = [0, *(match.end() for match in _NEXT_OBJECT.finditer(plain, fault))]
    # Whether so many characters hold an odd number of quotes.
    odd = np.logical_xor.accumulate(np.frombuffer(b" " + plain, np.uint8) == ord('"'))
    found = [*_CONTROL.finditer(plain)]
    controls = len(found)
    found += _NO_VALUE.finditer(plain)
    places = np.array([match.start() for match in found], np.int64)
    owner = np.searchsorted(starts, places, side="right") - 1
    before = odd[starts]
    even = np.append(before[1:], odd[-1]) == before
    is_control = np.arange(len(found)) < controls
    broken = np.flatnonzero(even[owner] & ((odd[places] != before[owner]) == is_control))
    made, done = [], 0
    for at in broken[np.argsort(places[broken], kind="stable")].tolist():
        match = found[at]
        new = rb"\u%04x" % match[0][0] if is_control[at] else b"null"
        made += [mended[done : match.start()], new]
        done = match.end()
    return b"".join([*made, mended[done:]]) if made or mended != text else text


_STRING = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_KEY = re.compile(rb"\s*(" + _STRING + rb")\s*:\s*(?=\S)", re.DOTALL)
_PLAIN = re.compile(_STRING + rb"|[^\s,\[\]{}\"]+(?=[\s,\[\]{}\"])", re.DOTALL)
_BRACKETS = re.compile(_STRING + rb"|[\[\]{}\"]", re.DOTALL)
_COMMA = re.compile(rb"\s*,")
_END = re.compile(rb"\s*(?:\}|\Z)")
_NEXT_KEY = re.compile(rb"\s*,(?=\s*" + _STRING + rb"\s*:)", re.DOTALL)
_EVENTS = b'"traceEvents"'


def leading_values(
    text: bytes, begin: int, until: bytes = b""
) -> Iterator[tuple[bytes, int, int | None]]:
    """Return the values of an object, whose first key stands at or behind a place of the text.

    A value that is not JSON, such as a string with quotes in it, ends where the next key begins;
    keys of an object in it may come as keys of this one.

    Args:
        until: the key that is the last, whose value is so long that it is not looked for its end.

    Yields:
        Key without its quotes, where its value begins, and where it ends: None if the text
        ends first, and that is the last.
    """
    at, events = begin, text.find(_EVENTS, begin)
    while key := _KEY.match(text, at):
        end = None if key[1][1:-1] == until else end_of_value(text, key.end())
        comma = None if end is None else _COMMA.match(text, end)
        if end is not None and key.end() < events < end and _is_json(text[key.end() : end]):
            events = text.find(_EVENTS, end)
        if key.end() < events < (len(text) if end is None else end) or (
            end is not None and comma is None and not _END.match(text, end)
        ):
            comma = _NEXT_KEY.search(text, key.end())
            end = comma.start() if comma else None
        elif comma is None and end is not None and end < events:
            comma = _NEXT_KEY.search(text, end)
        yield key[1][1:-1], key.end(), end
        if comma is None:
            return
        at = comma.end()


def _is_json(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def end_of_value(text: bytes, begin: int) -> int | None:
    """Return where the value ends that begins at a place, None if the text ends first."""
    if text[begin : begin + 1] not in (b"[", b"{"):
        plain = _PLAIN.match(text, begin)
        return plain.end() if plain else None
    depth = 0
    for match in _BRACKETS.finditer(text, begin):
        token = match[0]
        if token in (b"[", b"{"):
            depth += 1
        elif token in (b"]", b"}"):
            depth -= 1
            if not depth:
                return match.end()
        elif token == b'"':  # a string that does not end
            return None
    return None


def read_json(path: Path) -> dict[str, Any]:
    """Read a small JSON object.

    Raises:
        SourceError: the file cannot be read or holds something else.
    """
    value = read_json_value(path)
    if not isinstance(value, dict):
        raise SourceError(path, "holds no JSON object.")
    return value


def read_json_value(path: Path) -> Any:
    """Read a small JSON file, whatever it holds.

    Raises:
        SourceError: the file cannot be read or is not JSON.
    """
    try:
        return orjson.loads(read_whole_file(path))
    except orjson.JSONDecodeError as error:
        raise SourceError(path, f"is not valid JSON: {error.msg}.", offset=error.pos) from error
