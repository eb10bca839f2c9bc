"""OpArrivals: for each communication op of a rank, which rank came last to it, and when."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from timeline.analysis.waits.collectives import Collectives, RankCollectives
from timeline.analysis.waits.waiting import Waiting
from timeline.columns.columns import Codes, ColumnTable, Int64, column
from timeline.columns.group_by import rows_before
from timeline.records.not_given import NO_ID

__all__ = ["OpArrivals", "op_arrivals"]


class OpArrivals(ColumnTable):
    """One row per collective of a rank, in the order of its collectives.

    arrived_ns: when the last rank came. last: position of that rank among those read, the own one
    where nothing is known of others, NO_ID where it is not among them. last_row: its row among the
    collectives there. last_rank: its number, NO_ID where it is not known which. before: the row of
    the op of the same group before, NO_ID for the first.
    """

    arrived_ns: Int64 = column(np.int64)
    last: Codes = column(np.int32)
    last_row: Codes = column(np.int32)
    last_rank: Int64 = column(np.int64)
    before: Codes = column(np.int32)


def op_arrivals(ranks: Sequence[RankCollectives], waiting: Waiting) -> list[OpArrivals]:
    """Who came last to each op of some ranks, which are on one clock.

    Of a send and its receive, the later one came last. An op of which nothing is known is taken for
    one that its own rank came last to.
    """
    every = Collectives.concat([rank.ops for rank in ranks])
    sizes = [len(rank.ops) for rank in ranks]
    first = np.cumsum([0, *sizes])
    arrived_ns = every.start_ns.copy()
    last = np.repeat(np.arange(len(ranks)), sizes)
    last_row = np.arange(len(every)) - first[last]
    last_rank = np.full(len(every), NO_ID, np.int64)
    pairs = waiting.pairs
    sent = first[pairs.sender] + pairs.send_row
    received = first[pairs.receiver] + pairs.receive_row
    later = np.where(every.start_ns[received] >= every.start_ns[sent], received, sent)
    later_rank, later_row = last[later], last_row[later]
    for rows in (sent, received):
        arrived_ns[rows] = every.start_ns[later]
        last[rows], last_row[rows] = later_rank, later_row
    waits = waiting.waits
    rows = first[waits.rank] + waits.row
    arrived_ns[rows] = waits.last_ns
    last[rows] = np.where(waits.last_profiled, waits.last, NO_ID)
    last_row[rows], last_rank[rows] = waits.last_row, waits.last_rank
    befores = [rows_before(rank.ops.communicator).astype(np.int32) for rank in ranks]
    whole = OpArrivals(
        arrived_ns,
        last.astype(np.int32),
        last_row.astype(np.int32),
        last_rank,
        np.concatenate([np.empty(0, np.int32), *befores]),
    )
    return [whole[begin:end] for begin, end in pairwise(first.tolist())]
