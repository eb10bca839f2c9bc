"""What a format says of itself, and what passes between finding and the formats."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from timeline.frozen import dataclass
from timeline.patterns import compile_late
from timeline.sources.source import PROF, SQLITE, Clock, Identity, Source

if TYPE_CHECKING:
    from timeline.records.vendor import UnusedFile

__all__ = [
    "DEVICE_DIRECTORY",
    "NOT_DISTRIBUTED",
    "NO_EXTENT",
    "Capture",
    "CaptureFile",
    "Claim",
    "Evidence",
    "Extent",
    "Folder",
    "FolderKind",
    "Format",
    "FormatKind",
    "Lookalike",
    "Root",
]

NOT_DISTRIBUTED = "not distributed"
DEVICE_DIRECTORY = compile_late(r"device_([0-9]{1,9})")
Extent = tuple[int | None, int | None]
"""Start and end in wall ns, None where not known."""
NO_EXTENT: Extent = (None, None)


class FormatKind(enum.Enum):
    """What the files of a format are, which tells of what other captures they are copies."""

    EXPORT = enum.auto()
    """A timeline, complete in itself."""
    TABLES = enum.auto()
    """Tables of an export, which give way to any timeline below their directory."""
    TEXT = enum.auto()
    """What a framework made of the raw files and PROF_* directories beside it."""
    LOG = enum.auto()
    """Raw files of a framework, which give way to its text beside them."""
    STEPS = enum.auto()
    """Steps or tables without times, which give way to anything at, above or below theirs."""
    SUMS = enum.auto()
    """Sums of steps and of communication, which give way to anything but such tables."""
    RAW = enum.auto()
    """What CANN recorded and nothing was made of, as far as it is read."""
    UNREADABLE = enum.auto()
    """What CANN recorded and nothing was made of; not read, an error says how to export it."""


@dataclass(frozen=True)
class Capture:
    """A file or directory with the profile of one device, or of several in one export.

    `directory` is the capture as people name it; `content` is the file or directory to read;
    `device` is that of a device directory, or the id in the names of files of a format that
    numbers them, None where the capture is not split by device. `unpacked` is where the content
    lies unpacked that is compressed.
    """

    format: Format
    directory: Path
    content: Path
    device: int | None = None
    unpacked: Path | None = None

    @property
    def database(self) -> Path:
        """The file of a database."""
        return self.unpacked or self.content


class FolderKind(enum.Enum):
    """What a directory is by its name and those of the directories in it."""

    OUTPUT = enum.auto()
    """ASCEND_PROFILER_OUTPUT, in which a framework leaves what its profiler exported."""
    MSPROF = enum.auto()
    """What msprof makes of one session, named PROF_*."""
    LOOSE = enum.auto()
    """Any other directory."""


@dataclass(frozen=True)
class Folder:
    """A directory in which formats look for captures.

    `directory` is what people call the capture, and `path` where its files lie, which differ for
    FolderKind.OUTPUT alone. `names` are those of its files, `directories` those of directories.
    `devices` are those of FolderKind.MSPROF, and `free` those that no format before recognised.
    """

    kind: FolderKind
    directory: Path
    path: Path
    names: Sequence[str]
    directories: frozenset[str] = frozenset()
    devices: tuple[int, ...] = ()
    free: tuple[int, ...] = ()

    def captures_of(self, found: Format, content: Path) -> list[Capture]:
        """A capture for each device that is free, or one where there are no devices."""
        devices: tuple[int | None, ...] = self.free or (None,)
        return [Capture(found, self.directory, content, device) for device in devices]


@dataclass(frozen=True)
class CaptureFile:
    """A file that was passed as PATH.

    `name` is without the suffix of compression; `around` are all captures of the capture
    directory that it lies in, which may be none.
    """

    path: Path
    name: str
    around: tuple[Capture, ...] = ()

    @property
    def beside(self) -> list[Capture]:
        """The captures whose content is this file, or the directory that it lies in."""
        return [one for one in self.around if one.content in (self.path, self.path.parent)]


@dataclass(frozen=True)
class Lookalike:
    """A file that looks like a capture and is none: `what` it is instead."""

    path: Path
    what: str


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
        """The name of the capture's directory, as --assign-rank takes it."""
        return self._with_device(self.capture.directory.name)

    @property
    def path(self) -> str:
        """The path of the capture, as --assign-rank takes it where names are not enough."""
        return self._with_device(str(self.capture.directory))

    def _with_device(self, directory: str) -> str:
        """A name or path of the directory, with the device or id where it holds several."""
        is_numbered = self.capture.format.ids is not None
        if not self.several and not is_numbered:
            return directory
        return f"{directory}/device_{self.capture.device if is_numbered else self.device}"

    def is_named(self, name: str) -> bool:
        """Whether a name or path is that of the capture, its device, or what lies around it."""
        wanted, directory = Path(name), self.capture.directory
        numbers = (self.device, self.capture.device)
        devices = {f"device_{number}" for number in numbers if number is not None}
        known = (directory.name, str(directory))
        if name in (*known, *(f"{one}/{device}" for one in known for device in devices)):
            return True
        resolved = directory.resolve()
        if wanted.exists() and wanted.resolve() in (resolved, *resolved.parents):
            return True
        return wanted.name in devices and wanted.parent.resolve() == resolved

    def with_rank(self, rank: int) -> Claim:
        """The claim to a rank that somebody gave the capture."""
        return replace(self, evidence=(Evidence(rank, "--assign-rank"),))

    def identity(self, rank: int) -> Identity:
        """Who the capture is, as the rank that was found for it."""
        where = self.evidence[0].where if self.evidence else NOT_DISTRIBUTED
        if not self.evidence and self.device is not None:
            where = f"{where}, device {self.device}"
        return Identity(rank, self.capture.directory, self.device, self.taken, self.worker, where)


