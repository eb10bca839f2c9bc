"""Turns samples that are found one series at a time into the tables of counters."""

from __future__ import annotations

import numpy as np

from timeline.columns.columns import Float64, Int64
from timeline.columns.constant import constant
from timeline.columns.strings import StringPool
from timeline.records.tables import CounterSamples, CounterSeries

__all__ = ["SIZES", "SampleCollector", "whole_bytes"]

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
