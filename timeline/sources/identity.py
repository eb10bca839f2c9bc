"""Turns what a capture's files and names say into its rank, device, host and time."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from timeline.errors import RankIdentityError, SourceError
from timeline.records.tables import NO_ID
from timeline.sources.base import Clock, Identity
from timeline.sources.captures import hardware_log_ids, text_ids
from timeline.sources.counter_clock import counter_clock
from timeline.sources.file_names import held_file, named_files, plain_database
from timeline.sources.kineto_header import read_header
from timeline.sources.kineto_names import read_name
from timeline.sources.layouts import Capture, Layout
from timeline.sources.opened import opened, readable
from timeline.sources.sqlite_columns import Database, open_database
from timeline.sources.whole_numbers import whole_number

__all__ = [
    "Evidence",
    "Root",
    "how_to_export",
    "identify",
    "is_nameless",
    "raw_error",
    "read_json",
    "start_info_offset_ns",
]

_INFO_NAME = re.compile(r"profiler_info_([0-9]{1,9})\.json")
_DATABASE_RANK = re.compile(r"ascend_(?:pytorch|mindspore)_profiler_([0-9]{1,9})\.db")
_NAME_RANK = re.compile(r"rank[-_]?([0-9]{1,9})(?:[-_].*)?")
_STAMPS = re.compile(r"(?<!\d)(\d{14}|\d{17})(?!\d)")
_WORKER = re.compile(r"(.+)_\d{14,17}_ascend_(?:pt|ms)")
_DEVICE_DIRECTORY = re.compile(r"device_([0-9]{1,9})")


@dataclass(frozen=True)
class Root:
    """Where captures were looked for: a path, and the directories above it as people know them.

    above: nearest first; None where the path lies where people have it.
    """

    path: Path
    above: tuple[Path, ...] | None = None


@dataclass(frozen=True)
class Evidence:
    """One statement about the rank: the number, and the file or name that makes it."""

    rank: int
    where: str


def identify(
    capture: Capture, root: Root, assigned: int | None
) -> list[tuple[Identity, Clock, bool]]:
    """Who a capture is: one identity per rank in it, with its clock, and whether there are several.

    Metadata is asked first, then names; an assigned rank overrules both.

    Raises:
        RankIdentityError: nothing says which rank it is, or two things say different ones.
    """
    if capture.layout is Layout.DATABASE:
        with open_database(capture.database) as database:
            return _of_database(capture, root, assigned, database)
    if capture.layout is Layout.KINETO:
        return [(_of_kineto(capture, root, assigned), Clock(), False)]
    if capture.layout is Layout.TEXT:
        ids = text_ids(capture.content)
        return [(_of_numbered(capture, root, assigned, ids), Clock(), False)]
    if capture.layout is Layout.HARDWARE_LOG:
        ids = hardware_log_ids(capture.content)
        return [
            (
                _of_numbered(capture, root, assigned, ids),
                counter_clock(capture.content, capture.device),
                False,
            )
        ]
    metadata = _of_files(capture)
    clock = _clock(capture)
    rank, where = _settle(capture, root, metadata, assigned)
    exported = capture.layout in (Layout.MINDSTUDIO, Layout.KERNEL_TABLE)
    several = exported and _device_count(capture.directory) > 1
    return [(_identity(capture, rank, _device(capture), where), clock, several)]


def _of_database(
    capture: Capture, root: Root, assigned: int | None, database: Database
) -> list[tuple[Identity, Clock, bool]]:
    clock = Clock(host=_database_host(database))
    pairs: list[tuple[int, int]] = []
    if database.has("RANK_DEVICE_MAP", "rankId", "deviceId"):
        columns = database.integers("RANK_DEVICE_MAP", {"rankId": NO_ID, "deviceId": NO_ID})
        pairs = sorted(set(zip(*(own.tolist() for own in columns.values()), strict=True)))
    if capture.device is not None:
        pairs = [pair for pair in pairs if pair[1] == capture.device]
    known = [pair for pair in pairs if pair[0] >= 0]
    if len(known) > 1 and assigned is None:
        return [
            (_identity(capture, rank, device, "RANK_DEVICE_MAP"), clock, True)
            for rank, device in known
        ]
    metadata = [Evidence(rank, f"{capture.content.name}: RANK_DEVICE_MAP") for rank, _ in known]
    if match := _DATABASE_RANK.fullmatch(plain_database(capture.content.name)):
        metadata.append(Evidence(int(match[1]), capture.content.name))
    metadata.extend(_of_files(capture))
    rank, where = _settle(capture, root, metadata, assigned)
    device = pairs[0][1] if len(pairs) == 1 else capture.device
    several = capture.device is not None and _device_count(capture.directory) > 1
    return [(_identity(capture, rank, device, where), clock, several)]


def _of_numbered(capture: Capture, root: Root, assigned: int | None, ids: list[int]) -> Identity:
    """Who the files of one of several ids in a directory of MindSpore's outputs are.

    The id is the rank since MindSpore 1.5 and the device before. So where a directory named after
    a rank holds files of one id only, that name tells the rank and the id can be the device.
    """
    number = capture.device
    assert number is not None
    names = [] if len(ids) > 1 else _of_names(capture, root)
    if assigned is not None:
        rank, where = assigned, "--assign-rank"
    elif names:
        rank, where = names[0].rank, names[0].where
    else:
        rank, where = number, f"the {number} in the names of its files"
    return _identity(capture, rank, None if rank == number else number, where)


def _database_host(database: Database) -> str:
    for column in ("hostUid", "hostName"):
        if database.has("HOST_INFO", column):
            rows = database.rows(f"SELECT {column} FROM HOST_INFO LIMIT 1")
            if rows and rows[0][0]:
                return str(rows[0][0])
    return ""


def _identity(capture: Capture, rank: int, device: int | None, where: str) -> Identity:
    name = capture.directory.name
    worker = _WORKER.fullmatch(name)
    stamps = _STAMPS.findall(name)
    return Identity(
        rank=rank,
        directory=capture.directory,
        device=device,
        taken=stamps[-1].ljust(17, "0") if stamps else "",
        worker=worker[1] if worker else "",
        evidence=where,
    )


def _device(capture: Capture) -> int | None:
    if capture.device is not None:
        return capture.device
    if match := _DEVICE_DIRECTORY.fullmatch(capture.content.parent.name):
        return int(match[1])
    return None


def _device_count(directory: Path) -> int:
    with readable(directory):
        return sum(1 for path in directory.iterdir() if _DEVICE_DIRECTORY.fullmatch(path.name))


def _of_files(capture: Capture) -> list[Evidence]:
    """What profiler_info_R.json and info.json[.N] say; -1 is msprof's "unknown"."""
    directory = capture.directory
    found = [*_profiler_info(directory), *_info_json(capture)]
    if _WORKER.fullmatch(directory.parent.name):
        # What the framework says lies above the data of msprof, until it has made its own of it.
        found += _profiler_info(directory.parent)
    return found


