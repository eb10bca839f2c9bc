"""Times of steps as summed by MindSpore, for a rank with steps but without device tasks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from timeline.analysis.idle.idle_sums import CAUSES, CauseTimes, IdleCause, IdleTimes
from timeline.analysis.overlap import OverlapTotals, StepWaits
from timeline.analysis.path.rank_path import RankPath
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.steps import NO_STEP, StepTrace
from timeline.columns.columns import Int64
from timeline.columns.intervals import union
from timeline.records.not_given import NO_ID
from timeline.records.profiler_tables import ParallelTimes, ProfilerTables
from timeline.records.tables import Steps

_TRACE_CAUSES = (IdleCause.WAITING_FOR_DATA, IdleCause.NOT_RECORDED)
"""Causes of idle time that a step trace distinguishes."""
_PARTS = ("computing_ns", "not_overlapped_ns", "free_ns", "copies_ns", "idle_ns")
LONGEST = 1.02
"""Maximum of computing plus exposed communication relative to the length of a step, for rounding.
"""


def filed_totals(
    tables: ProfilerTables, steps: Steps, measured: OverlapTotals
) -> OverlapTotals | None:
    """Return the times of steps from a file; None if it lacks a step or contradicts them.

    step_trace_time.csv has all parts of a step. MindSpore's cluster tables have computing and
    exposed communication; the rest of the marked length of a step is free. They do not belong to
    these steps if they exceed the length of a step.

    measured: totals from the records of the steps.
    """
    own = _rows_of(tables, steps)
    if own is None or not len(steps):
        return None
    return _totals(own, steps.end_ns - steps.start_ns, measured.communication_ns)


def _rows_of(tables: ProfilerTables, steps: Steps) -> ParallelTimes | None:
    """Return the row of each step; for a capture without steps the only one, without a number."""
    filed = tables.of(ParallelTimes)
    filed = filed.take(~filed.mean)
    wanted = steps.iteration if len(steps) else np.array([NO_ID])
    order = np.argsort(filed.step, kind="stable")
    numbers = filed.step[order]
    row = np.searchsorted(numbers, wanted)
    if not len(filed) or (np.diff(numbers) == 0).any() or not np.isin(wanted, numbers).all():
        return None
    return filed.take(order[row])


def _totals(own: ParallelTimes, length_ns: Int64, communication_ns: Int64) -> OverlapTotals | None:
    """Return the parts of steps, given their lengths and the communication in their records."""
    computing_ns, alone_ns = own.computing_ns, own.communication_alone_ns
    given, rest_ns = own.free_ns >= 0, length_ns - computing_ns - alone_ns
    bad = (computing_ns < 0) | (alone_ns < 0) | (~given & (rest_ns < (1 - LONGEST) * length_ns))
    if bad.any():
        return None
    free_ns = np.where(given, own.free_ns, np.maximum(rest_ns, 0))
    known_ns = np.maximum(communication_ns, alone_ns)
    return OverlapTotals.of(
        len(own),
        {
            "known": np.ones(len(own), np.bool_),
            "computing_ns": computing_ns,
            "communication_ns": np.where(given, own.communication_ns, known_ns),
            "not_overlapped_ns": alone_ns,
            "free_ns": free_ns,
            "copies_ns": np.zeros(len(own), np.int64),
            "idle_ns": free_ns,
            "span_ns": computing_ns + alone_ns + free_ns,
            "period_ns": computing_ns + alone_ns + free_ns,
        },
    )


def with_filed_times(facts: RankFacts, *, windowed: bool) -> RankFacts:
    """Return the facts of a rank without device tasks, with times of its steps from a file.

    The order of work is not known, so there is no path. Of idle causes only the interval of each
    step in a step trace is known, in which it waits for data. If no file has computing times, free
    time is not known either, and a step is as long as it is marked.

    windowed: whether a window cuts through the steps, for which files have no times.
    """
    steps = facts.steps
    own = None if windowed else _rows_of(facts.profiler_tables, steps)
    if facts.tasks or not (facts.profile.tables_only or own is not None):
        return facts
    length_ns, measured = steps.end_ns - steps.start_ns, facts.step_totals
    nothing = np.zeros(1, np.int64)  # for a capture without steps
    known_ns = (length_ns, measured.communication_ns) if len(steps) else (nothing, nothing)
    totals = None if own is None else _totals(own, *known_ns)
    if totals is None and facts.not_recorded:
        return _not_recorded(facts, *_PARTS)
    facts = replace(facts, device_start_ns=steps.start_ns, device_end_ns=steps.end_ns)
    if own is None or totals is None:
        facts = replace(facts, step_totals=replace(measured, span_ns=length_ns))
        return _not_recorded(facts, *_PARTS)
    sums = {name: int(getattr(totals, name).sum()) for name in ("communication_ns", *_PARTS[:3])}
    facts = replace(facts, overlap_ns=sums, path=RankPath())
    if len(steps):
        facts = replace(facts, step_totals=replace(totals, period_ns=measured.period_ns))
    if (own.free_ns >= 0).all():
        preparing_ns = own.preparing_ns
        receive_ns, before_ns = np.maximum(own.receive_alone_ns, 0), np.maximum(preparing_ns, 0)
        waits = StepWaits(receive_ns, preparing_ns, before_ns)
        if facts.profile.untimed_steps:
            totals = replace(totals, period_ns=totals.span_ns + before_ns)
        facts = replace(facts, step_totals=totals, step_waits=waits) if len(steps) else facts
        return _not_recorded(facts, *_PARTS[3:])
    covered = union(steps.start_ns, steps.end_ns)
    between_ns = int(covered.end_ns[-1] - covered.start_ns[0]) - covered.total_ns
    sums["free_ns"] += between_ns
    return replace(
        facts,
        free_parts=replace(facts.free_parts, idle_ns=sums["free_ns"]),
        not_recorded=frozenset(),
        idle=None
        if facts.idle is None
        else _idle_times(facts.step_trace, totals.free_ns, between_ns),
    )


def _not_recorded(facts: RankFacts, *parts: str) -> RankFacts:
    """Return the facts without some parts of device time, keeping only idle time for data."""
    idle = facts.idle
    if idle is not None:
        for_data = CAUSES.index(IdleCause.WAITING_FOR_DATA)
        idle = IdleTimes(idle.causes.take(idle.causes.cause == for_data))
    return replace(facts, not_recorded=frozenset(parts), idle=idle, path=RankPath())


def _idle_times(trace: StepTrace, free_ns: Int64, between_ns: int) -> IdleTimes:
    """Return idle time by cause: the interval of each step as far as it is free, and the rest.

    free_ns: of each step. between_ns: free time between steps.
    """
    waiting_ns = np.minimum(np.maximum(trace.interval_ns, 0), free_ns)
    of_steps = np.stack([waiting_ns, free_ns - waiting_ns], axis=1)
    parts = np.concatenate([of_steps, [[0, between_ns]]])
    total_ns = np.concatenate([parts.sum(axis=0), of_steps.reshape(-1)])
    rows = CauseTimes(
        np.repeat([NO_STEP, *range(len(free_ns))], len(_TRACE_CAUSES)),
        np.tile([CAUSES.index(cause) for cause in _TRACE_CAUSES], len(free_ns) + 1),
        np.concatenate([(parts > 0).sum(axis=0), np.ones(of_steps.size, np.int64)]),
        total_ns,
    )
    return IdleTimes(rows.take(total_ns > 0))
