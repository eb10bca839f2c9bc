"""Arrows from forward calls of PyTorch to those that work out their gradients."""

from __future__ import annotations

import numpy as np

from timeline.columns.columns import Int64, Rows
from timeline.columns.strings import StringPool
from timeline.records.tables import FORWARD_BACKWARD, FlowEnd, Flows
from timeline.sources.common.launch_arrows import build_arrows
from timeline.sources.decoders.joins import pairs_by_key

__all__ = ["gradient_arrows"]


def gradient_arrows(
    strings: StringPool, host_row: Rows, start_ns: Int64, number: Int64, forward_thread: Int64
) -> Flows:
    """Arrows as PyTorch's traces draw them, for a profile that gives the numbers alone.

    A forward call and those that work out its gradient have one sequence number. Of the forward
    calls the innermost counts, which starts last, and of backward the first.

    Args:
        strings: of the rank.
        host_row: (n,) the row of each call in the host table.
        start_ns: (n,)
        number: (n,) sequence numbers, at most 0 for none.
        forward_thread: (n,) the thread that ran forward, which backward calls alone name; else at
            most 0.
    """
    backward = _firsts(np.flatnonzero((number > 0) & (forward_thread > 0)), number, start_ns)
    forward = _firsts(np.flatnonzero((number > 0) & (forward_thread <= 0)), number, -start_ns)
    source, target = pairs_by_key(number[forward], number[backward])
    return build_arrows(
        strings,
        FORWARD_BACKWARD,
        FlowEnd.HOST,
        host_row[forward[source]],
        host_row[backward[target]],
    )


def _firsts(rows: Rows, number: Int64, key: Int64) -> Rows:
    """The row of each number that has the least key."""
    ordered = rows[np.lexsort((key[rows], number[rows]))]
    _, first = np.unique(number[ordered], return_index=True)
    return ordered[first]
