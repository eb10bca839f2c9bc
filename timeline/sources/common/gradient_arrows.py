"""Arrows from forward calls of PyTorch to those that work out their gradients."""

from __future__ import annotations

import numpy as np

from timeline.columns.chunks import rows_where
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
    numbered = rows_where(lambda some: some > 0, number)
    is_backward = forward_thread[numbered] > 0
    backward = numbered[is_backward]
    backward = _firsts(backward, number[backward], start_ns[backward])
    forward = numbered[~is_backward]
    # Most numbers of forward are not asked for: inference has no gradients at all.
    forward = forward[np.isin(number[forward], number[backward])]
    forward = _firsts(forward, number[forward], -start_ns[forward])
    source, target = pairs_by_key(number[forward], number[backward])
    return build_arrows(
        strings,
        FORWARD_BACKWARD,
        FlowEnd.HOST,
        host_row[forward[source]],
        host_row[backward[target]],
    )


def _firsts(rows: Rows, number: Int64, key: Int64) -> Rows:
    """The row of each number that has the least key, in order of number."""
    order = np.lexsort((key, number))
    ordered = number[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)])
    return rows[order[first]]
