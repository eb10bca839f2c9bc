"""Proves that runs are joined and played as recorded, and no later where something takes less."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.random_recordings import START_NS, random_ranks
from tests.support.random_records import Sizes, random_records
from tests.support.simulated_cluster import Cluster, simulate
from timeline.analysis.gains.findings import Cause, FindingKind, Run, estimate_gain_ns, find_losses
from timeline.analysis.gains.mends import Mends, Part
from timeline.analysis.gains.recording import DeviceWork, Recording
from timeline.analysis.gains.replay import RankOps, RecordedRank, Replay
from timeline.analysis.gains.run import gather_run
from timeline.analysis.path.rank_path import PathKind
from timeline.analysis.questions import Questions
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.waits.collectives import RankCollectives
from timeline.analysis.waits.waiting import measure_waiting
from timeline.columns.columns import Int64
from timeline.columns.strings import StringPool
from timeline.options import StepOperators
from timeline.ranks.rank_work import RankRequest, draw_rank_from_records
from timeline.records.not_given import NO_ID
from timeline.records.tables import Records
from timeline.selection import Selection

seeds = st.integers(0, 1 << 30)


def _mends(replay: Replay, ranks: list[RecordedRank]) -> Mends:
    steps = [np.arange(4)] * len(ranks)
    return Mends.of(replay, ranks, steps, [0] * len(ranks))


def _less_ns(mends: Mends, seed: int) -> Int64:
    """Some of the time of some parts."""
    chance = np.random.default_rng(seed)
    share = chance.random(len(mends.parts)) * (chance.random(len(mends.parts)) < 0.5)
    return (mends.parts.time_ns * share).astype(np.int64)


@given(seeds, st.integers(1, 4), st.integers(1, 12), st.integers(0, 5))
def test_without_a_change_each_node_comes_when_it_did(
    seed: int, ranks: int, items: int, shared: int
) -> None:
    """To the nanosecond, whatever seems to wait for what, and with all mends zero too."""
    made = random_ranks(seed, ranks, 4, items, shared)
    replay = Replay(made, START_NS)
    np.testing.assert_array_equal(replay.unchanged.times_ns, replay.recorded_ns)
    assert replay.residual_ns == 0
    mends = _mends(replay, made)
    played = replay.play(mends.sooner_ns(np.zeros(len(mends.parts), np.int64)))
    np.testing.assert_array_equal(played.times_ns, replay.recorded_ns)


@given(seeds, st.integers(1, 4), st.integers(1, 12), st.integers(0, 5))
def test_nodes_are_those_of_the_recording(seed: int, ranks: int, items: int, shared: int) -> None:
    """Each item ends and each point of a host comes at its node, after all that it waits for."""
    made = random_ranks(seed, ranks, 4, items, shared)
    replay = Replay(made, START_NS)
    ends_ns = np.concatenate([rank.recording.work.end_ns for rank in made])
    points_ns = np.concatenate([rank.recording.points.time_ns for rank in made])
    np.testing.assert_array_equal(replay.recorded_ns[replay.item_end], ends_ns - START_NS)
    np.testing.assert_array_equal(replay.recorded_ns[replay.point], points_ns - START_NS)
    nodes = np.concatenate([[0], np.unique(np.append(replay.item_start, replay.item_end))])
    assert len(nodes) + len(replay.point) == len(replay.recorded_ns)


@given(seeds, st.integers(1, 4), st.integers(1, 12), st.integers(0, 5), seeds)
def test_what_takes_less_makes_nothing_later(
    seed: int, ranks: int, items: int, shared: int, other: int
) -> None:
    """No node comes later, and the more parts take less, the sooner all nodes come."""
    made = random_ranks(seed, ranks, 4, items, shared)
    replay = Replay(made, START_NS)
    mends = _mends(replay, made)
    less_ns = _less_ns(mends, other)
    more_ns = np.maximum(less_ns, _less_ns(mends, other + 1))
    less, more = (replay.play(mends.sooner_ns(its)) for its in (less_ns, more_ns))
    assert (less.times_ns <= replay.recorded_ns).all()
    assert (more.times_ns <= less.times_ns).all()


@given(seeds, st.integers(1, 4), st.integers(1, 12), st.integers(0, 5), seeds)
def test_a_gain_is_no_more_than_what_lies_on_the_critical_path(
    seed: int, ranks: int, items: int, shared: int, other: int
) -> None:
    """What it does not hold wins nothing."""
    made = random_ranks(seed, ranks, 4, items, shared)
    replay = Replay(made, START_NS)
    mends = _mends(replay, made)
    less_ns = _less_ns(mends, other)
    unchanged = replay.unchanged
    assert unchanged.total_ns == replay.recorded_ns.max()
    path = replay.path(unchanged)
    on_path = np.isin(mends.parts.node, path)
    played = replay.play(mends.sooner_ns(less_ns))
    gain_ns = unchanged.total_ns - played.times_ns[path[0]]
    assert 0 <= gain_ns <= less_ns[on_path].sum()
    elsewhere = replay.play(mends.sooner_ns(np.where(on_path, 0, less_ns)))
    assert elsewhere.total_ns == unchanged.total_ns


def _rank(spans: list[tuple[int, int, bool]], op: int, *, known: bool = True) -> RecordedRank:
    """A rank whose items, each a task or the only op, follow each other on one stream."""
    start_ns, end_ns, is_op = (np.array(its) for its in zip(*spans, strict=True))
    count = len(spans)
    work = DeviceWork.of(
        count,
        {
            "start_ns": START_NS + start_ns,
            "end_ns": START_NS + end_ns,
            "kind": np.where(is_op, PathKind.TRANSFER, PathKind.COMPUTING),
            "name": np.arange(1, count + 1),
            "collective": np.where(is_op, 0, NO_ID),
            "before": np.arange(count) - 1,
            "stream_before": np.arange(count) - 1,
            "step": np.zeros(count),
        },
    )
    ops = RankOps.of(
        1,
        {
            "op": [op],
            "known": [known],
            "arrived_ns": [START_NS + 50],
            "absent": [NO_ID if known else 7],
            "like": [0],
            "group": [0],
            "exposed_ns": [0],
        },
    )
    names = ("", *(f"task{number}" for number in range(count)))
    return RecordedRank(Recording(names, work), ops)


def _sooner(ranks: list[RecordedRank], part: Part, rank: int, less_ns: int) -> list[list[int]]:
    """When the items of each rank end if the first such part of one rank takes less."""
    replay = Replay(ranks, START_NS)
    mends = Mends.of(replay, ranks, [np.arange(1)] * len(ranks), [0] * len(ranks))
    its = np.zeros(len(mends.parts), np.int64)
    at = np.flatnonzero((mends.parts.part == part) & (mends.parts.rank == rank))[0]
    its[at] = less_ns
    times_ns = replay.play(mends.sooner_ns(its)).times_ns
    return [
        times_ns[replay.item_end[first:last]].tolist()
        for first, last in pairwise(replay.first_item.tolist())
    ]


def test_an_op_ends_behind_its_last_arrival() -> None:
    """It ends sooner for all only if the one that came last comes sooner."""
    early = _rank([(0, 20, False), (20, 60, True), (60, 70, False)], 0)
    late = _rank([(0, 50, False), (50, 60, True), (60, 90, False)], 0)
    assert _sooner([early, late], Part.COMPUTING, 0, 10) == [[10, 60, 70], [50, 60, 90]]
    assert _sooner([early, late], Part.COMPUTING, 1, 10) == [[20, 50, 60], [40, 50, 80]]
    # Forty sooner, the other one is the last.
    assert _sooner([early, late], Part.COMPUTING, 1, 40) == [[20, 30, 40], [10, 30, 60]]
    assert _sooner([early, late], Part.TRANSFER, 1, 10) == [[20, 60, 70], [50, 50, 80]]


def test_what_ends_without_its_partner_waits_for_nobody() -> None:
    """A send that has ended before its receive begins lets its own rank go on."""
    sender = _rank([(0, 20, False), (20, 30, True), (30, 90, False)], 0)
    receiver = _rank([(0, 50, False), (50, 60, True), (60, 70, False)], 0)
    assert _sooner([sender, receiver], Part.COMPUTING, 0, 10)[0] == [10, 20, 80]
    assert _sooner([sender, receiver], Part.COMPUTING, 1, 10)[0] == [20, 30, 90]


def test_an_op_with_an_absent_member_stays_where_it_was() -> None:
    """It ends no sooner for what its recorded members do, unless the absent one comes sooner."""
    (recorded,) = [_rank([(0, 20, False), (20, 60, True), (60, 90, False)], 0, known=False)]
    assert _sooner([recorded], Part.COMPUTING, 0, 10) == [[10, 60, 90]]
    assert _sooner([recorded], Part.ABSENCE, 0, 30) == [[20, 30, 60]]


def test_items_without_length_at_one_time_keep_their_order() -> None:
    """A fill that also waits for an old task follows the fill right before it."""
    spans = [(0, 10, False), (10, 90, False), (90, 90, False), (90, 90, False), (90, 100, False)]
    rank = _rank([*spans, (100, 110, True)], 0)
    work = replace(rank.recording.work, also=np.array([NO_ID, NO_ID, 0, 0, 0, NO_ID], np.int32))
    gated = replace(rank, recording=replace(rank.recording, work=work))
    (ends_ns,) = _sooner([gated], Part.COMPUTING, 0, 5)
    assert ends_ns == [5, 85, 85, 85, 95, 105]


# -- simulated clusters ----------------------------------------------------------------------------


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
