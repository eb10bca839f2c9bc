"""Recognition of databases that msprof parsed but never exported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from timeline.sources.capture import Capture, CaptureFile, Claim, Folder, FolderKind, Format
from timeline.sources.common.export_files import find_device_table_directories
from timeline.sources.common.identity import identify_device
from timeline.sources.files.opened import files_by_name
from timeline.sources.msprof_sqlite import TASKS
from timeline.sources.source import SQLITE, Identity, Source

if TYPE_CHECKING:
    from timeline.records.profiler_tables import UnusedFile


def _recognise(folder: Folder) -> list[Capture]:
    devices = folder.free if folder.kind is FolderKind.MSPROF else ()
    contents = [(device, folder.path / f"device_{device}" / SQLITE) for device in devices]
    return [
        Capture(MSPROF_SQLITE, folder.directory, content, device)
        for device, content in contents
        if (content / TASKS).is_file()
    ]


def _recognise_file(file: CaptureFile) -> list[Capture]:
    return file.beside[:1] if file.path.name == TASKS else []


def _read_with(claim: Claim, identity: Identity) -> Source:
    from timeline.sources.msprof_sqlite.source import ParsedSource

    return ParsedSource(MSPROF_SQLITE.name, identity, claim.clock, claim.capture.content)


def _parsed_directories(capture: Capture) -> tuple[Path, ...]:
    return (capture.content, capture.content.parent.parent / "host" / SQLITE)


def _unused(capture: Capture) -> Iterator[UnusedFile]:
    from timeline.records.profiler_tables import UnusedFile
    from timeline.sources.companions.file_kinds import Use, find_kind

    for directory in filter(Path.is_dir, _parsed_directories(capture)):
        for name in files_by_name(directory):
            kind = find_kind(name)
            if kind is not None and kind.use is Use.NONE:
                yield UnusedFile(name, kind.what)


MSPROF_SQLITE = Format(
    name="msprof sqlite",
    recognise=_recognise,
    recognise_file=_recognise_file,
    identify=identify_device,
    read_with=_read_with,
    table_directories=find_device_table_directories,
    parsed_directories=_parsed_directories,
    unused=_unused,
)
