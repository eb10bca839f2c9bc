"""JSON that writers of traces get wrong, as the JSON that they meant."""

from __future__ import annotations

import re

import numpy as np

from timeline.patterns import compile_late

__all__ = ["mend_json"]

_ESCAPE = compile_late(
    rb'\\(?:["\\/bfnrt]|u(?:[0-9a-fA-F]{4}|[0-9a-fA-F]{0,3}\Z)|\Z)|(\\)', re.DOTALL
)
"""An escape, which may be cut off at the end of the text, or a backslash that begins none."""
_CONTROL = compile_late(rb"[\x00-\x1f]")
_NO_VALUE = compile_late(
    rb"(?<=[:,\[])\s*(?:[+-]?(?:1\.#)?(?:inf(?:inity)?|[qs]?nan|ind)(?:\(\w*\))?(?=\s*[,\]}])"
    rb"|(?<=:)(?=\s*[,}]))",
    re.IGNORECASE,
)
"""What C++ and Python write for numbers that are none, or nothing where a value should be."""
_NEXT_OBJECT = compile_late(rb'\}\s*,\s*(?=\{\s*")')


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
