"""Who waited for whom in collectives, and how long, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.waits.exposed_waiting import ExposedParts, split_exposed
from timeline.analysis.waits.waiting import Stragglers, WaitedFor, Waits
from timeline.columns.columns import Bool
from timeline.figures.table import Table
from timeline.records.not_given import NO_ID

_COUNTED = frozenset(
    {
        "shared",
        "unmatched",
        "alone",
        "shared_ns",
        "unmatched_ns",
        "alone_ns",
        "point_to_point_ns",
        "unknown",
        "unnamed",
        "unknown_ns",
        "unnamed_ns",
    }
)
"""Columns of `waiting` that say what it stands on, and are known even where nothing of it is."""
_DUE = frozenset({"compute_late_ns", "host_late_ns"})
"""Columns of `waiting` that only device tasks tell."""


def waiting_table(facts: Sequence[RankFacts], stragglers: Stragglers) -> Table:
    """See `Figures.waiting`."""
    ranks = np.array([rank.rank for rank in facts], np.int64)
    columns = {field.name: getattr(stragglers, field.name) for field in fields(stragglers)}
    others = ("alone", "unmatched", "unknown", "unnamed")
    rest = sum(columns[name] for name in others)
    unknown = (columns["shared"] == 0) & (rest > 0)
    untold = unknown | np.array([rank.tasks == 0 for rank in facts], np.bool_)
    shown = {
        name: values
        if name in _COUNTED
        else np.ma.masked_array(values, untold if name in _DUE else unknown)
        for name, values in columns.items()
    }
    return Table({"rank": ranks, **shown})


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


def exposed_tables(
    facts: Sequence[RankFacts], waits: Waits, ordinary: Sequence[Bool]
) -> tuple[Table, Table]:
    """See `Figures.exposed` and `Figures.exposed_steps`; ordinary: which steps of each rank are."""
    of_ranks, parts = split_exposed(facts, waits)
    chosen = np.concatenate([np.zeros(0, np.bool_), *ordinary])
    if chosen.any():
        owner = np.repeat(np.arange(len(facts)), [len(rank.steps) for rank in facts])
        sums = np.zeros((3, len(facts)), np.int64)
        for row, values in enumerate((parts.exposed_ns, parts.waiting_ns, parts.transfer_ns)):
            np.add.at(sums[row], owner[chosen], values[chosen])
        of_ranks = ExposedParts(*sums)
    ranks = {"rank": np.array([rank.rank for rank in facts], np.int64)}
    known = (parts.waiting_ns > 0) | (parts.transfer_ns > 0)
    # The step's own sum is what is drawn: ops that belong to no step are not in it.
    whole_ns = np.concatenate(
        [np.zeros(0, np.int64), *(rank.step_totals.not_overlapped_ns for rank in facts)]
    )
    waiting_ns = np.minimum(parts.waiting_ns, whole_ns)
    transfer_ns = np.minimum(parts.transfer_ns, whole_ns - waiting_ns)
    return (
        Table(ranks | {field.name: getattr(of_ranks, field.name) for field in fields(of_ranks)}),
        Table(
            {
                "waiting_ns": np.ma.masked_array(waiting_ns, ~known),
                "transfer_ns": np.ma.masked_array(transfer_ns, ~known),
            }
        ),
    )


def waiting_dicts(waiting: Table, waited_for: Table) -> list[dict[str, Any]]:
    """The rows of `Figures.waiting`, each with those of `Figures.waited_for` of its rank."""
    by_rank: dict[int, list[dict[str, Any]]] = {}
    for row in waited_for.to_dicts():
        by_rank.setdefault(row.pop("rank"), []).append(
            {"rank": row.pop("waited_for_rank"), **row},
        )
    return [row | {"waited_for": by_rank.get(row["rank"], [])} for row in waiting.to_dicts()]
