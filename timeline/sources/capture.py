"""Descriptions of formats and captures, shared by the search for captures and the formats.

A format recognises captures (files or directories) and identifies them: it makes a claim for each
rank in a capture. Once the ranks of a run are known, each claim is opened as a source.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from timeline.records.clock import Clock
from timeline.sources.source import PROF, SQLITE, Identity, Source

if TYPE_CHECKING:
    from timeline.records.profiler_tables import UnusedFile

NOT_DISTRIBUTED = "not distributed"
"""The evidence for the rank of a capture that states none."""
MOST_PART_NAME = 64
"""Maximum length of a part's name in characters, as labels of processes may be of any length."""
DEVICE_DIRECTORY = re.compile(r"device_([0-9]{1,9})")
Extent = tuple[int | None, int | None]
"""Start and end in ns of wall time, None if not known."""
NO_EXTENT: Extent = (None, None)


class FormatKind(enum.Enum):
    """The kind of data of a format; it decides which of several captures of one rank is read."""

    EXPORT = enum.auto()
    """A complete timeline."""
    TABLES = enum.auto()
    """Tables of an export; not read if there is a timeline below their directory."""
    TEXT = enum.auto()
    """Text files that a framework derived from raw files and PROF_* directories beside them."""
    LOG = enum.auto()
    """Raw files of a framework; not read if text files derived from them are beside them."""
    STEPS = enum.auto()
    """Steps or tables without times; not read on their own if another capture is in, above or
    below their directory."""
    SUMS = enum.auto()
    """Sums over steps and communication; not read if the profile has any capture but STEPS."""
    RAW = enum.auto()
    """Raw data of CANN that was never exported, of which the readable part is read."""
    UNREADABLE = enum.auto()
    """Raw data of CANN that cannot be read; an error explains how to export it."""


@dataclass(frozen=True)
class Capture:
    """A file or directory with the profile of one device, or of several in one export.

    directory: the directory or file by which users know the capture. content: the file or
    directory to read. device: the number of a device directory, or the id in file names if the
    format numbers its files; None if the capture is not split by device. unpacked: the
    decompressed copy of a compressed `content`.
    """

    format: Format
    directory: Path
    content: Path
    device: int | None = None
    unpacked: Path | None = None

    @property
    def database(self) -> Path:
        """Return the database file to read, decompressed if necessary."""
        return self.unpacked or self.content


class FolderKind(enum.Enum):
    """The kind of a directory, by its name and its subdirectories."""

    OUTPUT = enum.auto()
    """ASCEND_PROFILER_OUTPUT, the directory of a framework's exported profile."""
    MSPROF = enum.auto()
    """The directory of one msprof session, named PROF_*."""
    LOOSE = enum.auto()
    """Any other directory."""


@dataclass(frozen=True)
class Folder:
    """A directory in which formats look for captures.

    directory: the directory by which users know the capture. path: the directory of its files,
    which differs only for FolderKind.OUTPUT. names: names of its entries; for MSPROF and LOOSE
    only of files. directories: names of its subdirectories. devices: device numbers, for
    FolderKind.MSPROF. free: devices that no preceding format has recognised.
    """

    kind: FolderKind
    directory: Path
    path: Path
    names: Sequence[str]
    directories: frozenset[str] = frozenset()
    devices: tuple[int, ...] = ()
    free: tuple[int, ...] = ()

    def captures_of(self, format_: Format, content: Path) -> list[Capture]:
        """Return a capture for each free device, or one if there are no devices."""
        devices: tuple[int | None, ...] = self.free or (None,)
        return [Capture(format_, self.directory, content, device) for device in devices]


@dataclass(frozen=True)
class CaptureFile:
    """A file that was passed as PATH.

    name: the file name without .gz. around: all captures in the capture directory that contains
    the file.
    """

    path: Path
    name: str
    around: tuple[Capture, ...] = ()

    @property
    def beside(self) -> list[Capture]:
        """Return the captures that read this file or its whole directory."""
        return [one for one in self.around if one.content in (self.path, self.path.parent)]


@dataclass(frozen=True)
class Lookalike:
    """A file that looks like a capture but is not; `what` is a noun phrase for it."""

    path: Path
    what: str


@dataclass(frozen=True)
class Root:
    """The path that is searched for captures.

    above: if the path is a temporary copy, the original directories above it, nearest first; else
    None.
    """

    path: Path
    above: tuple[Path, ...] | None = None

    @cached_property
    def resolved(self) -> Path:
        """The path without links."""
        return self.path.resolve()


@dataclass(frozen=True)
class Evidence:
    """A rank, and the file or name that states it.

    shift: the difference to the stated rank, for a further device of the same process.
    """

    rank: int
    where: str
    shift: int = 0


