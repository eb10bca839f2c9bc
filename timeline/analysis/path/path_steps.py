"""Periods with a critical path: the steps over all ranks, or the whole selection."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from timeline.analysis.path.critical_path import (
    CriticalPath,
    PathRank,
    PathSteps,
    find_critical_path,
)
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.waits.waiting import Waiting, op_arrivals
from timeline.columns.columns import Int64
from timeline.columns.distinct import distinct
from timeline.columns.group_by import group_by
from timeline.records.not_given import NO_GRAPH, NO_ID, NO_TIME


def critical_path(facts: Sequence[RankFacts], waiting: Waiting) -> CriticalPath:
    """Return the critical path of each step of ranks on one clock."""
    arrivals = op_arrivals([rank.collectives for rank in facts], waiting)
    ranks = [
        PathRank(rank.rank, rank.path, own_arrivals)
        for rank, own_arrivals in zip(facts, arrivals, strict=True)
    ]
    return find_critical_path(ranks, path_steps(facts))


def path_steps(facts: Sequence[RankFacts]) -> PathSteps:
    """Return the periods of paths: each step with device tasks, or the whole if there are no steps.

    Steps are matched by number, and also by graph if a rank has several. The path of a step begins
    at the end of the step that ended before it. If it is the first, or the step before is not
    selected, it begins no earlier than its own first device start.
    """
    keys, start_ns, end_ns = _spans(facts)
    if not len(start_ns):
        return _whole(facts)
    groups = group_by(len(start_ns), keys)
    first_ns, last_ns = groups.least(start_ns), groups.greatest(end_ns)
    graph, step = keys[0][groups.first], keys[1][groups.first]
    order = np.lexsort((first_ns, last_ns))
    first_ns, last_ns, graph, step = first_ns[order], last_ns[order], graph[order], step[order]
    follows = _follows(facts, step)
    before_ns = np.concatenate([first_ns[:1], last_ns[:-1]])
    since_ns = np.where(follows, before_ns, np.maximum(before_ns, first_ns))
    return PathSteps(since_ns, last_ns, graph, step)


def _spans(facts: Sequence[RankFacts]) -> tuple[list[Int64], Int64, Int64]:
    """Return graph and number, first start and last device end, of each step of each rank."""
    nothing = [np.empty(0, np.int64)]
    several = any(len(distinct(rank.steps.graph)) > 1 for rank in facts)
    known = [rank.device_start_ns != NO_TIME for rank in facts]
    graphs, steps, start_ns, end_ns = (
        np.concatenate([nothing[0], *columns])
        for columns in (
            [rank.steps.graph[rows] for rank, rows in zip(facts, known, strict=True)],
            [rank.steps.iteration[rows] for rank, rows in zip(facts, known, strict=True)],
            [rank.device_start_ns[rows] for rank, rows in zip(facts, known, strict=True)],
            [rank.device_end_ns[rows] for rank, rows in zip(facts, known, strict=True)],
        )
    )
    if not several and len(distinct(graphs)) > 1:
        # Each rank numbers its graphs independently.
        graphs = np.full(len(graphs), NO_GRAPH, np.int64)
    return [graphs, steps], start_ns, end_ns


def _follows(facts: Sequence[RankFacts], step: Int64) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return a mask of steps whose preceding step, by number, is also selected."""
    every = np.array(sorted({number for rank in facts for number in rank.profile.steps}), np.int64)
    at = np.searchsorted(every, step)
    before = np.where(at > 0, every[np.maximum(at - 1, 0)], NO_ID) if len(every) else step
    follows: np.ndarray[tuple[int], np.dtype[np.bool_]] = np.isin(before, step)
    return follows


def _whole(facts: Sequence[RankFacts]) -> PathSteps:
    """Return one period from the first start to the last end of work on any device."""
    spans = [rank.path.span_ns for rank in facts if rank.path.span_ns is not None]
    if not spans:
        return PathSteps.empty()
    first_ns, last_ns = min(span[0] for span in spans), max(span[1] for span in spans)
    return PathSteps.of(1, {"start_ns": [first_ns], "end_ns": [last_ns]})
