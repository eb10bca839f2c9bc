"""Times of steps as MindSpore sums them up, where a rank has steps and no device tasks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from timeline.analysis.idle.idle_sums import CAUSES, IdleCause, IdleTimes
from timeline.analysis.overlap import OverlapTotals
from timeline.analysis.path.path_items import RankPath
from timeline.analysis.rank_facts import RankFacts
from timeline.columns.columns import Int64
from timeline.columns.intervals import union
from timeline.records.profiler_tables.cluster import ParallelTimes

__all__ = ["with_filed_times"]

LONGEST = 1.02
"""What a step computes and communicates alone takes no more of its length, but for rounding."""


def with_filed_times(facts: RankFacts) -> RankFacts:
    """The facts of a rank without device tasks, with what a file tells of each selected step.

    Computing and communication that nothing overlaps are those of the file, and the rest of a step,
    as long as it is marked, is free. Nothing tells what followed what, so there is no path; of what
    the rank idles for nothing is known but waiting for data. The facts stay as they are where the
    file lacks a step, or tells of more than a step is long.
    """
    filed = facts.profiler_tables.of(ParallelTimes)
    filed = filed.take(~filed.mean)
    steps = facts.steps
    if facts.tasks or not len(steps) or len(np.unique(filed.step)) < len(filed):
        return facts
    order = np.argsort(filed.step, kind="stable")
    row = np.searchsorted(filed.step, steps.iteration, sorter=order)
    if not len(filed) or (row == len(filed)).any():
        return facts
    own = filed.take(order[row])
    length_ns = steps.end_ns - steps.start_ns
    computing_ns, alone_ns = own.computing_ns, own.communication_alone_ns
    told = (own.step == steps.iteration) & (computing_ns >= 0) & (alone_ns >= 0)
    if not told.all() or (computing_ns + alone_ns > LONGEST * length_ns).any():
        return facts
    free_ns = np.maximum(length_ns - computing_ns - alone_ns, 0)
    totals = OverlapTotals.of(
        len(steps),
        {
            "known": np.ones(len(steps), np.bool_),
            "computing_ns": computing_ns,
            "communication_ns": np.maximum(facts.step_totals.communication_ns, alone_ns),
            "not_overlapped_ns": alone_ns,
            "free_ns": free_ns,
            "copies_ns": np.zeros(len(steps), np.int64),
            "idle_ns": free_ns,
            "span_ns": computing_ns + alone_ns + free_ns,
        },
    )
    names = ("computing_ns", "communication_ns", "not_overlapped_ns", "free_ns")
    between_ns = _between_ns(steps.start_ns, steps.end_ns)
    sums = {name: int(getattr(totals, name).sum()) for name in names}
    sums["free_ns"] += between_ns
    return replace(
        facts,
        step_totals=totals,
        device_start_ns=steps.start_ns,
        device_end_ns=steps.end_ns,
        overlap_ns=sums,
        free_parts=replace(facts.free_parts, idle_ns=sums["free_ns"]),
        idle=None if facts.idle is None else _of_data(facts.idle),
        path=RankPath(),
    )


def _between_ns(start_ns: Int64, end_ns: Int64) -> int:
    """How long no step runs between the first and the last."""
    covered = union(start_ns, end_ns)
    return int(covered.end_ns[-1] - covered.start_ns[0]) - covered.total_ns


def _of_data(idle: IdleTimes) -> IdleTimes:
    """Idle time for which the device waits for data: that a step trace tells."""
    wanted = CAUSES.index(IdleCause.WAITING_FOR_DATA)
    return replace(
        idle,
        causes=idle.causes.take(idle.causes.cause == wanted),
        calls=idle.calls.take(idle.calls.cause == wanted),
    )
