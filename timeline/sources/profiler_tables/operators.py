"""Sums of operators on AI Core and AI CPU, runs by step and shape, and what describes them."""

from __future__ import annotations

from timeline.sources.profiler_tables.builder import TablesBuilder
from timeline.sources.profiler_tables.file_kinds import TableFiles

__all__ = ["read_operators"]


def read_operators(files: TableFiles, into: TablesBuilder) -> None:
    """Read the files of the topic."""
