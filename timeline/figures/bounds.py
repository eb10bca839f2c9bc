"""What could be won at most by mending one thing, in shares of the time from step to step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timeline.analysis.idle_sums import IdleCause
from timeline.figures.rank_tables import Figures
from timeline.figures.table import Table

__all__ = ["Bound", "bounds_sentence", "find_bounds"]

LEAST_BOUND = 0.01
MOST_BOUNDS = 4
_WORDS = {
    "waiting": "from waiting",
    "copies": "from copies",
    IdleCause.WAITING_FOR_DATA.value: "from waiting for data",
    IdleCause.HOST_NOT_ASKED.value: "where the host had not asked",
    IdleCause.HOST_WAITED_FOR_DEVICE.value: "where the host waited for the device",
    IdleCause.QUEUED.value: "from queuing on the host",
    IdleCause.LAUNCH_CALL.value: "from launch calls",
    IdleCause.LAUNCH_LATENCY.value: "from launch latency",
    IdleCause.BETWEEN_TASKS.value: "from gaps between tasks",
    IdleCause.LAUNCHED_BEFORE.value: "from gaps before tasks launched in time",
    IdleCause.OUTSIDE_CALLS.value: "where the host was outside any call",
}
"""What is won by less of each; of what was not recorded nothing can be said."""


@dataclass(frozen=True)
class Bound:
    """What less of something could win at most, as a share of the time from step to step.

    what: "waiting", "copies", or the value of an `IdleCause`.
    """

    what: str
    share: float


def find_bounds(figures: Figures, means: Table) -> tuple[Bound, ...]:
    """Bounds of what could be won, largest first, as far as anything is known.

    No rank gets done sooner than by what it spends itself, and no step sooner than on the rank that
    spends most: a bound is the largest of all ranks. Exposed waiting, copies while nothing else
    runs, and idle time lie outside of all else, so none of them can hide behind another.

    means: a row per rank, of `mean_steps`.
    """
    if not len(means):
        return ()
    whole_ns = np.asarray(means["span_ns"] + means["between_ns"])
    found = [
        Bound(what, float((np.ma.filled(means[name], 0) / whole_ns).max()))
        for what, name in (("waiting", "waiting_ns"), ("copies", "copies_ns"))
    ]
    rows = figures.idle
    rows = rows.take(np.ma.getmaskarray(rows["step"])) if len(rows) else rows
    periods = dict(zip(means["rank"].tolist(), whole_ns.tolist(), strict=True))
    steps = _measured_steps(figures.steps)
    largest: dict[str, float] = {}
    for row in rows.to_dicts():
        if row["rank"] in periods and row["cause"] in _WORDS:
            times = steps.get(row["rank"], 1) if means["steps"].any() else 1
            share = min(row["total_ns"] / times / periods[row["rank"]], 1.0)
            largest[row["cause"]] = max(largest.get(row["cause"], 0.0), share)
    found += [Bound(cause, share) for cause, share in largest.items()]
    return tuple(sorted(found, key=lambda bound: (-bound.share, bound.what)))


def _measured_steps(steps: Table) -> dict[int, int]:
    """How many steps of each rank have device work."""
    if not len(steps):
        return {}
    known = np.asarray(steps["rank"])[np.ma.filled(steps["span_ns"], 0) > 0]
    ranks, counts = np.unique(known, return_counts=True)
    return dict(zip(ranks.tolist(), counts.tolist(), strict=True))


def bounds_sentence(bounds: tuple[Bound, ...]) -> str | None:
    """What could be won at most; None where that is next to nothing."""
    told = [
        f"{bound.share:.0%}{' to win here' if at == 0 else ''} {_WORDS[bound.what]}"
        for at, bound in enumerate(bounds[:MOST_BOUNDS])
        if bound.share >= LEAST_BOUND
    ]
    return f"At most {', '.join(told)}." if told else None
