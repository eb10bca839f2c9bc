"""How long each step of a run takes, with what lies before it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from timeline.analysis.ordinary_steps import number_steps
from timeline.analysis.rank_facts import RankFacts
from timeline.columns.columns import Bool, Int64
from timeline.records.not_given import NO_GRAPH, NO_TIME

__all__ = ["step_times_ns"]


def step_times_ns(facts: Sequence[RankFacts], chosen: Sequence[Bool]) -> Int64:
    """The time of each chosen step on the rank where it is longest, in order of their numbers.

    A step lasts from the last device end of the step before it to its own, so that what a device
    idles between them counts; where that step is not selected, or a rank has several graphs, it is
    the span of its own computing and communication.

    Args:
        chosen: for each rank a mask of its steps.
    """
    among = np.concatenate([np.zeros(0, np.bool_), *chosen])
    if not among.any():
        return np.empty(0, np.int64)
    step = number_steps(facts)
    times_ns = np.concatenate([_times_ns(rank) for rank in facts])
    longest_ns = np.full(int(step.max()) + 1, -1, np.int64)
    np.maximum.at(longest_ns, step[among], times_ns[among])
    return longest_ns[longest_ns >= 0]


def _times_ns(facts: RankFacts) -> Int64:
    """The time of each step of a rank, 0 of one without device records."""
    times_ns, end_ns = facts.step_totals.span_ns.copy(), facts.device_end_ns
    known = facts.device_start_ns != NO_TIME
    if len(facts.profile.graphs - {NO_GRAPH}) > 1:
        return times_ns
    rows = np.flatnonzero(known)
    rows = rows[np.argsort(facts.steps.iteration[rows], kind="stable")]
    since_ns = np.diff(end_ns[rows])
    follows = (np.diff(facts.steps.iteration[rows]) == 1) & (since_ns > 0)
    times_ns[rows[1:][follows]] = since_ns[follows]
    return times_ns
