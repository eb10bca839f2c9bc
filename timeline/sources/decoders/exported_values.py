"""Ids, amounts and names as exports write them, of which each writes some in its own way."""

from __future__ import annotations

import re

Value = int | float | str | None
"""What an arg may be: exports write N/A for numbers, and strings for large ids."""
_DECIMAL = re.compile(r"\s*(-?)0*([0-9]{1,19})\s*")
"""int() also takes digits of other scripts, and refuses thousands of them."""
_REAL = re.compile(r"\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*")
"""float() also takes names and underscores."""


def number(value: Value, default: int) -> int:
    """Return an id or amount; the default if it is absent, N/A or not a number."""
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 63 else default
    if isinstance(value, str):
        match = _DECIMAL.fullmatch(value)
        return number(int(match[1] + match[2]), default) if match else default
    if isinstance(value, float) and value.is_integer():
        return number(int(value), default)
    return default


def is_decimal(spelled: str) -> bool:
    """Return whether a string is a number as exports write them."""
    return _REAL.fullmatch(spelled) is not None


def text(value: Value) -> str:
    """Return a name, or the empty string where the export has none."""
    return value if isinstance(value, str) else "" if value is None else str(value)
