"""Profile databases of torch_npu, MindSpore and msprof: where they lie, and whose they are."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from timeline.errors import SourceError
from timeline.records.clock import Clock
from timeline.records.not_given import NO_ID
from timeline.sources.capture import (
    NO_EXTENT,
    Capture,
    CaptureFile,
    Claim,
    Evidence,
    Extent,
    Folder,
    FolderKind,
    Format,
    Root,
)
from timeline.sources.common.identity import (
    count_devices,
    find_evidence_in_files,
    find_evidence_in_names,
    is_rank,
    make_claim,
    wall_extent,
)
from timeline.sources.files.opened import uncompressed_database_name
from timeline.sources.source import MINDSTUDIO_OUTPUT, OUTPUT, Identity, Source

if TYPE_CHECKING:
    from timeline.sources.decoders.sqlite import Database

_NAME = re.compile(
    r"(?:ascend_(?:pytorch|mindspore)_profiler(?:_\d+)?|msprof_\d+|msmonitor_\d+_\d+_(?:-1|\d+))\.db"
)
_RANK_IN_NAME = re.compile(
    r"(?:.*?ascend_(?:pytorch|mindspore)_profiler_|msmonitor_\d+_\d+_|(?:.*[-_.])?rank[-_]?)"
    r"([0-9]{1,9})(?![0-9]).*\.db"
)
"""Copies may have any name that says the rank as profilers do."""
_MARKS_OF_NAMES = (".db", ".sqlite")
"""One of these is in the name of any database."""
_TIMED_TABLES = ("TASK", "CANN_API", "PYTORCH_API", "COMMUNICATION_OP")
"""Of these such a database holds at least one, beside STRING_IDS."""
_SMALL_TABLE = 100_000
"""So many rows take no time to read whole."""
_LOOKED_AT = 64


def _recognise(folder: Folder) -> list[Capture]:
    """Return the newest database of a capture; of those that lie loose, each is one.

    Where a capture has one of a known name, databases of other names are copies of it.
    """
    named = _oldest_first(folder.names)
    if folder.kind is FolderKind.LOOSE:
        names = sorted({*named, *_unnamed(folder)})
        return [Capture(DATABASE, folder.directory, folder.path / name) for name in names]
    names = named or _unnamed(folder)
    return folder.captures_of(DATABASE, folder.path / names[-1]) if names else []


def _oldest_first(names: Iterable[str]) -> list[str]:
    """Return the databases among names, oldest first, plain ones before compressed ones.

    MindSpore and torch_npu write one a capture, msprof one an export with the time in its name.
    """
    found: dict[str, str] = {}
    for name in sorted(names):
        if _NAME.fullmatch(uncompressed_database_name(name)):
            found.setdefault(uncompressed_database_name(name), name)
    return [found[plain] for plain in sorted(found)]


def _unnamed(folder: Folder) -> list[str]:
    """Return the profile databases of a folder known only by their tables, as renamed copies."""
    likely = [name for name in folder.names if any(mark in name for mark in _MARKS_OF_NAMES)]
    return sorted(name for name in likely if _holds_profile(folder.path / name))


def _holds_profile(path: Path) -> bool:
    """Return whether a file of no known name is a database with the tables of a profile.

    One that cannot be read holds none: nothing says that it is meant.
    """
    if _NAME.fullmatch(uncompressed_database_name(path.name)) or not path.is_file():
        return False
    from timeline.sources.decoders.sqlite import open_database  # other captures need no SQLite

    with contextlib.suppress(SourceError), open_database(path, in_part=True) as database:
        timed = any(database.has(table, "startNs", "endNs") for table in _TIMED_TABLES)
        return timed and database.has("STRING_IDS", "id", "value")
    return False


def _recognise_file(file: CaptureFile) -> list[Capture]:
    path = file.path
    is_named = _NAME.fullmatch(uncompressed_database_name(path.name))
    if not (is_named or _holds_profile(path)):
        return []
    inside = path.parent.parent if path.parent.name == OUTPUT else path.parent
    known = [capture for capture in file.around if capture.content == path]
    return known or [Capture(DATABASE, inside, path)]


def _identify(capture: Capture, root: Root) -> list[Claim]:
    from timeline.sources.decoders.sqlite import open_database  # other captures need no SQLite

    with open_database(capture.database, in_part=True) as database:
        return _claims(capture, root, database)


def _claims(capture: Capture, root: Root, database: Database) -> list[Claim]:
    clock = Clock(host=_host(database))
    pairs: list[tuple[int, int]] = []
    if database.has("RANK_DEVICE_MAP", "rankId", "deviceId"):
        columns = database.integers("RANK_DEVICE_MAP", {"rankId": NO_ID, "deviceId": NO_ID})
        pairs = sorted(set(zip(*(column.tolist() for column in columns.values()), strict=True)))
    if capture.device is not None:
        pairs = [pair for pair in pairs if pair[1] == capture.device]
    known = [pair for pair in pairs if is_rank(pair[0])]
    pairs = known or [pair for pair in pairs if pair[1] >= 0]
    devices = _devices(database, len(pairs)) if capture.device is None else []
    if len(pairs) > 1:
        pairs = [pair for pair in pairs if pair[1] in devices] or pairs
    if len(pairs) > 1:
        return [
            make_claim(capture, _evidence_of_map(capture, rank), device, clock, several=True)
            for rank, device in pairs
        ]
    evidence = [found for rank, _ in pairs for found in _evidence_of_map(capture, rank)]
    match = _RANK_IN_NAME.fullmatch(uncompressed_database_name(capture.content.name))
    if match and not evidence:
        evidence.append(Evidence(int(match[1]), capture.content.name))
    evidence += [*find_evidence_in_files(capture), *find_evidence_in_names(capture, root)]
    if len(devices) > 1:
        devices.sort(key=lambda device: (all(device != known for _, known in pairs), device))
        return [make_claim(capture, evidence, one, clock, several=True) for one in devices]
    device = pairs[0][1] if pairs else capture.device
    several = capture.device is not None and count_devices(capture.directory) > 1
    return [make_claim(capture, evidence, device, clock, several)]


def _devices(database: Database, mapped: int) -> list[int]:
    """Return the devices whose tasks a database holds, ascending.

    Of a large table some rows are looked at first, which are of one device in most databases.

    mapped: how many the map of ranks names.
    """
    if not database.has("TASK", "deviceId"):
        return []
    with contextlib.suppress(SourceError):  # whoever reads the tasks reports what is damaged
        ((first, last),) = database.rows("SELECT min(rowid), max(rowid) FROM TASK")
        if mapped < 2 and last is not None and last - first > _SMALL_TABLE:
            step = (last - first) // _LOOKED_AT
            places = ", ".join(f"({row})" for row in (*range(first, last, step), last))
            looked_at = database.rows(
                "SELECT DISTINCT (SELECT deviceId FROM TASK WHERE rowid >= column1 LIMIT 1)"
                f" FROM (VALUES {places})"
            )
            if len(looked_at) < 2:
                return [device for (device,) in looked_at if isinstance(device, int)]
        rows = database.rows("SELECT DISTINCT deviceId FROM TASK ORDER BY 1")
        return [device for (device,) in rows if isinstance(device, int) and device >= 0]
    return []


def _evidence_of_map(capture: Capture, rank: int) -> list[Evidence]:
    """Return what the map of a database says; it holds -1 where the process was of no group."""
    return [Evidence(rank, f"{capture.content.name}: RANK_DEVICE_MAP")] if is_rank(rank) else []


def _host(database: Database) -> str:
    for column in ("hostUid", "hostName"):
        if database.has("HOST_INFO", column):
            rows = database.rows(f"SELECT {column} FROM HOST_INFO LIMIT 1")
            if rows and str(rows[0][0] or "0") != "0":
                return str(rows[0][0])
    return ""


def _recorded_time(capture: Capture) -> Extent:
    from timeline.sources.decoders.sqlite import open_database

    with open_database(capture.database, in_part=True) as database:
        if not database.has("SESSION_TIME_INFO", "startTimeNs", "endTimeNs"):
            return NO_EXTENT
        rows = database.rows("SELECT startTimeNs, endTimeNs FROM SESSION_TIME_INFO LIMIT 1")
    return wall_extent(*rows[0]) if rows else NO_EXTENT


def _read_with(claim: Claim, identity: Identity) -> Source:
    from timeline.sources.database.source import DatabaseSource

    return DatabaseSource(
        DATABASE.name, identity, claim.clock, claim.capture.database, claim.several
    )


def _table_directories(capture: Capture) -> tuple[Path, ...]:
    inside = capture.content.parent
    return (inside, inside / MINDSTUDIO_OUTPUT)


DATABASE = Format(
    name="database",
    recognise=_recognise,
    recognise_file=_recognise_file,
    identify=_identify,
    recorded_time=_recorded_time,
    read_with=_read_with,
    table_directories=_table_directories,
    packed=True,
)
