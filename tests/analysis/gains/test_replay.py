"""Proves that a run is played as it was recorded, and no later where something takes less."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.support.random_recordings import START_NS, random_ranks
from timeline.analysis.gains.mends import Mends, Part
from timeline.analysis.gains.recording import DeviceWork, Recording
from timeline.analysis.gains.replay import RankOps, RecordedRank, Replay
from timeline.analysis.path.rank_path import PathKind
from timeline.columns.columns import Int64
from timeline.records.not_given import NO_ID

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
    on_path = np.isin(mends.parts.node, unchanged.path)
    played = replay.play(mends.sooner_ns(less_ns))
    gain_ns = unchanged.total_ns - played.times_ns[unchanged.path[0]]
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
