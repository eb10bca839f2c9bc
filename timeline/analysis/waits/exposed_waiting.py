"""Exposed communication, split into waiting for the last rank and transfer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from timeline.analysis.ordinary_steps import number_steps
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.waits.waiting import Waits
from timeline.columns.columns import ColumnTable, Int64, column
from timeline.columns.distinct import rows_by_value
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


def late_by_step(ranks: Sequence[RankFacts], steps: ExposedParts) -> list[Int64]:
    """Return how much later than its peers each rank comes to the collectives of each step.

    That is the median exposed wait of all ranks in the step, less that of the rank itself: negative
    if it comes earlier. NO_TIME if the waits of fewer than two ranks are known.

    Args:
        steps: a row per rank and step, see `split_exposed`.

    Returns:
        For each rank (steps,) ns.
    """
    late_ns = np.full(len(steps), NO_TIME, np.int64)
    known = np.flatnonzero((steps.waiting_ns > 0) | (steps.transfer_ns > 0))
    if len(known):
        for _, rows in rows_by_value(number_steps(ranks)[known]):
            waits_ns = steps.waiting_ns[known[rows]]
            if len(rows) > 1:
                late_ns[known[rows]] = int(np.median(waits_ns)) - waits_ns
    return np.split(late_ns, np.cumsum([len(rank.steps) for rank in ranks])[:-1])
