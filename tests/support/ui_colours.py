"""The colours that version 52 of the Perfetto UI gives to slices."""

from __future__ import annotations

import re

GREEN, RED = range(85, 176), (*range(30), *range(330, 360))
"""Hues of HSLuv, in degrees."""


def hue(text: str) -> int:
    """The hue of a slice: a hash of its name without digits, or of its correlation id."""
    return _hashed(_without_digits(text), 360)


def lightness(text: str) -> int:
    """The lightness of the same, in percent."""
    return 40 + _hashed(_without_digits(text) + "x", 40)


def _without_digits(text: str) -> str:
    return re.sub(r"( )?\d+", "", text)


def _hashed(text: str, below: int) -> int:
    """Its hash, in its arithmetic: doubles, and 32 bits where it multiplies."""
    found = 18652613
    for character in text:
        found = _signed(_signed(found) ^ ord(character))
        found = _signed(int(float(found) * 16777619.0))
    return abs(found) % below


def _signed(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31
