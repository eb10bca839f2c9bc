"""Turns the spelling of a counter or a column into its name and unit."""

from __future__ import annotations

import re

__all__ = ["factor_of", "name_and_unit", "name_of", "unit_of"]

_IN_BRACKETS = re.compile(r"(.*)\(([^()]+)\)")
_UNITS = frozenset({"MHz", "KB", "MB", "GB", "%", "B/s", "MB/s", "GB/s", "mV", "W"})
_HIT_RATE = "Hit Rate"


def factor_of(name: str, unit: str) -> int:
    """What turns the values of counter events into the unit that their series has.

    Hit rates are fractions, although their args are called Hit Rate(%).
    """
    return 100 if unit == "%" and name.endswith(_HIT_RATE) else 1


def name_and_unit(event: str, key: str, keys: int) -> tuple[str, str]:
    """The series name and unit of one arg of a counter event.

    Args:
        event: name of the event, such as "HBM 0/Read".
        key: name of the arg, such as "Read(MB/s)", "KB" or "value".
        keys: how many values the event has; with one, the event's name says it all.

    >>> name_and_unit("HBM 0/Read", "Read(MB/s)", 1)
    ('HBM 0/Read', 'MB/s')
    >>> name_and_unit("APP/DDR", "KB", 1)
    ('APP/DDR', 'KB')
    """
    match = _IN_BRACKETS.fullmatch(key)
    unit = match[2] if match else key if key in _UNITS else ""
    label = match[1] if match else key
    return (event if keys == 1 else f"{event} {label}"), unit


def name_of(column: str) -> str:
    """The name of a column without its unit: "Total Reserved" of "Total Reserved(MB)"."""
    match = _IN_BRACKETS.fullmatch(column)
    return match[1].strip() if match else column


def unit_of(column: str) -> str:
    """The unit of a column, empty where it has none: "MB" of "Total Reserved(MB)"."""
    match = _IN_BRACKETS.fullmatch(column)
    return match[2] if match else ""
