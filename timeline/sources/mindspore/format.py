"""Recognition of MindSpore's own files, which are numbered by rank or device in their names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from timeline.records.clock import Clock
from timeline.sources.capture import (
    Capture,
    CaptureFile,
    Claim,
    Evidence,
    Folder,
    Format,
    FormatKind,
    Root,
)
from timeline.sources.common.device_clock import read_hardware_log_clock
from timeline.sources.common.identity import find_evidence_in_names, make_claim
from timeline.sources.companions.file_kinds import (
    UNNUMBERED,
    UNUSED_NUMBERED,
    numbers_in,
    table_number,
)
from timeline.sources.files.opened import (
    find_file,
    remember_by_directory,
    source_errors_for,
    without_gz,
)
from timeline.sources.source import Identity, Source

if TYPE_CHECKING:
    from timeline.records.profiler_tables import UnusedFile

_TEXT = re.compile(
    r"(?:output_timeline_data_(?P<id>0|[1-9]\d{0,8})\.txt"
    r"|(?:ascend_)?timeline_display_(?P<other>0|[1-9]\d{0,8})\.json)",
    re.ASCII,
)
"""Text files of MindSpore 0.7 to 2.2 that hold device tasks."""
_LOG = re.compile(
    r"(?:hwts\.log\.data|training_trace)\.\d+\.dev\..+\.(?P<id>0|[1-9]\d{0,8})\.slice_\d+", re.ASCII
)
"""Raw files of MindSpore 0.x and 1.x, which can be read without an export."""
_SLICE = re.compile(r".+\.slice_\d+", re.ASCII)


@remember_by_directory
def _text_ids(directory: Path) -> list[int]:
    return _ids_in(directory, _TEXT)


@remember_by_directory
def _log_ids(directory: Path) -> list[int]:
    return _ids_in(directory, _LOG)


def _table_ids(directory: Path) -> list[int]:
    return sorted(numbers_in(directory))


def _ids_in(directory: Path, pattern: re.Pattern[str]) -> list[int]:
    """Return the ids in the names of files in a directory, ascending.

    Raises:
        SourceError: the directory cannot be read.
    """
    with source_errors_for(directory):
        return _find_ids((path.name for path in directory.iterdir()), pattern)


def _find_ids(names: Iterable[str], pattern: re.Pattern[str]) -> list[int]:
    matches = (pattern.fullmatch(without_gz(name)) for name in names)
    return sorted({_id_in(match) for match in matches if match})


def _id_in(match: re.Match[str]) -> int:
    groups = match.groupdict()
    return int(groups["id"] or groups["other"])


def _recognise_id(file: CaptureFile, format_: Format, pattern: re.Pattern[str]) -> list[Capture]:
    match = pattern.fullmatch(file.name)
    directory = file.path.parent
    return [Capture(format_, directory, directory, _id_in(match))] if match else []


def _identify(capture: Capture, root: Root) -> list[Claim]:
    """Identify the rank of the files with one id in their names.

    The id is the rank since MindSpore 1.5 and the device before. If all files of a directory have
    the same id and the directory is named after a rank, that name decides.
    """
    number, ids, clock = capture.device, capture.format.ids, Clock()
    assert number is not None and ids is not None
    if capture.format is MINDSPORE_RAW:
        clock = read_hardware_log_clock(capture.content, number)
    names = [] if len(ids(capture.content)) > 1 else find_evidence_in_names(capture, root)
    evidence = names[:1] or [Evidence(number, f"the {number} in the names of its files")]
    device = None if evidence[0].rank == number else number
    return [make_claim(capture, evidence, device, clock)]


# -- text ------------------------------------------------------------------------------------------


def _recognise_text(folder: Folder) -> list[Capture]:
    ids = _find_ids(folder.names, _TEXT)
    return [Capture(MINDSPORE_TEXT, folder.directory, folder.path, number) for number in ids]


def _file_of_text(file: CaptureFile) -> list[Capture]:
    return _recognise_id(file, MINDSPORE_TEXT, _TEXT)


def _read_text(claim: Claim, identity: Identity) -> Source:
    from timeline.sources.mindspore.text_source import MindSporeTextSource

    return MindSporeTextSource(identity, claim.clock, claim.capture)


def _find_unused_beside_text(capture: Capture) -> Iterator[UnusedFile]:
    from timeline.records.profiler_tables import UnusedFile

    yield from _find_unused(capture)
    unnumbered = capture.content / UNNUMBERED
    if unnumbered.is_dir() and len(_text_ids(capture.content)) > 1:
        what = "tasks of communication, whose rank the directory does not tell"
        yield UnusedFile(unnumbered.name, what)


def _find_unused(capture: Capture) -> Iterator[UnusedFile]:
    from timeline.records.profiler_tables import UnusedFile

    for template, what in UNUSED_NUMBERED.items():
        path = find_file(capture.content, template.format(capture.device))
        if path is not None:
            yield UnusedFile(path.name, what)


MINDSPORE_TEXT = Format(
    name="MindSpore text",
    kind=FormatKind.TEXT,
    recognise=_recognise_text,
    recognise_file=_file_of_text,
    identify=_identify,
    ids=_text_ids,
    read_with=_read_text,
    unused=_find_unused_beside_text,
    shares_directory=True,
    counts_ticks=True,
    noun="text outputs",
    writer="MindSpore",
)


# -- tables only -----------------------------------------------------------------------------------


def _recognise_tables(folder: Folder) -> list[Capture]:
    """Recognise small tables, of which only the step trace has times."""
    numbers = {table_number(without_gz(name)) for name in folder.names}
    ids = sorted(number for number in numbers if number is not None)
    job = _find_job(folder.path, folder.names)
    return [Capture(MINDSPORE_TABLES, job, folder.path, number) for number in ids]


def _find_job(directory: Path, names: Iterable[str]) -> Path:
    """Return the directory of a job, given that directory or its `data` with the raw files."""
    is_data = directory.name == "data" and any(map(_SLICE.fullmatch, map(without_gz, names)))
    return directory.parent if is_data else directory


def _file_of_tables(file: CaptureFile) -> list[Capture]:
    """Return the capture of a table: the one with the same id in its directory, else a new one."""
    number = table_number(file.name)
    if number is None:
        return []
    directory = file.path.parent
    existing = [other for other in file.beside if other.format.ids and other.device == number]
    job = _find_job(directory, [file.name])
    return existing[:1] or [Capture(MINDSPORE_TABLES, job, directory, number)]


def _read_tables(claim: Claim, identity: Identity) -> Source:
    from timeline.sources.mindspore.text_source import MindSporeTablesSource

    return MindSporeTablesSource(identity, claim.clock, claim.capture)


MINDSPORE_TABLES = Format(
    name="MindSpore tables",
    kind=FormatKind.STEPS,
    recognise=_recognise_tables,
    recognise_file=_file_of_tables,
    identify=_identify,
    ids=_table_ids,
    read_with=_read_tables,
    unused=_find_unused,
    shares_directory=True,
    counts_ticks=True,
)


# -- raw files -------------------------------------------------------------------------------------


def _recognise_log(folder: Folder) -> list[Capture]:
    """Recognise the raw files of a job, in its directory or in its `data`."""
    job = folder.directory.parent if folder.directory.name == "data" else folder.directory
    ids = _find_ids(folder.names, _LOG)
    return [Capture(MINDSPORE_RAW, job, folder.path, number) for number in ids]


def _file_of_log(file: CaptureFile) -> list[Capture]:
    return _recognise_id(file, MINDSPORE_RAW, _LOG)


def _read_log(claim: Claim, identity: Identity) -> Source:
    from timeline.sources.mindspore.raw_source import MindSporeRawSource

    return MindSporeRawSource(identity, claim.clock, claim.capture)


MINDSPORE_RAW = Format(
    name="MindSpore raw",
    kind=FormatKind.LOG,
    recognise=_recognise_log,
    recognise_file=_file_of_log,
    identify=_identify,
    ids=_log_ids,
    read_with=_read_log,
    shares_directory=True,
    noun="raw files",
    writer="MindSpore",
)
