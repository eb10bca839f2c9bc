"""By how much less a run could take at most if one thing was mended, in words."""

from __future__ import annotations

from collections.abc import Collection

from timeline.analysis.idle.idle_sums import IdleCause
from timeline.figures.bound_table import COPIES, WAITING, bound_table
from timeline.figures.rank_tables import Figures
from timeline.frozen import dataclass

__all__ = ["Bound", "bounds_sentence", "find_bounds"]

LEAST_BOUND = 0.01
MOST_BOUNDS = 4
_WORDS = {
    WAITING: "with no waiting for other ranks",
    COPIES: "with no copies",
    IdleCause.WAITING_FOR_DATA.value: "with no waiting for data",
    IdleCause.HOST_NOT_ASKED.value: "with work issued earlier by the host",
    IdleCause.HOST_WAITED_FOR_DEVICE.value: "with a host that never waits for the device",
    IdleCause.QUEUED.value: "with no queuing on the host",
    IdleCause.LAUNCH_CALL.value: "with launch calls that take no time",
    IdleCause.LAUNCH_LATENCY.value: "with no launch latency",
    IdleCause.BETWEEN_TASKS.value: "with no gaps between tasks",
    IdleCause.LAUNCHED_BEFORE.value: "with no gaps before tasks launched in time",
    IdleCause.OUTSIDE_CALLS.value: "with no host time outside calls",
}
"""What would have to be gone; of what was not recorded nothing can be said."""


@dataclass(frozen=True)
class Bound:
    """What less of something could win at most, as a share of the critical path.

    what: WAITING, COPIES, or the value of an `IdleCause`.
    """

    what: str
    share: float


def find_bounds(figures: Figures, lost: Collection[str]) -> tuple[Bound, ...]:
    """The rows of `bound_table` for what is told to be lost, largest first."""
    table = bound_table(figures)
    return tuple(
        Bound(row["cause"], row["at_most_ns"] / row["path_ns"])
        for row in table.to_dicts()
        if row["cause"] in _WORDS and row["cause"] in lost and row["path_ns"]
    )


def bounds_sentence(bounds: tuple[Bound, ...]) -> str | None:
    """By how much the critical path can shrink at most; None where that is next to nothing.

    A path goes along the rank that others wait for, which may lose more than the mean of all.
    """
    told = [
        f"{bound.share:.0%} {_WORDS[bound.what]}"
        for bound in bounds[:MOST_BOUNDS]
        if bound.share >= LEAST_BOUND
    ]
    return f"The critical path can shrink by at most {', '.join(told)}." if told else None
