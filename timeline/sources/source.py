"""The interface of readers: the identity, clock and records of a capture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from timeline.layers import Layer
from timeline.records.clock import Clock
from timeline.records.tables import Records

PROF = "PROF_"
"""How the directory of a session of msprof begins."""
OUTPUT = "ASCEND_PROFILER_OUTPUT"
MINDSTUDIO_OUTPUT = "mindstudio_profiler_output"
SQLITE = "sqlite"
"""The directory of a device, or of the host, that holds what msprof parsed."""


_NAMED_LAYERS = frozenset({Layer.HARDWARE, Layer.SCOPES})


@dataclass(frozen=True)
class Identity:
    """The rank of a capture, and where it lies.

    `taken` is the capture's own time stamp (YYYYmmddHHMMSSmmm) from its name, empty where the
    name has none; `worker` is the process that captured it, as far as the name tells; `part` is
    what of the capture is of the rank, empty where all of it is.
    """

    rank: int
    directory: Path
    device: int | None = None
    taken: str = ""
    worker: str = ""
    evidence: str = ""
    part: str = ""

    @property
    def place(self) -> Path:
        """Return where the rank lies, as --assign-rank takes it."""
        return self.directory / self.part if self.part else self.directory


@dataclass(frozen=True)
class ReadRequest:
    """The parts of a capture that are wanted; a reader may leave the rest unread.

    every_arg: whether args are wanted that only `--args all` shows; columns that hold nothing else
    are then read too. names: whether names of device tasks are wanted, even if no layer shows them.
    measures: whether what the profiler itself measured is wanted, and what lies unused beside it.
    frequency: whether the frequency of the AI Core is wanted, even if no layer shows counters.
    operators: whether it is wanted which calls of the framework are operators, and what memory they
    allocated. shapes: whether the shapes of their inputs are. allocations: whether it is wanted
    what they allocated, and no more of them. memory: whether it is wanted how much memory was
    reserved at most, even if no layer shows counters. metrics: whether what counters of the cores
    measured of each kernel is wanted, however large; small tables of that are always read.
    """

    layers: frozenset[Layer]
    every_arg: bool = True
    names: bool = False
    measures: bool = True
    frequency: bool = False
    operators: bool = False
    shapes: bool = False
    allocations: bool = False
    memory: bool = False
    metrics: bool = False

    @property
    def with_allocations(self) -> bool:
        """Return whether allocations of framework operators are wanted."""
        return self.operators or self.allocations

    @property
    def with_names(self) -> bool:
        """Return whether a layer shows names and types of device tasks, or they are asked for."""
        return self.names or bool(self.layers & _NAMED_LAYERS)


class Source(Protocol):
    """One rank's capture in one layout."""

    @property
    def layout(self) -> str:
        """The name of the format, or a finer one: what `--list` calls the capture."""

    @property
    def identity(self) -> Identity:
        """Return the rank that the capture is of."""

    @property
    def clock(self) -> Clock:
        """Its clock, and how that relates to wall time."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that `read` opens."""

    def read(self, wanted: ReadRequest) -> Records:
        """Read at least what is wanted.

        Raises:
            SourceError: a file cannot be read.
        """


@dataclass(frozen=True)
class SourceAround:
    """A source that reads another one in its own way, and is like it otherwise."""

    source: Source

    @property
    def layout(self) -> str:
        """The layout of the capture."""
        return self.source.layout

    @property
    def identity(self) -> Identity:
        """Return the identity of the capture."""
        return self.source.identity

    @property
    def clock(self) -> Clock:
        """The clock of the capture."""
        return self.source.clock

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of the capture."""
        return self.source.files
