"""Reads all small tables of a rank.

What reads those of a topic is imported where there are any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from timeline.columns.distinct import distinct
from timeline.layers import Layer
from timeline.records.profiler_tables.flops import FlopLevel, FlopRows
from timeline.records.profiler_tables.profiler_tables import ProfilerTables
from timeline.records.tables import Omission, OmissionCode, Records
from timeline.sources.profiler_tables.builder import TablesBuilder
from timeline.sources.profiler_tables.file_kinds import FILE_KINDS, TableFiles, Topic

__all__ = ["with_profiler_tables"]

_Reader = Callable[[TableFiles, TablesBuilder], None]


def with_profiler_tables(records: Records, files: TableFiles) -> Records:
    """The records with what small tables of their rank hold; what is damaged in them is counted."""
    into = TablesBuilder(records.rank, records.profiler_tables)
    for read in _readers(files):
        read(files, into)
    tables, omissions = into.build()
    return replace(
        records,
        profiler_tables=tables,
        omissions=(*records.omissions, *omissions, *_of_other_networks(records, tables)),
    )


def _readers(files: TableFiles) -> Iterator[_Reader]:
    """What reads the topics of which there are files."""
    topics = {kind.topic for kind in FILE_KINDS if kind.file in files}
    if Topic.FLOPS in topics:
        from timeline.sources.profiler_tables.flops import read_flops

        yield read_flops
    if Topic.DATA_PREPARATION in topics:
        from timeline.sources.profiler_tables.data_preparation import read_data_preparation

        yield read_data_preparation
    if Topic.STEP_TRACE in topics:
        from timeline.sources.profiler_tables.step_trace import read_step_trace

        yield read_step_trace
    if Topic.CLUSTER in topics:
        from timeline.sources.profiler_tables.cluster import read_cluster

        yield read_cluster
    if Topic.OPERATORS in topics:
        from timeline.sources.profiler_tables.operators import read_operators

        yield read_operators
    if Topic.MEMORY_GRAPHS in topics:
        from timeline.sources.profiler_tables.memory_graphs import read_memory_graphs

        yield read_memory_graphs


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
