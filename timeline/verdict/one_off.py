"""One-off costs: single host calls that took most of a rank's idle time, and are no usual cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from timeline.analysis.idle.host_calls import call_name
from timeline.analysis.rank_facts import RankFacts
from timeline.printable import printable
from timeline.tables.short_names import shortened
from timeline.tables.table import Table
from timeline.units import format_count, format_share, format_short

LEAST_OF_SPAN = 0.05
"""Minimum share of a rank's time for a one-off cost to be worth a sentence."""
MOST_OF_NAME = 60
"""Characters of the name of a call."""
_KEYS = ("rank", "graph", "step", "cause")


def without_one_offs(
    causes: Table, calls: Table, facts: Sequence[RankFacts]
) -> tuple[Table, Table, dict[int, bool]]:
    """Return idle time by cause and by call without the one-off costs of ranks, and their ranks.

    causes, calls: rows of IDLE and IDLE_CALLS, of the same steps; a cost in none of them, or that
    crosses from one step into another, changes nothing. Of each rank with a cost in the steps, True
    if it is left out.
    """
    left_out = dict[int, bool]()
    costs = [(rank.rank, one) for rank in facts if (one := rank.host_calls.one_off) is not None]
    if not costs or not len(causes) or not len(calls):
        return causes, calls, left_out
    causes_ns, calls_ns = causes["total_ns"].copy(), calls["total_ns"].copy()
    row_of = {key: row for row, key in enumerate(_keys(causes))}
    keys = _keys(calls)
    for rank, one in costs:
        step = None
        # The step of its largest part is that of the others.
        for cause, idle_ns in sorted(one.causes, key=lambda part: -part[1]):
            is_like = (calls["call"] == one.name) & (calls["cause"] == cause.value)
            rows = np.flatnonzero(is_like & (calls["rank"] == rank) & (calls_ns >= idle_ns))
            own = [row for row in rows.tolist() if step in (None, keys[row][1:3])]
            if step is None and int(calls_ns[is_like & (calls["rank"] == rank)].sum()) >= idle_ns:
                left_out[rank] = bool(own)
            if not own:
                continue
            row = max(own, key=lambda at: int(calls_ns[at]))
            step = keys[row][1:3]
            calls_ns[row] -= idle_ns
            causes_ns[row_of[keys[row]]] -= idle_ns
    return (
        Table({**causes.columns, "total_ns": causes_ns}),
        Table({**calls.columns, "total_ns": calls_ns}),
        left_out,
    )


def _keys(table: Table) -> list[tuple[object, ...]]:
    return list(zip(*(table[name].tolist() for name in _KEYS), strict=True))


def one_off_sentence(facts: Sequence[RankFacts], left_out: Mapping[int, bool]) -> str | None:
    """Return the largest one-off cost of the ranks, None if none of them is large.

    left_out: as `without_one_offs` returns it for the mean step, or for all without steps.
    """
    costs = [
        (one, rank)
        for rank in facts
        if (one := rank.host_calls.one_off) is not None
        and rank.span_ns is not None
        and one.idle_ns >= LEAST_OF_SPAN * (rank.span_ns[1] - rank.span_ns[0])
    ]
    if not costs:
        return None
    one, rank = max(costs, key=lambda cost: cost[0].idle_ns)
    (name,) = shortened([printable(call_name(one.name))], MOST_OF_NAME, "...")
    where = f" on rank {rank.rank}" if len(facts) > 1 else ""
    others = format_count(len(costs) - 1, "other rank")
    alike = f"; so on {others}" if len(costs) > 1 else ""
    share = format_share(one.idle_ns, rank.host_calls.idle_ns)
    counted = {
        None: "in none of the averaged steps",
        True: "in the shares of time, but in no cause of idle time",
        False: "in the shares of time and in the causes of idle time",
    }[left_out.get(rank.rank)]
    return (
        f"One call of {name} took {format_short(one.length_ns)}{where}, {share} of the idle time "
        f"there (median {format_short(one.median_ns)}): a one-off cost, {counted}{alike}."
    )
