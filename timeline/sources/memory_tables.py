"""Turns the CSV tables of samples that lie beside a capture into counters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from timeline.errors import SourceError
from timeline.records.columns import Bool, Codes, Float64, Int64
from timeline.records.tables import NO_ID, NO_TIME, Omission
from timeline.sources.counter_samples import SampleCollector, whole_bytes
from timeline.sources.microseconds import moments_ns
from timeline.sources.text_columns import CsvColumns, coded, name_of, numbers, unit_of

__all__ = ["SampleTable", "read_sample_table", "sample_tables"]

_TIMES = ("Timestamp(us)", "timestamp(us)", "Start Time(us)")
_DEVICES = ("Device_id", "Device Type", "Device")
_DEVICE = re.compile(r"(?:NPU:)?(\d{1,9})")


@dataclass(frozen=True)
class SampleTable:
    """How one kind of CSV file is drawn.

    values maps a column, without its unit, to the name of its series; `{}` in the name stands for
    what the column `label` holds. Rows whose label is in `twins` repeat the group named there.
    A series that stays zero is left out where `idle` says so: such a table names every module
    that could hold memory.
    """

    kind: str
    group: str
    values: dict[str, str]
    label: str = ""
    twins: dict[str, str] = field(default_factory=dict)
    idle: bool = False


def sample_tables() -> tuple[SampleTable, ...]:
    """The tables with a column of times that msprof, torch_npu and MindSpore write."""
    sizes = {"Total Allocated": "{} Allocated", "Total Reserved": "{} Reserved"}
    network = {
        "Bandwidth": "Bandwidth",
        "Rx Bandwidth efficiency": "Rx Bandwidth Efficiency",
        "rxPacket/s": "Rx Packets per Second",
        "rxError rate": "Rx Error Rate",
        "rxDropped rate": "Rx Dropped Rate",
        "Tx Bandwidth efficiency": "Tx Bandwidth Efficiency",
        "txPacket/s": "Tx Packets per Second",
        "txError rate": "Tx Error Rate",
        "txDropped rate": "Tx Dropped Rate",
    }
    return (
        SampleTable(
            "npu_mem",
            "NPU MEM",
            {"ddr": "{}/DDR", "hbm": "{}/HBM", "memory": "{}/Memory"},
            "event",
        ),
        SampleTable(
            "memory_record",
            "Framework Memory",
            sizes | {"Total Active": "{} Active"},
            "Component",
            {"APP": "NPU MEM"},
        ),
        SampleTable(
            "npu_module_mem",
            "NPU Module Memory",
            {"Total Reserved": "{} Reserved"},
            "Component",
            idle=True,
        ),
        *(
            SampleTable(
                kind,
                group,
                {key: f"{group} {{}} {name}" for key, name in network.items()},
                "funcId",
            )
            for kind, group in (("nic", "NIC"), ("roce", "RoCE"))
        ),
        SampleTable("aicpu_mi", "Data Queue", {"Queue Size": "{}"}, "Node Name"),
        SampleTable(
            "ccu_channel",
            "CCU Channel",
            {f"{which} Bandwidth": f"Channel {{}} {which}" for which in ("Max", "Min", "Avg")},
            "Channel Id",
        ),
    )


@dataclass(frozen=True)
class _Part:
    """Some rows: label and device are positions among those seen, values are by column."""

    time_ns: Int64
    label: Codes
    device: Codes
    values: dict[str, Float64]
    given: dict[str, Bool]


def read_sample_table(
    table: SampleTable,
    paths: Sequence[Path],
    drawn: frozenset[str],
    device: int | None,
    rank: int,
    into: SampleCollector,
) -> list[Omission]:
    """Read all slices of a table; with a device, only its rows.

    Args:
        drawn: groups that the capture itself has; their series are not drawn again.

    Returns:
        What was left out, and why.

    Raises:
        SourceError: a file cannot be read, or has no times.
    """
    omissions: list[Omission] = []
    labels: dict[str, int] = {}
    devices: dict[str, int] = {}
    units: dict[str, str] = {}
    parts: list[_Part] = []
    for path in paths:
        rows = CsvColumns(path)
        parts += _parts(table, rows, labels, devices, units)
        omissions += rows.omissions(rank)
    if not parts:
        return omissions
    held = _joined(parts, list(units))
    name = paths[0].name
    if table.group in drawn:
        count = len(held.time_ns)
        return [*omissions, Omission(f"rows of {name} that the capture draws itself", count, rank)]
    wanted = _of_device(held, devices, device)
    repeated = wanted & _in_codes(
        held.label, labels, {k for k, v in table.twins.items() if v in drawn}
    )
    if repeated.any():
        reason = f"rows of {name} that the capture draws itself"
        omissions.append(Omission(reason, int(repeated.sum()), rank))
    wanted &= ~repeated
    timed = held.time_ns != NO_TIME
    if bad := int((wanted & ~timed).sum()):
        omissions.append(Omission(f"rows of {name} without a valid time", bad, rank, loss=True))
    spelled = _spelled(labels, devices, device)
    return [*omissions, *_draw(table, name, held, wanted & timed, units, spelled, rank, into)]


def _parts(
    table: SampleTable,
    rows: CsvColumns,
    labels: dict[str, int],
    devices: dict[str, int],
    units: dict[str, str],
) -> Iterator[_Part]:
    for block in rows.blocks():
        time = next((name for name in _TIMES if name in block), None)
        if time is None:
            raise SourceError(rows.path, f"has no column {_TIMES[0]}.")
        count = len(block[time])
        columns = {name_of(column): column for column in block}
        values, given = {}, {}
        for name in table.values:
            if name in columns:
                units.setdefault(name, unit_of(columns[name]))
                values[name], given[name] = numbers(block[columns[name]])
        device = next((name for name in _DEVICES if name in block), "")
        yield _Part(
            moments_ns([cell.encode() for cell in block[time]]),
            coded(block.get(table.label, [""] * count), labels),
            coded(block.get(device, [""] * count), devices),
            values,
            given,
        )


def _joined(parts: Sequence[_Part], names: Sequence[str]) -> _Part:
    """All rows; a column that a slice lacks was not given there."""

    def values(part: _Part, name: str) -> Float64:
        return part.values.get(name, np.full(len(part.time_ns), np.nan))

    def given(part: _Part, name: str) -> Bool:
        return part.given.get(name, np.zeros(len(part.time_ns), np.bool_))

    return _Part(
        np.concatenate([part.time_ns for part in parts]),
        np.concatenate([part.label for part in parts]),
        np.concatenate([part.device for part in parts]),
        {name: np.concatenate([values(part, name) for part in parts]) for name in names},
        {name: np.concatenate([given(part, name) for part in parts]) for name in names},
    )


def _of_device(rows: _Part, devices: dict[str, int], device: int | None) -> Bool:
    """Rows of a device; a row that names none belongs to all."""
    if device is None:
        return np.ones(len(rows.time_ns), np.bool_)
    return _in_codes(
        rows.device, devices, {text for text in devices if _device(text) in (device, NO_ID)}
    )


def _device(text: str) -> int:
    match = _DEVICE.fullmatch(text)
    return int(match[1]) if match else NO_ID


def _in_codes(codes: Codes, known: dict[str, int], texts: set[str]) -> Bool:
    return np.isin(codes, [known[text] for text in texts if text in known])


def _spelled(
    labels: dict[str, int], devices: dict[str, int], device: int | None
) -> dict[tuple[int, int], tuple[str, str]]:
    """What is put into and behind a series' name, by label and device."""
    several = device is None and len(devices) > 1
    return {
        (label, at): (text, f", {name}" if several and name else "")
        for text, label in labels.items()
        for name, at in devices.items()
    }