def _profiler_info(directory: Path) -> Iterable[Evidence]:
    for name, path in named_files(directory).items():
        if match := _INFO_NAME.fullmatch(name):
            yield Evidence(int(match[1]), path.name)
            rank = _rank_in(path)
            if rank is not None:
                yield Evidence(rank, f"{path.name}: rank_id")


def _info_json(capture: Capture) -> Iterable[Evidence]:
    for path in _info_files(capture):
        rank = _rank_in(path)
        if rank is not None:
            yield Evidence(rank, f"{path.parent.name}/{path.name}: rank_id")


def _info_files(capture: Capture) -> list[Path]:
    device = _device(capture)
    devices = (
        [capture.directory / f"device_{device}"]
        if device is not None
        else sorted(path for path in capture.directory.glob("device_*") if path.is_dir())
    )
    found = [
        path
        for directory in devices
        if directory.is_dir()
        for name, path in named_files(directory).items()
        if name.startswith("info.json") and not name.endswith(".done") and path.is_file()
    ]
    host = held_file(capture.directory / "host", "info.json")
    if not found and host is not None:
        found.append(host)
    return found


def _rank_in(path: Path) -> int | None:
    rank = whole_number(read_json(path).get("rank_id"))
    return None if rank is None or rank < 0 else rank


def raw_error(directory: Path) -> SourceError:
    """The error of a capture that holds only raw data: which command exports it."""
    return SourceError(directory, "holds raw profiling data only.", do=how_to_export(directory))


def how_to_export(directory: Path) -> str:
    """What to do with a capture that only msprof can read."""
    return f"Export it first: msprof --export=on --output={directory}"


def read_json(path: Path) -> dict[str, Any]:
    """Read a small JSON object.

    Raises:
        SourceError: the file cannot be read or holds something else.
    """
    try:
        with opened(path) as file:
            value = orjson.loads(file.read())
    except orjson.JSONDecodeError as error:
        raise SourceError(path, f"is not valid JSON: {error.msg}.", offset=error.pos) from error
    if not isinstance(value, dict):
        raise SourceError(path, "holds no JSON object.")
    return value


