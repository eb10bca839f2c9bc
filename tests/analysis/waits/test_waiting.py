"""Proves that waiting is told truly, on simulated clusters whose late ranks are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import at_most
from tests.support.simulated_cluster import COMPUTE_NS, TRANSFER_NS, simulate
from timeline.analysis.waits.collectives import RankCollectives
from timeline.analysis.waits.waiting import Waiting, measure_waiting
from timeline.records.clock import ClockMove


def _waits_by_name(
    waiting: Waiting, ranks: tuple[RankCollectives, ...]
) -> dict[str, list[tuple[int, ...]]]:
    """(rank, last, waited, after first, transfer) of each op, by its name."""
    found: dict[str, list[tuple[int, ...]]] = {}
    waits = waiting.waits
    for rank, row, last, waited, after, transfer in zip(
        waits.rank.tolist(),
        waits.row.tolist(),
        waits.last.tolist(),
        waits.waited_ns.tolist(),
        waits.after_first_ns.tolist(),
        waits.transfer_ns.tolist(),
        strict=True,
    ):
        records = ranks[rank]
        name = records.strings[records.ops.name[row]]
        found.setdefault(name, []).append((rank, last, waited, after, transfer))
    return found


@given(
    ranks=st.integers(2, 16),
    width=st.integers(2, 5),
    ops=st.integers(1, 12),
    seed=st.integers(0, 1 << 30),
)
@settings(max_examples=at_most(60), deadline=None)
def test_the_last_arrival_and_all_waits_are_exact(
    ranks: int, width: int, ops: int, seed: int
) -> None:
    """On true clocks every op names its last rank, and waits and transfers add up to the op."""
    cluster = simulate(ranks, width=width, ops=ops, seed=seed)
    waiting = measure_waiting(cluster.ranks)
    assert waiting.mismatched == 0
    by_name = _waits_by_name(waiting, cluster.ranks)
    assert by_name
    for name, rows in by_name.items():
        assert {last for _, last, *_ in rows} == {cluster.last[name]}
        assert all(transfer == TRANSFER_NS for *_, transfer in rows)
        assert min(after for *_, after, _ in rows) == 0
        spread = max(after for *_, after, _ in rows)
        assert all(waited + after == spread for _, _, waited, after, _ in rows)
    stragglers = waiting.stragglers
    assert stragglers.waited_ns.sum() == stragglers.caused_ns.sum()
    assert stragglers.times_last.sum() == len(by_name)
    assert (stragglers.shared + stragglers.alone == [len(rank.ops) for rank in cluster.ranks]).all()
    assert not stragglers.unmatched.any()
    assert waiting.basis.compared == len(by_name)
    assert waiting.basis.compared_ns == stragglers.shared_ns.sum()


def test_bandwidth_is_that_of_the_bus() -> None:
    """A ring of 4 moves 2 * 3/4 of 4 MB after the last arrival: nccl-tests' bus bandwidth."""
    cluster = simulate(4, groups=[(0, 1, 2, 3)], ops=5)
    waits = measure_waiting(cluster.ranks).waits
    assert waits.bandwidth == pytest.approx(2 * 3 / 4 * 4 * (1 << 20) / TRANSFER_NS)


def test_ops_that_cannot_be_one_are_told_apart() -> None:
    """Two groups with the same names: one is over before the other begins."""
    cluster = simulate(2, groups=[(0, 1)], ops=6)
    moved = cluster.ranks[1].moved(ClockMove(10 * (COMPUTE_NS + TRANSFER_NS)))
    waiting = measure_waiting([cluster.ranks[0], moved])
    assert waiting.mismatched == 6
    assert len(waiting.waits) == 0
    assert waiting.stragglers.unmatched.tolist() == [6, 6]
    assert waiting.stragglers.alone.tolist() == [0, 0]
    assert (waiting.basis.compared, waiting.basis.collectives, waiting.basis.share) == (0, 6, 0.0)


def test_a_group_without_its_other_ranks_is_told() -> None:
    """Collectives of which only one rank is selected are counted as alone."""
    cluster = simulate(4, groups=[(0, 1), (2, 3)], ops=6)
    stragglers = measure_waiting(cluster.ranks[:3]).stragglers
    assert stragglers.shared.tolist() == [6, 6, 0]
    assert stragglers.alone.tolist() == [0, 0, 6]


def test_only_what_is_selected_counts() -> None:
    """Ops outside the selection align clocks, and nobody waits in them."""
    cluster = simulate(2, groups=[(0, 1)], ops=6)
    part = [
        replace(rank, ops=replace(rank.ops, selected=np.arange(6) < 2)) for rank in cluster.ranks
    ]
    assert measure_waiting(part).stragglers.shared.tolist() == [2, 2]


def test_sends_find_their_receives() -> None:
    """A pipeline: every send of a stage has one receive on the next."""
    sends = simulate(2, groups=[(0, 1)], ops=6, kind="send").ranks[0]
    receives = simulate(2, groups=[(0, 1)], ops=6, kind="receive").ranks[1]
    pairs = measure_waiting([sends, receives]).pairs
    assert pairs.sender.tolist() == [0] * 6
    assert pairs.receiver.tolist() == [1] * 6
    assert pairs.send_row.tolist() == pairs.receive_row.tolist() == list(range(6))


def test_batches_of_two_ranks_wait_for_each_other() -> None:
    """Both run a batch of sends and receives under one name, and the first waits for the second."""
    cluster = simulate(2, groups=[(0, 1)], ops=6, kind="batchSendRecv")
    waiting = measure_waiting(cluster.ranks)
    assert waiting.stragglers.shared.tolist() == [6, 6]
    assert not waiting.stragglers.point_to_point_ns.any()
    starts = [rank.ops.start_ns for rank in cluster.ranks]
    for rank, waits in enumerate(waiting.waits.by_rank(2)):
        partner_ns = starts[1 - rank][waits.row]
        wanted = np.maximum(partner_ns - starts[rank][waits.row], 0)
        assert waits.waited_ns.tolist() == wanted.tolist()
    assert waiting.stragglers.waited_ns.any()


@pytest.mark.parametrize(("ranks", "moved_ns"), [(1, 0), (3, 0), (2, 1 << 40)])
def test_batches_of_other_than_two_ranks_stay_apart(ranks: int, moved_ns: int) -> None:
    """Alone, of three ranks, or at another time, one name says nothing of who waits for whom."""
    cluster = simulate(3, groups=[(0, 1, 2)], ops=6, kind="batchSendRecv")
    chosen = [
        rank.moved(ClockMove(moved_ns * place)) for place, rank in enumerate(cluster.ranks[:ranks])
    ]
    waiting = measure_waiting(chosen)
    assert not len(waiting.waits)
    assert waiting.mismatched == 0
    assert (waiting.stragglers.point_to_point_ns > 0).all()


def test_nothing_at_all() -> None:
    """No ranks, and ranks without ops, have nobody waiting."""
    assert len(measure_waiting([]).waits) == 0
    assert measure_waiting([RankCollectives(), RankCollectives()]).stragglers.shared.tolist() == [
        0,
        0,
    ]
