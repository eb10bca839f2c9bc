"""Adds the groups of ranks that the framework noted beside a capture to its records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from timeline.errors import SourceError
from timeline.records.tables import GroupMembers, Records
from timeline.sources.common.losses import unreadable_file
from timeline.sources.common.process_groups import members_of, read_group_file

__all__ = ["with_process_groups"]


def with_process_groups(records: Records, path: Path) -> Records:
    """Records with the groups in profiler_metadata.json; a file that is damaged is counted."""
    try:
        found = members_of(read_group_file(path), records.strings)
    except SourceError as error:
        lost = unreadable_file(error, records.rank)
        return replace(records, omissions=(*records.omissions, lost))
    return replace(records, members=GroupMembers.concat([records.members, found]))
