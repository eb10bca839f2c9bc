"""Sends with their receives, and the bubbles of pipelines.

Matched sends show which ranks are neighbours. In each step the first one between two neighbours
carries activations, so it leads from a stage to the next; the reverse direction carries gradients.
A bubble is the time in a step in which a stage waits for data from another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from timeline.analysis.waits.collectives import Collectives, RankCollectives, every_op, kind_numbers
from timeline.columns.columns import ColumnTable, Int64, column
from timeline.columns.distinct import are_first
from timeline.columns.group_by import group_by
from timeline.columns.intervals import IntervalSet, covered_between
from timeline.records.not_given import NO_ID, NO_TIME


class Pairs(ColumnTable):
    """Sends with their receives: positions of ranks, and rows of their collectives."""

    sender: Int64 = column(np.int64)
    send_row: Int64 = column(np.int64)
    receiver: Int64 = column(np.int64)
    receive_row: Int64 = column(np.int64)


def match_sends(ranks: Sequence[RankCollectives], slack_ns: int) -> Pairs:
    """Match sends and receives that have no common name, step by step.

    Two ranks process their messages in one order: the n-th send of one is the n-th receive of the
    other. Pairs are accepted only if both have equally many in a step and no receive ends before
    its send begins.

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


MOST_UNMATCHED = 0.25
"""A rank with a larger share of unmatched sends and receives has a neighbour that is not read."""


class Bubbles(ColumnTable):
    """Waits in receives, one row per rank and step in which it receives, by rank, then step.

    rank: position of the rank. iteration: number of the step, NO_ID outside of any. stage: its
    place in its pipeline, from 0, out of `stages`; micro_batches: number that ran through it in the
    step; NO_ID if unknown. receives: number of receives, `matched` of them with a known
    send. bubble_ns: time in which any of them waited; exposed_ns: part of it in which nothing
    computed. A receive stops waiting when its send begins; without a known send it waits all the
    time.
    """

    rank: Int64 = column(np.int64)
    iteration: Int64 = column(np.int64)
    stage: Int64 = column(np.int64)
    stages: Int64 = column(np.int64)
    micro_batches: Int64 = column(np.int64)
    receives: Int64 = column(np.int64)
    matched: Int64 = column(np.int64)
    bubble_ns: Int64 = column(np.int64)
    exposed_ns: Int64 = column(np.int64)


class _Receives(ColumnTable):
    """Selected receives of all ranks, by rank, then start; sender, sent_ns: of their sends."""

    rank: Int64 = column(np.int64)
    iteration: Int64 = column(np.int64)
    start_ns: Int64 = column(np.int64)
    end_ns: Int64 = column(np.int64)
    sender: Int64 = column(np.int64, NO_ID)
    sent_ns: Int64 = column(np.int64, NO_TIME)


def measure_bubbles(
    ranks: Sequence[RankCollectives], exposed: Sequence[IntervalSet], pairs: Pairs
) -> Bubbles:
    """Measure the waiting in receives of all ranks, which are on one clock.

    Args:
        exposed: intervals of each rank with communication and no computing.
        pairs: of their sends and receives.
    """
    receives = _receives(ranks, pairs)
    if not len(receives):
        return Bubbles.empty()
    came_ns = np.where(receives.sent_ns == NO_TIME, receives.end_ns, receives.sent_ns)
    end_ns = np.clip(came_ns, receives.start_ns, receives.end_ns)
    groups = group_by(len(receives), [receives.rank, receives.iteration])
    rank, iteration = receives.rank[groups.first], receives.iteration[groups.first]
    chains = _chains(ranks, pairs)
    chain_of, stage, stages = np.full((3, len(ranks)), NO_ID, np.int64)
    for number, chain in enumerate(chains):
        chain_of[chain] = number
        if not _has_neighbours_unread(ranks, pairs, chain):
            stage[chain], stages[chain] = np.arange(len(chain)), len(chain)
    bubbles = Bubbles(
        rank,
        iteration,
        stage[rank],
        stages[rank],
        _micro_batches(receives, chain_of, rank, iteration),
        groups.count(),
        groups.sum((receives.sender != NO_ID).astype(np.int64)),
        *(groups.sum(times_ns) for times_ns in _waited_ns(receives, end_ns, exposed)),
    )
    return bubbles.take(np.lexsort((bubbles.iteration, bubbles.rank)))


def _receives(ranks: Sequence[RankCollectives], pairs: Pairs) -> _Receives:
    ops, rank, _ = every_op(ranks)
    sender, sent_ns = np.full(len(ops), NO_ID), np.full(len(ops), NO_TIME)
    received = _first_ops(ranks)[pairs.receiver] + pairs.receive_row
    sender[received], sent_ns[received] = pairs.sender, _sends(ranks, pairs).start_ns
    rows = np.flatnonzero(ops.selected & (ops.kind == kind_numbers(["Receive"])[0]))
    rows = rows[np.lexsort((ops.start_ns[rows], rank[rows]))]
    columns = (rank, ops.iteration, ops.start_ns, ops.end_ns, sender, sent_ns)
    return _Receives(*(column[rows] for column in columns))


