"""Recognition of captures that consist of tables only: of kernels and tasks, or of steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from timeline.sources.capture import (
    DEVICE_DIRECTORY,
    Capture,
    CaptureFile,
    Claim,
    Folder,
    FolderKind,
    Format,
    FormatKind,
    Root,
)
from timeline.sources.common.export_files import OPERATOR_TABLE, has_file_named
from timeline.sources.common.identity import identify_all_devices, identify_each_device
from timeline.sources.files.opened import without_gz
from timeline.sources.source import MINDSTUDIO_OUTPUT, OUTPUT, Identity, Source

_STEP_TABLES = frozenset(
    {
        "step_trace_time.csv",
        "communication.json",
        "communication_matrix.json",
        "analysis.db",
        "communication_analyzer.db",
    }
)
_ANALYSED = "analyze"
"""Directory into which `msprof --analyze` writes tables of steps."""


def _recognise(folder: Folder) -> list[Capture]:
    if folder.kind is FolderKind.MSPROF:
        return _recognise_session(folder)
    if not any(map(OPERATOR_TABLE.fullmatch, map(without_gz, folder.names))):
        return []
    return [Capture(TABLES, folder.directory, folder.path)]


def _recognise_session(folder: Folder) -> list[Capture]:
    """Return the tables of a whole msprof session if no device has a richer format.

    Else return those of each device without one.
    """
    output = folder.path / MINDSTUDIO_OUTPUT
    if folder.free == folder.devices and has_file_named(output, OPERATOR_TABLE):
        return folder.captures_of(TABLES, output)
    contents = [(device, folder.path / f"device_{device}/summary") for device in folder.free]
    return [
        Capture(TABLES, folder.directory, content, device)
        for device, content in contents
        if has_file_named(content, OPERATOR_TABLE)
    ]


def _recognise_file(file: CaptureFile) -> list[Capture]:
    """Return a capture of the tables in the file's directory, even if that has richer formats."""
    if not OPERATOR_TABLE.fullmatch(file.name):
        return []
    content = file.path.parent
    for capture in file.around:
        if content in (capture.content, capture.content.parent):
            return [replace(capture, format=TABLES, content=content)]
    match = DEVICE_DIRECTORY.fullmatch(content.parent.name)
    if match and content.name == "summary":
        return [Capture(TABLES, content.parent.parent, content, int(match[1]))]
    directory = content.parent if content.name in (OUTPUT, MINDSTUDIO_OUTPUT) else content
    return [Capture(TABLES, directory, content)]


def _identify(capture: Capture, root: Root) -> list[Claim]:
    """Identify tables of one device, or those of each device in the framework's step table."""
    if capture.device is not None:
        return identify_all_devices(capture, root)
    return _identify_step_tables(capture, root)


def _identify_step_tables(capture: Capture, root: Root) -> list[Claim]:
    from timeline.sources.companions.measures import find_busy_devices

    return identify_each_device(capture, root, find_busy_devices)


def _read_with(claim: Claim, identity: Identity) -> Source:
    from timeline.sources.tables.source import KernelTableSource

    return KernelTableSource(identity, claim.clock, claim.capture.content, claim.several)


def _table_directories(capture: Capture) -> tuple[Path, ...]:
    return (capture.content,) if capture.content.is_dir() else ()


def _file_of_step_tables(file: CaptureFile) -> list[Capture]:
    """Return the capture of a step table, none if the table belongs to a richer capture."""
    captures = _find_step_tables(file.path.parent, [file.name])
    return [capture for capture in captures if not file.around or capture in file.around]


def _find_step_tables(directory: Path, names: Iterable[str]) -> list[Capture]:
    if _STEP_TABLES.isdisjoint(map(without_gz, names)):
        return []
    is_inside = directory.name in (OUTPUT, _ANALYSED)
    return [Capture(STEP_TABLES, directory.parent if is_inside else directory, directory)]


def _read_step_tables(claim: Claim, identity: Identity) -> Source:
    from timeline.sources.tables.source import StepTablesSource

    return StepTablesSource(
        STEP_TABLES.name, identity, claim.clock, claim.capture.content, claim.several
    )


STEP_TABLES = Format(
    name="step tables",
    kind=FormatKind.SUMS,
    recognise=lambda folder: _find_step_tables(folder.path, folder.names),
    recognise_file=_file_of_step_tables,
    identify=_identify_step_tables,
    read_with=_read_step_tables,
    table_directories=_table_directories,
    shares_directory=True,
)
TABLES = Format(
    name="tables",
    kind=FormatKind.TABLES,
    recognise=_recognise,
    recognise_file=_recognise_file,
    identify=_identify,
    read_with=_read_with,
    table_directories=_table_directories,
)
