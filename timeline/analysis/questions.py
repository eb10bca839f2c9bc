"""What is asked of ranks beyond what is always told of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from timeline.layers import HOST_LAYERS, Layer

if TYPE_CHECKING:
    from timeline.analysis.work.framework_sums import OperatorRules

EVERY_ROW = 1 << 62
"""More rows than any rank has, of whatever is told one by one."""
CAUSE_LAYERS = HOST_LAYERS | {Layer.COMMUNICATION, Layer.ARROWS}
"""Whose records tell why a device waits and idles."""


@dataclass(frozen=True)
class Questions:
    """What facts of ranks are to tell beyond what they always do; each answer takes time or memory.

    causes: why devices wait and idle, whose work they do, what determined each step, and what to
    mend first. named_operators: how many operators of a rank are told apart by
    name, the others by type. operator_steps: how long types of operators ran in each step; where
    the profiler tells it, it is told anyway. every_run: each operator and its shapes in each step,
    however many. every_task, every_call: the device tasks and the host calls themselves.
    most_allocations: how many allocations of memory are told one by one; 0 to tell nothing of them.
    most_lengths: what only a comparison shows, with each single length of up to so many operators;
    0 to tell nothing of that. framework: how operators of the framework are told apart, where it is
    asked what they launched; that is of host calls, so of causes.
    """

    causes: bool = False
    named_operators: int = 0
    operator_steps: bool = False
    every_run: bool = False
    every_task: bool = False
    every_call: bool = False
    most_allocations: int = 0
    most_lengths: int = 0
    framework: OperatorRules | None = None

    @property
    def compare(self) -> bool:
        """Whether a comparison asks."""
        return self.most_lengths > 0

    @property
    def allocations(self) -> bool:
        """Whether anything of allocations is asked."""
        return self.most_allocations > 0

    @property
    def names(self) -> bool:
        """Whether the answers name operators."""
        return self.named_operators > 0 or self.every_run or self.every_task

    @property
    def layers(self) -> frozenset[Layer]:
        """The layers whose records the answers are found in, drawn or not."""
        layers = CAUSE_LAYERS if self.causes else frozenset[Layer]()
        return layers | {Layer.COUNTERS} if self.allocations else layers
