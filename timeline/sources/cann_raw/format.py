"""Formats of sessions that no tool has parsed: readable slices, and raw data without any."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from timeline.records.clock import Clock
from timeline.records.tables import Records
from timeline.sources.cann_raw import SLICE, find_slices
from timeline.sources.capture import (
    Capture,
    CaptureFile,
    Claim,
    Folder,
    FolderKind,
    Format,
    FormatKind,
)
from timeline.sources.common.export_files import find_device_table_directories, raw_error
from timeline.sources.common.identity import identify_device
from timeline.sources.source import Identity, ReadRequest, Source

# -- slices ----------------------------------------------------------------------------------------


def _recognise_slices(folder: Folder) -> list[Capture]:
    devices = folder.free if folder.kind is FolderKind.MSPROF else ()
    contents = [(device, folder.path / f"device_{device}/data") for device in devices]
    return [
        Capture(RAW_SLICES, folder.directory, content, device)
        for device, content in contents
        if find_slices(content)
    ]


def _recognise_slice(file: CaptureFile) -> list[Capture]:
    is_slice = SLICE.fullmatch(file.path.name) and file.path in find_slices(file.path.parent)
    return file.beside[:1] if is_slice else []


def _read_slices(claim: Claim, identity: Identity) -> Source:
    from timeline.sources.cann_raw.source import RawSlicesSource

    return RawSlicesSource(RAW_SLICES.name, identity, claim.clock, claim.capture.content)


RAW_SLICES = Format(
    name="raw",
    kind=FormatKind.RAW,
    recognise=_recognise_slices,
    recognise_file=_recognise_slice,
    identify=identify_device,
    read_with=_read_slices,
    table_directories=find_device_table_directories,
)


# -- sessions that only msprof can read ------------------------------------------------------------


@dataclass(frozen=True)
class UnreadableSource:
    """A capture that was never exported and that only msprof can read."""

    layout: str
    identity: Identity
    clock: Clock

    @property
    def files(self) -> tuple[Path, ...]:
        """No files."""
        return ()

    def read(self, wanted: ReadRequest) -> Records:
        """Raise an error that says how to export the capture.

        Raises:
            SourceError: always.
        """
        raise raw_error(self.identity.directory)


def _recognise_session(folder: Folder) -> list[Capture]:
    """Return captures of devices that no other format reads, or of a session of the host only."""
    is_session = folder.kind is FolderKind.MSPROF
    if is_session and (folder.free or "host" in folder.directories):
        return folder.captures_of(RAW, folder.path)
    return []


def _read_nothing(claim: Claim, identity: Identity) -> Source:
    return UnreadableSource(RAW.name, identity, claim.clock)


RAW = Format(
    name="raw, not exported",
    kind=FormatKind.UNREADABLE,
    recognise=_recognise_session,
    identify=identify_device,
    read_with=_read_nothing,
)
