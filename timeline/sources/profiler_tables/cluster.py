"""How the run is split over ranks, and what ranks compute and communicate in a step."""

from __future__ import annotations

from timeline.sources.profiler_tables.builder import TablesBuilder
from timeline.sources.profiler_tables.file_kinds import TableFiles

__all__ = ["read_cluster"]


def read_cluster(files: TableFiles, into: TablesBuilder) -> None:
    """Read the files of the topic."""
