"""Turns kernels and collectives into computing, communication and free time by a plain sweep.

This is deliberately not the way tlexport does it, so that tests can compare the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from profile_model import Iteration, Run

COMPUTING = "Computing"
COMMUNICATION = "Communication"
NOT_OVERLAPPED = "Communication(Not Overlapped)"
FREE = "Free"
CATEGORIES = (COMPUTING, COMMUNICATION, NOT_OVERLAPPED, FREE)
"""In the order in which profilers number their threads."""


@dataclass(frozen=True)
class Segment:
    """One uninterrupted piece of one category."""

    category: str
    start_ns: int
    end_ns: int

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


def sweep(iterations: Iterable[Iteration]) -> list[Segment]:
    """Walk all starts and ends in order of time, counting what is open between two of them."""
    changes: list[tuple[int, int, int]] = []
    for iteration in iterations:
        for task, _ in iteration.kernels:
            changes += [(task.start_ns, 1, 0), (task.end_ns, -1, 0)]
        for collective in iteration.collectives:
            changes += [(collective.start_ns, 0, 1), (collective.end_ns, 0, -1)]
    changes.sort()
    open_since: dict[str, int] = {}
    segments: list[Segment] = []
    computing = communicating = 0
    for index, (time_ns, computing_change, communicating_change) in enumerate(changes):
        computing += computing_change
        communicating += communicating_change
        if index + 1 < len(changes) and changes[index + 1][0] == time_ns:
            continue
        active = {
            COMPUTING: computing > 0,
            COMMUNICATION: communicating > 0,
            NOT_OVERLAPPED: communicating > 0 and computing == 0,
            FREE: communicating == 0 and computing == 0 and index + 1 < len(changes),
        }
        for category, is_active in active.items():
            if is_active and category not in open_since:
                open_since[category] = time_ns
            elif not is_active and category in open_since:
                segments.append(Segment(category, open_since.pop(category), time_ns))
    return sorted(segments, key=lambda one: (one.start_ns, CATEGORIES.index(one.category)))


def overlap_segments(
    run: Run, rank: int, step: int | None = None, graph: int | None = None
) -> list[Segment]:
    """The segments of one rank, or of the records of one of its steps or graphs alone."""
    return sweep(
        iteration
        for one in run.rank(rank).steps
        if step is None or one.id == step
        for iteration in one.iterations
        if graph is None or iteration.graph == graph
    )


def totals(segments: Iterable[Segment]) -> dict[str, int]:
    """Sum segments by category, in ns."""
    sums = dict.fromkeys(CATEGORIES, 0)
    for segment in segments:
        sums[segment.category] += segment.duration_ns
    return sums


def expected_overlap(
    run: Run, rank: int, step: int | None = None, graph: int | None = None
) -> dict[str, int]:
    """What a correct summary of this rank says, optionally of one step or one graph only."""
    sums = totals(overlap_segments(run, rank, step, graph))
    return {
        "computing_ns": sums[COMPUTING],
        "communication_ns": sums[COMMUNICATION],
        "not_overlapped_ns": sums[NOT_OVERLAPPED],
        "free_ns": sums[FREE],
    }
