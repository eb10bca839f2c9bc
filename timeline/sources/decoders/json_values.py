"""Reads small JSON files and the first values of large ones, and repairs invalid JSON."""

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
"""An escape, which the end of the text may cut off, or (group 1) a backslash without escape."""
_CONTROL = re.compile(rb"[\x00-\x1f]")
_NO_VALUE = re.compile(
    rb"(?<=[:,\[])\s*(?:[+-]?(?:1\.#)?(?:inf(?:inity)?|[qs]?nan|ind)(?:\(\w*\))?(?=\s*[,\]}])"
    rb"|(?<=:)(?=\s*[,}]))",
    re.IGNORECASE,
)
"""Infinities and NaNs as C++ and Python write them, or a missing value."""
_NEXT_OBJECT = re.compile(rb'\}\s*,\s*(?=\{\s*")')


def mend_json(text: bytes, fault: int = 0) -> bytes:
    r"""Repair invalid strings and numbers in JSON; return the text itself if all are valid.

    Backslashes that begin no escape, and control characters in strings, are escaped. Infinity,
    NaN and missing values become null. An object with an odd number of quotes is not repaired.

    Args:
        text: the objects of a list, or a single one; the last may be cut off.
        fault: an offset before which the text is valid.

    >>> mend_json(rb'{"name": "C:\x.py", "bytes": inf}')
    b'{"name": "C:\\\\x.py", "bytes":null}'
    """
    mended = _ESCAPE.sub(lambda match: rb"\\" if match[1] else match[0], text)
    # Mask escaped backslashes and quotes, so that each remaining quote begins or ends a string.
    plain = mended.replace(rb"\\", b"..").replace(rb"\"", b"..")
    starts = [0, *(match.end() for match in _NEXT_OBJECT.finditer(plain, fault))]
    # odd[n]: whether the first n characters hold an odd number of quotes.
    odd = np.logical_xor.accumulate(np.frombuffer(b" " + plain, np.uint8) == ord('"'))
    matches = [*_CONTROL.finditer(plain)]
    controls = len(matches)
    matches += _NO_VALUE.finditer(plain)
    offsets = np.array([match.start() for match in matches], np.int64)
    owner = np.searchsorted(starts, offsets, side="right") - 1
    before = odd[starts]
    even = np.append(before[1:], odd[-1]) == before
    is_control = np.arange(len(matches)) < controls
    # Control characters are invalid inside strings, special numbers outside.
    broken = np.flatnonzero(even[owner] & ((odd[offsets] != before[owner]) == is_control))
    parts, end = [], 0
    for at in broken[np.argsort(offsets[broken], kind="stable")].tolist():
        match = matches[at]
        replacement = rb"\u%04x" % match[0][0] if is_control[at] else b"null"
        parts += [mended[end : match.start()], replacement]
        end = match.end()
    return b"".join([*parts, mended[end:]]) if parts or mended != text else text


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
    """Yield the keys of an object, and the offsets of their values.

    A value that is not valid JSON, such as a string with unescaped quotes, is taken to end where
    the next key begins; keys of an object inside it may then be yielded too.

    Args:
        begin: an offset in the object, at or before its first key.
        until: the last key to yield; the end of its value, which may be long, is not searched.

    Yields:
        The key without quotes, and begin and end of its value. The end is None for the last one,
        if the text ends first.
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
    """Return the end of the value that begins at an offset, None if the text ends first."""
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
        elif token == b'"':  # a string that is cut off
            return None
    return None


def read_json(path: Path) -> dict[str, Any]:
    """Read a small JSON file that holds an object.

    Raises:
        SourceError: the file cannot be read, is not JSON or does not hold an object.
    """
    value = read_json_value(path)
    if not isinstance(value, dict):
        raise SourceError(path, "does not hold a JSON object.")
    return value


def read_json_value(path: Path) -> Any:
    """Read a small JSON file that may hold any value.

    Raises:
        SourceError: the file cannot be read or is not JSON.
    """
    try:
        return orjson.loads(read_whole_file(path))
    except orjson.JSONDecodeError as error:
        raise SourceError(path, f"is not valid JSON: {error.msg}.", offset=error.pos) from error