def _no_captures(_file: CaptureFile) -> list[Capture]:
    return []


def _no_extent(_capture: Capture) -> Extent:
    return NO_EXTENT


def _no_directories(_capture: Capture) -> tuple[Path, ...]:
    return ()


def _parsed_by_msprof(capture: Capture) -> tuple[Path, ...]:
    """Where msprof leaves the databases that it made of the data of a device."""
    if capture.device is None or not capture.directory.name.startswith(PROF):
        return ()
    return (capture.directory / f"device_{capture.device}" / SQLITE,)


def _nothing_unused(_capture: Capture) -> Iterable[UnusedFile]:
    return ()


@dataclass(frozen=True, kw_only=True)
class Format:
    """All that is known of one format outside of its reader; captures of it are pickled with it.

    Those that must be given:

    name: what `--list` calls its captures, where the source says nothing finer. recognise: the
    captures of the format in a directory, and what only looks like one. identify: who a capture
    says it is, a claim for each device in it. read_with: what reads a claim as the rank that is
    found for it; it imports its reader itself, so that only the chosen one is loaded.

    Those that most formats leave:

    recognise_file: the captures that a file is of, by its name. recognise_content: the captures
    that a file is of which no format knows by name. recorded_time: what the capture's own files
    say of its start and end, beside those that all of msprof's have. ids: the ids in the names of
    files in a directory, None where it holds one capture. table_directories: where the tables of a
    capture lie, the better first. parsed_directories: where msprof left databases beside it.
    unused: what lies beside it and is not used.

    lies_beside: whether captures of other formats may lie in its directory and below; without it
    the directory is of this format alone. packed: whether the file of a capture is unpacked before
    it is read. counts_ticks: whether its times are ticks of a device, no wall times. utc_names:
    whether times in its names are in UTC. hardware: what kind of device it is of. noun and writer:
    what notes call its files, and whose they are.
    """

    name: str
    recognise: Callable[[Folder], Iterable[Capture | Lookalike]]
    identify: Callable[[Capture, Root], list[Claim]]
    read_with: Callable[[Claim, Identity], Source]
    kind: FormatKind = FormatKind.EXPORT
    recognise_file: Callable[[CaptureFile], list[Capture]] = _no_captures
    recognise_content: Callable[[CaptureFile], list[Capture]] = _no_captures
    recorded_time: Callable[[Capture], Extent] = _no_extent
    ids: Callable[[Path], list[int]] | None = None
    table_directories: Callable[[Capture], tuple[Path, ...]] = _no_directories
    parsed_directories: Callable[[Capture], tuple[Path, ...]] = _parsed_by_msprof
    unused: Callable[[Capture], Iterable[UnusedFile]] = _nothing_unused
    lies_beside: bool = False
    packed: bool = False
    counts_ticks: bool = False
    utc_names: bool = False
    hardware: str = "NPU"
    noun: str = ""
    writer: str = ""

    def open(self, claim: Claim, rank: int) -> Source:
        """What reads a claim as a rank."""
        return self.read_with(claim, claim.identity(rank))
