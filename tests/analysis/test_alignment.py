"""Proves that alignment finds the clocks of simulated clusters, which are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import at_most
from tests.support.simulated_cluster import Cluster, simulate
from timeline.analysis.alignment import align
from timeline.analysis.clocks import JoinedClock, RankClock, join_clocks
from timeline.analysis.waits.collectives import Collectives, RankCollectives, rank_collectives
from timeline.analysis.waits.shared_ops import Islands
from timeline.analysis.waits.waiting import Waiting, measure_waiting
from timeline.columns.columns import Int64
from timeline.columns.strings import StringPool
from timeline.records.clock import Clock, ClockMove
from timeline.records.not_given import NO_ID
from timeline.records.tables import CommunicationOps, Records


def _off_by(cluster: Cluster) -> Int64:
    """How far the offsets found are from the true ones, both counted from the lowest rank."""
    found = align(cluster.ranks).offsets_ns
    true = cluster.offsets_ns - cluster.offsets_ns[0]
    return np.asarray(np.abs(found - true))


@given(
    ranks=st.integers(2, 24),
    width=st.integers(2, 6),
    ops=st.integers(12, 40),
    seed=st.integers(0, 1 << 30),
)
@settings(max_examples=at_most(60), deadline=None)
def test_offsets_are_found_within_the_noise(ranks: int, width: int, ops: int, seed: int) -> None:
    """Rows and columns of a grid of ranks, late ranks, lost ops: every offset is found."""
    noise_ns = 1500
    cluster = simulate(
        ranks, width=width, ops=ops, seed=seed, noise_ns=noise_ns, offset_ns=200_000, lost=0.1
    )
    assert _off_by(cluster).max() <= 4 * noise_ns


def test_ranks_without_a_common_group_are_connected_through_others() -> None:
    """Groups overlap in one rank each: a chain, whose ends never meet."""
    cluster = simulate(
        9,
        groups=[(0, 1, 2), (2, 3, 4), (4, 5, 6), (6, 7, 8)],
        ops=60,
        noise_ns=500,
        offset_ns=90_000,
    )
    assert _off_by(cluster).max() <= 1500
    assert (align(cluster.ranks).island == 0).all()


def test_islands_keep_their_own_clocks() -> None:
    """Nothing relates two groups that share no rank: each keeps the clock of its lowest rank."""
    cluster = simulate(4, groups=[(0, 1), (2, 3)], ops=30, noise_ns=200, offset_ns=50_000)
    found = align(cluster.ranks)
    assert found.island.tolist() == [0, 0, 2, 2]
    true = cluster.offsets_ns
    assert found.offsets_ns[[0, 2]].tolist() == [0, 0]
    assert abs(found.offsets_ns[3] - (true[3] - true[2])) < 800


def test_a_late_rank_moves_no_clock() -> None:
    """A rank that comes 80 ms late to every collective is late, and its clock is right."""
    cluster = simulate(8, ops=30, noise_ns=500, offset_ns=20_000, late={5: 80_000_000})
    assert _off_by(cluster).max() <= 2000


def test_refused_where_ends_say_less_than_clocks() -> None:
    """Ends that differ by more than the clocks correct nothing, and the reason says so."""
    cluster = simulate(2, ops=8, noise_ns=60_000, offset_ns=5_000, seed=3)
    found = align(cluster.ranks)
    assert found.offsets_ns.tolist() == [0, 0]
    assert not found.used.any()
    assert "no less than the clocks" in found.reasons[0]


def test_refused_where_nothing_is_shared() -> None:
    """Ranks without a common collective keep their clocks."""
    cluster = simulate(3, groups=[(0,), (1,), (2,)], ops=5)
    found = align(cluster.ranks)
    assert found.reasons == ("no two ranks share 3 collectives that end together",)
    assert found.ops.tolist() == [0, 0, 0]


@pytest.mark.parametrize("kind", ["send", "receive", "batchSendRecv", "reduceScatter"])
def test_ends_that_wait_are_not_used(kind: str) -> None:
    """Ends of point-to-point ops and scatters differ by what they wait for."""
    cluster = simulate(4, ops=20, kind=kind, offset_ns=50_000)
    assert align(cluster.ranks).ops.tolist() == [0, 0, 0, 0]


def test_a_rank_alone_is_on_no_common_clock() -> None:
    """One rank has nobody to be aligned with."""
    cluster = simulate(2, ops=20)
    assert align(cluster.ranks[:1]).offsets_ns.tolist() == [0]
    assert align([]).offsets_ns.tolist() == []


def test_steps_that_one_rank_did_not_record_are_left_alone() -> None:
    """A rank that began to record two steps later is matched by step, not by count."""
    cluster = simulate(3, groups=[(0, 1, 2)], ops=40, steps=8, noise_ns=300, offset_ns=70_000)
    second = cluster.ranks[1]
    late = replace(second, ops=second.ops.take(second.ops.iteration >= 2))
    found = align([cluster.ranks[0], late, cluster.ranks[2]])
    true = cluster.offsets_ns - cluster.offsets_ns[0]
    assert np.abs(found.offsets_ns - true).max() < 1500
    assert found.ops[1] == len(late.ops)


def test_drifts_are_found_and_put_right() -> None:
    """Clocks that run apart by up to 50 ppm: corrected ends agree within the noise all along.

    Of one run in twenty-five the drift is not told from noise, and then none is put right.
    """
    missed = [seed for seed in range(25) if not _finds_drift(seed, ranks=2 + seed % 11)]
    assert len(missed) <= 2, missed


def _finds_drift(seed: int, ranks: int) -> bool:
    """Whether the ends of collectives agree, and drifts are as they were made, or none is."""
    noise_ns = 500
    cluster = simulate(
        ranks, width=4, ops=120, seed=seed, noise_ns=noise_ns, offset_ns=50_000, drift_ppb=50_000
    )
    clocks = [RankClock(at, Clock(), False, None, rank) for at, rank in enumerate(cluster.ranks)]
    joined = join_clocks(clocks)
    found = np.array([-move.move.drift_ppb for move in joined.moves])
    true = cluster.drifts_ppb - cluster.drifts_ppb[0]
    if np.abs(found - true).max() > 0.1 * 50_000:
        assert not found.any()
        return False
    ends: dict[int, list[int]] = {}
    for rank, move in zip(cluster.ranks, joined.moves, strict=True):
        moved = rank.moved(move.move).ops
        for key, end_ns in zip(moved.key.tolist(), moved.end_ns.tolist(), strict=True):
            ends.setdefault(key, []).append(end_ns)
    apart = [max(moments) - min(moments) for moments in ends.values() if len(moments) > 1]
    return bool(np.quantile(apart, 0.95) <= 8 * noise_ns)


@given(
    offset=st.integers(-(10**12), 10**12),
    drift=st.integers(-100_000, 100_000),
    origin=st.integers(0, 2 * 10**18),
    times=st.lists(st.integers(-(10**12), 10**12), min_size=2, max_size=20),
)
def test_moves_keep_order_and_have_a_way_back(
    offset: int, drift: int, origin: int, times: list[int]
) -> None:
    """What came first stays first, and going back finds the first time that moves there."""
    move = ClockMove(offset, drift, origin)
    moved = [move.of_time(origin + time) for time in sorted(times)]
    assert moved == sorted(moved)
    for time in moved:
        back = move.back(time)
        assert move.of_time(back) >= time > move.of_time(back - 1)


def _at_microseconds(cluster: Cluster, ops: int) -> list[RankCollectives]:
    """The first ops of each rank, with times that were rounded down to microseconds."""
    made = []
    for rank in cluster.ranks:
        held = rank.ops.take(np.arange(ops))
        start_ns, end_ns = held.start_ns // 1000 * 1000, held.end_ns // 1000 * 1000
        made.append(replace(rank, ops=replace(held, start_ns=start_ns, end_ns=end_ns)))
    return made


@given(seed=st.integers(0, 1 << 30), ranks=st.integers(2, 8))
@settings(max_examples=at_most(40), deadline=None)
def test_few_rounded_ends_move_no_clock(seed: int, ranks: int) -> None:
    """Three AllReduces of integer microseconds cannot tell clocks that are off by less."""
    group = tuple(range(ranks))
    cluster = simulate(ranks, groups=[group], ops=3, noise_ns=700, offset_ns=1500, seed=seed)
    found = align(_at_microseconds(cluster, 3))
    assert not found.used.any()
    assert found.offsets_ns.tolist() == [0] * ranks


def test_rounded_ends_find_clocks_that_are_far_off() -> None:
    """What is much more than a microsecond is seen by few ends too."""
    cluster = simulate(4, groups=[(0, 1, 2, 3)], ops=3, noise_ns=300, offset_ns=400_000)
    found = align(_at_microseconds(cluster, 3))
    true = cluster.offsets_ns - cluster.offsets_ns[0]
    assert np.abs(found.offsets_ns - true).max() < 3000


def test_collectives_that_were_not_fitted_have_a_say() -> None:
    """Clocks that AllReduces alone would move stay if all other collectives agree as they are."""
    ends = simulate(4, groups=[(0, 1, 2, 3)], ops=6, noise_ns=300, offset_ns=9000, seed=2)
    others = simulate(4, groups=[(0, 1, 2, 3)], ops=6, noise_ns=100, kind="alltoall", seed=2)
    assert align(ends.ranks).used.all()
    both = [
        replace(rank, ops=Collectives.concat([rank.ops, other.ops]))
        for rank, other in zip(ends.ranks, others.ranks, strict=True)
    ]
    found = align(both)
    assert not found.used.any()
    assert "other collectives would end" in found.reasons[0]


# -- islands ---------------------------------------------------------------------------------------


def _hosts(
    hosts: int,
    *,
    steps: int = 60,
    offset_ns: int = 250_000,
    drift_ppb: int = 0,
    late: Mapping[int, int] | None = None,
    kind: str = "alltoall",
    empty: float = 0.0,
    odd: bool = False,
    seed: int = 1,
) -> tuple[list[RankCollectives], Int64, int]:
    """Hosts of two ranks that reduce among themselves, and share another kind with all.

    Args:
        late: by how much ranks come late to what all share.
        empty: how often a rank has nothing to receive of it, and leaves at once.
        odd: whether one record of rank 2 is wrong by 30 ms.

    Returns:
        What they recorded, how far the clock of each is ahead, and what they waited in truth.
    """
    chance = np.random.default_rng(seed)
    count, waited_ns = 2 * hosts, 0
    now_ns = np.zeros(count, np.int64)
    spans: list[list[tuple[int, int, str]]] = [[] for _ in range(count)]
    groups = [("allReduce", (2 * host, 2 * host + 1)) for host in range(hosts)]
    for step in range(steps):
        for place, (name, group) in enumerate([*groups, (kind, tuple(range(count)))]):
            members = np.array(group)
            shared = name == kind
            start_ns = now_ns[members] + 300_000 + chance.integers(0, 30_000, len(group))
            if shared:
                start_ns += np.array([(late or {}).get(rank, 0) for rank in group])
            end_ns = start_ns.max() + (400_000 if shared else 60_000)
            ends_ns = end_ns + chance.integers(0, 20_000 if shared else 2000, len(group))
            if shared and chance.random() < empty:
                early = int(chance.integers(len(group)))
                ends_ns[early] = start_ns[early] + 5000
            now_ns[members] = ends_ns
            waited_ns += int((start_ns.max() - start_ns).sum())
            op = f"hcom_{name}__{place:03d}_{step}_1"
            for rank, begin, end in zip(group, start_ns.tolist(), ends_ns.tolist(), strict=True):
                spans[rank].append((begin, end, op))
    off_ns = np.repeat(np.append(0, chance.choice([-offset_ns, offset_ns], hosts - 1)), 2)
    fast = np.repeat(np.append(0, chance.integers(-drift_ppb, drift_ppb + 1, hosts - 1)), 2)
    ranks = []
    for rank, ops in enumerate(spans):
        clock, strings = ClockMove(10**18 + int(off_ns[rank]), int(fast[rank])), StringPool()
        ends = [clock.of_time(op[1]) for op in ops]
        if odd and rank == 2:
            ends[7] += 30_000_000
        columns = {
            "start_ns": [clock.of_time(op[0]) for op in ops],
            "end_ns": ends,
            "name": strings.codes(op[2] for op in ops),
            "group": strings.codes(f"Group {op[2].split('_')[3]}" for op in ops),
        }
        made = CommunicationOps.of(len(ops), columns)
        records = Records(rank, strings, ops=made)
        ranks.append(rank_collectives(records, np.arange(len(ops)) // 2))
    return ranks, off_ns, waited_ns


def _measured(ranks: Sequence[RankCollectives]) -> tuple[JoinedClock, Waiting]:
    joined = join_clocks([RankClock(at, Clock(), False, None, one) for at, one in enumerate(ranks)])
    moved = [rank.moved(move.move) for rank, move in zip(ranks, joined.moves, strict=True)]
    islands = Islands(
        np.array([move.island for move in joined.moves]),
        np.array([move.doubt_ns for move in joined.moves]),
    )
    return joined, measure_waiting(moved, 0, islands)


@pytest.mark.parametrize("kind", ["alltoall", "reduceScatter"])
@pytest.mark.parametrize("offset_ns", [50_000, 250_000, 800_000, 5_000_000])
@pytest.mark.parametrize("hosts", [2, 3])
def test_hosts_are_joined_by_what_need_not_end_together(
    kind: str, offset_ns: int, hosts: int
) -> None:
    """An offset longer than the op itself too; all ops are compared, and nobody is named."""
    ranks, off_ns, waited_ns = _hosts(hosts, kind=kind, offset_ns=offset_ns, drift_ppb=20_000)
    joined, waiting = _measured(ranks)
    found = align(ranks)
    assert np.abs(found.offsets_ns - off_ns).max() < 6000
    assert found.joint.tolist() == np.repeat(np.arange(hosts) * 2, 2).tolist()
    assert waiting.mismatched == 0
    assert waiting.stragglers.shared.tolist() == [120] * len(ranks)
    assert int(waiting.waits.waited_ns.sum()) == pytest.approx(waited_ns, rel=0.05)
    waits = waiting.waits.take(waiting.waits.waited_ns > 0)
    named = waits.last_rank != NO_ID
    assert (waits.rank[named] // 2 == waits.last[named] // 2).all()
    assert "their clocks may differ by up to" in "\n".join(joined.warnings)


@pytest.mark.parametrize("offset_ns", [0, 30_000])
def test_hosts_keep_clocks_that_differ_no_more_than_such_ends(offset_ns: int) -> None:
    """Less than ends are apart on one host is not corrected, and is said to be in doubt."""
    ranks, _, _ = _hosts(2, offset_ns=offset_ns)
    found = align(ranks)
    assert found.offsets_ns.tolist() == [0] * 4
    assert found.doubt_ns.min() > 200_000


def test_a_rank_that_is_late_by_more_than_clocks_may_be_off_is_named() -> None:
    """Others of its host wait for it whatever the clocks are; those of other hosts then too."""
    for late_ns, by_others in ((100_000, False), (2_000_000, True)):
        ranks, _, _ = _hosts(2, late={1: late_ns})
        waits = _measured(ranks)[1].waits
        waited = waits.take(waits.waited_ns > 90_000)
        assert set(waited.last_rank[waited.rank == 0].tolist()) == {1}
        others = set(waited.last_rank[waited.rank > 1].tolist())
        assert others == ({1} if by_others else {NO_ID})


def test_odd_and_empty_records_move_no_clock() -> None:
    """Neither one wrong end, nor ranks that leave before others come, say where clocks are."""
    ranks, off_ns, _ = _hosts(2, odd=True)
    assert np.abs(align(ranks).offsets_ns - off_ns).max() < 6000
    ranks, _, _ = _hosts(2, odd=True, offset_ns=0)
    assert align(ranks).offsets_ns.tolist() == [0] * 4
    ranks, off_ns, _ = _hosts(2, empty=0.3)
    assert np.abs(align(ranks).offsets_ns - off_ns).max() < 10_000


def test_ranks_of_one_host_are_on_one_island() -> None:
    """Where hosts are known, all of one have one clock, and lateness between them is exact."""
    ranks, _, _ = _hosts(4, offset_ns=0)
    found = align(ranks, ["a"] * 4 + ["b"] * 4)
    assert found.joint.tolist() == [0] * 4 + [4] * 4
    assert align(ranks, ["a"] * 8).doubt_ns.tolist() == [0] * 8
