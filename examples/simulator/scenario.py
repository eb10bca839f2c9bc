"""What is wrong with a simulated cluster, and with which of its ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

USUAL_MHZ = 1_800


@dataclass(frozen=True)
class Scenario:
    """Faults by rank; without any, ranks differ only by noise.

    slow_computing: how many times as long the kernels of forward and backward pass take.
    late_host_ns: what every operator's code takes longer on the host before it launches.
    megahertz: frequency of the AI cores; kernels that run on them take longer by the ratio.
    starved_ns: what the data loader takes longer before every step.
    slow_links: how many times as long transfers over any link of the rank take.
    faulty_step: position of the only step with faults, None for all.
    reads_loss: whether the host waits at the end of each step for its device, as reading the loss
        does; else it runs ahead.
    """

    slow_computing: Mapping[int, float] = field(default_factory=dict)
    late_host_ns: Mapping[int, int] = field(default_factory=dict)
    megahertz: Mapping[int, int] = field(default_factory=dict)
    starved_ns: Mapping[int, int] = field(default_factory=dict)
    slow_links: Mapping[int, float] = field(default_factory=dict)
    faulty_step: int | None = None
    reads_loss: bool = True

    def without_faults(self) -> Scenario:
        """The same cluster in good order: simulated with the same seed, it differs by them only."""
        return Scenario(reads_loss=self.reads_loss)

    def during(self, step: int) -> Scenario:
        """What is wrong in one step, by its position."""
        if self.faulty_step in (None, step):
            return self
        # A frequency is what the counter shows all the time, so it is of no step.
        return replace(self.without_faults(), megahertz=self.megahertz)

    @property
    def causes(self) -> tuple[tuple[int, str], ...]:
        """Ranks with a fault, each with the name that verdicts give it."""
        faults = (
            (self.slow_computing, "computing"),
            (self.late_host_ns, "host"),
            (self.megahertz, "frequency"),
            (self.starved_ns, "input"),
            (self.slow_links, "link"),
        )
        return tuple((rank, name) for by_rank, name in faults for rank in by_rank)


def slow_step(rank: int = 1, factor: float = 1.6, step: int = 1) -> Scenario:
    """One rank computes slowly in one step, and hosts run ahead of their devices."""
    return Scenario(slow_computing={rank: factor}, faulty_step=step, reads_loss=False)
