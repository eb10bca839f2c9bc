"""What every reader offers: who a capture is, which clock it has, and its records."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from timeline.records.clock import Clock
from timeline.records.tables import Records
from timeline.selection import Layer

__all__ = [
    "MINDSTUDIO_OUTPUT",
    "NUMBERED_LAYOUTS",
    "OUTPUT",
    "RAW_LAYOUTS",
    "SQLITE",
    "Capture",
    "Clock",
    "Identity",
    "Layout",
    "Source",
    "Wanted",
]

OUTPUT = "ASCEND_PROFILER_OUTPUT"
MINDSTUDIO_OUTPUT = "mindstudio_profiler_output"
SQLITE = "sqlite"
"""The directory of a device, or of the host, that holds what msprof parsed."""


class Layout(enum.Enum):
    """The on-disk layouts that are read, best first."""

    DATABASE = enum.auto()
    TRACE_VIEW = enum.auto()
    MINDSTUDIO = enum.auto()
    GRAPH_TIMELINE = enum.auto()
    KINETO = enum.auto()
    """PyTorch on GPUs."""
    PARSED = enum.auto()
    """Parsed by msprof and never exported."""
    KERNEL_TABLE = enum.auto()
    TEXT = enum.auto()
    """Text outputs of MindSpore 0.7 to 2.2."""
    STEP_TICKS = enum.auto()
    """Step traces of MindSpore 0.7 to 2.2 alone."""
    HARDWARE_LOG = enum.auto()
    """Raw files of MindSpore 0.x and 1.x."""
    RAW_SLICES = enum.auto()
    """Raw data with slices that are read; of RAW nothing can be."""
    RAW = enum.auto()
    EMPTY = enum.auto()
    """The output of a framework's profiler, without anything that is read."""


RAW_LAYOUTS = frozenset({Layout.RAW, Layout.RAW_SLICES})
"""What CANN recorded and nothing was made of."""


NUMBERED_LAYOUTS = frozenset({Layout.TEXT, Layout.STEP_TICKS, Layout.HARDWARE_LOG})
"""MindSpore's own files, of several ids in one directory."""


@dataclass(frozen=True)
class Capture:
    """One place that holds the profile of one device, or of several in one database or export.

    `directory` is the capture as people name it; `content` is the file or directory to read;
    `device` is that of a device directory, or the id in the names of MindSpore's text and raw
    files, None where the capture is not split by device. `unpacked` is where the content lies that
    is a compressed database.
    """

    layout: Layout
    directory: Path
    content: Path
    device: int | None = None
    unpacked: Path | None = None

    @property
    def database(self) -> Path:
        """The file of a database."""
        return self.unpacked or self.content


_NAMED_LAYERS = frozenset({Layer.HARDWARE, Layer.SCOPES})


@dataclass(frozen=True)
class Identity:
    """Which rank a capture is of, and where it lies.

    `taken` is the capture's own time stamp (YYYYmmddHHMMSSmmm) from its name, empty where the
    name has none; `worker` is the process that captured it, as far as the name tells.
    """

    rank: int
    directory: Path
    device: int | None = None
    taken: str = ""
    worker: str = ""
    evidence: str = ""


@dataclass(frozen=True)
class Wanted:
    """What of a capture is wanted; a reader may leave the rest unread.

    every_arg: whether args are wanted that only `--args all` shows; columns that hold nothing else
    are then read too. names: whether names of device tasks are wanted, even if no layer shows them.
    measures: whether what the profiler itself measured is wanted, and what lies unused beside it.
    """

    layers: frozenset[Layer]
    every_arg: bool = True
    names: bool = False
    measures: bool = True

    @property
    def with_names(self) -> bool:
        """Whether a layer shows the names and types of device tasks, or they are asked for."""
        return self.names or bool(self.layers & _NAMED_LAYERS)


class Source(Protocol):
    """One rank's capture in one layout."""

    @property
    def layout(self) -> str:
        """Name of the layout, for people."""

    @property
    def identity(self) -> Identity:
        """Who the capture is."""

    @property
    def clock(self) -> Clock:
        """Its clock."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that `read` opens."""

    def read(self, wanted: Wanted) -> Records:
        """Read at least what is wanted.

        Raises:
            SourceError: a file cannot be read.
        """
