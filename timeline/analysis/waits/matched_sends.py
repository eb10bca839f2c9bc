"""Sends and the receives that get them, in groups of two ranks whose ops only say what they do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from timeline.analysis.waits.collectives import RankCollectives, every_op, kind_numbers
from timeline.columns.columns import ColumnTable, Int64, column
from timeline.columns.group_by import group_by
from timeline.records.not_given import NO_ID

__all__ = ["Pairs", "match_sends"]


class Pairs(ColumnTable):
    """Sends and the receives that got them: positions of ranks, and rows of their collectives."""

    sender: Int64 = column(np.int64)
    send_row: Int64 = column(np.int64)
    receiver: Int64 = column(np.int64)
    receive_row: Int64 = column(np.int64)


def match_sends(ranks: Sequence[RankCollectives], slack_ns: int) -> Pairs:
    """Match the sends and receives that no name matches, step by step.

    Two ranks take what is between them in one order: the n-th send of one is the n-th receive of
    the other. That is known only where both have as many in a step, and none is over before it was
    sent.

    Args:
        ranks: on one clock.
        slack_ns: how far the clocks may be off.
    """
    ops, rank, row = every_op(ranks)
    send, receive = kind_numbers(["Send", "Receive"])
    is_either = (ops.kind == send) | (ops.kind == receive)
    rows = np.flatnonzero(ops.selected & (ops.pair == NO_ID) & is_either)
    ops, rank, row = ops.take(rows), rank[rows], row[rows]
    if not len(ops):
        return Pairs.empty()
    is_send = ops.kind == send
    groups = group_by(len(ops), [ops.communicator])
    low, high = groups.least(rank)[groups.group], groups.greatest(rank)[groups.group]
    is_other = ((rank != low) & (rank != high)) | (low == high)
    of_two = groups.sum(is_other.astype(np.int64))[groups.group] == 0
    sender = np.where(is_send, rank, low + high - rank)
    steps = group_by(len(ops), [ops.communicator, sender, ops.iteration])
    alike = (steps.sum(np.where(is_send, 1, -1)) == 0)[steps.group] & of_two
    order = np.lexsort((ops.start_ns, steps.group))
    sends, receives = order[(alike & is_send)[order]], order[(alike & ~is_send)[order]]
    late = (ops.end_ns[receives] + slack_ns < ops.start_ns[sends]).astype(np.int64)
    of_step = group_by(len(sends), [steps.group[sends]])
    met = of_step.sum(late)[of_step.group] == 0
    pairs = Pairs(rank[sends], row[sends], rank[receives], row[receives]).take(met)
    return pairs.take(np.lexsort((pairs.send_row, pairs.sender)))
