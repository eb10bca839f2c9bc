"""Floating-point operations of operators, scopes, steps and the rank."""

from __future__ import annotations

from timeline.sources.profiler_tables.builder import TablesBuilder
from timeline.sources.profiler_tables.file_kinds import TableFiles

__all__ = ["read_flops"]


def read_flops(files: TableFiles, into: TablesBuilder) -> None:
    """Read the files of the topic."""
