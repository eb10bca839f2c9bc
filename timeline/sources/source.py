"""The interface of readers: a `Source` gives the identity, clock and records of a capture."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from timeline.errors import SourceError
from timeline.layers import Layer
from timeline.records.clock import Clock
from timeline.records.tables import Records

PROF = "PROF_"
"""Prefix of the directory name of an msprof session."""
OUTPUT = "ASCEND_PROFILER_OUTPUT"
"""Directory of exported files in a capture of torch_npu (*_ascend_pt) or MindSpore
(*_ascend_ms)."""
MINDSTUDIO_OUTPUT = "mindstudio_profiler_output"
"""Directory of exported files in an msprof session."""
SQLITE = "sqlite"
"""Directory, inside that of a device or of the host, of the databases that msprof parsed."""


_NAMED_LAYERS = frozenset({Layer.HARDWARE, Layer.SCOPES})


@dataclass(frozen=True)
class Identity:
    """The rank of a capture, its directory, and how both were found.

    taken: the timestamp in the name of the capture (YYYYmmddHHMMSSmmm), empty if it has none.
    worker: the recording process as written in the name, empty if it is not. evidence: the file or
    name that states the rank. part: the name of the part of the capture that belongs to this rank,
    empty if the whole capture does.
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
        """Return the path of the capture or its part, in the form that --assign-rank accepts."""
        return self.directory / self.part if self.part else self.directory


@dataclass(frozen=True)
class ReadRequest:
    """The parts of a capture to read; a reader may skip everything else.

    layers: the timeline layers to read. every_arg: also read columns that only `--args all` shows.
    names: read the names of device tasks even if no layer shows them. measures: read the
    profiler's own measurements, and list files of the capture that are not used. frequency: read
    the AI Core frequency even if no layer shows counters. operators: find out which framework
    calls are operators, and how much memory they allocated. shapes: read the input shapes of
    operators. allocations: read the memory allocated by operators, even without `operators`.
    memory: read the peak of reserved memory even if no layer shows counters.
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

    @property
    def with_allocations(self) -> bool:
        """Return whether to read the memory that framework operators allocated."""
        return self.operators or self.allocations

    @property
    def with_shapes(self) -> bool:
        """Return whether shapes of the inputs of framework operators are wanted."""
        return self.shapes or self.every_arg

    @property
    def with_stacks(self) -> bool:
        """Return whether call stacks of framework operators are wanted, as host calls are."""
        return bool(self.layers & {Layer.CANN, Layer.FRAMEWORK})

    @property
    def with_names(self) -> bool:
        """Return whether to read names and types of device tasks."""
        return self.names or bool(self.layers & _NAMED_LAYERS)


class Source(Protocol):
    """The capture of one rank, in any format."""

    @property
    def layout(self) -> str:
        """The name of the format or of a variant of it, as shown by `--list`."""

    @property
    def identity(self) -> Identity:
        """The rank of the capture, and its directory."""

    @property
    def clock(self) -> Clock:
        """The clock of the capture, and its offset to wall time."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that `read` opens."""

    def read(self, wanted: ReadRequest) -> Records:
        """Read at least the requested parts of the capture.

        Raises:
            SourceError: a file cannot be read.
        """


@runtime_checkable
class StepLister(Protocol):
    """A source whose file lists steps apart from everything else."""

    def list_steps(self) -> frozenset[int]:
        """Return the numbers of the listed steps, none if that list is empty.

        Raises:
            SourceError: a file cannot be read.
        """


@dataclass(frozen=True)
class SourceAround:
    """A wrapper around another source, which delegates everything except `read`."""

    source: Source

    @property
    def layout(self) -> str:
        """The layout of the capture."""
        return self.source.layout

    @property
    def identity(self) -> Identity:
        """The identity of the capture."""
        return self.source.identity

    @property
    def clock(self) -> Clock:
        """The clock of the capture."""
        return self.source.clock

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of the capture."""
        return self.source.files


def listed_steps(source: Source) -> frozenset[int]:
    """Return the steps that the file of a source lists, none if only reading all of it shows them.

    A file that cannot be read lists none; reading it says why.
    """
    while isinstance(source, SourceAround):
        source = source.source
    with suppress(SourceError):
        return source.list_steps() if isinstance(source, StepLister) else frozenset()
    return frozenset()
