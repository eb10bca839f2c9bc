"""Questions to ranks beyond the facts that are always collected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from timeline.layers import HOST_LAYERS, Layer

if TYPE_CHECKING:
    from timeline.analysis.work.framework_sums import OperatorRules

EVERY_ROW = 1 << 62
"""A limit above the number of rows of any rank."""
CAUSE_LAYERS = HOST_LAYERS | {Layer.COMMUNICATION, Layer.ARROWS}
"""Layers whose records show why a device waits and idles."""


@dataclass(frozen=True)
class Questions:
    """Requests for facts of ranks beyond those always collected; each takes time or memory.

    causes: why devices wait and idle, launchers of their work, critical path of each step, and what
    to mend first. calls: own time of host calls by name; requires causes. named_operators: number
    of operators of a rank listed by name, the others by type. operator_steps: time of operator
    types in each step; reported anyway if the profiler has it. every_run: each operator and its
    shapes in each step, without limit. every_task, every_call: single device tasks and host calls.
    most_allocations: maximum number of allocations listed one by one; 0 to report none.
    most_lengths: data for a comparison, with single durations of at most this many runs of
    operators; 0 for none. framework: rules for splitting framework operators, if their launches are
    requested; requires host calls, so causes. peak_flop_per_s: of a device, 0 if the user does not
    give it.
    """

    causes: bool = False
    calls: bool = False
    named_operators: int = 0
    operator_steps: bool = False
    every_run: bool = False
    every_task: bool = False
    every_call: bool = False
    most_allocations: int = 0
    most_lengths: int = 0
    framework: OperatorRules | None = None
    peak_flop_per_s: int = 0

    @property
    def compare(self) -> bool:
        """Return whether facts for a comparison are requested."""
        return self.most_lengths > 0

    @property
    def allocations(self) -> bool:
        """Return whether allocations are requested."""
        return self.most_allocations > 0

    @property
    def names(self) -> bool:
        """Return whether the answers name operators."""
        return self.named_operators > 0 or self.every_run or self.every_task

    @property
    def with_shapes(self) -> bool:
        """Return whether operators of the framework are split by the shapes of their inputs."""
        return self.framework is not None and self.framework.with_shapes

    @property
    def layers(self) -> frozenset[Layer]:
        """Return the layers whose records are needed for the answers, drawn or not."""
        layers = CAUSE_LAYERS if self.causes else frozenset[Layer]()
        return layers | {Layer.COUNTERS} if self.allocations else layers
