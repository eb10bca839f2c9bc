"""Bounds: the most that can be won where time is lost, each with the reason why it is no more.

A critical path is a chain: none of its segments can begin before the one before it has ended. Time
that is won off the chain, or while it is on another rank, does not make it shorter. And whatever
else changes, a rank has to do its own work: its time without waiting is the least it takes.
"""

from __future__ import annotations

import numpy as np

from timeline.columns.columns import Int64

__all__ = ["most_won_by_waiting", "most_won_on_path"]


def most_won_on_path(on_path_ns: Int64, lost_ns: Int64) -> int:
    """The most that is won if what the devices lose to a cause is taken out, and no more.

    What comes after starts earlier by no more than what was taken out before it, and where each
    start is the latest of what it waits for, nothing can then end earlier by more. Of the time that
    the path of a step is on a rank, it can lose no more than that, either. A host that is faster
    than that takes can win more, for what it launches may overlap better: its bound is the time of
    the path on the host.

    Args:
        on_path_ns: (k,) for each step and rank, how long the path of the step is on the rank.
        lost_ns: (k,) how much time the device lost to the cause in the step, exposed: while it did
            nothing else.
    """
    return int(np.minimum(on_path_ns, lost_ns).sum())


def most_won_by_waiting(on_path_ns: int, waiting_ns: Int64, after_ns: Int64) -> int:
    """The most that is won if nobody has to wait for one rank any more.

    The chain can lose no more than it is on that rank. And every other rank still does what it did
    while it did not wait: so much of the time until the end of each step is left, whoever is
    faster. The least of all that is the bound.

    Args:
        on_path_ns: how long the paths are on the rank that is waited for.
        waiting_ns: (k,) for each other rank, the exposed communication that may be waiting.
        after_ns: (k,) how long after its own last device ends the steps ended.
    """
    if not len(waiting_ns):
        return on_path_ns
    return min(on_path_ns, int((waiting_ns + after_ns).min()))
