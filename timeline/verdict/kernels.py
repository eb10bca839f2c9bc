"""Sentences on kernels: what bounds those of a few operators, or the compute of a step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.work.kernel_bounds import LATENCY, LEAST_BOUND, Bounds
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.tables.short_names import shortened
from timeline.units import (
    format_count,
    format_flop,
    format_like,
    format_number,
    format_share,
    format_short,
)
from timeline.verdict.figures import Figures

MOST_KERNELS = 3
"""Operators with a sentence each."""
MOST_OF_COMPUTE = 0.9
"""Share of compute that these operators take at least in a capture of few operators."""
LEAST_OF_COMPUTE = 0.05
"""Share of compute below which an operator has no sentence."""
LEAST_WARM = 5
"""Number of launches from which the first one is compared with the others."""
COLD = 1.2
"""A first run is cold if it takes this many times the median of the others."""
OUTSIDE = 0.2
"""Share of the time outside the cores from which it is reported."""
FULLY, MOSTLY = 0.8, 0.6
MEASURED = 0.5
"""Share of compute that must be measured for a sentence on all of it."""
COMPLETE = 0.9
"""Share of the time of matrix products with known work from which that is all of it."""
LEAST_SHARE = 0.1
"""Share of compute from which a pipe is named as what bounds it."""
MOST_CHARACTERS = 60

_PIPES = {
    "cube": "the cube unit",
    "vector": "the vector unit",
    "scalar": "the scalar unit",
    "mte1": "copies from L1 to L0",
    "mte2": "loads from global memory",
    "mte3": "stores to global memory",
    "fixpipe": "writing out cube results",
    LATENCY: "latency",
}
_LABELS = {"mte1": "MTE1", "mte2": "MTE2", "mte3": "MTE3", "fixpipe": "FixPipe"}
"""Names of pipes in vendor documentation, where they differ from those in tables."""


def kernel_sentences(figures: Figures) -> Iterator[str]:
    """Yield a sentence on each kernel, if the capture is of few operators.

    It then has no steps and no collectives. The rank that computes longest stands for all.
    """
    ranks = [one for one in figures.facts if len(one.operators.runs)]
    if not ranks or len(figures.steps):
        return
    rank = max(ranks, key=lambda one: int(one.operators.times.total_ns.sum()))
    times = rank.operators.times
    order = np.argsort(-times.total_ns, kind="stable")
    all_ns = int(times.total_ns.sum())
    if int(times.total_ns[order[:MOST_KERNELS]].sum()) < MOST_OF_COMPUTE * all_ns:
        return
    bounds = rank.operators.kernels.bounds(np.arange(len(times)), len(times))
    shown = [
        at
        for at in order[:MOST_KERNELS].tolist()
        if times.total_ns[at] >= LEAST_OF_COMPUTE * all_ns
    ]
    kernels = [_Kernel.of(rank, at, bounds) for at in shown]
    names = [one.name for one in kernels]
    for one in kernels:
        yield one.sentence(with_core=names.count(one.name) > 1)
    yield from _launch_bound(rank, shown[0])


@dataclass(frozen=True)
class _Kernel:
    """One operator of a capture of few.

    pipe: see `Bounds.bound`. cores: number in use and of the device (NO_ID if not known), None
    unless few are in use. core_ns: time in the cores of a mean run, None unless much of it is
    outside.
    """

    name: str
    core: str
    count: int
    first_ns: int
    median_ns: int
    pipe: str
    busy: float
    next_pipe: str
    next_busy: float
    cores: tuple[int, int] | None
    core_ns: int | None

    @classmethod
    def of(cls, rank: RankFacts, at: int, bounds: Bounds) -> _Kernel:
        """Return the operator in a row of OperatorTimes."""
        operators = rank.operators
        times, runs = operators.times, operators.runs
        (row,) = np.flatnonzero(runs.operator == at)
        core, device = operators.strings[times.core[at]], operators.kernels.cores
        most = device.vector if "AIV" in core or "VECTOR" in core else device.cube
        used, outside = float(bounds.cores[at]), float(bounds.outside_core[at])
        mean_ns = int(times.total_ns[at]) / int(times.count[at])
        (name,) = shortened([operators.strings[times.type[at]]], MOST_CHARACTERS)
        return cls(
            name,
            core,
            int(times.count[at]),
            int(runs.first_ns[row]),
            int(runs.median_ns[row]),
            str(bounds.bound[at]),
            float(bounds.bound_share[at]),
            str(bounds.next_pipe[at]),
            float(bounds.next_share[at]),
            (round(used), most) if used < (most / 2 if most != NO_ID else 1.5) else None,
            round((1 - outside) * mean_ns) if outside >= OUTSIDE else None,
        )

    def sentence(self, *, with_core: bool) -> str:
        """Return what bounds the kernel, how long it takes, and how it ran."""
        name = f"{self.name} on {self.core}" if with_core else self.name
        took = format_short(self.median_ns)
        head = f"{name} takes {took}"
        if self.pipe:
            head = f"{name} is {self._bound()}: {took}"
        return ", ".join([head, *self._runs(), *self._cores()]) + "."

    def _bound(self) -> str:
        if self.pipe == LATENCY:
            return f"limited by latency (no pipe is busy {LEAST_BOUND:.0%} of the time)"
        how = "bound" if self.busy >= FULLY else "mostly bound"
        how = how if self.busy >= MOSTLY else "limited"
        label = f"{_LABELS[self.pipe]} " if self.pipe in _LABELS else ""
        busy = f"{label}{format_share(self.busy, 1)} busy"
        if self.next_busy:
            other = _LABELS.get(self.next_pipe, self.next_pipe)
            busy += f"; {other} {format_share(self.next_busy, 1)}"
        return f"{how} by {_PIPES[self.pipe]} ({busy})"

    def _runs(self) -> Iterator[str]:
        if self.count == 1:
            yield "ran once, cold"
        elif self.count > LEAST_WARM and self.first_ns >= COLD * self.median_ns:
            yield f"{format_number(self.count - 1)} warm launches"
            yield f"first {format_like(self.first_ns, self.median_ns)}"
        else:
            yield f"{format_number(self.count)} launches"

    def _cores(self) -> Iterator[str]:
        if self.cores is not None:
            used, device = self.cores
            cores = format_count(used if device == NO_ID else device, "core")
            yield f"on {cores}" if device == NO_ID else f"on {used} of {cores}"
        if self.core_ns is not None:
            yield f"{format_like(self.core_ns, self.median_ns)} of it in the cores"


def _launch_bound(rank: RankFacts, at: int) -> Iterator[str]:
    """Yield that kernels take no longer than the gaps between them, if so."""
    runs = rank.operators.runs
    (row,) = np.flatnonzero(runs.operator == at)
    gap_ns, median_ns = int(runs.gap_ns[row]), int(runs.median_ns[row])
    if gap_ns == NO_TIME or gap_ns < median_ns or rank.operators.times.count[at] <= LEAST_WARM:
        return
    yield (
        f"Launch-bound: kernels of {format_short(median_ns)} start {format_short(gap_ns)} after "
        "the end of the one before (medians)."
    )


def compute_sentence(figures: Figures) -> str | None:
    """Return what bounds the compute of all ranks, None unless most of it was measured."""
    by_pipe, all_ns = dict[str, int](), 0
    for rank in figures.facts:
        times, kernels = rank.operators.times, rank.operators.kernels
        all_ns += int(times.total_ns[~times.communication].sum())
        if not kernels:
            continue
        bounds = kernels.bounds(np.arange(len(times)), len(times))
        for pipe, total_ns in zip(bounds.bound.tolist(), times.total_ns.tolist(), strict=True):
            if pipe:
                by_pipe[pipe] = by_pipe.get(pipe, 0) + total_ns
    if sum(by_pipe.values()) < MEASURED * all_ns or not all_ns:
        return None
    longest = sorted(by_pipe.items(), key=lambda one: -one[1])[:MOST_KERNELS]
    parts = [
        f"{_PIPES[pipe]} {format_share(total_ns, all_ns)}"
        for pipe, total_ns in longest
        if total_ns >= LEAST_SHARE * all_ns
    ]
    return f"Compute is bound by {', '.join(parts)} of its time." if parts else None


def work_sentence(figures: Figures) -> str | None:
    """Return how fast matrix products ran, None unless the work of half of their time is known."""
    flop = flop_ns = products_ns = 0
    at_peak_ns = 0.0
    for rank in figures.facts:
        shapes = rank.operators.shapes
        sums = shapes.sums
        flop += int(sums.flop.sum())
        flop_ns += int(sums.flop_ns.sum())
        products_ns += int(sums.products_ns.sum())
        at_peak_ns += shapes.at_peak_ns
    if not flop or flop_ns < MEASURED * products_ns:
        return None
    rate = f"Matrix products run at {format_flop(flop / flop_ns * 1e9)}/s"
    if at_peak_ns:
        rate += f", {format_share(at_peak_ns, flop_ns)} of the peak"
        periods_ns = int(np.ma.filled(figures.steps["period_ns"], 0).sum())
        if periods_ns and flop_ns >= COMPLETE * products_ns:
            return f"{rate}; over whole steps {format_share(at_peak_ns, periods_ns)}."
    if flop_ns < COMPLETE * products_ns:
        rate += f" (shapes tell the work of {format_share(flop_ns, products_ns)} of their time)"
    return f"{rate}."
