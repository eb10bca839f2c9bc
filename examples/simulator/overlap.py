"""Computing, communication and free time, found by a plain sweep over kernels and collectives.

This is deliberately not the way tlexport does it, so that tests can compare the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from simulator.model import Iteration, Run

COMPUTING = "Computing"
COMMUNICATION = "Communication"
NOT_OVERLAPPED = "Communication(Not Overlapped)"
FREE = "Free"
CATEGORIES = (COMPUTING, COMMUNICATION, NOT_OVERLAPPED, FREE)
"""In the order in which profilers number their threads."""
COPIES = "Copies"
IDLE = "Idle"
COPY_KIND = "MEMCPY_ASYNC"


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


def free_segments(
    run: Run, rank: int, step: int | None = None, graph: int | None = None, *, copies: bool = True
) -> list[Segment]:
    """What the free segments consist of: copies, and idle time.

    copies: whether what records the rank tells copies; else all is idle.
    """
    iterations = [
        iteration
        for one in run.rank(rank).steps
        if step is None or one.id == step
        for iteration in one.iterations
        if graph is None or iteration.graph == graph
    ]
    tasks = [
        task
        for iteration in iterations
        for task in iteration.local_tasks
        if copies and task.kind == COPY_KIND
    ]
    found: list[Segment] = []
    for free in sweep(iterations):
        if free.category != FREE:
            continue
        inside = {free.start_ns, free.end_ns}
        inside |= {time_ns for task in tasks for time_ns in (task.start_ns, task.end_ns)}
        edges = sorted(time_ns for time_ns in inside if free.start_ns <= time_ns <= free.end_ns)
        for start_ns, end_ns in pairwise(edges):
            copied = any(task.start_ns < end_ns and start_ns < task.end_ns for task in tasks)
            category = COPIES if copied else IDLE
            last = found[-1] if found else None
            if last and last.category == category and last.end_ns == start_ns:
                found[-1] = Segment(category, last.start_ns, end_ns)
            else:
                found.append(Segment(category, start_ns, end_ns))
    return found


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
