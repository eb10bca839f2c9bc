"""The counters in the databases that msprof keeps for itself."""

from __future__ import annotations

from timeline.columns.columns import Int64
from timeline.columns.strings import StringPool
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import AI_CORE_FREQUENCY, CounterSamples, CounterSeries
from timeline.sources.common.counter_tables import CounterTable, SampleClock, parsed_tables
from timeline.sources.common.counters import CounterBuilder, Labels, build_labels
from timeline.sources.common.device_clock import DeviceClocks
from timeline.sources.decoders.sqlite_loose import LooseTable
from timeline.sources.msprof_sqlite.databases import ParsedDatabases

__all__ = ["read_counters"]


def read_counters(
    databases: ParsedDatabases, clock: DeviceClocks, strings: StringPool, *, every: bool = True
) -> tuple[CounterSeries, CounterSamples]:
    """Read the tables of samples that are there; a sample without a moment has no time.

    every: whether all are wanted, or the frequency of the AI Core alone.
    """
    counters = CounterBuilder()
    for table in parsed_tables():
        if not every and table.group != AI_CORE_FREQUENCY:
            continue
        rows = databases.device_table(table.file, table.table)
        if len(rows) and rows.has(table.time):
            time_ns, labels = _times_ns(table, rows, clock), _labels(table, rows, strings)
            for column, values in rows.reals(tuple(table.values)).items():
                counters.add_column(table, column, labels, time_ns, values)
    return counters.tables(strings)


def _times_ns(table: CounterTable, rows: LooseTable, clock: DeviceClocks) -> Int64:
    name = table.time
    match table.clock:
        case SampleClock.HOST:
            return rows.integers({name: NO_TIME})[name]
        case SampleClock.COUNTER:
            return clock.counted_ns(rows.integers({name: NO_ID})[name])
        case SampleClock.SAMPLER:
            return clock.sampled_ns(rows.integers({name: NO_ID})[name])
        case SampleClock.MEMORY_SAMPLER:
            times = rows.integers({name: NO_ID})[name]
            return clock.memory_ns(times, rows.reals((name,))[name])


def _labels(table: CounterTable, rows: LooseTable, strings: StringPool) -> Labels:
    def spell(code: int) -> str:
        return table.words.get(strings[code], strings[code])

    ids = rows.integers(dict.fromkeys(table.ids, NO_ID))
    kinds = rows.texts(table.kinds, strings)
    return build_labels(len(rows), [*ids.values()], [(codes, spell) for codes in kinds.values()])
