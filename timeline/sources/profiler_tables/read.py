"""Reads all small tables of a rank."""

from __future__ import annotations

from dataclasses import replace

from timeline.records.tables import Records
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
    return replace(records, profiler_tables=tables, omissions=(*records.omissions, *omissions))
