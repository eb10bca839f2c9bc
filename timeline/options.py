"""Turns how a profile is read, drawn and written into two values that travel with the work."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from timeline.errors import UsageError
from timeline.ranges import check_id, check_offset
from timeline.selection import Align, Kind

__all__ = [
    "DEFAULT_LIMIT_BYTES",
    "Args",
    "ClockOptions",
    "ExportOptions",
    "Fit",
    "ReadingOptions",
    "StepOperators",
]


@dataclass(frozen=True)
class StepOperators:
    """Names of the operators that begin forward and end backward, empty to find them."""

    fp_start: str = ""
    bp_end: str = ""


@dataclass(frozen=True)
class ClockOptions:
    """How ranks come on one clock.

    align: None is by collectives where they can be trusted, and as recorded elsewhere.
    offsets_ns: by rank, what its clock is moved by, instead of any correction.
    """

    align: Align | None = None
    offsets_ns: Mapping[int, int] = field(default_factory=dict)


DEFAULT_LIMIT_BYTES = 20 * 1024 * 1024


class Fit(enum.Enum):
    """What happens when the whole selection is larger than the limit."""

    COARSEN = "coarsen"
    """Cover all of it, at the finest time resolution that fits."""
    STEPS = "steps"
    """Keep the detail of the leading whole steps."""
    SPLIT = "split"
    """Write several files, together exact."""
    ERROR = "error"
    """Write nothing."""


class Args(enum.Enum):
    """Which args slices carry."""

    DEFAULT = "default"
    ALL = "all"
    NONE = "none"


@dataclass(frozen=True)
class ReadingOptions:
    """How a profile is found and read, whatever becomes of it.

    assigned_ranks: rank by directory, for captures that do not tell theirs. clock: how ranks come
    on one clock. jobs: processes that
    read ranks; None is one a core, or none for a small profile. executor: the address of a Dask
    scheduler to work on instead. keep_going: leave ranks out that fail.
    """

    assigned_ranks: Mapping[str, int] = field(default_factory=dict)
    operators: StepOperators = field(default_factory=StepOperators)
    clock: ClockOptions = field(default_factory=ClockOptions)
    jobs: int | None = None
    executor: str = ""
    keep_going: bool = False

    def __post_init__(self) -> None:
        """Check what is no matter of how it is spelled.

        Raises:
            UsageError: jobs is no number of processes; a rank or an offset is out of range.
        """
        for directory, rank in self.assigned_ranks.items():
            check_id(f"the rank of {directory},", rank)
        for rank, offset_ns in self.clock.offsets_ns.items():
            check_offset(f"the offset of rank {rank}", offset_ns)
        if self.jobs is not None and self.jobs < 1:
            raise UsageError(f"jobs {self.jobs}: it takes at least one process.")


@dataclass(frozen=True)
class ExportOptions:
    """How a profile is drawn and written; what is drawn is a Selection.

    limit_bytes: size of a written file that is never exceeded; 0 is no limit.
    by_layer: rows by layer, then rank; None is by layer for a summary and by rank for a detail.
    csv: a file for the times of each rank and step, besides the timeline. report: a page to look
    at that is written too. still: a picture of it.
    """

    kind: Kind = Kind.SUMMARY
    output: Path | None = None
    limit_bytes: int = DEFAULT_LIMIT_BYTES
    fit: Fit = Fit.COARSEN
    args: Args = Args.DEFAULT
    by_layer: bool | None = None
    merge_graphs: bool = True
    force: bool = False
    strict: bool = False
    csv: Path | None = None
    report: Path | None = None
    still: Path | None = None

    @property
    def groups_by_layer(self) -> bool:
        """Whether rows are grouped by layer before rank."""
        return self.kind is Kind.SUMMARY if self.by_layer is None else self.by_layer
