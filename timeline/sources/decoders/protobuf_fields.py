"""The fields of protobuf messages by place, so that what is damaged can be told and left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from timeline.sources.common.losses import LossLog

__all__ = ["BYTES", "NUMBER", "Field", "read_fields", "read_number"]

NUMBER, BYTES = 0, 2
"""Kinds of fields: a number, and a text, message or packed list."""
_FIXED = {1: 8, 5: 4}
_LONGEST = 10
_WORD, _SIGN = 1 << 64, 1 << 63
_CUT = "messages that are cut off or damaged, with what follows in them"


class Field(NamedTuple):
    """A field of a message: its number and kind, and where in the file its value lies.

    whole: whether all of it is there.
    """

    number: int
    kind: int
    begin: int
    end: int
    whole: bool


def read_fields(data: bytes, begin: int, end: int, losses: LossLog) -> Iterator[Field]:
    """The fields of the message in a part of a file, in order, until one that cannot be read.

    A field of bytes that is longer than the message comes last, cut and not whole.
    """
    at = begin
    while at < end:
        start = at
        key, at = _varint(data, at, end)
        number, kind = key >> 3, key & 7
        size, value = 0, at
        if kind == BYTES and at:
            size, value = _varint(data, at, end)
        elif kind == NUMBER and at:
            _, stop = _varint(data, at, end)
            size = stop - at
        else:
            size = _FIXED.get(kind, -1)
        if not (at and value and number) or size < 0 or (kind != BYTES and at + size > end):
            losses.add(_CUT, f"byte {start}")
            return
        at = value + size
        if at > end:
            losses.add(_CUT, f"byte {start}")
        yield Field(number, kind, value, min(at, end), at <= end)


def read_number(data: bytes, field: Field) -> int:
    """The value of a field that is a number, as a signed one of 64 bits."""
    value = _varint(data, field.begin, field.end)[0] % _WORD
    return value - _WORD if value >= _SIGN else value


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The number at a place, and the place behind it: 0 where the bytes end first."""
    byte = data[at] if at < end else 128
    if byte < 128:
        return byte, at + 1
    value, shift = byte & 127, 7
    for place in range(at + 1, min(at + _LONGEST, end)):
        byte = data[place]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place + 1
        shift += 7
    return 0, 0
