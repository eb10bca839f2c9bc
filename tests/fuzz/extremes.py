"""Extreme values for any column, key or field, in the form that a file holds them."""

from __future__ import annotations

import enum
from dataclasses import dataclass

LONG_CHARACTERS = 1 << 20
"""A name of a megabyte."""
ODD_TEXT = "\x1b[31m\u202e\u2066<b>&'\"\x07\t\r\n=1+1\ufffe\U0001f389"
"""Control characters, direction marks, and what other programs take for a command."""


MANY_DIGITS = "9" * 5000


class Special(enum.Enum):
    """What is done to a column instead of giving it a value."""

    ABSENT = "absent"
    TWICE = "twice"
    """Its rows come twice."""
    DIGITS = "digits"
    """More digits follow what is there than Python makes a number of."""
    LONG = "long"
    """A name of a megabyte, or so much of it that all rows together stay small."""
    OTHER = "other"
    """Each value becomes another one of its kind: a number one more, a text one letter longer."""


@dataclass(frozen=True)
class Extreme:
    """A value, and what it is called in reports."""

    name: str
    value: int | float | str | Special | None


OTHER = Extreme("other", Special.OTHER)
"""No extreme: it shows whether a column is read at all."""

INTEGERS = (
    *(0, -1, 1, (1 << 16) - 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 53),
    *(1 << 62, (1 << 63) - 1, -(1 << 63), (1 << 64) - 1),
)
"""The ends of all integer types, and one beyond."""
EXTREMES = (
    *(Extreme(str(number), number) for number in INTEGERS),
    Extreme("2^62 ns in us", "4611686018427387.904"),
    Extreme("1e308", 1e308),
    Extreme("NaN", float("nan")),
    Extreme("empty", ""),
    Extreme("null", None),
    Extreme("absent", Special.ABSENT),
    Extreme("N/A", "N/A"),
    Extreme("odd text", ODD_TEXT),
    Extreme("long", Special.LONG),
    Extreme("digits", Special.DIGITS),
    Extreme("odd digits", "x\u00b2 \u0663 1\u00b9"),
    Extreme("twice", Special.TWICE),
)
