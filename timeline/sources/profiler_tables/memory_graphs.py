"""Which tensors graphs hold, and for how long."""

from __future__ import annotations

from timeline.sources.profiler_tables.builder import TablesBuilder
from timeline.sources.profiler_tables.file_kinds import TableFiles

__all__ = ["read_memory_graphs"]


def read_memory_graphs(files: TableFiles, into: TablesBuilder) -> None:
    """Read the files of the topic."""
