"""The counters in a database that msprof or torch_npu exports."""

from __future__ import annotations

from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import (
    AI_CORE_FREQUENCY,
    Omission,
    OmissionCode,
)
from timeline.sources.common.counter_tables import CounterTable, database_tables
from timeline.sources.common.counters import CounterBuilder, build_labels
from timeline.sources.common.losses import counted_losses
from timeline.sources.database.names import DatabaseNames
from timeline.sources.decoders.sqlite import Database

NOT_SAMPLED = float("inf")
"""A sample that the database leaves empty; it is dropped and counted with other bad values."""


def read_reserved_bytes(database: Database, device: int | None) -> int:
    """The most memory that any component of the framework reserved, NO_ID where nothing tells."""
    table, column = "MEMORY_RECORD", "totalReserved"
    if not database.has(table, column):
        return NO_ID
    where = database.where(table, "deviceId", device)
    return int(database.integers(table, {column: NO_ID}, where)[column].max(initial=NO_ID))


def read_counters(
    database: Database,
    counters: CounterBuilder,
    names: DatabaseNames,
    device: int | None,
    rank: int,
    *,
    every: bool,
) -> list[Omission]:
    """Read the tables of samples that are there; with a device, only its rows.

    Args:
        every: whether all are wanted, or the frequency of the AI Core alone.

    Returns:
        What was left out, and why.
    """
    omissions: list[Omission] = []
    for table in database_tables():
        if not every and table.group != AI_CORE_FREQUENCY:
            continue
        present = [column for column in table.values if database.has(table.table, column)]
        if not present or not database.has(table.table, table.time):
            database.note_unread(table.table, table.time, *table.values)
            continue
        if table.twin and database.count(table.twin):
            repeated = {
                f"rows of {table.table}, which are in {table.twin} too": database.count(table.table)
            }
            omissions += counted_losses(repeated, rank, OmissionCode.REPEATED, loss=False)
            continue
        idle = _read_table(database, table, counters, names, device)
        still = {f"samples of {table.table} that stay zero all along": idle}
        omissions += counted_losses(still, rank, OmissionCode.IDLE_COUNTER, loss=False)
    return omissions


def _read_table(
    database: Database,
    table: CounterTable,
    counters: CounterBuilder,
    names: DatabaseNames,
    device: int | None,
) -> int:
    """Add the series of a table; the number of samples that were left out because all are zero."""
    where = database.where(table.table, "deviceId", device)
    tags = dict.fromkeys((*table.ids, *table.kinds), NO_ID)
    integers = database.integers(table.table, {table.time: NO_TIME, **tags}, where)
    present = [column for column in table.values if database.has(table.table, column)]
    floats = database.floats(table.table, dict.fromkeys(present, NOT_SAMPLED), where)
    time_ns, known = integers[table.time], names.enum_names(table.names) if table.kinds else {}

    def spell(value: int) -> str:
        return known.get(value, str(value))

    kinds = [(integers[column], spell) for column in table.kinds]
    labels = build_labels(len(time_ns), [integers[column] for column in table.ids], kinds)
    return sum(
        counters.add_column(table, column, labels, time_ns, values)
        for column, values in floats.items()
    )
