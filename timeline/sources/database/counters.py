"""Turns the sample tables of a profile database into counters."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from timeline.columns.columns import Codes, Int64
from timeline.columns.distinct import distinct_values
from timeline.columns.strings import StringPool
from timeline.records.tables import (
    NO_ID,
    NO_TIME,
    CounterSamples,
    CounterSeries,
    Omission,
    OmissionCode,
)
from timeline.sources.common.counters import SampleCollector
from timeline.sources.common.sample_tables import CounterTable, counter_tables
from timeline.sources.companions.allocations import read_operator_memory_table
from timeline.sources.database.names import DatabaseNames
from timeline.sources.decoders.sqlite import Database

__all__ = ["read_counters"]

NOT_SAMPLED = float("inf")
"""A sample that the database leaves empty; it is dropped and counted with other bad values."""


def read_counters(
    database: Database, strings: StringPool, names: DatabaseNames, device: int | None, rank: int
) -> tuple[CounterSeries, CounterSamples, list[Omission]]:
    """Read every sample table that is there; with a device, only its rows.

    Also what was left out, and why.
    """
    into = SampleCollector()
    omissions = read_operator_memory_table(database, device, rank, into)
    for table in counter_tables():
        if not database.has(table.table, table.time):
            continue
        if table.twin and database.count(table.twin):
            reason = f"rows of {table.table}, which are in {table.twin} too"
            rows, code = database.count(table.table), OmissionCode.REPEATED
            omissions.append(Omission(reason, rows, rank, code=code))
            continue
        if idle := _read_table(database, table, into, names, device):
            reason = f"samples of {table.table} that stay zero all along"
            omissions.append(Omission(reason, idle, rank, code=OmissionCode.IDLE_COUNTER))
    return *into.tables(strings), omissions


def _read_table(
    database: Database,
    table: CounterTable,
    into: SampleCollector,
    names: DatabaseNames,
    device: int | None,
) -> int:
    """Add the series of a table; the number of samples that were left out because all are zero."""
    where = ""
    if device is not None and database.has(table.table, "deviceId"):
        where = f'WHERE "deviceId" = {device}'
    tags = (*table.kinds, *table.ids)
    integers = database.integers(
        table.table, {table.time: NO_TIME, **dict.fromkeys(tags, NO_ID)}, where
    )
    present = [column for column in table.values if database.has(table.table, column)]
    floats = database.floats(table.table, dict.fromkeys(present, NOT_SAMPLED), where)
    labels, which = _labels(table, integers, names.named(table.names))
    idle = 0
    for at, label in enumerate(labels):
        own = np.flatnonzero(which == at)
        for column, values in floats.items():
            pattern, unit = table.values[column]
            if table.idle and not values[own].any():
                idle += len(own)
                continue
            name = " ".join(pattern.format(label).split())
            into.add(table.group, name, unit, integers[table.time][own], values[own])
    return idle


def _labels(
    table: CounterTable, integers: dict[str, Int64], names: Mapping[int, str]
) -> tuple[list[str], Codes]:
    """The distinct labels of a table's series, and which one each row has."""
    time_ns = integers[table.time]
    tags = (*table.ids, *table.kinds)
    if not tags:
        return ([""] if len(time_ns) else []), np.zeros(len(time_ns), np.int32)
    which = np.zeros(len(time_ns), np.intp)
    for tag in tags:
        distinct, place = distinct_values(integers[tag])
        _, which = distinct_values(which * len(distinct) + place)
    first = np.empty(int(which.max(initial=-1)) + 1, np.intp)
    first[which[::-1]] = np.arange(len(which))[::-1]
    labels = [
        " ".join(
            str(value) if tag in table.ids else _titled(names.get(value, str(value)))
            for tag, value in zip(tags, row, strict=True)
            if value != NO_ID
        )
        for row in zip(*(integers[tag][first].tolist() for tag in tags), strict=True)
    ]
    return labels, which.astype(np.int32)


def _titled(name: str) -> str:
    """Capitalise plain words such as read; leave names such as PTA as they are."""
    return name.capitalize() if name.islower() else name
