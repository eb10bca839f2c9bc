"""Times of steps as MindSpore sums them up, where a rank has steps and no device tasks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from timeline.analysis.idle.idle_sums import CAUSES, CauseTimes, IdleCause, IdleTimes
from timeline.analysis.overlap import OverlapTotals
from timeline.analysis.path.path_items import RankPath
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.step_membership import NO_STEP
from timeline.analysis.step_trace import StepTrace
from timeline.columns.columns import Int64
from timeline.columns.intervals import union
from timeline.records.profiler_tables.cluster import ParallelTimes

__all__ = ["with_filed_times"]

_TOLD = (IdleCause.WAITING_FOR_DATA, IdleCause.NOT_RECORDED)
"""Causes of idle time that a step trace tells."""
LONGEST = 1.02
"""What a step computes and communicates alone takes no more of its length, but for rounding."""


def with_filed_times(facts: RankFacts) -> RankFacts:
    """The facts of a rank without device tasks, with what a file tells of each selected step.

    Computing and exposed communication are those of the file, and the rest of a step,
    as long as it is marked, is free. Nothing tells what followed what, so there is no path; of why
    the rank idles nothing is known but the interval of each step, in which it waits for data. The
    facts stay as they are where the file lacks a step, or tells of more than a step is long.
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
        tells_free=True,
        idle=None if facts.idle is None else _idle_times(facts.step_trace, free_ns, between_ns),
        path=RankPath(),
    )


def _between_ns(start_ns: Int64, end_ns: Int64) -> int:
    """How long no step runs between the first and the last."""
    covered = union(start_ns, end_ns)
    return int(covered.end_ns[-1] - covered.start_ns[0]) - covered.total_ns


def _idle_times(trace: StepTrace, free_ns: Int64, between_ns: int) -> IdleTimes:
    """Idle time by cause: the interval of each step as far as that is free, and what is left.

    free_ns: of each step. between_ns: what is free between steps.
    """
    waiting_ns = np.minimum(np.maximum(trace.interval_ns, 0), free_ns)
    of_steps = np.stack([waiting_ns, free_ns - waiting_ns], axis=1)
    whole = of_steps.sum(axis=0) + np.array([0, between_ns])
    gaps = (of_steps > 0).sum(axis=0) + np.array([0, between_ns > 0])
    total_ns = np.concatenate([whole, of_steps.reshape(-1)])
    step = np.repeat(np.arange(-1, len(free_ns)), len(_TOLD))
    step[: len(_TOLD)] = NO_STEP
    rows = CauseTimes(
        step,
        np.tile([CAUSES.index(cause) for cause in _TOLD], len(free_ns) + 1),
        np.concatenate([gaps, np.ones(of_steps.size, np.int64)]),
        total_ns,
    )
    return IdleTimes(rows.take(total_ns > 0))
