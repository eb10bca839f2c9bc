"""Exposed communication, split into waiting for the last rank and transfer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.waits.waiting import Waits
from timeline.columns.columns import Bool, ColumnTable, Int64, column
from timeline.columns.intervals import (
    IntervalSet,
    covered_between,
    covered_until,
    intersect,
    reached_at,
    subtract,
    union,
)
from timeline.records.not_given import NO_TIME


class ExposedParts(ColumnTable):
    """Exposed communication, one row per rank or one per rank and step.

    exposed_ns: time in which a communication op ran while nothing computed. waiting_ns: the part of
    it due to waiting for the last rank. transfer_ns: the rest, if the last arrival is known. The
    remainder of exposed_ns is unclassified.
    """

    exposed_ns: Int64 = column(np.int64)
    waiting_ns: Int64 = column(np.int64)
    transfer_ns: Int64 = column(np.int64)


def split_exposed(ranks: Sequence[RankFacts], waits: Waits) -> tuple[ExposedParts, ExposedParts]:
    """Split the exposed communication of all ranks, which are on one clock.

    Time in which one op waits and another transfers counts as waiting. An op that waits while the
    device computes transfers that much later: this much of its exposed transfer would have been
    hidden, and is due to waiting.

    Returns:
        ranks, steps: a row for each rank, and one for the period of each step of each rank.
    """
    sums, steps = [ExposedParts.empty()], [ExposedParts.empty()]
    for rank, own in zip(ranks, waits.by_rank(len(ranks)), strict=True):
        parts = _exposed_parts(rank, own)
        sums.append(ExposedParts(*np.array([[part.total_ns] for part in parts], np.int64)))
        periods = rank.recorded.begin_ns, rank.recorded.end_ns
        steps.append(ExposedParts(*(covered_between(part, *periods) for part in parts)))
    return ExposedParts.concat(sums), ExposedParts.concat(steps)


def delayed_until(
    exposed: IntervalSet, start_ns: Int64, end_ns: Int64, waits: Waits
) -> tuple[Int64, Int64]:
    """Return the interval of each op's transfer that is due to a hidden wait.

    An op that waited while the device computed transfers later. The interval is the first part of
    its exposed transfer, as long as its hidden wait; empty if it did not wait or nothing is
    exposed.

    Args:
        exposed: intervals of exposed communication.
        start_ns, end_ns: of the op of each wait.
    """
    came_ns = start_ns + waits.waited_ns
    known = waits.transfer_ns != NO_TIME
    hidden_ns = waits.waited_ns - covered_between(exposed, start_ns, came_ns)
    transfer_ns = np.where(known, covered_between(exposed, came_ns, end_ns), 0)
    delayed_ns = np.minimum(hidden_ns, transfer_ns)
    until_ns = came_ns.copy()
    late = delayed_ns > 0
    before_ns = covered_until(exposed, came_ns[late])
    until_ns[late] = reached_at(exposed, before_ns + delayed_ns[late])
    return came_ns, until_ns


def _exposed_parts(rank: RankFacts, waits: Waits) -> tuple[IntervalSet, IntervalSet, IntervalSet]:
    """Return the exposed intervals of selected ops, with those of waiting and transfer."""
    ops = rank.collectives.ops
    chosen = ops.selected
    waits = waits.take(chosen[waits.row])
    start_ns, end_ns = ops.start_ns[waits.row], ops.end_ns[waits.row]
    came_ns, delayed_ns = delayed_until(rank.exposed, start_ns, end_ns, waits)
    known = waits.transfer_ns != NO_TIME
    exposed = intersect(union(ops.start_ns[chosen], ops.end_ns[chosen]), rank.exposed)
    waiting = intersect(union(start_ns, delayed_ns), exposed)
    transfer = intersect(union(came_ns[known], end_ns[known]), exposed)
    return exposed, waiting, subtract(transfer, waiting)


class Lateness(ColumnTable):
    """Lateness of a rank, one row per step in which it is known, in order of time.

    start_ns: start of the step. late_ns: see `late_by_step`.
    """

    start_ns: Int64 = column(np.int64)
    late_ns: Int64 = column(np.int64)

    @classmethod
    def of_rank(cls, rank: RankFacts, late_ns: Int64) -> Lateness:
        """Return the lateness of one rank; late_ns: (steps,) from `late_by_step`."""
        known = np.flatnonzero(late_ns != NO_TIME)
        begin_ns = rank.recorded.begin_ns
        known = known[np.argsort(begin_ns[known], kind="stable")]
        return cls(begin_ns[known], late_ns[known])


def late_by_step(ranks: Sequence[RankFacts], waits: Waits) -> list[Int64]:
    """Return how much later than its peers each rank comes to the collectives of each step.

    That is the median wait of all ranks in the step, less the wait of the rank itself: negative if
    it comes earlier. NO_TIME if fewer than two ranks have comparable collectives.

    Returns:
        For each rank (steps,) ns.
    """
    waited = list[tuple[Int64, Bool]]()
    by_step: dict[tuple[int, int], list[int]] = {}
    for rank, own in zip(ranks, waits.by_rank(len(ranks)), strict=True):
        waited_ns, known = _waited_by_step(rank, own)
        waited.append((waited_ns, known))
        for key, time_ns in zip(_step_keys(rank, known), waited_ns[known].tolist(), strict=True):
            by_step.setdefault(key, []).append(time_ns)
    peers_ns = {key: int(np.median(times)) for key, times in by_step.items() if len(times) > 1}
    late = list[Int64]()
    for rank, (waited_ns, known) in zip(ranks, waited, strict=True):
        late_ns = np.full(len(rank.steps), NO_TIME, np.int64)
        late_ns[known] = [
            peers_ns[key] - own_ns if key in peers_ns else NO_TIME
            for key, own_ns in zip(_step_keys(rank, known), waited_ns[known].tolist(), strict=True)
        ]
        late.append(late_ns)
    return late


def _step_keys(rank: RankFacts, chosen: Bool) -> list[tuple[int, int]]:
    """Return graph and number of the chosen steps, which are the same on all ranks."""
    steps = rank.steps
    return list(zip(steps.graph[chosen].tolist(), steps.iteration[chosen].tolist(), strict=True))


def _waited_by_step(rank: RankFacts, waits: Waits) -> tuple[Int64, Bool]:
    """Return the waits of a rank in the collectives of each step, and a mask of steps with any."""
    waited_ns, count = np.zeros((2, len(rank.steps)), np.int64)
    chosen = waits.take(rank.collectives.ops.selected[waits.row])
    if not len(waited_ns) or not len(chosen):
        return waited_ns, count > 0
    begin_ns, end_ns = rank.recorded.begin_ns, rank.recorded.end_ns
    order = np.argsort(begin_ns, kind="stable")
    start_ns = rank.collectives.ops.start_ns[chosen.row]
    step = order[np.maximum(np.searchsorted(begin_ns[order], start_ns, side="right") - 1, 0)]
    inside = (start_ns >= begin_ns[step]) & (start_ns < end_ns[step])
    np.add.at(waited_ns, step[inside], chosen.waited_ns[inside])
    np.add.at(count, step[inside], 1)
    return waited_ns, count > 0
