"""Ordinary steps, by which a run can be judged: neither warm-up nor cut off."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from timeline.analysis.rank_facts import RankFacts
from timeline.columns.columns import Bool, Int64
from timeline.columns.distinct import distinct, distinct_pairs
from timeline.columns.group_by import group_by
from timeline.records.not_given import NO_GRAPH

WARM_UP = 1.5
"""The first step is warm-up if it takes more than this many times the median of the others."""
LEAST_ORDINARY = 3
"""With fewer ordinary steps, all steps with device tasks that are not cut count."""


def ordinary_steps(ranks: Sequence[RankFacts], *, with_first: bool = True) -> tuple[Bool, ...]:
    """Return a mask of the ordinary steps of each rank among its selected ones, (steps,) each.

    A step is ordinary if it has device tasks, and on no rank is a warm-up step (the first of its
    graph) or cut by the edge of the recording or by a window. With fewer than LEAST_ORDINARY such
    steps, all that are not cut are, and without any, all with device tasks. If no rank has any
    device task, communication ops are used instead.

    with_first: whether a first step that does not warm up is ordinary. Of two compared runs, one
    may warm up.
    """
    measured = np.concatenate([np.zeros(0, np.bool_), *measured_steps(ranks)])
    if not measured.any():
        return tuple(np.zeros(len(rank.steps), np.bool_) for rank in ranks)
    first = [_warms_up(rank) if with_first else rank.recorded.first for rank in ranks]
    cut = [rank.recorded.cut for rank in ranks]
    odd = np.concatenate(first) | np.concatenate(cut) | ~measured
    step, counted = number_steps(ranks), _in_measured_rank(ranks, measured)
    is_odd, is_cut = np.zeros((2, int(step.max()) + 1), np.bool_)
    is_odd[step[odd & counted]] = True
    is_cut[step[np.concatenate(cut) & counted]] = True
    plain, whole = measured & ~is_odd[step], measured & ~is_cut[step]
    if len(distinct(step[plain])) >= LEAST_ORDINARY:
        chosen = plain
    else:
        chosen = whole if whole.any() else measured
    return tuple(np.split(chosen, np.cumsum([len(rank.steps) for rank in ranks])[:-1]))


def _warms_up(rank: RankFacts) -> Bool:
    """Return a mask of first steps of their graph that take much longer than the others, (n,)."""
    steps, period_ns = rank.recorded, rank.step_totals.period_ns
    others_ns = period_ns[~steps.first & (rank.step_totals.span_ns > 0)]
    if not len(others_ns):
        return np.zeros(len(steps), np.bool_)
    is_long: Bool = period_ns > WARM_UP * np.median(others_ns)
    return steps.first & is_long


def measured_steps(ranks: Sequence[RankFacts]) -> tuple[Bool, ...]:
    """Return a mask of the steps of each rank with device tasks, (steps,) each.

    A step with computing time in a table counts too. If no rank has any device task, communication
    ops are used instead.
    """
    computing = [(rank.recorded.tasks > 0) | (rank.step_totals.computing_ns > 0) for rank in ranks]
    if any(steps.any() for steps in computing):
        return tuple(computing)
    return tuple(rank.recorded.ops > 0 for rank in ranks)


def _in_measured_rank(ranks: Sequence[RankFacts], measured: Bool) -> Bool:
    """Return a mask of steps on ranks with any measured step; other ranks do not count."""
    lengths = [len(rank.steps) for rank in ranks]
    parts = np.split(measured, np.cumsum(lengths)[:-1])
    return np.repeat([bool(part.any()) for part in parts], lengths)


def number_steps(ranks: Sequence[RankFacts]) -> Int64:
    """Return a number for each step, shared by all ranks; (all steps,), rank by rank.

    Ranks number their graphs independently, so a step is matched by its number alone unless a rank
    has several graphs.
    """
    graph = np.concatenate([rank.steps.graph for rank in ranks])
    rank = np.repeat(np.arange(len(ranks)), [len(rank.steps) for rank in ranks])
    if not has_several_graphs(rank, graph):
        graph = np.full_like(graph, NO_GRAPH)
    iteration = np.concatenate([rank.steps.iteration for rank in ranks])
    return group_by(len(graph), (graph, iteration)).group


def has_several_graphs(rank: Int64, graph: Int64) -> bool:
    """Return whether any rank has several graphs, from the rank and graph of each row."""
    pairs, _ = distinct_pairs(rank, graph)
    return len(pairs) > len(distinct(rank))


def longest_periods_ns(ranks: Sequence[RankFacts], chosen: Sequence[Bool]) -> Int64:
    """Return the longest period over ranks of each chosen step, in order of number.

    Args:
        chosen: for each rank a mask of its steps.
    """
    among = np.concatenate([np.zeros(0, np.bool_), *chosen])
    if not among.any():
        return np.empty(0, np.int64)
    periods_ns = np.concatenate([rank.step_totals.period_ns for rank in ranks])[among]
    return group_by(len(periods_ns), [number_steps(ranks)[among]]).greatest(periods_ns)
