"""What could be won at most by mending one thing, in words."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from timeline.analysis.idle.idle_sums import IdleCause
from timeline.figures.bound_table import COPIES, WAITING, bound_table
from timeline.figures.rank_tables import Figures

__all__ = ["Bound", "bounds_sentence", "find_bounds"]

LEAST_BOUND = 0.01
MOST_BOUNDS = 4
_WORDS = {
    WAITING: "from waiting",
    COPIES: "from copies",
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
    """What could be won at most; None where that is next to nothing.

    A path goes along the rank that others wait for, which may lose more than the mean of all.
    """
    told = [
        f"{bound.share:.0%}{' to win' if at == 0 else ''} {_WORDS[bound.what]}"
        for at, bound in enumerate(bounds[:MOST_BOUNDS])
        if bound.share >= LEAST_BOUND
    ]
    return f"On the critical path, at most {', '.join(told)}." if told else None
