"""Proves that simulated clusters are joined into runs that are played as recorded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.random_records import Sizes, random_records
from tests.support.simulated_cluster import Cluster, simulate
from timeline.analysis.gains.findings import (
    Cause,
    FindingKind,
    Run,
    estimate_gain_ns,
    find_losses,
)
from timeline.analysis.gains.replay import Replay
from timeline.analysis.gains.run import gather_run
from timeline.analysis.questions import Questions
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.waits.collectives import RankCollectives
from timeline.analysis.waits.waiting import measure_waiting
from timeline.columns.strings import StringPool
from timeline.options import StepOperators
from timeline.ranks.rank_work import RankRequest, draw_rank_from_records
from timeline.records.not_given import NO_ID
from timeline.records.tables import Records
from timeline.selection import Selection

REQUEST = RankRequest(Selection(), StepOperators(), draw=False, questions=Questions(causes=True))


def _facts(records: Records) -> RankFacts:
    return draw_rank_from_records(records, REQUEST).facts


def _gathered(facts: list[RankFacts]) -> Run:
    run = gather_run(facts, measure_waiting([one.collectives for one in facts]))
    assert run is not None
    return run


def _of_cluster(cluster: Cluster) -> Run:
    return _gathered(
        [
            replace(_facts(records), collectives=collectives)
            for records, collectives in zip(cluster.records, cluster.ranks, strict=True)
        ]
    )


def _check_replay(run: Run) -> Replay:
    replay = Replay(run.ranks, run.start_ns)
    np.testing.assert_array_equal(replay.unchanged.times_ns, replay.recorded_ns)
    return replay


@given(st.integers(0, 1 << 20), st.integers(1, 6), st.integers(1, 60), st.integers(0, 4))
@settings(max_examples=20, deadline=None)
def test_random_records_are_played_as_recorded(seed: int, steps: int, tasks: int, ops: int) -> None:
    """Every task, op and host call of random records, of one rank and of several."""
    sizes = Sizes(steps=steps, tasks=tasks, ops=ops, calls=30, samples=0)
    facts = [_facts(random_records(number, sizes, seed)) for number in range(3)]
    run = _gathered(facts)
    _check_replay(run)
    _check_replay(_gathered(facts[:1]))
    assert run.step_times_ns.sum() <= run.recording_ns
    assert (run.step_times_ns >= 0).all()
    for rank, one in zip(run.ranks, facts, strict=True):
        work = rank.recording.work
        launched = np.flatnonzero(work.launch != NO_ID)
        points = rank.recording.points
        assert (points.time_ns[work.launch[launched]] <= work.start_ns[launched]).all()
        assert (np.diff(points.time_ns) >= 0).all()
        assert np.count_nonzero(work.collective != NO_ID) == len(one.collectives.ops)


@given(
    ranks=st.integers(2, 9),
    width=st.integers(2, 4),
    ops=st.integers(1, 12),
    seed=st.integers(0, 1 << 30),
)
@settings(max_examples=20, deadline=None)
def test_clusters_are_played_as_recorded(ranks: int, width: int, ops: int, seed: int) -> None:
    """All that ranks of a grid did, to the nanosecond; the run is whole and of one class."""
    run = _of_cluster(simulate(ranks, width=width, ops=ops, seed=seed))
    _check_replay(run)
    assert run.is_whole
    assert len(set(run.classes)) == 1


@given(
    ranks=st.integers(3, 9),
    ops=st.integers(2, 12),
    late=st.integers(100_000, 900_000),
    seed=st.integers(0, 1 << 30),
)
@settings(max_examples=20, deadline=None)
def test_the_gain_is_that_of_the_cluster_without_its_slow_rank(
    ranks: int, ops: int, late: int, seed: int
) -> None:
    """A cluster made again without it ends as much earlier, but for what lies before its first op.

    Without steps what lies between two ops of all ranks is compared, and no more.
    """
    culprit = seed % ranks
    group = [tuple(range(ranks))]
    slow = simulate(ranks, groups=group, ops=ops, late={culprit: late}, seed=seed)
    healthy = simulate(ranks, groups=group, ops=ops, seed=seed)
    true_ns = _end_ns(slow) - _end_ns(healthy)
    run = _of_cluster(slow)
    gain_ns = estimate_gain_ns(run, culprit)
    compared_ns = true_ns * (ops - 1) // ops
    # What the slow rank would have been faster or slower than the median is not known.
    assert abs(gain_ns - compared_ns) <= 20_000 * ops
    others_ns = [estimate_gain_ns(run, rank) for rank in range(ranks) if rank != culprit]
    assert max(others_ns) <= 20_000 * ops


def _end_ns(cluster: Cluster) -> int:
    return max(int(record.ops.end_ns.max()) for record in cluster.records)


def test_nothing_is_wrong_with_one_rank_alone() -> None:
    """Without another rank nothing tells how fast a rank could be."""
    run = _of_cluster(simulate(1, groups=[(0,)], ops=3))
    assert not [one for one in find_losses(run).found if one.fault]


def test_ranks_that_share_no_op_are_not_compared_without_steps() -> None:
    run = _of_cluster(simulate(4, groups=[(0, 1), (2, 3)], ops=6, late={3: 500_000}))
    assert not [one for one in find_losses(run).found if one.fault]


def test_the_late_rank_without_a_recording_is_named() -> None:
    """Its notifies tell when it came; that its peers wait for it is no fault of theirs."""
    cluster = simulate(
        4, groups=[(0, 1, 2, 3)], ops=12, late={3: 400_000}, profiled=[0, 1, 2], tasks=True
    )
    run = _of_cluster(cluster)
    assert not run.is_whole
    replay = _check_replay(run)
    first, *_ = find_losses(run).found
    assert (first.kind, first.absent, first.cause) == (FindingKind.SLOW_RANK, 3, Cause.UNKNOWN)
    assert first.gain_ns == pytest.approx(12 * 400_000, rel=0.1)
    assert first.gain_ns < replay.unchanged.total_ns


def test_nothing_is_gathered_of_ranks_that_did_nothing() -> None:
    assert (
        gather_run([_facts(Records(0, StringPool()))], measure_waiting([RankCollectives()])) is None
    )
