"""Descriptions of formats and of captures, passed between finding and the formats."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from timeline.records.clock import Clock
from timeline.sources.source import PROF, SQLITE, Identity, Source

if TYPE_CHECKING:
    from timeline.records.profiler_tables import UnusedFile

NOT_DISTRIBUTED = "not distributed"
MOST_PART_NAME = 64
"""Characters; labels of processes may hold any text."""
DEVICE_DIRECTORY = re.compile(r"device_([0-9]{1,9})")
Extent = tuple[int | None, int | None]
"""Start and end in wall ns, None where not known."""
NO_EXTENT: Extent = (None, None)


class FormatKind(enum.Enum):
    """The kind of files of a format; it decides which captures are copies of which."""

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
        """Return the file of a database."""
        return self.unpacked or self.content


class FolderKind(enum.Enum):
    """The kind of a directory, by its name and its subdirectories."""

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
        """Return a capture for each free device, or one if there are no devices."""
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
        """Return the captures that are this file, or lie in its directory."""
        return [one for one in self.around if one.content in (self.path, self.path.parent)]


@dataclass(frozen=True)
class Lookalike:
    """A file that looks like a capture and is none: `what` it is instead."""

    path: Path
    what: str


@dataclass(frozen=True)
class Root:
    """The path in which captures were looked for, and the directories above it.

    above: nearest first; None where the path lies where people have it.
    """

    path: Path
    above: tuple[Path, ...] | None = None


@dataclass(frozen=True)
class Evidence:
    """One statement about the rank: the number, and the file or name that makes it.

    counted: how many ranks were counted on from what that tells, for a further device of a process.
    """

    rank: int
    where: str
    counted: int = 0


@dataclass(frozen=True)
class Part:
    """The part of a capture of several ranks that is read as one rank.

    name: the part as people call it, such as device_1 or TP01; a long one is cut. device: what the
    part ran on, None for processes of a merged trace. processes: those, and the pid that each had
    before. is_first: whether the head of the trace, which is that of one rank, is of this one.
    """

    name: str
    device: int | None = None
    processes: tuple[tuple[object, object], ...] = ()
    is_first: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name[:MOST_PART_NAME])

    @classmethod
    def of_device(cls, device: int | None) -> Part:
        """Return the part of a capture that ran on one device."""
        return cls(f"device_{device}", device)


@dataclass(frozen=True)
class Replica:
    """One of several copies of a model, whose ranks count from 0 in its own files.

    first: its rank 0 among the ranks of all replicas. size: how many ranks it has.
    """

    name: str
    first: int
    size: int


@dataclass(frozen=True)
class Claim:
    """Who a capture says it is, before anything is made of it: one rank in one capture.

    evidence: all that tells its rank; none where it was not distributed. part: what of the capture
    is of this rank, None where all of it is. taken: the stamp in its name (YYYYmmddHHMMSSmmm),
    empty where it has none. worker: the process in its name. note: what was assumed to make the
    claim. world: how many ranks the run has, None where that is not told. replica: the one it is
    of, where there are several.
    """

    capture: Capture
    evidence: tuple[Evidence, ...]
    device: int | None = None
    clock: Clock = Clock()
    part: Part | None = None
    taken: str = ""
    worker: str = ""
    note: str = ""
    world: int | None = None
    replica: Replica | None = None

    @property
    def several(self) -> bool:
        """Return whether the capture holds other ranks too."""
        return self.part is not None

    @property
    def rank(self) -> int | None:
        """Return the rank that all evidence agrees on."""
        ranks = {item.rank for item in self.evidence}
        return ranks.pop() if len(ranks) == 1 else None

    @property
    def contradiction(self) -> str:
        """Return the evidence if it names more than one rank."""
        if len({item.rank for item in self.evidence}) < 2:
            return ""
        return "; ".join(f"{item.where} says {item.rank}" for item in self.evidence)

    @property
    def name(self) -> str:
        """Return the name of the capture's directory, as --assign-rank takes it."""
        return self._with_part(self.capture.directory.name)

    @property
    def path(self) -> str:
        """Return the path of the capture, as --assign-rank takes it where names are ambiguous."""
        return self._with_part(str(self.capture.directory))

    @property
    def file(self) -> str:
        """Return the file of the capture, as --assign-rank takes it where several lie together."""
        return self._with_part(str(self.capture.content))

    def _with_part(self, place: str) -> str:
        """Return a name or path with the part or id where several ranks share it."""
        if self.capture.format.ids is not None:
            return f"{place}/device_{self.capture.device}"
        return place if self.part is None else f"{place}/{self.part.name}"

    def is_named(self, name: str) -> bool:
        """Return whether a name or path is that of the capture, its part, or a parent directory."""
        wanted, places = Path(name), (self.capture.directory, self.capture.content)
        numbers = (self.device, self.capture.device)
        parts = {f"device_{number}" for number in numbers if number is not None}
        if self.part is not None:
            parts.add(self.part.name)
        known = [text for place in places for text in (place.name, str(place))]
        if name in (*known, *(f"{one}/{part}" for one in known for part in parts)):
            return True
        resolved = [place.resolve() for place in places]
        if wanted.exists() and wanted.resolve() in (*resolved, *resolved[0].parents):
            return True
        return wanted.name in parts and wanted.parent.resolve() in resolved

    def with_rank(self, rank: int) -> Claim:
        """Return the claim with a rank that the user gave the capture."""
        return replace(self, evidence=(Evidence(rank, "--assign-rank"),))

    def identity(self, rank: int) -> Identity:
        """Return the identity of the capture with the rank that was found for it."""
        where = self.evidence[0].where if self.evidence else NOT_DISTRIBUTED
        if self.device is not None and (not self.evidence or self.evidence[0].counted):
            where = f"{where}, device {self.device}"
        part = "" if self.part is None else self.part.name
        directory = self.capture.directory
        return Identity(rank, directory, self.device, self.taken, self.worker, where, part)


def _nothing(_: object) -> tuple[()]:
    return ()


def _no_extent(_: Capture) -> Extent:
    return NO_EXTENT


def _parsed_by_msprof(capture: Capture) -> tuple[Path, ...]:
    """Return where msprof leaves the databases that it parsed of a device's data."""
    if capture.device is None or not capture.directory.name.startswith(PROF):
        return ()
    return (capture.directory / f"device_{capture.device}" / SQLITE,)


@dataclass(frozen=True, kw_only=True)
class Format:
    """All that is known of one format outside of its reader; captures of it are pickled with it.

    Those that must be given:

    name: what `--list` calls its captures, where the source says nothing finer. recognise: the
    captures of the format in a directory, and what only looks like one. identify: who a capture
    says it is, a claim for each rank in it. read_with: what reads a claim as the rank that is
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
    recognise_file: Callable[[CaptureFile], Sequence[Capture]] = _nothing
    recognise_content: Callable[[CaptureFile], Sequence[Capture]] = _nothing
    recorded_time: Callable[[Capture], Extent] = _no_extent
    ids: Callable[[Path], list[int]] | None = None
    table_directories: Callable[[Capture], tuple[Path, ...]] = _nothing
    parsed_directories: Callable[[Capture], tuple[Path, ...]] = _parsed_by_msprof
    unused: Callable[[Capture], Iterable[UnusedFile]] = _nothing
    lies_beside: bool = False
    packed: bool = False
    counts_ticks: bool = False
    utc_names: bool = False
    hardware: str = "NPU"
    noun: str = ""
    writer: str = ""

    def open(self, claim: Claim, rank: int) -> Source:
        """Return the source that reads a claim as a rank."""
        return self.read_with(claim, claim.identity(rank))
