"""The steps that a run can be judged by: neither warm-up nor cut off."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from timeline.analysis.rank_facts import RankFacts
from timeline.columns.columns import Bool, Int64
from timeline.columns.distinct import distinct, distinct_pairs
from timeline.columns.group_by import group_by
from timeline.records.not_given import NO_GRAPH

__all__ = [
    "has_several_graphs",
    "measured_steps",
    "number_steps",
    "ordinary_ops",
    "ordinary_steps",
]

LEAST_ORDINARY = 3
"""With fewer, every step with device tasks is as good as another."""


def ordinary_steps(ranks: Sequence[RankFacts]) -> tuple[Bool, ...]:
    """For each rank, which of its selected steps are ordinary, (steps,) each.

    A step is ordinary if it has device tasks, and on no rank is the first recorded one of its graph
    or cut by the edge of the recording (or by a window). With fewer than LEAST_ORDINARY such, all
    steps with device tasks are. Where no rank has any device task, communication ops stand for
    them.
    """
    measured = np.concatenate([np.zeros(0, np.bool_), *measured_steps(ranks)])
    if not measured.any():
        return tuple(np.zeros(len(rank.steps), np.bool_) for rank in ranks)
    recorded = [rank.recorded for rank in ranks]
    odd = np.concatenate([steps.first | steps.cut for steps in recorded]) | ~measured
    step = number_steps(ranks)
    is_odd = np.zeros(int(step.max()) + 1, np.bool_)
    is_odd[step[odd & _in_measured_rank(ranks, measured)]] = True
    plain = measured & ~is_odd[step]
    chosen = plain if len(distinct(step[plain])) >= LEAST_ORDINARY else measured
    return tuple(np.split(chosen, np.cumsum([len(rank.steps) for rank in ranks])[:-1]))


def measured_steps(ranks: Sequence[RankFacts]) -> tuple[Bool, ...]:
    """For each rank, which of its selected steps have device tasks, (steps,) each.

    So does a step of which a table says that it computes. Where no rank has any device task,
    communication ops stand for them.
    """
    computing = [(rank.recorded.tasks > 0) | (rank.step_totals.computing_ns > 0) for rank in ranks]
    if any(steps.any() for steps in computing):
        return tuple(computing)
    return tuple(rank.recorded.ops > 0 for rank in ranks)


def _in_measured_rank(ranks: Sequence[RankFacts], measured: Bool) -> Bool:
    """Which steps are of ranks that have any measured one: others tell nothing of any step."""
    lengths = [len(rank.steps) for rank in ranks]
    parts = np.split(measured, np.cumsum(lengths)[:-1])
    return np.repeat([bool(part.any()) for part in parts], lengths)


def number_steps(ranks: Sequence[RankFacts]) -> Int64:
    """A number for each step of each rank, the same on all ranks; (all steps,), rank by rank.

    Ranks number their graphs apart, so a step is matched by its number alone unless a rank has
    several graphs.
    """
    graph = np.concatenate([rank.steps.graph for rank in ranks])
    rank = np.repeat(np.arange(len(ranks)), [len(rank.steps) for rank in ranks])
    if not has_several_graphs(rank, graph):
        graph = np.full_like(graph, NO_GRAPH)
    iteration = np.concatenate([rank.steps.iteration for rank in ranks])
    return group_by(len(graph), (graph, iteration)).group


def has_several_graphs(rank: Int64, graph: Int64) -> bool:
    """Whether any rank has several, from the rank and graph of each row."""
    pairs, _ = distinct_pairs(rank, graph)
    return len(pairs) > len(distinct(rank))


def ordinary_ops(ranks: Sequence[RankFacts], ordinary: Sequence[Bool]) -> tuple[Bool, ...]:
    """For each rank, which of its communication ops belong to ordinary steps, (ops,) each.

    All that are selected where no rank has such a step: a capture without steps is one.

    Args:
        ordinary: what `ordinary_steps` told of the ranks.
    """
    has_steps = any(rows.any() for rows in ordinary)
    return tuple(
        rank.collectives.ops.selected
        & (
            np.isin(rank.collectives.ops.iteration, rank.steps.iteration[rows])
            if has_steps
            else True
        )
        for rank, rows in zip(ranks, ordinary, strict=True)
    )
