"""What exposed communication consists of: waiting for the last rank, and transfer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.waits.waiting import Waits
from timeline.columns.columns import ColumnTable, Int64, column
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
    """One row per rank, or one per rank and step.

    exposed_ns: how long any communication op ran while nothing computed. waiting_ns: the part of
    that which is due to waiting for the last rank; transfer_ns: the rest, where it is known when
    that came. What is left of exposed_ns is not known to be either.
    """

    exposed_ns: Int64 = column(np.int64)
    waiting_ns: Int64 = column(np.int64)
    transfer_ns: Int64 = column(np.int64)


def split_exposed(ranks: Sequence[RankFacts], waits: Waits) -> tuple[ExposedParts, ExposedParts]:
    """Split the exposed communication of all ranks, which are on one clock.

    A moment in which one op waits and another transfers counts as waiting. Where an op waits while
    the device computes, it transfers so much later: as much of its transfer as is exposed would
    have been hidden, and is due to waiting.

    Returns:
        ranks, steps: a row for each rank, and one for each step of each rank, in its period.
    """
    sums, steps = [ExposedParts.empty()], [ExposedParts.empty()]
    for rank, its in zip(ranks, waits.by_rank(len(ranks)), strict=True):
        parts = _exposed_parts(rank, its)
        sums.append(ExposedParts(*np.array([[part.total_ns] for part in parts], np.int64)))
        periods = rank.recorded.begin_ns, rank.recorded.end_ns
        steps.append(ExposedParts(*(covered_between(part, *periods) for part in parts)))
    return ExposedParts.concat(sums), ExposedParts.concat(steps)


def delayed_until(
    exposed: IntervalSet, start_ns: Int64, end_ns: Int64, waits: Waits
) -> tuple[Int64, Int64]:
    """From when until when each op transfers only because it waited while the device computed.

    That is the first part of its exposed transfer, as long as it waited unexposed; empty where it
    did not, or where nothing is exposed.

    Args:
        exposed: when any communication was.
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
    """Return when the selected ops of a rank were exposed; of that, waited, and transferred."""
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
