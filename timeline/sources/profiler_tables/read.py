"""Reads all small tables of a rank."""

from __future__ import annotations

from dataclasses import replace

from timeline.columns.distinct import distinct
from timeline.layers import Layer
from timeline.records.profiler_tables.flops import FlopLevel, FlopRows
from timeline.records.profiler_tables.profiler_tables import ProfilerTables
from timeline.records.tables import Omission, OmissionCode, Records
from timeline.sources.profiler_tables.builder import TablesBuilder
from timeline.sources.profiler_tables.cluster import read_cluster
from timeline.sources.profiler_tables.data_preparation import read_data_preparation
from timeline.sources.profiler_tables.file_kinds import TableFiles
from timeline.sources.profiler_tables.flops import read_flops
from timeline.sources.profiler_tables.memory_graphs import read_memory_graphs
from timeline.sources.profiler_tables.operators import read_operators
from timeline.sources.profiler_tables.step_trace import read_step_trace

__all__ = ["with_profiler_tables"]

_READERS = (
    read_flops,
    read_data_preparation,
    read_step_trace,
    read_cluster,
    read_operators,
    read_memory_graphs,
)


def with_profiler_tables(records: Records, files: TableFiles) -> Records:
    """The records with what small tables of their rank hold; what is damaged in them is counted."""
    into = TablesBuilder(records.rank)
    for read in _READERS:
        read(files, into)
    tables, omissions = into.build()
    return replace(
        records,
        profiler_tables=tables,
        omissions=(*records.omissions, *omissions, *_of_other_networks(records, tables)),
    )


def _of_other_networks(records: Records, tables: ProfilerTables) -> tuple[Omission, ...]:
    """Operators whose operations are counted and that no task is called after.

    Files of another run may have been left in the directory. Nothing is told where tasks were read
    without their names, or there are none.
    """
    flops = tables.of(FlopRows)
    codes = distinct(flops.name[flops.level == FlopLevel.OPERATOR]).tolist()
    if not codes:
        return ()
    names = {records.strings[code] for code in distinct(records.tasks.name).tolist()} - {""}
    strangers = sum(tables.strings[code] not in names for code in codes)
    if not names or not strangers:
        return ()
    return (
        Omission(
            "floating-point operations of operators that no device task is called after",
            strangers,
            records.rank,
            code=OmissionCode.NO_TASK,
            layers=frozenset({Layer.HARDWARE}),
        ),
    )
