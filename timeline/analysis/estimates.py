"""What a run would win if one of its ranks computed as fast as the others, estimated."""

from __future__ import annotations

from collections.abc import Sequence

from timeline.analysis.op_arrivals import op_arrivals
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.replay import ReplayedRank, estimate_gain_ns
from timeline.analysis.waiting import Waiting

__all__ = ["estimated_gain_ns"]


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
