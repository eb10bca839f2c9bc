"""Whom each rank waited for in collectives, as a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.waiting import WaitedFor
from timeline.figures.table import Table
from timeline.records.tables import NO_ID

__all__ = ["waited_for_table"]


def waited_for_table(facts: Sequence[RankFacts], waited_for: WaitedFor) -> Table:
    """See `Figures.waited_for`."""
    ranks = np.array([rank.rank for rank in facts], np.int64)
    return Table(
        {
            "rank": ranks[waited_for.rank],
            "waited_for_rank": np.ma.masked_equal(waited_for.last_rank, NO_ID),
            "profiled": waited_for.profiled.astype(object),
            "times": waited_for.times,
            "waited_ns": waited_for.waited_ns,
        }
    )
