"""Families of counters that count the same thing, so that a hundred counters take a few rows."""

from __future__ import annotations

import re
from collections.abc import Mapping

MANY = 20
"""Least number of counters in a group for which families get rows of their own."""
_NUMBER = re.compile(r"([0-9]+)")


def counter_families(named: Mapping[int, str]) -> list[tuple[str, list[int]]]:
    """Group the counters whose names differ in numbers alone, if there are at least MANY.

    Otherwise each counter is alone. A counter that is alone has an empty family name: it needs no
    row above it.

    Args:
        named: the name of each counter, by its number.
    """
    rows = sorted(named, key=lambda row: natural_order(named[row]))
    if len(rows) < MANY:
        return [("", [row]) for row in rows]
    families: dict[str, list[int]] = {}
    for row in rows:
        families.setdefault(_counted(named[row]), []).append(row)
    return [(family if len(members) > 1 else "", members) for family, members in families.items()]


def _counted(name: str) -> str:
    """Return what a counter counts: its name without numbers and dangling separators."""
    words = _NUMBER.sub("", name).replace(" /", "/").split()
    return " ".join(words).rstrip(" ,_/")


def natural_order(text: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key that orders numbers in names by value: Stream 2 before Stream 10.

    Numbers stay strings, compared by length first: they may have any number of digits.
    """
    return tuple(
        (len(number), number) if at % 2 else (-1, part)
        for at, part in enumerate(_NUMBER.split(text))
        if part
        for number in [part.lstrip("0")]
    )
