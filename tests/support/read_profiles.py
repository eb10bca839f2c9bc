"""Records of profiles, read whole and made valid as an export does."""

from __future__ import annotations

from pathlib import Path

from timeline.analysis.sound_records import drop_invalid_rows
from timeline.records.tables import Records
from timeline.selection import DETAIL_LAYERS
from timeline.sources.finding.discovery import discover
from timeline.sources.source import ReadRequest


def records_by_rank(path: Path) -> dict[int, Records]:
    """The records of each rank below a path."""
    return {
        source.identity.rank: drop_invalid_rows(source.read(ReadRequest(DETAIL_LAYERS)))
        for source in discover(path).sources
    }


def records_of(path: Path, rank: int = 0) -> Records:
    """The records of one rank, all of whose files are there."""
    (source,) = [source for source in discover(path).sources if source.identity.rank == rank]
    assert all(file.is_file() for file in source.files)
    return drop_invalid_rows(source.read(ReadRequest(DETAIL_LAYERS)))


def lost_rows(records: Records) -> dict[str, int]:
    """How many rows were lost for each reason."""
    return {omission.reason: omission.rows for omission in records.omissions if omission.loss}
