"""Recognition of profile databases of torch_npu, MindSpore and msprof, and of their ranks."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from dataclasses import replace
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
"""A file name with a rank in the form of a profiler; copies of a database may have such names."""
_DATABASE_SUFFIXES = (".db", ".sqlite")
"""Parts of a file name by which files are taken for databases."""
_TIMED_TABLES = ("TASK", "CANN_API", "PYTORCH_API", "COMMUNICATION_OP")
"""Tables of which a profile database has at least one, besides STRING_IDS."""
_SMALL_TABLE = 100_000
"""Number of rows up to which a table is searched for devices without sampling."""
_SAMPLED_ROWS = 64


def _recognise(folder: Folder) -> list[Capture]:
    """Return the newest database of a capture directory, or each one of any other directory.

    If a capture directory has a database of a known name, others in it are copies.
    """
    named = _oldest_first(folder.names)
    if folder.kind is FolderKind.LOOSE:
        names = sorted({*named, *_find_renamed(folder)})
        return [Capture(DATABASE, folder.directory, folder.path / name) for name in names]
    names = named or _find_renamed(folder)
    return folder.captures_of(DATABASE, folder.path / names[-1]) if names else []


def _oldest_first(names: Iterable[str]) -> list[str]:
    """Return the databases of a known name, oldest first; a plain one hides its compressed copy.

    MindSpore and torch_npu write one per capture, msprof one per export with the time in its name.
    """
    names_by_plain: dict[str, str] = {}
    for name in sorted(names):
        if _NAME.fullmatch(uncompressed_database_name(name)):
            names_by_plain.setdefault(uncompressed_database_name(name), name)
    return [names_by_plain[plain] for plain in sorted(names_by_plain)]


def _find_renamed(folder: Folder) -> list[str]:
    """Return renamed profile databases of a folder, which are recognised by their tables."""
    likely = [name for name in folder.names if any(part in name for part in _DATABASE_SUFFIXES)]
    return sorted(name for name in likely if _holds_profile(folder.path / name))


def _holds_profile(path: Path) -> bool:
    """Return whether a file with an unknown name is a database with tables of a profile.

    A file that cannot be read does not count, as it may be no database at all.
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
    directory = path.parent.parent if path.parent.name == OUTPUT else path.parent
    existing = [capture for capture in file.around if capture.content == path]
    return existing or [Capture(DATABASE, directory, path)]


def _identify(capture: Capture, root: Root) -> list[Claim]:
    from timeline.sources.decoders.sqlite import open_database  # other captures need no SQLite

    with open_database(capture.database, in_part=True) as database:
        recorded = _recorded_time(database)
        claims = _build_claims(capture, root, database)
    return [replace(claim, recorded=recorded) for claim in claims]


def _build_claims(capture: Capture, root: Root, database: Database) -> list[Claim]:
    clock = Clock(host=_read_host(database))
    pairs: list[tuple[int, int]] = []
    if database.has("RANK_DEVICE_MAP", "rankId", "deviceId"):
        columns = database.integers("RANK_DEVICE_MAP", {"rankId": NO_ID, "deviceId": NO_ID})
        pairs = sorted(set(zip(*(column.tolist() for column in columns.values()), strict=True)))
    if capture.device is not None:
        pairs = [pair for pair in pairs if pair[1] == capture.device]
    ranked = [pair for pair in pairs if is_rank(pair[0])]
    pairs = ranked or [pair for pair in pairs if pair[1] >= 0]
    devices = _find_devices(database, len(pairs)) if capture.device is None else []
    if len(pairs) > 1:
        pairs = [pair for pair in pairs if pair[1] in devices] or pairs
    if len(pairs) > 1:
        return [
            make_claim(capture, _cite_map(capture, rank), device, clock, several=True)
            for rank, device in pairs
        ]
    evidence = [item for rank, _ in pairs for item in _cite_map(capture, rank)]
    match = _RANK_IN_NAME.fullmatch(uncompressed_database_name(capture.content.name))
    if match and not evidence:
        evidence.append(Evidence(int(match[1]), capture.content.name))
    evidence += [*find_evidence_in_files(capture), *find_evidence_in_names(capture, root)]
    if len(devices) > 1:
        mapped = {device for _, device in pairs}
        devices.sort(key=lambda device: (device not in mapped, device))
        return [make_claim(capture, evidence, device, clock, several=True) for device in devices]
    device = pairs[0][1] if pairs else capture.device
    several = capture.device is not None and count_devices(capture.directory) > 1
    return [make_claim(capture, evidence, device, clock, several)]


def _find_devices(database: Database, mapped: int) -> list[int]:
    """Return the devices of the tasks in a database, ascending.

    Of a large table only some rows are sampled if they all have one device, as in most databases.

    mapped: number of devices in RANK_DEVICE_MAP; there is no sampling if it has several.
    """
    if not database.has("TASK", "deviceId"):
        return []
    with contextlib.suppress(SourceError):  # damage is reported when the tasks are read
        ((first, last),) = database.rows("SELECT min(rowid), max(rowid) FROM TASK")
        if mapped < 2 and last is not None and last - first > _SMALL_TABLE:
            step = (last - first) // _SAMPLED_ROWS
            places = ", ".join(f"({row})" for row in (*range(first, last, step), last))
            sampled = database.rows(
                "SELECT DISTINCT (SELECT deviceId FROM TASK WHERE rowid >= column1 LIMIT 1)"
                f" FROM (VALUES {places})"
            )
            if len(sampled) < 2:
                return [device for (device,) in sampled if isinstance(device, int)]
        rows = database.rows("SELECT DISTINCT deviceId FROM TASK ORDER BY 1")
        return [device for (device,) in rows if isinstance(device, int) and device >= 0]
    return []


def _cite_map(capture: Capture, rank: int) -> list[Evidence]:
    """Return the evidence of a rank in RANK_DEVICE_MAP, none for -1 (process without a group)."""
    return [Evidence(rank, f"{capture.content.name}: RANK_DEVICE_MAP")] if is_rank(rank) else []


def _read_host(database: Database) -> str:
    for column in ("hostUid", "hostName"):
        if database.has("HOST_INFO", column):
            rows = database.rows(f"SELECT {column} FROM HOST_INFO LIMIT 1")
            if rows and str(rows[0][0] or "0") != "0":
                return str(rows[0][0])
    return ""


def _recorded_time(database: Database) -> Extent:
    if database.has("SESSION_TIME_INFO", "startTimeNs", "endTimeNs"):
        with contextlib.suppress(SourceError):  # damage is reported when the database is read
            rows = database.rows("SELECT startTimeNs, endTimeNs FROM SESSION_TIME_INFO LIMIT 1")
            return wall_extent(*rows[0]) if rows else NO_EXTENT
    return NO_EXTENT


def _read_with(claim: Claim, identity: Identity) -> Source:
    from timeline.sources.database.source import DatabaseSource

    return DatabaseSource(
        DATABASE.name, identity, claim.clock, claim.capture.database, claim.several
    )


def _table_directories(capture: Capture) -> tuple[Path, ...]:
    directory = capture.content.parent
    return (directory, directory / MINDSTUDIO_OUTPUT)


DATABASE = Format(
    name="database",
    recognise=_recognise,
    recognise_file=_recognise_file,
    identify=_identify,
    read_with=_read_with,
    table_directories=_table_directories,
    packed=True,
)
