"""Adds the counters and the memory in the tables beside a capture to its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from timeline.errors import SourceError
from timeline.layers import Layer
from timeline.records.joining import join_records
from timeline.records.not_given import NO_ID
from timeline.records.tables import Allocations, Omission, Records
from timeline.sources.common.counter_tables import OPERATOR_MEMORY, csv_tables
from timeline.sources.common.counters import SIZES, CounterBuilder, column_name, column_unit
from timeline.sources.common.losses import LossLog, unreadable_file
from timeline.sources.companions.allocations import GROUP, add_allocations, read_allocations
from timeline.sources.companions.sample_tables import read_sample_table, select_device_rows
from timeline.sources.decoders.csv_blocks import RowShape, read_blocks
from timeline.sources.source import ReadRequest

__all__ = ["with_csv_counters"]

_RESERVED = "Total Reserved"


def with_csv_counters(
    records: Records,
    files: Mapping[str, tuple[Path, ...]],
    device: int | None,
    wanted: ReadRequest,
) -> Records:
    """Records with the counters, allocations and reserved memory that they do not hold themselves.

    A table that cannot be read at all is left out and counted: the capture itself is whole.

    Args:
        files: by plain name without a stamp.
        device: the one whose rows are wanted; None is all.
    """
    rank, omissions = records.rank, list[Omission]()
    counting = Layer.COUNTERS in wanted.layers
    drawn = {records.strings[code] for code in set(records.series.group.tolist())}
    counters = CounterBuilder()
    for table in csv_tables() if counting else ():
        before = len(counters)
        paths = files.get(f"{table.table}.csv", ())
        try:
            omissions += read_sample_table(table, paths, frozenset(drawn), device, rank, counters)
        except SourceError as error:
            omissions.append(unreadable_file(error, rank))
        drawn |= {table.group} if len(counters) > before else set()
    draws = counting and GROUP not in drawn
    lists = wanted.with_allocations and not len(records.allocations)
    paths = files.get(f"{OPERATOR_MEMORY}.csv", ())
    if paths and (draws or lists):
        try:
            found, lost = read_allocations(paths, device, rank, records.strings)
        except SourceError as error:
            found, lost = Allocations.empty(), [unreadable_file(error, rank)]
        omissions += lost
        if draws:
            add_allocations(found, counters)
        if lists:
            records = replace(records, allocations=found)
    paths = files.get("memory_record.csv", ())
    if paths and wanted.memory and records.reserved_bytes == NO_ID:
        try:
            reserved_bytes, lost = _most_reserved(paths, device, rank)
        except SourceError as error:
            reserved_bytes, lost = NO_ID, [unreadable_file(error, rank)]
        omissions += [] if counting else lost
        records = replace(records, reserved_bytes=reserved_bytes)
    series, samples = counters.tables(records.strings)
    extra = Records(
        rank, records.strings, series=series, samples=samples, omissions=tuple(omissions)
    )
    return join_records([records, extra])


def _most_reserved(
    paths: Sequence[Path], device: int | None, rank: int
) -> tuple[int, list[Omission]]:
    """The most bytes that any component reserved, NO_ID without any; and what was left out."""
    most, omissions = NO_ID, list[Omission]()
    for path in paths:
        damage = LossLog(path)
        for block in read_blocks(path, None, (), damage, RowShape.FULL):
            columns = {column_name(column): column for column in block.header}
            if _RESERVED not in columns:
                raise SourceError(path, f"has no column {_RESERVED}.")
            values, given = block.reals(columns[_RESERVED])
            wanted = select_device_rows(block, device)
            good = wanted & np.isfinite(values)
            damage.add_lines("values that are no numbers", block.lines[wanted & given & ~good])
            if good.any():
                factor = SIZES.get(column_unit(columns[_RESERVED]), 1)
                most = max(most, round(float(values[good].max()) * factor))
        omissions += damage.omissions(rank)
    return most, omissions