@dataclass(frozen=True)
class Part:
    """The part of a capture of several ranks that belongs to one rank.

    name: the name shown to users, such as device_1 or TP01, cut at MOST_PART_NAME. device: the
    device of the part, None for processes of a merged trace. processes: for a merged trace, the
    pid of each process in it and before merging. is_first: whether the header of the trace, which
    describes a single rank, describes this one.
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
    """One of several data-parallel copies of a model, whose files count ranks from 0.

    first: the global rank of its rank 0. size: its number of ranks.
    """

    name: str
    first: int
    size: int


@dataclass(frozen=True)
class Claim:
    """One rank in one capture, as stated by the capture itself; not yet checked against others.

    evidence: all statements of its rank; empty if there is none. part: the part of the capture
    that belongs to this rank, None for all of it. taken: the timestamp in its name
    (YYYYmmddHHMMSSmmm), empty if there is none. worker: the process in its name. note: an
    assumption behind the claim, as a sentence. world: the number of ranks of the run, None if not
    known. replica: the replica that it belongs to, None if ranks are numbered globally. recorded:
    start and end, if the file that states the rank states them too.
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
    recorded: Extent = NO_EXTENT

    @property
    def several(self) -> bool:
        """Return whether the capture may hold other ranks too."""
        return self.part is not None

    @property
    def rank(self) -> int | None:
        """Return the rank that all evidence agrees on."""
        ranks = {item.rank for item in self.evidence}
        return ranks.pop() if len(ranks) == 1 else None

    @property
    def contradiction(self) -> str:
        """Return the evidence, formatted, if it states more than one rank; else an empty string."""
        if len({item.rank for item in self.evidence}) < 2:
            return ""
        return "; ".join(f"{item.where} says {item.rank}" for item in self.evidence)

    @property
    def name(self) -> str:
        """Return the name of the capture's directory, as --assign-rank accepts it."""
        return self._with_part(self.capture.directory.name)

    @property
    def path(self) -> str:
        """Return the path of the capture, which --assign-rank needs if names are ambiguous."""
        return self._with_part(str(self.capture.directory))

    @property
    def file(self) -> str:
        """Return the file of the capture, which --assign-rank needs if directories are too."""
        return self._with_part(str(self.capture.content))

    def _with_part(self, place: str) -> str:
        """Append the name of the part, or the id in file names, if several ranks share a path."""
        if self.capture.format.ids is not None:
            return f"{place}/device_{self.capture.device}"
        return place if self.part is None else f"{place}/{self.part.name}"

    def is_named(self, name: str) -> bool:
        """Return whether a name or path given by the user refers to this claim.

        It may be that of the capture, its content or its part, or the path of a directory above.
        """
        wanted, places = Path(name), (self.capture.directory, self.capture.content)
        numbers = (self.device, self.capture.device)
        parts = {f"device_{number}" for number in numbers if number is not None}
        if self.part is not None:
            parts.add(self.part.name)
        names = [text for place in places for text in (place.name, str(place))]
        if name in (*names, *(f"{one}/{part}" for one in names for part in parts)):
            return True
        resolved = [place.resolve() for place in places]
        if wanted.exists() and wanted.resolve() in (*resolved, *resolved[0].parents):
            return True
        return wanted.name in parts and wanted.parent.resolve() in resolved

    def with_rank(self, rank: int) -> Claim:
        """Return the claim with a rank assigned by the user."""
        return replace(self, evidence=(Evidence(rank, "--assign-rank"),))

    def identity(self, rank: int) -> Identity:
        """Return the identity of the capture with its resolved rank."""
        where = self.evidence[0].where if self.evidence else NOT_DISTRIBUTED
        if self.device is not None and (not self.evidence or self.evidence[0].shift):
            where = f"{where}, device {self.device}"
        part = "" if self.part is None else self.part.name
        directory = self.capture.directory
        return Identity(rank, directory, self.device, self.taken, self.worker, where, part)


def _nothing(_: object) -> tuple[()]:
    return ()


def _no_extent(_: Capture) -> Extent:
    return NO_EXTENT


def _parsed_by_msprof(capture: Capture) -> tuple[Path, ...]:
    """Return the directory of the databases that msprof parsed from a device's data."""
    if capture.device is None or not capture.directory.name.startswith(PROF):
        return ()
    return (capture.directory / f"device_{capture.device}" / SQLITE,)


@dataclass(frozen=True, kw_only=True)
class Format:
    """Everything about one format except its reader; pickled with each of its captures.

    Required:

    name: shown by `--list` for its captures, unless the source names a variant. recognise: returns
    the captures of the format in a directory, and files that only look like one. identify: returns
    a claim for each rank in a capture. read_with: returns the source that reads a claim with a
    resolved identity; it imports the reader itself, so that only needed readers are loaded.

    Optional functions:

    recognise_file: returns the captures in a file, by its name. recognise_content: returns the
    captures in a file whose name no format recognises. recorded_time: returns start and end from
    files of this format; start_info and end_info of msprof are read for all formats. ids: returns
    the ids in file names of a directory; None if a directory holds only one capture.
    table_directories: returns the directories of a capture's tables, preferred ones first.
    parsed_directories: returns the directories of databases that msprof parsed for it. unused:
    returns files of the capture that are not read.

    Optional properties:

    shares_directory: whether its directory may hold captures of other formats, in itself and
    below; if not, the format claims the whole directory. packed: whether a compressed file must be
    unpacked before it is read. counts_ticks: whether its times are ticks of a device instead of
    wall time. utc_names: whether times in names are in UTC. hardware: the kind of device. noun:
    what notes call its files. writer: the program that wrote them.
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
    shares_directory: bool = False
    packed: bool = False
    counts_ticks: bool = False
    utc_names: bool = False
    hardware: str = "NPU"
    noun: str = ""
    writer: str = ""

    def open(self, claim: Claim, rank: int) -> Source:
        """Return the source that reads a claim as the given rank."""
        return self.read_with(claim, claim.identity(rank))
