"""Counters of one group by what they count, so that a hundred of them are a few rows."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["MANY", "counter_families", "natural_order"]

MANY = 20
"""Counters of a group from which on they get rows above them by what they count."""
_NUMBER = re.compile(r"(\d+)")


def counter_families(named: Mapping[int, str]) -> list[tuple[str, list[int]]]:
    """The counters of a group whose names differ in numbers alone, where there are many of all.

    Otherwise each is alone. What is alone has no name: it needs no row above it.

    Args:
        named: the name of each counter, by its number.
    """
    rows = sorted(named, key=lambda row: natural_order(named[row]))
    if len(rows) < MANY:
        return [("", [row]) for row in rows]
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault(_counted(named[row]), []).append(row)
    return [(family if len(its) > 1 else "", its) for family, its in found.items()]


def _counted(name: str) -> str:
    """What a counter counts: its name without numbers, and without what only led to them."""
    words = _NUMBER.sub("", name).replace(" /", "/").split()
    return " ".join(words).rstrip(" ,_/")


def natural_order(text: str) -> tuple[tuple[int, str], ...]:
    """A key that sorts numbers in names by value: Stream 2 before Stream 10."""
    # Without leading zeros the longer number is larger; Python makes none of very long ones.
    return tuple(
        (len(value := part.lstrip("0")), value) if part.isdecimal() else (-1, part)
        for part in _NUMBER.split(text)
        if part
    )
