"""Why devices idle, in a sentence."""

from __future__ import annotations

from typing import Any

import numpy as np

from timeline.analysis.idle_sums import IdleCause
from timeline.figures.table import Table
from timeline.units import spell_duration, spell_like

__all__ = ["IDLE_CAUSES", "idle_sentence"]

IDLE_CAUSES = {
    IdleCause.WAITING_FOR_DATA: "waiting for data",
    IdleCause.HOST_NOT_ASKED: "the host had not asked",
    IdleCause.HOST_WAITED_FOR_DEVICE: "the host waited for the device",
    IdleCause.QUEUED: "queued on the host",
    IdleCause.LAUNCH_CALL: "in launch calls",
    IdleCause.LAUNCH_LATENCY: "launch latency",
    IdleCause.BETWEEN_TASKS: "between tasks",
    IdleCause.LAUNCHED_BEFORE: "launched before the gap",
    IdleCause.OUTSIDE_CALLS: "outside any call",
    IdleCause.NOT_RECORDED: "launch not recorded",
}
"""Causes of idle time as people call them."""
NEARLY_ALL = 0.9
"""Of a call with a larger share of its cause, no time is told."""
MOST_CAUSES = 4
MOST_CALLS = 2
LEAST_SHARE = 0.05
"""Causes, and calls of a cause, with a smaller share are not told."""


def idle_sentence(idle: Table, calls: Table, *, steps: int, whole_ns: int) -> str | None:
    """How long devices idle and why, a mean of all ranks; None where that is a small share.

    idle, calls: `Figures.idle` and `Figures.idle_calls`, of which the rows of the whole selection
    count. steps: with device work, of which the mean is told if there are several. whole_ns: the
    time of a rank, or of such a step, that idle time is to be a share of.
    """
    rows = _of_selection(idle)
    ranks = len({row["rank"] for row in rows})
    if not ranks:
        return None
    times = ranks * max(steps, 1)
    idle_ns = round(sum(row["total_ns"] for row in rows) / times)
    if idle_ns < LEAST_SHARE * whole_ns:
        return None
    spent_ns, spent_calls = _sums(rows, "cause"), _of_selection(calls)
    told = list[str]()
    for cause, total_ns in spent_ns[:MOST_CAUSES]:
        cause_ns = round(total_ns / times)
        if cause_ns < LEAST_SHARE * idle_ns:
            break
        its = _sums([row for row in spent_calls if row["cause"] == cause], "call")
        named = [
            f"{call} {spell_like(round(ns / times), idle_ns)}"
            for call, ns in its[:MOST_CALLS]
            if ns > LEAST_SHARE * total_ns
        ]
        if its and its[0][1] > NEARLY_ALL * total_ns:
            named = [its[0][0]]
        if cause == IdleCause.BETWEEN_TASKS.value:
            least_ns = min((row["least_ns"] for row in rows if row["least_ns"]), default=0)
            named = [f"at least {spell_duration(least_ns)} each"] if least_ns else []
        more = f" ({', '.join(named)})" if named else ""
        words = IDLE_CAUSES[IdleCause(cause)]
        told.append(f"{spell_like(cause_ns, idle_ns)} {words}{more}")
    per = " per step, in and between steps" if steps > 1 else ""
    return f"Idle {spell_like(idle_ns, idle_ns)}{per}: {', '.join(told)}."


def _of_selection(table: Table) -> list[dict[str, Any]]:
    if not len(table):
        return []
    return table.take(np.ma.getmaskarray(table["step"])).to_dicts()


def _sums(rows: list[dict[str, Any]], name: str) -> list[tuple[str, int]]:
    """The time of each value of a column, longest first."""
    found: dict[str, int] = {}
    for row in rows:
        found[row[name]] = found.get(row[name], 0) + row["total_ns"]
    return sorted(found.items(), key=lambda item: (-item[1], item[0]))
