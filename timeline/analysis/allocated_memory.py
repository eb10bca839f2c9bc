"""What operators of a framework allocated on the device, and who held memory at the peak."""

from __future__ import annotations

from dataclasses import field

import numpy as np

from timeline.analysis.memory_peaks import BYTES_OF_UNIT
from timeline.columns.columns import Bool, Codes, ColumnTable, Int64, Rows, column
from timeline.columns.distinct import rows_by_value
from timeline.columns.strings import NO_NAME, StringPool
from timeline.frozen import dataclass
from timeline.ranges import MOST_BYTES
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import Records

__all__ = ["AllocatedMemory", "HeldBytes", "allocated_memory"]

_TOTALS, _ALLOCATED = "Framework Memory", " Allocated"
"""The counters of what allocators hold: their group, and how their names end."""
_OF_OPERATORS = "Operator Memory"
"""The counter of what operators hold, which has a sample at each allocation."""


class HeldBytes(ColumnTable):
    """A row per allocation, in order of time."""

    name: Codes = column(np.int32, NO_NAME)
    size_bytes: Int64 = column(np.int64)
    use_bytes: Int64 = column(np.int64, NO_ID)
    """What all of the rank held from then on, NO_ID before anything tells."""
    at_peak: Bool = column(np.bool_, 0)


@dataclass(frozen=True, slots=True)
class AllocatedMemory:
    """What a rank allocated in a selection, where that was recorded; names are of `strings`.

    count: how many allocations there are, all of which or some are in `held`. peak_bytes: the most
    that was held at once, NO_ID where nothing tells. peak_name: the operator that allocated last
    before.
    """

    strings: tuple[str, ...] = ("",)
    held: HeldBytes = field(default_factory=HeldBytes.empty)
    count: int = 0
    peak_bytes: int = NO_ID
    peak_name: int = NO_NAME


def allocated_memory(records: Records, most: int) -> AllocatedMemory:
    """What the selected part of a rank allocated, of counters and allocations that were read.

    most: so many allocations are told one by one; of more, the largest that are held at the peak.

    What is held is what the allocators say, all of them together where they do; without them, the
    sum of all allocations that were not released yet.
    """
    time_ns, use_bytes = _use(records)
    if not len(time_ns):
        return AllocatedMemory()
    # Counters are on the clock that allocations were on before that of the host was fitted.
    allocations = records.allocations.shifted(-records.host_offset_ns)
    starts_ns = allocations.start_ns
    rows: Rows = np.flatnonzero(np.isin(starts_ns, _samples(records, _OF_OPERATORS, "")[0]))
    rows = rows[np.argsort(starts_ns[rows], kind="stable")]
    starts_ns, ends_ns = starts_ns[rows], allocations.end_ns[rows]
    sample = np.searchsorted(time_ns, starts_ns, side="right") - 1
    peak = int(np.argmax(use_bytes))
    peak_ns = int(time_ns[peak])
    before = int(np.searchsorted(starts_ns, peak_ns, side="right"))
    strings = StringPool()
    names = strings.translate(allocations.name[rows], records.strings)
    held = HeldBytes(
        names,
        allocations.size_bytes[rows],
        np.where(sample >= 0, use_bytes[sample], NO_ID),
        (starts_ns <= peak_ns) & ((ends_ns == NO_TIME) | (ends_ns > peak_ns)),
    )
    peak_name = int(names[before - 1]) if before else NO_NAME
    if len(rows) > most:
        kept = np.flatnonzero(held.at_peak)
        kept = kept[np.argsort(-held.size_bytes[kept], kind="stable")[:most]]
        held = held.take(np.sort(kept))
    return AllocatedMemory(tuple(strings), held, len(rows), int(use_bytes[peak]), peak_name)


def _use(records: Records) -> tuple[Int64, Int64]:
    """When how much was held by all allocators, or else by operators; in order of time."""
    time_ns, use_bytes = _samples(records, _TOTALS, _ALLOCATED)
    return (time_ns, use_bytes) if len(time_ns) else _samples(records, _OF_OPERATORS, "")


def _samples(records: Records, group: str, ending: str) -> tuple[Int64, Int64]:
    """The samples in bytes of a group's series whose name has the ending, in order of time.

    Of several series it is the one that is largest at its peak: that of all allocators together.
    What no memory can hold is no sample.
    """
    series, samples, pool = records.series, records.samples, records.strings
    best = np.zeros(0, np.int64), np.zeros(0, np.int64)
    code = pool.find(group)
    wanted = np.flatnonzero(series.group == (NO_ID if code is None else code))
    for row, its in rows_by_value(samples.series, wanted):
        unit = BYTES_OF_UNIT.get(pool[series.unit[row]], 0)
        if not unit or not pool[series.name[row]].endswith(ending):
            continue
        here = its[np.abs(samples.value[its]) < MOST_BYTES / unit]
        if len(here):
            here = here[np.argsort(samples.time_ns[here], kind="stable")]
            values = np.rint(samples.value[here] * unit).astype(np.int64)
            if values.max() > best[1].max(initial=-1):
                best = samples.time_ns[here], values
    return best
