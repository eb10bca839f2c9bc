"""Small JSON objects, and the keys and values at the beginning of large ones as text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from timeline.errors import SourceError
from timeline.patterns import compile_late
from timeline.sources.files.opened import read_whole_file

__all__ = ["end_of_value", "leading_values", "read_json"]

_STRING = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_KEY = compile_late(rb"\s*(" + _STRING + rb")\s*:\s*(?=\S)", re.DOTALL)
_PLAIN = compile_late(_STRING + rb"|[^\s,\[\]{}\"]+(?=[\s,\[\]{}\"])", re.DOTALL)
_BRACKETS = compile_late(_STRING + rb"|[\[\]{}\"]", re.DOTALL)
_COMMA = compile_late(rb"\s*,")
_END = compile_late(rb"\s*(?:\}|\Z)")
_NEXT_KEY = compile_late(rb"\s*,(?=\s*" + _STRING + rb"\s*:)", re.DOTALL)
_EVENTS = b'"traceEvents"'


def leading_values(
    text: bytes, begin: int, until: bytes = b""
) -> Iterator[tuple[bytes, int, int | None]]:
    """The values of an object, whose first key stands at or behind a place of the text.

    A value that is no JSON, such as a string with quotes in it, ends where the next key begins;
    keys of an object in it may come as keys of this one.

    Args:
        until: the key that is the last, whose value is so long that it is not looked for its end.

    Yields:
        Key without its quotes, where its value begins, and where it ends: None where the text
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
    """Where the value ends that begins at a place, None where the text ends first."""
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
    try:
        value = orjson.loads(read_whole_file(path))
    except orjson.JSONDecodeError as error:
        raise SourceError(path, f"is not valid JSON: {error.msg}.", offset=error.pos) from error
    if not isinstance(value, dict):
        raise SourceError(path, "holds no JSON object.")
    return value
