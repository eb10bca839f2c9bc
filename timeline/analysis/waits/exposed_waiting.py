"""What exposed communication consists of: waiting for the last rank, and transfer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from timeline.analysis.ordinary_steps import ordinary_ops
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.waits.waiting import Waits
from timeline.columns.columns import Bool, ColumnTable, Int64, column
from timeline.columns.intervals import IntervalSet, covered_until, reached_at, subtract, union
from timeline.records.not_given import NO_TIME

__all__ = ["ExposedParts", "delayed_until", "split_exposed", "split_exposed_steps"]


class ExposedParts(ColumnTable):
    """One row per rank, of the communication ops of its ordinary steps; or one per rank and step.

    exposed_ns: how long any of them ran while nothing computed. waiting_ns: the part of that which
    is due to waiting for the last rank; transfer_ns: the rest, where it is known when that came.
    What is left of exposed_ns is not known to be either.
    """

    exposed_ns: Int64 = column(np.int64)
    waiting_ns: Int64 = column(np.int64)
    transfer_ns: Int64 = column(np.int64)


def split_exposed(
    ranks: Sequence[RankFacts], waits: Waits, ordinary: Sequence[Bool]
) -> ExposedParts:
    """Split the exposed communication of all ranks, which are on one clock.

    A moment in which one op waits and another transfers counts as waiting. Where an op waits while
    the device computes, it transfers so much later: as much of its transfer as is exposed would
    have been hidden, and is due to waiting.

    Args:
        ordinary: what `ordinary_steps` told of the ranks.
    """
    chosen = ordinary_ops(ranks, ordinary)
    of_ranks = zip(ranks, waits.by_rank(len(ranks)), chosen, strict=True)
    sums_ns = [
        [part.total_ns for part in _exposed_parts(rank, its, ops)] for rank, its, ops in of_ranks
    ]
    return ExposedParts(*np.array(sums_ns, np.int64).reshape(-1, 3).T)


def split_exposed_steps(ranks: Sequence[RankFacts], waits: Waits) -> ExposedParts:
    """Split the exposed communication of each step, a row per rank and selected step.

    That of steps whose device work overlaps the work of other steps is not told: 0 is all of it.
    """
    of_ranks = zip(ranks, waits.by_rank(len(ranks)), strict=True)
    parts = [_split_steps(rank, its) for rank, its in of_ranks]
    return ExposedParts.concat(parts)


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
    hidden_ns = waits.waited_ns - _covered_ns(exposed, start_ns, came_ns)
    transfer_ns = np.where(known, _covered_ns(exposed, came_ns, end_ns), 0)
    delayed_ns = np.minimum(hidden_ns, transfer_ns)
    until_ns = came_ns.copy()
    late = delayed_ns > 0
    before_ns = covered_until(exposed, came_ns[late])
    until_ns[late] = reached_at(exposed, before_ns + delayed_ns[late])
    return came_ns, until_ns


def _split_steps(rank: RankFacts, waits: Waits) -> ExposedParts:
    parts = _exposed_parts(rank, waits, rank.collectives.ops.selected)
    return ExposedParts(*(_covered_ns(part, *_windows(rank)) for part in parts))


def _windows(rank: RankFacts) -> tuple[Int64, Int64]:
    """When the device worked in each step; empty where another step's work is in between."""
    known = rank.step_totals.known & (rank.device_start_ns != NO_TIME)
    start_ns = np.where(known, rank.device_start_ns, 0)
    end_ns = np.where(known, rank.device_end_ns, 0)
    order = np.argsort(start_ns, kind="stable")
    reach_ns = np.maximum.accumulate(end_ns[order])
    late = order[1:][start_ns[order[1:]] < reach_ns[:-1]]
    early = order[:-1][end_ns[order[:-1]] > start_ns[order[1:]]]
    for rows in (late, early):
        end_ns[rows] = start_ns[rows]
    return start_ns, end_ns


def _exposed_parts(
    rank: RankFacts, waits: Waits, chosen: Bool
) -> tuple[IntervalSet, IntervalSet, IntervalSet]:
    """When the chosen ops of a rank were exposed; of that, when they waited, and transferred."""
    ops = rank.collectives.ops
    waits = waits.take(chosen[waits.row])
    start_ns, end_ns = ops.start_ns[waits.row], ops.end_ns[waits.row]
    came_ns, delayed_ns = delayed_until(rank.exposed, start_ns, end_ns, waits)
    known = waits.transfer_ns != NO_TIME
    exposed = _common(union(ops.start_ns[chosen], ops.end_ns[chosen]), rank.exposed)
    waiting = _common(union(start_ns, delayed_ns), exposed)
    transfer = _common(union(came_ns[known], end_ns[known]), exposed)
    return exposed, waiting, subtract(transfer, waiting)


def _covered_ns(intervals: IntervalSet, start_ns: Int64, end_ns: Int64) -> Int64:
    """How much of each of some times the intervals cover."""
    covered: Int64 = covered_until(intervals, end_ns) - covered_until(intervals, start_ns)
    return covered


def _common(some: IntervalSet, others: IntervalSet) -> IntervalSet:
    """The part of some intervals that others cover."""
    return subtract(some, subtract(some, others))
