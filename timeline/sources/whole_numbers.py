"""Turns values from a profile into numbers of 64 bits, where they are such."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from timeline.columns.columns import Bool, Int64

__all__ = ["real", "whole_number", "whole_numbers"]

_DECIMAL = re.compile(r"\s*(-?)0*([0-9]{1,19})\s*", re.ASCII)
"""int() also takes digits of other scripts, and refuses thousands of them."""
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_MOST_DIGITS = 18
"""So many always fit 64 bits."""


def whole_number(value: object) -> int | None:
    """The integer that a value is or spells in decimal digits; None for anything else.

    Blanks around the digits and a minus before them are fine. A plus, digits of other scripts, and
    numbers that no column holds are not.
    """
    if isinstance(value, str):
        match = _DECIMAL.fullmatch(value)
        value = int(match[1] + match[2]) if match else None
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if _LEAST <= value <= _MOST else None


def whole_numbers(texts: Sequence[bytes], absent: int) -> tuple[Int64, Bool]:
    """What `whole_number` makes of texts, (n,) int64, and which are such; others are `absent`."""
    if texts and max(map(len, texts)) <= _MOST_DIGITS and all(map(bytes.isdigit, texts)):
        return np.fromiter(map(int, texts), np.int64, len(texts)), np.ones(len(texts), np.bool_)
    known = {text: whole_number(text.decode("latin-1")) for text in dict.fromkeys(texts)}
    found = [known[text] for text in texts]
    numbers = (absent if number is None else number for number in found)
    good = (number is not None for number in found)
    return (
        np.fromiter(numbers, np.int64, len(texts)),
        np.fromiter(good, np.bool_, len(texts)),
    )


def real(value: float) -> float:
    """A number as a float; infinite where it is too large to be one."""
    try:
        return float(value)
    except OverflowError:
        return float("inf")
