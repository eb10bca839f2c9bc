"""Tables of operators, of tasks or of steps alone: where they lie, and what reads them."""

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
"""Where `msprof --analyze` leaves them."""


def _recognise(folder: Folder) -> list[Capture]:
    if folder.kind is FolderKind.MSPROF:
        return _of_session(folder)
    if not any(map(OPERATOR_TABLE.fullmatch, map(without_gz, folder.names))):
        return []
    return [Capture(TABLES, folder.directory, folder.path)]


def _of_session(folder: Folder) -> list[Capture]:
    """Return the tables of all devices if none has anything better, else of each device."""
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
    """Return the tables of its directory, whatever else lies beside them."""
    if not OPERATOR_TABLE.fullmatch(file.name):
        return []
    content = file.path.parent
    for one in file.around:
        if content in (one.content, one.content.parent):
            return [replace(one, format=TABLES, content=content)]
    match = DEVICE_DIRECTORY.fullmatch(content.parent.name)
    if match and content.name == "summary":
        return [Capture(TABLES, content.parent.parent, content, int(match[1]))]
    inside = content.parent if content.name in (OUTPUT, MINDSTUDIO_OUTPUT) else content
    return [Capture(TABLES, inside, content)]


def _identify(capture: Capture, root: Root) -> list[Claim]:
    """Return a claim for each device that a framework's table of steps names."""
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
    """Return the capture of a table; one that lies in a richer capture is none itself."""
    found = _step_tables_in(file.path.parent, [file.name])
    return [one for one in found if not file.around or one in file.around]


def _step_tables_in(directory: Path, names: Iterable[str]) -> list[Capture]:
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
    recognise=lambda folder: _step_tables_in(folder.path, folder.names),
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
