"""Turns the sample tables of a profile database into counters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timeline.records.columns import Codes, Float64, Int64
from timeline.records.strings import StringPool
from timeline.records.tables import CounterSamples, CounterSeries
from timeline.sources.sqlite_columns import Database

__all__ = ["CounterTable", "counter_tables", "read_counters"]

NOT_SAMPLED = float("inf")
"""A sample that the database leaves empty; it is dropped and counted with other bad values."""


@dataclass(frozen=True)
class CounterTable:
    """How one table is drawn: its group, the columns that tell series apart, and its values.

    values maps a column to (name, unit); `{}` in the name stands for the series' ids.
    """

    table: str
    group: str
    values: dict[str, tuple[str, str]]
    ids: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    """Columns that hold string ids, such as read or write."""
    time: str = "timestampNs"


def counter_tables() -> tuple[CounterTable, ...]:
    """All sample tables that msprof and torch_npu write."""
    return (
        CounterTable("AICORE_FREQ", "AI Core Freq", {"freq": ("AI Core Freq", "MHz")}),
        CounterTable("HBM", "HBM", {"bandwidth": ("HBM {}", "B/s")}, ("hbmId",), ("type",)),
        CounterTable("DDR", "DDR", {"read": ("Read", "B/s"), "write": ("Write", "B/s")}),
        CounterTable(
            "LLC",
            "LLC",
            {
                "throughput": ("LLC {} Throughput", "B/s"),
                "hitRate": ("LLC {} Hit Rate", "%"),
            },
            ("llcId",),
            ("mode",),
        ),
        CounterTable(
            "NPU_MEM",
            "NPU MEM",
            {
                "ddr": ("{} DDR", "B"),
                "hbm": ("{} HBM", "B"),
            },
            (),
            ("type",),
        ),
        CounterTable(
            "ACC_PMU",
            "Acc PMU",
            {
                "readBwLevel": ("Read Bandwidth Level, acc {}", ""),
                "writeBwLevel": ("Write Bandwidth Level, acc {}", ""),
                "readOstLevel": ("Read Outstanding Level, acc {}", ""),
                "writeOstLevel": ("Write Outstanding Level, acc {}", ""),
            },
            ("accId",),
        ),
        CounterTable(
            "SOC_BANDWIDTH_LEVEL",
            "Stars Soc Info",
            {
                "l2BufferBwLevel": ("L2 Buffer Bw Level", ""),
                "mataBwLevel": ("Mata Bw Level", ""),
            },
        ),
        CounterTable(
            "HCCS",
            "HCCS",
            {
                "txThroughput": ("Tx Throughput", "B/s"),
                "rxThroughput": ("Rx Throughput", "B/s"),
            },
        ),
        CounterTable("NIC", "NIC", _network("NIC"), ("funcId",)),
        CounterTable("ROCE", "RoCE", _network("RoCE"), ("funcId",)),
        CounterTable(
            "PCIE",
            "PCIe",
            {
                f"{side}{kind}Avg": (f"{side.capitalize()} {kind} Avg", "B/s")
                for side in ("tx", "rx")
                for kind in ("Post", "Nonpost", "Cpl")
            },
        ),
        CounterTable("QOS", "QoS", {"bandwidth": ("QoS {}", "B/s")}, ("dieId",), ("eventName",)),
        CounterTable("CPU_USAGE", "CPU Usage", {"usage": ("CPU {}", "%")}, ("cpuId",)),
        CounterTable("HOST_MEM_USAGE", "Memory Usage", {"usage": ("Memory Usage", "%")}),
        CounterTable(
            "HOST_DISK_USAGE",
            "Disk Usage",
            {
                "readRate": ("Read", "B/s"),
                "writeRate": ("Write", "B/s"),
                "usage": ("Usage", "%"),
            },
        ),
        CounterTable(
            "HOST_NETWORK_USAGE",
            "Network Usage",
            {
                "usage": ("Usage", "%"),
                "speed": ("Speed", "B/s"),
            },
        ),
        CounterTable(
            "MEMORY_RECORD",
            "Framework Memory",
            {
                "totalAllocated": ("{} Allocated", "B"),
                "totalReserved": ("{} Reserved", "B"),
                "totalActive": ("{} Active", "B"),
            },
            (),
            ("component",),
            "timestamp",
        ),
    )


def _network(name: str) -> dict[str, tuple[str, str]]:
    return {
        "bandwidth": (f"{name} {{}} Bandwidth", "B/s"),
        "rxByteRate": (f"{name} {{}} Rx Rate", "B/s"),
        "txByteRate": (f"{name} {{}} Tx Rate", "B/s"),
    }


def read_counters(
    database: Database, strings: StringPool, names: dict[int, str], device: int | None
) -> tuple[CounterSeries, CounterSamples]:
    """Read every sample table that is there; with a device, only its rows."""
    series: dict[tuple[str, str, str], int] = {}
    samples: list[CounterSamples] = []
    for table in counter_tables():
        if database.has(table.table, table.time):
            samples.extend(_read_table(database, table, series, names, device))
    if not series:
        return CounterSeries.empty(), CounterSamples.empty()
    groups, labels, units = zip(*series, strict=True)
    made = CounterSeries.of(
        len(series),
        {
            "group": strings.codes(groups),
            "name": strings.codes(labels),
            "unit": strings.codes(units),
        },
    )
    return made, CounterSamples.concat(samples)


def _read_table(
    database: Database,
    table: CounterTable,
    series: dict[tuple[str, str, str], int],
    names: dict[int, str],
    device: int | None,
) -> list[CounterSamples]:
    where = ""
    if device is not None and database.has(table.table, "deviceId"):
        where = f'WHERE "deviceId" = {device}'
    tags = (*table.kinds, *table.ids)
    integers = database.integers(table.table, {table.time: 0, **dict.fromkeys(tags, -1)}, where)
    present = [column for column in table.values if database.has(table.table, column)]
    floats = database.floats(table.table, dict.fromkeys(present, NOT_SAMPLED), where)
    labels, which = _labels(table, integers, names)
    made = []
    for column, values in floats.items():
        pattern, unit = table.values[column]
        rows = [
            series.setdefault((table.group, pattern.format(label), unit), len(series))
            for label in labels
        ]
        if len(values):
            made.append(_samples(integers[table.time], np.array(rows)[which], values))
    return made


def _samples(time_ns: Int64, series: Int64, values: Float64) -> CounterSamples:
    return CounterSamples.of(len(values), {"time_ns": time_ns, "series": series, "value": values})


def _labels(
    table: CounterTable, integers: dict[str, Int64], names: dict[int, str]
) -> tuple[list[str], Codes]:
    """The distinct labels of a table's series, and which one each row has."""
    time_ns = integers[table.time]
    tags = (*table.ids, *table.kinds)
    if not tags:
        return ([""] if len(time_ns) else []), np.zeros(len(time_ns), np.int32)
    keys = np.stack([integers[tag] for tag in tags], axis=1)
    distinct, which = np.unique(keys, axis=0, return_inverse=True)
    labels = [
        " ".join(
            str(value) if tag in table.ids else _titled(names.get(value, str(value)))
            for tag, value in zip(tags, row, strict=True)
        )
        for row in distinct.tolist()
    ]
    return labels, which.reshape(-1).astype(np.int32)


def _titled(name: str) -> str:
    """Capitalise plain words such as read; leave names such as PTA as they are."""
    return name.capitalize() if name.islower() else name
