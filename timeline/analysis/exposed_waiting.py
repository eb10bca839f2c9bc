"""What exposed communication consists of: waiting for the last rank, and transfer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from timeline.analysis.ordinary_steps import ordinary_ops
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.waiting import Waits
from timeline.columns.columns import Bool, ColumnTable, Int64, column
from timeline.columns.intervals import IntervalSet, subtract, union
from timeline.records.tables import NO_TIME

__all__ = ["ExposedParts", "split_exposed"]

RUN_GAP_NS = 200_000
"""Ops follow each other without a gap if it is shorter: devices take up to 100 us between tasks."""


@dataclass(frozen=True)
class ExposedParts(ColumnTable):
    """One row per rank, of the communication ops of its ordinary steps.

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

    A moment in which one op waits and another transfers counts as waiting. What an op waits while
    the device computes puts off its own end and those of the ops behind it: of a run of ops that
    follow each other, as much of the transfer that is exposed later is due to waiting.

    Args:
        ordinary: what `ordinary_steps` told of the ranks.
    """
    bounds = np.searchsorted(waits.rank, np.arange(len(ranks) + 1)).tolist()
    chosen = ordinary_ops(ranks, ordinary)
    rows = [
        _split(rank, waits[bounds[at] : bounds[at + 1]], chosen[at])
        for at, rank in enumerate(ranks)
    ]
    return ExposedParts.of(
        len(rows),
        {
            name: [row[at] for row in rows]
            for at, name in enumerate(("exposed_ns", "waiting_ns", "transfer_ns"))
        },
    )


def _split(rank: RankFacts, waits: Waits, chosen: Bool) -> tuple[int, int, int]:
    ops, its = rank.collectives.ops.take(chosen), waits.take(chosen[waits.row])
    start_ns, end_ns = (
        values[its.row] for values in (rank.collectives.ops.start_ns, rank.collectives.ops.end_ns)
    )
    came_ns = start_ns + its.waited_ns
    known = its.transfer_ns != NO_TIME
    waiting = union(start_ns, came_ns)
    exposed = _common(union(ops.start_ns, ops.end_ns), rank.exposed)
    transfer = _common(subtract(union(came_ns[known], end_ns[known]), waiting), exposed)
    hidden = subtract(waiting, rank.exposed)
    put_off_ns = _put_off_ns(hidden, transfer, union(ops.start_ns, ops.end_ns + RUN_GAP_NS))
    return (
        exposed.total_ns,
        waiting.total_ns - hidden.total_ns + put_off_ns,
        transfer.total_ns - put_off_ns,
    )


def _put_off_ns(hidden: IntervalSet, transfer: IntervalSet, runs: IntervalSet) -> int:
    """How much of exposed transfer is due to hidden waiting before it in its run.

    Hidden waiting adds to what is put off, exposed transfer takes from it down to nothing, and a
    new run begins with nothing.
    """
    start_ns = np.concatenate([hidden.start_ns, transfer.start_ns])
    grows_ns = np.concatenate(
        [hidden.end_ns - hidden.start_ns, transfer.start_ns - transfer.end_ns]
    )
    if not len(start_ns):
        return 0
    order = np.argsort(start_ns, kind="stable")
    run = np.searchsorted(runs.start_ns, start_ns[order], side="right")
    left_ns = 0
    for its in np.split(grows_ns[order], np.flatnonzero(np.diff(run)) + 1):
        sums_ns = np.cumsum(its)
        left_ns += int(sums_ns[-1] - min(int(sums_ns.min()), 0))
    return int((hidden.end_ns - hidden.start_ns).sum()) - left_ns


def _common(some: IntervalSet, others: IntervalSet) -> IntervalSet:
    """The part of some intervals that others cover."""
    return subtract(some, subtract(some, others))
