"""The colours that version 52 of the Perfetto UI gives to slices."""

from __future__ import annotations

import math
import re

GREEN, RED = range(85, 176), (*range(30), *range(330, 360))
"""Hues of HSLuv, in degrees."""


def hue(text: str) -> int:
    """The hue of a slice: a hash of its name without digits, or of its correlation id."""
    return _hashed(_without_digits(text), 360)


def lightness(text: str) -> int:
    """The lightness of the same, in percent."""
    return 40 + _hashed(_without_digits(text) + "x", 40)


SATURATION = 80
_TO_RGB = (
    (3.240969941904521, -1.537383177570093, -0.498610760293),
    (-0.96924363628087, 1.87596750150772, 0.041555057407175),
    (0.055630079696993, -0.20397695888897, 1.056971514242878),
)
_WHITE = (0.19783000664283, 0.46831999493879)


def shown(text: str) -> str:
    """Its colour as #rrggbb: HSLuv of its hue and lightness, by the formulas of hsluv.org."""
    light, angle = lightness(text), math.radians(hue(text))
    chroma = _most_chroma(light, angle) * SATURATION / 100
    u, v = (
        chroma * part / (13 * light) + white
        for part, white in zip((math.cos(angle), math.sin(angle)), _WHITE, strict=True)
    )
    y = ((light + 16) / 116) ** 3
    xyz = 9 * y * u / (4 * v), y, y * (12 - 3 * u - 20 * v) / (4 * v)
    linear = [sum(a * b for a, b in zip(row, xyz, strict=True)) for row in _TO_RGB]
    parts = [
        one * 12.92 if one <= 0.0031308 else 1.055 * one ** (1 / 2.4) - 0.055 for one in linear
    ]
    return "#" + "".join(f"{round(255 * min(max(part, 0), 1)):02x}" for part in parts)


def _most_chroma(light: float, angle: float) -> float:
    """The most chroma of a lightness and hue for which no channel leaves 0 to 1."""
    above = ((light + 16) / 116) ** 3
    lengths = []
    for m1, m2, m3 in _TO_RGB:
        for channel in (0, 1):
            top1 = (284517 * m1 - 94839 * m3) * above
            top2 = (838422 * m3 + 769860 * m2 + 731718 * m1) * light * above
            top2 -= 769860 * channel * light
            bottom = (632260 * m3 - 126452 * m2) * above + 126452 * channel
            slope, intercept = top1 / bottom, top2 / bottom
            lengths.append(intercept / (math.sin(angle) - slope * math.cos(angle)))
    return min(length for length in lengths if length >= 0)


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