def _settle(
    capture: Capture,
    root: Root,
    metadata: list[Evidence],
    assigned: int | None,
    *,
    with_names: bool = True,
) -> tuple[int, str]:
    """The one rank that all evidence agrees on, that of directory names included or not."""
    if assigned is not None:
        return assigned, "--assign-rank"
    names = _of_names(capture, root) if with_names else []
    evidence = metadata + names or _beside_text(capture)
    ranks = {item.rank for item in evidence}
    name = capture.directory.name
    if not ranks and capture.layout is Layout.RAW:
        raise raw_error(capture.directory)
    if not ranks:
        return 0, "not distributed"
    if len(ranks) > 1:
        said = "; ".join(f"{item.where} says {item.rank}" for item in evidence)
        raise RankIdentityError(
            capture.directory,
            f"contradictory rank ids: {said}.",
            do=f"Say which is right: --assign-rank {name}=RANK",
        )
    return evidence[0].rank, evidence[0].where


def is_nameless(capture: Capture, root: Root) -> bool:
    """Whether neither metadata nor names tell the rank of a capture that is no database.

    Raises:
        SourceError: its metadata cannot be read.
    """
    return not _of_files(capture) and not _of_names(capture, root)


def _of_names(capture: Capture, root: Root) -> list[Evidence]:
    """What the nearest directory named after a rank says.

    Names above the given path count only when nothing at or below it is named.
    """
    directory, top = capture.directory.resolve(), root.path.resolve()
    lineage = [directory, *directory.parents]
    depth = lineage.index(top) if top in lineage else 0
    for path in lineage[: depth + 1]:
        if match := _NAME_RANK.fullmatch(path.name):
            return [Evidence(int(match[1]), f"directory {path.name}")]
    for path in lineage[depth + 1 :] if root.above is None else root.above:
        if match := re.fullmatch(r"rank[-_]([0-9]{1,9})", path.name):
            return [Evidence(int(match[1]), f"directory {path.name}")]
    return []


def _beside_text(capture: Capture) -> list[Evidence]:
    """What the text outputs that MindSpore made of a lone PROF_* directory beside it say."""
    parent = capture.directory.parent
    sessions = sum(1 for path in parent.glob("PROF_*") if path.is_dir())
    ids = text_ids(parent) if sessions == 1 else []
    return [Evidence(ids[0], "the text files beside it")] if len(ids) == 1 else []


def _clock(capture: Capture) -> Clock:
    """The host, and what turns its monotonic clock into wall time."""
    host = ""
    for path in _info_files(capture):
        info = read_json(path)
        host = "/".join(str(info[key]) for key in ("hostname", "mac") if info.get(key))
    return Clock(host=host, wall_offset_ns=_wall_offset_ns(capture))


def _wall_offset_ns(capture: Capture) -> int | None:
    """collectionTimeBegin (us) less clockMonotonicRaw (ns), from start_info."""
    device = _device(capture)
    places = [held_file(capture.directory / "host", "start_info")]
    if device is not None:
        own = capture.directory / f"device_{device}"
        places.insert(0, held_file(own, f"start_info.{device}"))
    for path in places:
        if path is not None:
            return start_info_offset_ns(path)
    return None


def start_info_offset_ns(path: Path) -> int | None:
    """Wall time less the raw monotonic clock, as a start_info says; None where it does not.

    Raises:
        SourceError: the file cannot be read.
    """
    info = read_json(path)
    begin_us = whole_number(info.get("collectionTimeBegin"))
    monotonic_ns = whole_number(info.get("clockMonotonicRaw"))
    if begin_us is None or monotonic_ns is None:
        return None
    return whole_number(begin_us * 1000 - monotonic_ns)


def _of_kineto(capture: Capture, root: Root, assigned: int | None) -> Identity:
    """Who a trace of PyTorch is; its names count only where it says nothing itself.

    Names often number the processes of one machine, while the trace tells the rank of the run.
    """
    name = read_name(capture.content.name)
    told = read_header(capture.content).rank
    evidence = [Evidence(rank, f"file name {capture.content.name}") for rank in name.ranks]
    if told is not None:
        evidence = [Evidence(told, f"{capture.content.name}: distributedInfo")]
    rank, where = _settle(capture, root, evidence, assigned, with_names=not evidence)
    return Identity(rank, capture.directory, None, name.taken, name.worker, where)
