"""Parses ids, amounts and names, which exports write in different ways."""

from __future__ import annotations

import re

Value = int | float | str | None
"""The types of args: some numbers are written as strings, such as N/A and large ids."""
_DECIMAL = re.compile(r"\s*(-?)0*([0-9]{1,19})\s*")
"""A decimal integer; int() alone accepts digits of other scripts, and raises for thousands."""
_REAL = re.compile(r"\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*")
"""A decimal number. float() alone would accept names such as nan, and underscores."""


def number(value: Value, default: int) -> int:
    """Parse an id or amount; return the default if it is absent, N/A or not an int64."""
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 63 else default
    if isinstance(value, str):
        match = _DECIMAL.fullmatch(value)
        return number(int(match[1] + match[2]), default) if match else default
    if isinstance(value, float) and value.is_integer():
        return number(int(value), default)
    return default


def is_decimal(string: str) -> bool:
    """Return whether a string is a decimal number, with or without exponent."""
    return _REAL.fullmatch(string) is not None


def text(value: Value) -> str:
    """Return a value as a string, which is empty if it is absent."""
    return value if isinstance(value, str) else "" if value is None else str(value)
