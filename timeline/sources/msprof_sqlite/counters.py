"""Turns msprof's tables of samples into counters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from timeline.columns.columns import Codes, Int64
from timeline.columns.constant import constant
from timeline.columns.distinct import distinct_values
from timeline.columns.strings import StringPool
from timeline.records.tables import NO_ID, NO_TIME, CounterSamples, CounterSeries
from timeline.sources.common.device_clock import DeviceClocks
from timeline.sources.decoders.joins import common_keys
from timeline.sources.decoders.sqlite_loose import LooseTable
from timeline.sources.msprof_sqlite.databases import ParsedDatabases

__all__ = ["read_counters"]

_Times = Callable[[DeviceClocks, LooseTable, str], Int64]


def _on_clock(clock: DeviceClocks, table: LooseTable, column: str) -> Int64:
    """Times that msprof has already put on the host's clock."""
    return table.integers({column: NO_TIME})[column]


def _counted(clock: DeviceClocks, table: LooseTable, column: str) -> Int64:
    """Times that the counter of the device gave."""
    return clock.counted_ns(table.integers({column: NO_ID})[column])


def _sampled(clock: DeviceClocks, table: LooseTable, column: str) -> Int64:
    """Times that a sampler gave."""
    return clock.sampled_ns(table.integers({column: NO_ID})[column])


def _of_memory(clock: DeviceClocks, table: LooseTable, column: str) -> Int64:
    """Times that the sampler of memory gave."""
    return clock.memory_ns(table.integers({column: NO_ID})[column], table.reals((column,))[column])


@dataclass(frozen=True)
class _Samples:
    """One table: where it lies, how its times are meant, what tells series apart, its values.

    values maps a column to (name, unit, factor); `{}` in the name stands for the series' tags.
    """

    file: str
    table: str
    group: str
    values: dict[str, tuple[str, str, float]]
    time: str = "timestamp"
    clock: _Times = _sampled
    ids: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()


_MEMORY_EVENTS = {"0": "APP", "1": "Device"}
"""What msprof calls the two kinds of memory samples."""


def _network(name: str) -> dict[str, tuple[str, str, float]]:
    return {
        "bandwidth": (f"{name} {{}} Bandwidth", "MB/s", 1),
        "rxbyte": (f"{name} {{}} Rx Rate", "B/s", 1),
        "txbyte": (f"{name} {{}} Tx Rate", "B/s", 1),
    }


_TABLES: Sequence[_Samples] = (
    _Samples(
        "freq.db",
        "FreqParse",
        "AI Core Freq",
        {"freq": ("AI Core Freq", "MHz", 1)},
        "syscnt",
        _counted,
    ),
    _Samples(
        "hbm.db",
        "HBMbwData",
        "HBM",
        {"bandwidth": ("HBM {}", "MB/s", 1)},
        ids=("hbmid",),
        kinds=("event_type",),
    ),
    _Samples(
        "ddr.db",
        "DDRMetricData",
        "DDR",
        {"flux_read": ("Read", "MB/s", 1), "flux_write": ("Write", "MB/s", 1)},
    ),
    _Samples(
        "llc.db",
        "LLCMetrics",
        "LLC",
        {
            "throughput": ("LLC {} Throughput", "MB/s", 1),
            # A fraction in the table, a percentage wherever msprof shows it.
            "hitrate": ("LLC {} Hit Rate", "%", 100),
        },
        ids=("l3tid",),
    ),
    _Samples(
        "npu_mem.db",
        "NpuMem",
        "NPU MEM",
        {"ddr": ("{} DDR", "B", 1), "hbm": ("{} HBM", "B", 1)},
        clock=_of_memory,
        kinds=("event",),
    ),
    _Samples(
        "hccs.db",
        "HCCSEventsData",
        "HCCS",
        {
            "txthroughput": ("Tx Throughput", "MB/s", 1),
            "rxthroughput": ("Rx Throughput", "MB/s", 1),
        },
    ),
    _Samples(
        "acc_pmu.db",
        "AccPmu",
        "Acc PMU",
        {
            "read_bandwidth": ("Read Bandwidth Level, acc {}", "", 1),
            "write_bandwidth": ("Write Bandwidth Level, acc {}", "", 1),
            "read_ost": ("Read Outstanding Level, acc {}", "", 1),
            "write_ost": ("Write Outstanding Level, acc {}", "", 1),
        },
        clock=_on_clock,
        ids=("acc_id",),
    ),
    _Samples(
        "soc_profiler.db",
        "InterSoc",
        "Stars Soc Info",
        {
            "l2_buffer_bw_level": ("L2 Buffer Bw Level", "", 1),
            "mata_bw_level": ("Mata Bw Level", "", 1),
        },
        "sys_time",
        _on_clock,
    ),
    _Samples("nic.db", "NicOriginalData", "NIC", _network("NIC"), ids=("funcid",)),
    _Samples("roce.db", "RoceOriginalData", "RoCE", _network("RoCE"), ids=("funcid",)),
)


def read_counters(
    databases: ParsedDatabases, clock: DeviceClocks, strings: StringPool
) -> tuple[CounterSeries, CounterSamples]:
    """Read every table of samples that is there; a sample without a moment has no time."""
    series: dict[tuple[str, str, str], int] = {}
    made: list[CounterSamples] = []
    for plan in _TABLES:
        table = databases.of_device(plan.file, plan.table)
        if len(table) and table.has(plan.time):
            made += _read(plan, table, clock, strings, series)
    if not series:
        return CounterSeries.empty(), CounterSamples.empty()
    groups, labels, units = zip(*series, strict=True)
    columns = {"group": groups, "name": labels, "unit": units}
    coded = {name: strings.codes(values) for name, values in columns.items()}
    return CounterSeries.of(len(series), coded), CounterSamples.concat(made)


def _read(
    plan: _Samples,
    table: LooseTable,
    clock: DeviceClocks,
    strings: StringPool,
    series: dict[tuple[str, str, str], int],
) -> list[CounterSamples]:
    time_ns = plan.clock(clock, table, plan.time)
    labels, which = _labels(plan, table, strings)
    made = []
    for column, values in table.reals(tuple(plan.values)).items():
        name, unit, factor = plan.values[column]
        rows = np.array(
            [
                series.setdefault((plan.group, name.format(label), unit), len(series))
                for label in labels
            ]
        )
        columns = {"time_ns": time_ns, "series": rows[which], "value": values * factor}
        made.append(CounterSamples.of(len(values), columns))
    return made


def _labels(plan: _Samples, table: LooseTable, strings: StringPool) -> tuple[list[str], Codes]:
    """The distinct labels of the series of a table, and which one each row has."""
    ids = table.integers(dict.fromkeys(plan.ids, NO_ID))
    kinds = table.texts(plan.kinds, strings)
    tags = [*ids.values(), *(codes.astype(np.int64) for codes in kinds.values())]
    if not tags:
        return [""], constant(0, len(table), np.int32)
    key, _ = common_keys(tags, [tag[:0] for tag in tags])
    distinct, which = distinct_values(key)
    first = np.full(len(distinct), len(key))
    np.minimum.at(first, which, np.arange(len(key)))
    labels = [
        " ".join(
            [
                *(str(column[row]) for column in ids.values()),
                *(_titled(strings[codes[row]]) for codes in kinds.values()),
            ]
        )
        for row in first.tolist()
    ]
    return labels, which.astype(np.int32)


def _titled(name: str) -> str:
    """Capitalise plain words such as read; name the kinds of memory samples."""
    name = _MEMORY_EVENTS.get(name, name)
    return name.capitalize() if name.islower() else name
