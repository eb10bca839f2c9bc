"""Proves that a run that is played again ends as recorded, and sooner where a rank is faster."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.random_records import Sizes, random_records
from tests.support.simulated_cluster import Cluster, simulate
from timeline.analysis.path.op_arrivals import op_arrivals
from timeline.analysis.path.rank_replay import rank_replay
from timeline.analysis.path.replay import Replay, ReplayedRank, estimate_gain_ns
from timeline.analysis.waits.collectives import RankCollectives, rank_collectives
from timeline.analysis.waits.waiting import measure_waiting
from timeline.records.not_given import NO_ID
from timeline.records.tables import Records


def _replayed(
    records: Sequence[Records], collectives: Sequence[RankCollectives]
) -> list[ReplayedRank]:
    arrivals = op_arrivals(collectives, measure_waiting(collectives))
    return [
        ReplayedRank(rank_replay(record, its.ops.selected), came)
        for record, its, came in zip(records, collectives, arrivals, strict=True)
    ]


def _of_cluster(cluster: Cluster) -> list[ReplayedRank]:
    return _replayed(cluster.records, cluster.ranks)


@given(st.integers(0, 1 << 20), st.integers(1, 6), st.integers(1, 60), st.integers(0, 4))
@settings(max_examples=40, deadline=None)
def test_random_records_end_as_recorded(seed: int, steps: int, tasks: int, ops: int) -> None:
    """With the recorded lengths every item of random records ends when it did, to the ns."""
    sizes = Sizes(steps=steps, tasks=tasks, ops=ops, calls=30, samples=0)
    records = [random_records(number, sizes, seed) for number in range(3)]
    collectives = [rank_collectives(record, np.full(len(record.ops), NO_ID)) for record in records]
    replay = Replay(_replayed(records, collectives))
    np.testing.assert_array_equal(replay.ends_ns(replay.length_ns), replay.end_ns)


@given(
    ranks=st.integers(2, 9),
    width=st.integers(2, 4),
    ops=st.integers(1, 12),
    seed=st.integers(0, 1 << 30),
)
@settings(max_examples=40, deadline=None)
def test_clusters_end_as_recorded(ranks: int, width: int, ops: int, seed: int) -> None:
    """With the recorded lengths every item of a cluster ends when it did, to the ns."""
    replay = Replay(_of_cluster(simulate(ranks, width=width, ops=ops, seed=seed)))
    np.testing.assert_array_equal(replay.ends_ns(replay.length_ns), replay.end_ns)


@given(
    ranks=st.integers(3, 9),
    ops=st.integers(2, 12),
    late=st.integers(100_000, 900_000),
    seed=st.integers(0, 1 << 30),
)
@settings(max_examples=40, deadline=None)
def test_the_gain_is_that_of_the_cluster_without_its_slow_rank(
    ranks: int, ops: int, late: int, seed: int
) -> None:
    """A cluster made again without its slow rank ends as much earlier, within 5%."""
    culprit = seed % ranks
    group = [tuple(range(ranks))]
    slow = simulate(ranks, groups=group, ops=ops, late={culprit: late}, seed=seed)
    healthy = simulate(ranks, groups=group, ops=ops, seed=seed)
    true_ns = _end_ns(slow) - _end_ns(healthy)
    gain_ns = estimate_gain_ns(_of_cluster(slow), culprit)
    assert gain_ns is not None
    # What the slow rank would have been faster or slower than the median is not known.
    assert abs(gain_ns - true_ns) <= 0.05 * true_ns + 20_000 * ops / 2


def test_nothing_is_estimated_of_one_rank_alone() -> None:
    """Without another rank nothing tells how fast a rank could be."""
    (only,) = _of_cluster(simulate(1, groups=[(0,)], ops=3))
    assert estimate_gain_ns([only], 0) is None


def _end_ns(cluster: Cluster) -> int:
    return max(int(record.ops.end_ns.max()) for record in cluster.records)