def _draw(
    table: SampleTable,
    file: str,
    rows: _Part,
    wanted: Bool,
    units: dict[str, str],
    spelled: dict[tuple[int, int], tuple[str, str]],
    rank: int,
    into: SampleCollector,
) -> list[Omission]:
    """Add the series of a table; what is no number, or stays zero, is left out and counted."""
    bad = idle = 0
    keys = rows.label.astype(np.int64) * (1 << 32) + rows.device
    for column, values in rows.values.items():
        good = np.isfinite(values)
        bad += int((wanted & rows.given[column] & ~good).sum())
        sizes, unit = whole_bytes(values, units[column])
        here = np.flatnonzero(wanted & good)
        for key in np.unique(keys[here]).tolist():
            own = here[keys[here] == key]
            if table.idle and not sizes[own].any():
                idle += len(own)
                continue
            label, device = spelled[key >> 32, key & 0xFFFFFFFF]
            name = " ".join(table.values[column].format(label).split()) + device
            into.add(table.group, name, unit, rows.time_ns[own], sizes[own])
    omissions = []
    if bad:
        omissions.append(Omission(f"values of {file} that are no numbers", bad, rank, loss=True))
    if idle:
        omissions.append(Omission(f"samples of {file} that stay zero all along", idle, rank))
    return omissions
