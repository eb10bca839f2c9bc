"""Sends and the receives that get them, in groups of two ranks whose ops only say what they do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from timeline.analysis.waits.collectives import RankCollectives, kind_numbers
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


class _Passed(ColumnTable):
    """Sends and receives of all ranks; `sent` is 1 for a send. sender: the rank that sends."""

    rank: Int64 = column(np.int64)
    row: Int64 = column(np.int64)
    group: Int64 = column(np.int64)
    iteration: Int64 = column(np.int64)
    sent: Int64 = column(np.int64)
    start_ns: Int64 = column(np.int64)
    end_ns: Int64 = column(np.int64)


def match_sends(ranks: Sequence[RankCollectives], slack_ns: int) -> Pairs:
    """Match the sends and receives that no name matches, step by step.

    Two ranks take what is between them in one order: the n-th send of one is the n-th receive of
    the other. That is known only where both have as many in a step, and none is over before it was
    sent.

    Args:
        ranks: on one clock.
        slack_ns: how far the clocks may be off.
    """
    passed = _Passed.concat([_passed(at, rank) for at, rank in enumerate(ranks)])
    if not len(passed):
        return Pairs.empty()
    groups = group_by(len(passed), [passed.group])
    low, high = groups.least(passed.rank)[groups.group], groups.greatest(passed.rank)[groups.group]
    is_other = ((passed.rank != low) & (passed.rank != high)) | (low == high)
    of_two = groups.sum(is_other.astype(np.int64))[groups.group] == 0
    sender = np.where(passed.sent == 1, passed.rank, low + high - passed.rank)
    order = np.lexsort((passed.start_ns, passed.iteration, sender, passed.group))
    order = order[of_two[order]]
    passed, sender = passed.take(order), sender[order]
    steps = group_by(len(passed), [passed.group, sender, passed.iteration])
    ones = np.ones(len(passed), np.int64)
    alike = (2 * steps.sum(passed.sent) == steps.sum(ones))[steps.group]
    passed, step = passed.take(alike), steps.group[alike]
    is_send = passed.sent == 1
    sends, receives = passed.take(is_send), passed.take(~is_send)
    late = (receives.end_ns + slack_ns < sends.start_ns).astype(np.int64)
    of_step = group_by(len(sends), [step[is_send]])
    met = of_step.sum(late)[of_step.group] == 0
    pairs = Pairs(sends.rank, sends.row, receives.rank, receives.row).take(met)
    return pairs.take(np.lexsort((pairs.send_row, pairs.sender)))


def _passed(at: int, rank: RankCollectives) -> _Passed:
    ops, (send, receive) = rank.ops, kind_numbers(["Send", "Receive"]).tolist()
    is_either = (ops.kind == send) | (ops.kind == receive)
    rows = np.flatnonzero(ops.selected & (ops.pair == NO_ID) & is_either)
    return _Passed(
        np.full(len(rows), at, np.int64),
        rows.astype(np.int64),
        ops.communicator[rows],
        ops.iteration[rows],
        (ops.kind[rows] == send).astype(np.int64),
        ops.start_ns[rows],
        ops.end_ns[rows],
    )
