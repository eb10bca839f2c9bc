"""Turns samples that are found one series at a time into the tables of counters."""

from __future__ import annotations

import re

import numpy as np

from timeline.columns.columns import Float64, Int64
from timeline.columns.constant import constant
from timeline.columns.strings import StringPool
from timeline.records.tables import CounterSamples, CounterSeries

__all__ = [
    "SIZES",
    "SampleCollector",
    "factor_of",
    "name_and_unit",
    "name_of",
    "unit_of",
    "whole_bytes",
]

SIZES = {"B": 1, "KB": 1 << 10, "kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
"""Bytes of the units of sizes: exporters divide by powers of 1024."""


class SampleCollector:
    """Series by group, name and unit, with their samples."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, str, str], int] = {}
        self._samples: list[CounterSamples] = []

    def __len__(self) -> int:
        return sum(len(part) for part in self._samples)

    def add(self, group: str, name: str, unit: str, time_ns: Int64, values: Float64) -> None:
        """Add samples to a series; without samples there is no series."""
        if not len(values):
            return
        row = self._series.setdefault((group, name, unit), len(self._series))
        columns = {
            "time_ns": time_ns,
            "series": constant(row, len(values), np.int64),
            "value": values,
        }
        self._samples.append(CounterSamples.of(len(values), columns))

    def tables(self, strings: StringPool) -> tuple[CounterSeries, CounterSamples]:
        """All series, and all samples."""
        if not self._series:
            return CounterSeries.empty(), CounterSamples.empty()
        groups, names, units = zip(*self._series, strict=True)
        series = CounterSeries.of(
            len(self._series),
            {
                "group": strings.codes(groups),
                "name": strings.codes(names),
                "unit": strings.codes(units),
            },
        )
        return series, CounterSamples.concat(self._samples)


def whole_bytes(values: Float64, unit: str) -> tuple[Float64, str]:
    """Sizes in bytes, where the text of all of them is fine enough to tell; else as they are.

    >>> whole_bytes(np.array([935.9951171875]), "MB")
    (array([9.81462016e+08]), 'B')
    """
    factor = SIZES.get(unit)
    if factor is None:
        return values, unit
    sizes = values * factor
    known = sizes[np.isfinite(sizes)]
    return (sizes, "B") if (known == np.rint(known)).all() else (values, unit)


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
