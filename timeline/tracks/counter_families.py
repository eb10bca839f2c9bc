"""Counters of one group by what they count, so that a hundred of them are a few rows."""

from __future__ import annotations

import re
from collections.abc import Mapping

MANY = 20
"""Counters of a group from which on they get rows above them by what they count."""
_NUMBER = re.compile(r"([0-9]+)")


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
    """A key that sorts numbers in names by value: Stream 2 before Stream 10.

    Numbers stay text, of which the longer one is greater: they may have any number of digits.
    """
    return tuple(
        (len(number), number) if at % 2 else (-1, part)
        for at, part in enumerate(_NUMBER.split(text))
        if part
        for number in [part.lstrip("0")]
    )
