"""Whom each rank waited for in collectives, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.waits.waiting import WaitedFor
from timeline.figures.table import Table
from timeline.records.not_given import NO_ID

__all__ = ["waited_for_table", "waiting_dicts"]


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


def waiting_dicts(waiting: Table, waited_for: Table) -> list[dict[str, Any]]:
    """The rows of `Figures.waiting`, each with those of `Figures.waited_for` of its rank."""
    by_rank: dict[int, list[dict[str, Any]]] = {}
    for row in waited_for.to_dicts():
        by_rank.setdefault(row.pop("rank"), []).append(
            {"rank": row.pop("waited_for_rank"), **row},
        )
    return [row | {"waited_for": by_rank.get(row["rank"], [])} for row in waiting.to_dicts()]
