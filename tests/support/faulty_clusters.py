"""Simulated clusters with a known fault, on disk, and what tlexport reports of them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

import timeline
from simulator.layouts import LAYOUTS
from simulator.model import Run
from simulator.parallelism import Parallelism
from simulator.scenario import Scenario
from simulator.simulation import make_run

STEPS = 5
"""So many that three of them are ordinary: the first is not."""


@dataclass(frozen=True)
class Cluster:
    """What makes a run, which is made when it is needed, with its faults or without."""

    ranks: int
    seed: int
    scenario: Scenario
    profiled: tuple[int, ...] | None = None
    parallelism: Parallelism | None = None
    ops_per_step: int = 12
    names_groups: bool = False

    def run(self) -> Run:
        return self._made(self.scenario)

    def healthy_run(self) -> Run:
        """The same cluster, made again without its faults."""
        return self._made(self.scenario.without_faults())

    def _made(self, scenario: Scenario) -> Run:
        return make_run(
            ranks=self.ranks,
            steps=STEPS,
            seed=self.seed,
            ops_per_step=self.ops_per_step,
            scenario=scenario,
            profiled=self.profiled,
            parallelism=self.parallelism,
            names_groups=self.names_groups,
        )


@contextmanager
def on_disk(run: Run, layout: str = "torch-db") -> Iterator[Path]:
    """The profile of a run, in a directory that is gone afterwards."""
    directory = Path(tempfile.mkdtemp())
    try:
        LAYOUTS[layout](run, directory / "profile")
        yield directory / "profile"
    finally:
        shutil.rmtree(directory)


def reported(run: Run, layout: str = "torch-db") -> dict[str, Any]:
    """What a summary of a run says as JSON; all its clocks are right."""
    with on_disk(run, layout) as path:
        report = timeline.export(
            path, path.parent / "timeline.pftrace", align=timeline.Align.RECORDED, jobs=1
        )
    return report.to_dict()


_Fault = Callable[[int], Scenario]


def _computing(factor: float) -> _Fault:
    return lambda rank: Scenario(slow_computing={rank: factor})


def _host(late_ns: int) -> _Fault:
    return lambda rank: Scenario(late_host_ns={rank: late_ns})


def _frequency(megahertz: int) -> _Fault:
    return lambda rank: Scenario(megahertz={rank: megahertz})


def _input(late_ns: int) -> _Fault:
    return lambda rank: Scenario(starved_ns={rank: late_ns})


def _link(factor: float) -> _Fault:
    return lambda rank: Scenario(slow_links={rank: factor})


_FAULTS: dict[str, st.SearchStrategy[_Fault]] = {
    "computing": st.floats(1.5, 2.5).map(_computing),
    "host": st.integers(200_000, 500_000).map(_host),
    "frequency": st.integers(800, 1_300).map(_frequency),
    "input": st.integers(1_000_000, 5_000_000).map(_input),
    "link": st.floats(2.0, 6.0).map(_link),
}
CAUSES = tuple(_FAULTS)


def faulty_clusters(
    cause: str, *, least_ranks: int = 2, most_ranks: int = 5, unprofiled: bool = False
) -> st.SearchStrategy[Cluster]:
    """Clusters in which one rank has a fault all the time.

    unprofiled: whether that rank, and maybe others, left no profile.
    """

    @st.composite
    def made(draw: st.DrawFn) -> Cluster:
        ranks = draw(st.integers(max(least_ranks, 3 if unprofiled else 2), most_ranks))
        faulty = draw(st.integers(0, ranks - 1))
        fault = draw(_FAULTS[cause])
        profiled: Collection[int] | None = None
        if unprofiled:
            others = [rank for rank in range(ranks) if rank != faulty]
            profiled = draw(st.sets(st.sampled_from(others), min_size=1))
        # One rank alone cannot tell whether its peers are all members, unless that is recorded.
        alone = profiled is not None and len(profiled) == 1
        return Cluster(
            ranks,
            draw(st.integers(0, 1 << 20)),
            fault(faulty),
            None if profiled is None else tuple(sorted(profiled)),
            names_groups=alone or draw(st.booleans()),
        )

    return made()
