"""Queues, the pipeline and processors of the preparation of data."""

from __future__ import annotations

from timeline.sources.profiler_tables.builder import TablesBuilder
from timeline.sources.profiler_tables.file_kinds import TableFiles

__all__ = ["read_data_preparation"]


def read_data_preparation(files: TableFiles, into: TablesBuilder) -> None:
    """Read the files of the topic."""
