"""Turns what a capture's files and names say into claims: its rank, device, host and stamp."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from timeline.errors import SourceError
from timeline.records.tables import NO_ID
from timeline.sources.common.decimals import whole_number
from timeline.sources.common.device_clock import hardware_log_clock, start_info_offset_ns
from timeline.sources.decoders.json_values import read_json
from timeline.sources.decoders.sqlite import Database, open_database
from timeline.sources.files.opened import held_file, named_files, plain_database, readable
from timeline.sources.finding.captures import hardware_log_ids, step_ids, text_ids
from timeline.sources.kineto.header import rank_of, read_name
from timeline.sources.source import NUMBERED_LAYOUTS, Capture, Clock, Identity, Layout

__all__ = [
    "INFO_NAME",
    "NOT_DISTRIBUTED",
    "Claim",
    "Evidence",
    "Root",
    "claims_of",
    "how_to_export",
    "raw_error",
]

NOT_DISTRIBUTED = "not distributed"
MOST_RANKS = 1 << 31
INFO_NAME = re.compile(r"profiler_info_([0-9]{1,9})\.json")
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


@dataclass(frozen=True)
class Claim:
    """Who a capture says it is, before anything is made of it: one device in one capture.

    evidence: all that tells its rank; none where it was not distributed. several: whether the
    capture holds other devices too. taken: the stamp in its name (YYYYmmddHHMMSSmmm), empty where
    it has none. worker: the process in its name.
    """

    capture: Capture
    evidence: tuple[Evidence, ...]
    device: int | None = None
    clock: Clock = Clock()
    several: bool = False
    taken: str = ""
    worker: str = ""

    @property
    def rank(self) -> int | None:
        """The rank that all evidence agrees on."""
        ranks = {item.rank for item in self.evidence}
        return ranks.pop() if len(ranks) == 1 else None

    @property
    def contradiction(self) -> str:
        """What the evidence says, where that is more than one rank."""
        if len({item.rank for item in self.evidence}) < 2:
            return ""
        return "; ".join(f"{item.where} says {item.rank}" for item in self.evidence)

    @property
    def name(self) -> str:
        """The capture as --assign-rank names it."""
        return self.named(self.capture.directory.name)

    @property
    def path(self) -> str:
        """The same, where names of directories are not enough."""
        return self.named(str(self.capture.directory))

    def named(self, directory: str) -> str:
        """A name or path of its directory, with the device or id where that holds several."""
        is_numbered = self.capture.layout in NUMBERED_LAYOUTS
        if not self.several and not is_numbered:
            return directory
        return f"{directory}/device_{self.capture.device if is_numbered else self.device}"

    def is_named(self, name: str) -> bool:
        """Whether a name or path is that of the capture, its device, or what lies around it."""
        wanted, directory = Path(name), self.capture.directory
        devices = {f"device_{own}" for own in (self.device, self.capture.device) if own is not None}
        if name in (directory.name, *(f"{directory.name}/{own}" for own in devices)):
            return True
        own = directory.resolve()
        if wanted.exists() and wanted.resolve() in (own, *own.parents):
            return True
        return wanted.name in devices and wanted.parent.resolve() == own

    def assigned(self, rank: int) -> Claim:
        """The same capture, of a rank that somebody gave it."""
        return replace(self, evidence=(Evidence(rank, "--assign-rank"),))

    def identity(self, rank: int) -> Identity:
        """Who the capture is, as the rank that was found for it."""
        where = self.evidence[0].where if self.evidence else NOT_DISTRIBUTED
        if not self.evidence and self.device is not None:
            where = f"{where}, device {self.device}"
        return Identity(rank, self.capture.directory, self.device, self.taken, self.worker, where)


def claims_of(capture: Capture, root: Root) -> list[Claim]:
    """What a capture says of itself: a claim for each device in it.

    Metadata is asked first, then names.

    Raises:
        SourceError: a file that tells it cannot be read.
    """
    match capture.layout:
        case Layout.DATABASE:
            with open_database(capture.database) as database:
                return _of_database(capture, root, database)
        case Layout.KINETO:
            return [_of_kineto(capture, root)]
        case Layout.TEXT:
            return [_of_numbered(capture, root, text_ids(capture.content))]
        case Layout.STEP_TICKS:
            return [_of_numbered(capture, root, step_ids(capture.content))]
        case Layout.HARDWARE_LOG:
            claim = _of_numbered(capture, root, hardware_log_ids(capture.content))
            return [replace(claim, clock=hardware_log_clock(capture.content, capture.device))]
    evidence = _of_files(capture) + _of_names(capture, root) or _beside_text(capture)
    exported = capture.layout in (Layout.MINDSTUDIO, Layout.KERNEL_TABLE)
    several = exported and _device_count(capture.directory) > 1
    return [_claim(capture, evidence, _device(capture), _clock(capture), several)]


def _of_database(capture: Capture, root: Root, database: Database) -> list[Claim]:
    clock = Clock(host=_database_host(database))
    pairs: list[tuple[int, int]] = []
    if database.has("RANK_DEVICE_MAP", "rankId", "deviceId"):
        columns = database.integers("RANK_DEVICE_MAP", {"rankId": NO_ID, "deviceId": NO_ID})
        pairs = sorted(set(zip(*(own.tolist() for own in columns.values()), strict=True)))
    if capture.device is not None:
        pairs = [pair for pair in pairs if pair[1] == capture.device]
    known = [pair for pair in pairs if _is_rank(pair[0])]
    pairs = known or [pair for pair in pairs if pair[1] >= 0]
    if len(pairs) > 1:
        return [
            _claim(capture, _mapped(capture, rank), device, clock, several=True)
            for rank, device in pairs
        ]
    evidence = [own for rank, _ in pairs for own in _mapped(capture, rank)]
    if match := _DATABASE_RANK.fullmatch(plain_database(capture.content.name)):
        evidence.append(Evidence(int(match[1]), capture.content.name))
    evidence += [*_of_files(capture), *_of_names(capture, root)]
    device = pairs[0][1] if pairs else capture.device
    several = capture.device is not None and _device_count(capture.directory) > 1
    return [_claim(capture, evidence or _beside_text(capture), device, clock, several)]


def _mapped(capture: Capture, rank: int) -> list[Evidence]:
    """What the map of a database says; it holds -1 where the process was of no group."""
    return [Evidence(rank, f"{capture.content.name}: RANK_DEVICE_MAP")] if _is_rank(rank) else []


def _of_numbered(capture: Capture, root: Root, ids: list[int]) -> Claim:
    """Who the files of one of several ids in a directory of MindSpore's outputs are.

    The id is the rank since MindSpore 1.5 and the device before. So where a directory named after
    a rank holds files of one id only, that name tells the rank and the id can be the device.
    """
    number = capture.device
    assert number is not None
    names = [] if len(ids) > 1 else _of_names(capture, root)
    evidence = names[:1] or [Evidence(number, f"the {number} in the names of its files")]
    device = None if evidence[0].rank == number else number
    return _claim(capture, evidence, device, Clock(), several=False)


def _database_host(database: Database) -> str:
    for column in ("hostUid", "hostName"):
        if database.has("HOST_INFO", column):
            rows = database.rows(f"SELECT {column} FROM HOST_INFO LIMIT 1")
            if rows and str(rows[0][0] or "0") != "0":
                return str(rows[0][0])
    return ""


def _claim(
    capture: Capture,
    evidence: Iterable[Evidence],
    device: int | None,
    clock: Clock,
    several: bool,
) -> Claim:
    name = capture.directory.name
    worker = _WORKER.fullmatch(name)
    stamps = _STAMPS.findall(name)
    return Claim(
        capture,
        tuple(evidence),
        device,
        clock,
        several,
        stamps[-1].ljust(17, "0") if stamps else "",
        worker[1] if worker else "",
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
        if match := INFO_NAME.fullmatch(name):
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
    return rank if rank is not None and _is_rank(rank) else None


def _is_rank(number: int) -> bool:
    """Whether a number is a rank: writers put -1, or all bits of it, where there is none."""
    return 0 <= number < MOST_RANKS


def raw_error(directory: Path) -> SourceError:
    """The error of a capture that holds only raw data: which command exports it."""
    return SourceError(directory, "holds raw profiling data only.", do=how_to_export(directory))


def how_to_export(directory: Path) -> str:
    """What to do with a capture that only msprof can read."""
    return f"Export it first: msprof --export=on --output={directory}"


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


def _of_kineto(capture: Capture, root: Root) -> Claim:
    """Who a trace of PyTorch is; names count only where it says nothing itself.

    They often number the processes of one machine, while the trace tells the rank of the run.
    """
    name = read_name(capture.content.name)
    told = rank_of(capture.content)
    if told is not None:
        evidence = [Evidence(told, f"{capture.content.name}: distributedInfo")]
    else:
        evidence = [Evidence(rank, f"file name {capture.content.name}") for rank in name.ranks]
        evidence = evidence or _of_names(capture, root)
    return Claim(capture, tuple(evidence), taken=name.taken, worker=name.worker)
