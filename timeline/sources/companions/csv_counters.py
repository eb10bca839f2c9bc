"""Adds the counters in the tables beside a capture to its records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from timeline.errors import SourceError
from timeline.records.joining import join_records
from timeline.records.tables import Allocations, Omission, Records
from timeline.sources.common.counter_tables import OPERATOR_MEMORY, csv_tables
from timeline.sources.common.counters import CounterBuilder
from timeline.sources.common.losses import unreadable_file
from timeline.sources.companions.allocations import (
    GROUP,
    read_allocations,
    read_operator_memory,
)
from timeline.sources.companions.sample_tables import read_sample_table

__all__ = ["with_allocations", "with_csv_counters"]


def with_csv_counters(
    records: Records, files: Mapping[str, tuple[Path, ...]], device: int | None
) -> Records:
    """Records with the counters of tables that they do not draw themselves.

    A table that cannot be read at all is left out and counted: the capture itself is whole.

    Args:
        files: by plain name without a stamp.
        device: the one whose rows are wanted; None is all.
    """
    rank, omissions = records.rank, list[Omission]()
    drawn = {records.strings[code] for code in set(records.series.group.tolist())}
    counters = CounterBuilder()
    for table in csv_tables():
        before = len(counters)
        paths = files.get(f"{table.table}.csv", ())
        omissions += _read_or_count(
            rank,
            partial(read_sample_table, table, paths, frozenset(drawn), device, rank, counters),
        )
        drawn |= {table.group} if len(counters) > before else set()
    if GROUP not in drawn:
        paths = files.get(f"{OPERATOR_MEMORY}.csv", ())
        read = partial(read_operator_memory, paths, device, rank, counters)
        omissions += _read_or_count(rank, read)
    return _with_counters(records, counters, omissions)


def with_allocations(
    records: Records,
    files: Mapping[str, tuple[Path, ...]],
    device: int | None,
    *,
    counted: bool,
) -> Records:
    """Records with what operators allocated, where the capture itself does not tell.

    counted: whether what is damaged is told by counters of the same table already.
    """
    paths = files.get(f"{OPERATOR_MEMORY}.csv", ())
    if not paths or len(records.allocations):
        return records
    try:
        found, lost = read_allocations(paths, device, records.rank, records.strings)
    except SourceError as error:
        found, lost = Allocations.empty(), [unreadable_file(error, records.rank)]
    omissions = records.omissions if counted else (*records.omissions, *lost)
    return replace(records, allocations=found, omissions=omissions)


def _read_or_count(rank: int, read: Callable[[], Sequence[Omission]]) -> Sequence[Omission]:
    """What reading a companion left out; all of it, where it cannot be read."""
    try:
        return read()
    except SourceError as error:
        return [unreadable_file(error, rank)]


def _with_counters(
    records: Records, counters: CounterBuilder, omissions: Sequence[Omission]
) -> Records:
    """Records with more counters."""
    series, samples = counters.tables(records.strings)
    extra = Records(
        records.rank, records.strings, series=series, samples=samples, omissions=tuple(omissions)
    )
    return join_records([records, extra])