def _sends(ranks: Sequence[RankCollectives], pairs: Pairs) -> Collectives:
    """Return the send of each pair."""
    return every_op(ranks)[0].take(_first_ops(ranks)[pairs.sender] + pairs.send_row)


def _first_ops(ranks: Sequence[RankCollectives]) -> Int64:
    """Return the offset of the ops of each rank among those of all."""
    return np.cumsum([0, *(len(rank.ops) for rank in ranks)])


def _waited_ns(
    receives: _Receives, end_ns: Int64, exposed: Sequence[IntervalSet]
) -> tuple[Int64, Int64]:
    """Return how much waiting each receive adds to earlier ones of its rank, in total and exposed.

    end_ns: when each receive stops waiting.
    """
    added_ns, exposed_ns = np.zeros((2, len(receives)), np.int64)
    bounds = np.flatnonzero(are_first(receives.rank)).tolist()
    for first, stop in pairwise([*bounds, len(receives)]):
        start_ns = receives.start_ns[first:stop]
        upto_ns = np.maximum.accumulate(end_ns[first:stop])
        before_ns = np.concatenate([start_ns[:1], upto_ns[:-1]])
        begin_ns = np.maximum(start_ns, before_ns)
        until_ns = np.maximum(begin_ns, end_ns[first:stop])
        rank_exposed = exposed[receives.rank[first]]
        added_ns[first:stop] = until_ns - begin_ns
        exposed_ns[first:stop] = covered_between(rank_exposed, begin_ns, until_ns)
    return added_ns, exposed_ns


# -- stages ----------------------------------------------------------------------------------------


def _chains(ranks: Sequence[RankCollectives], pairs: Pairs) -> list[list[int]]:
    """Return chains of ranks that pass data from one to the next, without branches or cycles."""
    after: dict[int, set[int]] = {}
    before: dict[int, set[int]] = {}
    for one, next_one in _forward(ranks, pairs):
        after.setdefault(one, set()).add(next_one)
        before.setdefault(next_one, set()).add(one)
    chains = []
    for head in sorted(after.keys() - before.keys()):
        chain = [head]
        while (following := after.get(chain[-1])) and len(following) == 1:
            (successor,) = following
            if successor in chain or len(before[successor]) > 1:
                break
            chain.append(successor)
        if chain[-1] not in after:
            chains.append(chain)
    return chains


def _forward(ranks: Sequence[RankCollectives], pairs: Pairs) -> Iterator[tuple[int, int]]:
    """Yield pairs of neighbours, each rank before the one that it sends to first in most steps."""
    sends = _sends(ranks, pairs)
    low, high = np.minimum(pairs.sender, pairs.receiver), np.maximum(pairs.sender, pairs.receiver)
    order = np.lexsort((sends.start_ns, sends.iteration, high, low))
    ordered = pairs.take(order)
    steps = group_by(len(ordered), [low[order], high[order], sends.iteration[order]])
    first = ordered.take(steps.first)
    votes: dict[tuple[int, int], int] = {}
    for sender, receiver in zip(first.sender.tolist(), first.receiver.tolist(), strict=True):
        edge = min(sender, receiver), max(sender, receiver)
        votes[edge] = votes.get(edge, 0) + (1 if sender < receiver else -1)
    for (one, other), vote in votes.items():
        if vote:
            yield (one, other) if vote > 0 else (other, one)


def _has_neighbours_unread(
    ranks: Sequence[RankCollectives], pairs: Pairs, chain: Sequence[int]
) -> bool:
    """Return whether a rank of a chain also sends to, or receives from, ranks that are not read."""
    kinds = kind_numbers(["Send", "Receive"])
    for at in chain:
        ops = ranks[at].ops
        passed = np.count_nonzero(ops.selected & np.isin(ops.kind, kinds))
        matched = np.count_nonzero((pairs.sender == at) | (pairs.receiver == at))
        if passed - matched > MOST_UNMATCHED * passed:
            return True
    return False


def _micro_batches(receives: _Receives, chain_of: Int64, rank: Int64, iteration: Int64) -> Int64:
    """Return how often ranks receive from each neighbour in a step, if equal within a chain.

    NO_ID otherwise. chain_of: the chain of each rank. rank, iteration: the requested ranks and
    steps.
    """
    chain = chain_of[receives.rank]
    in_chain = (receives.sender != NO_ID) & (chain != NO_ID)
    chained, chain = receives.take(in_chain), chain[in_chain]
    edges = group_by(len(chained), [chain, chained.iteration, chained.rank, chained.sender])
    counts = edges.count()
    chain, step = chain[edges.first], chained.iteration[edges.first]
    steps = group_by(len(counts), [chain, step])
    least, greatest = steps.least(counts), steps.greatest(counts)
    keys = zip(chain[steps.first].tolist(), step[steps.first].tolist(), strict=True)
    batches = dict(zip(keys, np.where(least == greatest, least, NO_ID).tolist(), strict=True))
    wanted = zip(chain_of[rank].tolist(), iteration.tolist(), strict=True)
    return np.array([batches.get(key, NO_ID) for key in wanted], np.int64)
