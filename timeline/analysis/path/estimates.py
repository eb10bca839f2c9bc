"""What a run would win if one of its ranks were as fast as the others, estimated."""

from __future__ import annotations

from collections.abc import Sequence

from timeline.analysis.path.op_arrivals import op_arrivals
from timeline.analysis.path.replay import ReplayedRank, estimate_gain_ns
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.waits.culprit import Culprit
from timeline.analysis.waits.lateness import Cause
from timeline.analysis.waits.waiting import Waiting

__all__ = ["estimated_gain_ns", "gain_of_culprit_ns"]

_ESTIMATED = frozenset({Cause.COMPUTING, Cause.HOST, Cause.INPUT, Cause.FREQUENCY})
"""Causes that a rank as fast as the others would not have: links are taken as recorded."""


def gain_of_culprit_ns(
    facts: Sequence[RankFacts], waiting: Waiting, culprit: Culprit | None
) -> int | None:
    """How much earlier the selection would end if the culprit were as fast as the others.

    None where there is none, where it is late for nobody, and where nothing tells.
    """
    if culprit is None or not culprit.profiled or culprit.cause not in _ESTIMATED:
        return None
    if culprit.waited_ns is None:
        return None
    return estimated_gain_ns(facts, waiting, culprit.rank)


def estimated_gain_ns(facts: Sequence[RankFacts], waiting: Waiting, rank: int) -> int | None:
    """How much earlier the selection would end, see `estimate_gain_ns`; None where nothing tells.

    facts: of ranks on one clock, read for an estimate. rank: the number of one.
    """
    numbers = [known.rank for known in facts]
    if rank not in numbers:
        return None
    arrivals = op_arrivals([known.collectives for known in facts], waiting)
    ranks = [ReplayedRank(known.replay, its) for known, its in zip(facts, arrivals, strict=True)]
    return estimate_gain_ns(ranks, numbers.index(rank))
