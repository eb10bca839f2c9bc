"""Turns a value from a profile into a number of 64 bits, where it is one."""

from __future__ import annotations

import re

__all__ = ["real", "whole_number"]

_DECIMAL = re.compile(r"\s*(-?[0-9]{1,19})\s*", re.ASCII)
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


def whole_number(value: object) -> int | None:
    """The integer that a value is or spells in decimal digits; None for anything else.

    Digits of other scripts, and numbers that no column holds, are none.
    """
    if isinstance(value, str):
        match = _DECIMAL.fullmatch(value)
        value = int(match[1]) if match else None
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if _LEAST <= value <= _MOST else None


def real(value: float) -> float:
    """A number as a float; infinite where it is too large to be one."""
    try:
        return float(value)
    except OverflowError:
        return float("inf")
