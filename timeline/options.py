"""How an export is done: kind, output, limit, fit, args and grouping."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from timeline.analysis.clocks import ClockOptions
from timeline.analysis.steps import StepOperators
from timeline.selection import DETAIL_LAYERS, SUMMARY_LAYERS, Kind, Layer

__all__ = ["DEFAULT_LIMIT_BYTES", "Args", "ExportOptions", "Fit", "layers_for"]

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
class ExportOptions:
    """How an export is done; what is exported is a Selection.

    limit_bytes: size of a written file that is never exceeded; 0 is no limit.
    by_layer: rows by layer, then rank; None is by layer for a summary and by rank for a detail.
    jobs: processes that read ranks; None is one a core, or none for a small profile. executor: the
    address of a Dask scheduler to work on instead. keep_going: leave ranks out that fail.
    """

    kind: Kind = Kind.SUMMARY
    output: Path | None = None
    limit_bytes: int = DEFAULT_LIMIT_BYTES
    fit: Fit = Fit.COARSEN
    args: Args = Args.DEFAULT
    by_layer: bool | None = None
    merge_graphs: bool = True
    operators: StepOperators = field(default_factory=StepOperators)
    clock: ClockOptions = field(default_factory=ClockOptions)
    assigned_ranks: Mapping[str, int] = field(default_factory=dict)
    force: bool = False
    strict: bool = False
    jobs: int | None = None
    executor: str = ""
    keep_going: bool = False

    @property
    def groups_by_layer(self) -> bool:
        """Whether rows are grouped by layer before rank."""
        return self.kind is Kind.SUMMARY if self.by_layer is None else self.by_layer


def layers_for(kind: Kind, asked: frozenset[Layer] | None) -> frozenset[Layer]:
    """The layers that are drawn: those asked for, else those of the kind."""
    if asked is not None:
        return asked
    return SUMMARY_LAYERS if kind is Kind.SUMMARY else DETAIL_LAYERS
