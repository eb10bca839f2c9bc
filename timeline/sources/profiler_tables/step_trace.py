"""What the step trace tells beside the steps: its mean row, and the operators that mark it."""

from __future__ import annotations

from timeline.sources.profiler_tables.builder import TablesBuilder
from timeline.sources.profiler_tables.file_kinds import TableFiles

__all__ = ["read_step_trace"]


def read_step_trace(files: TableFiles, into: TablesBuilder) -> None:
    """Read the files of the topic."""
