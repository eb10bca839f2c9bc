"""The most memory that a rank held, by each counter that samples it."""

from __future__ import annotations

from dataclasses import field

import numpy as np

from timeline.columns.columns import Codes, ColumnTable, Int64, Rows, column
from timeline.columns.strings import StringPool
from timeline.frozen import dataclass
from timeline.ranges import MOST_BYTES
from timeline.records.not_given import NO_ID
from timeline.records.tables import Records

__all__ = ["BYTES_OF_UNIT", "MemoryPeaks", "PeakTable", "memory_peaks"]

BYTES_OF_UNIT = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
"""Units in which profilers count memory; what has another is no memory."""


class PeakTable(ColumnTable):
    """One row per series: the group of counters, its name there, and its largest sample."""

    group: Codes = column(np.int32)
    name: Codes = column(np.int32)
    peak_bytes: Int64 = column(np.int64)


@dataclass(frozen=True, slots=True)
class MemoryPeaks:
    """The peaks of one rank; codes are positions in `strings`.

    reserved_bytes: the most that was reserved, NO_ID where that is not recorded.
    """

    strings: tuple[str, ...] = ("",)
    table: PeakTable = field(default_factory=PeakTable.empty)
    reserved_bytes: int = NO_ID


def memory_peaks(records: Records) -> MemoryPeaks:
    """The peaks of all series of memory among the samples that were read, and what was reserved."""
    series, samples, pool = records.series, records.samples, records.strings
    if not len(samples):
        return MemoryPeaks(reserved_bytes=records.reserved_bytes)
    scales = np.array([BYTES_OF_UNIT.get(pool[unit], 0) for unit in series.unit.tolist()], np.int64)
    told = samples.value < MOST_BYTES / np.maximum(scales, 1)[samples.series]
    peaks = np.full(len(series), -1.0)
    np.maximum.at(peaks, samples.series[told], samples.value[told])
    rows: Rows = np.flatnonzero((scales > 0) & (peaks > 0))
    strings = StringPool()
    table = PeakTable(
        strings.translate(series.group[rows], pool),
        strings.translate(series.name[rows], pool),
        np.round(peaks[rows] * scales[rows]).astype(np.int64),
    )
    return MemoryPeaks(tuple(strings), table, records.reserved_bytes)
