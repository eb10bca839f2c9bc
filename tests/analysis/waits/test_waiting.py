"""Proves that waiting is told truly, and how exposed communication is split."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import at_most
from tests.support.simulated_cluster import COMPUTE_NS, TRANSFER_NS, simulate
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.waits.collectives import Collectives, RankCollectives
from timeline.analysis.waits.exposed_waiting import split_exposed
from timeline.analysis.waits.waiting import Waiting, Waits, measure_waiting
from timeline.columns.intervals import subtract, union
from timeline.columns.strings import StringPool
from timeline.options import StepOperators
from timeline.ranks.rank_work import RankRequest, draw_rank_from_records
from timeline.records.clock import ClockMove
from timeline.records.not_given import NO_TIME
from timeline.records.tables import Records
from timeline.selection import Selection

# -- late ranks ------------------------------------------------------------------------------------


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


# -- exposed communication -------------------------------------------------------------------------


LATER_NS = 1_736_424_000_130_953_241
"""Unix time, of which floats would lose the last digits."""


@dataclass(frozen=True)
class Op:
    """A communication op: how long it waits, if that is known, and whether its transfer is."""

    start: int
    length: int
    waited: int | None = None
    transfers: bool = True

    @property
    def end(self) -> int:
        return self.start + self.length

    @property
    def came(self) -> int:
        return self.start + (self.waited or 0)


def facts_of(ops: list[Op], computing: list[tuple[int, int]]) -> RankFacts:
    """A capture without steps, of which only the ops and computing are looked at."""
    start_ns, end_ns = (
        np.array([getattr(op, name) for op in ops], np.int64) + LATER_NS
        for name in ("start", "end")
    )
    busy_ns = np.array(computing, np.int64).reshape(-1, 2) + LATER_NS
    exposed = subtract(union(start_ns, end_ns), union(busy_ns[:, 0], busy_ns[:, 1]))
    columns = dict.fromkeys(("key", "communicator", "sign", "kind", "name", "group"), 0)
    collectives = Collectives.of(
        len(ops),
        {name: np.full(len(ops), value) for name, value in columns.items()}
        | {"start_ns": start_ns, "end_ns": end_ns},
    )
    request = RankRequest(Selection(), StepOperators(), draw=False)
    facts = draw_rank_from_records(Records(0, StringPool()), request).facts
    return replace(facts, collectives=RankCollectives(ops=collectives), exposed=exposed)


def waits_of(ranks: list[list[Op]]) -> Waits:
    """The waits of the ops of which it is known who came last, by rank, then row."""
    rows = [
        (rank, row, op)
        for rank, ops in enumerate(ranks)
        for row, op in enumerate(ops)
        if op.waited is not None
    ]
    unused = ("last", "last_row", "last_rank", "last_profiled", "last_ns", "after_first_ns")
    return Waits.of(
        len(rows),
        {name: np.zeros(len(rows), np.int64) for name in unused}
        | {
            "rank": np.array([rank for rank, _, _ in rows], np.int64),
            "row": np.array([row for _, row, _ in rows], np.int64),
            "waited_ns": np.array([op.waited for _, _, op in rows], np.int64),
            "transfer_ns": np.array(
                [op.end - op.came if op.transfers else NO_TIME for _, _, op in rows], np.int64
            ),
        },
    )


def split(*ranks: tuple[list[Op], list[tuple[int, int]]]) -> list[tuple[int, int, int]]:
    """Exposed, waiting and transfer of each rank, given its ops and when it computes."""
    facts = [facts_of(ops, computing) for ops, computing in ranks]
    parts, _ = split_exposed(facts, waits_of([ops for ops, _ in ranks]))
    columns = (parts.exposed_ns, parts.waiting_ns, parts.transfer_ns)
    return list(zip(*(column.tolist() for column in columns), strict=True))


OPS = st.builds(
    lambda start, length, share, transfers: Op(
        start, length, None if share is None else length * share // 4, transfers
    ),
    st.integers(0, 60),
    st.integers(1, 20),
    st.none() | st.integers(0, 4),
    st.booleans(),
)
RANK_OPS = st.lists(OPS, max_size=6).map(lambda ops: sorted(ops, key=lambda op: op.start))


@given(st.lists(RANK_OPS, min_size=1, max_size=3))
def test_without_computing_each_moment_is_what_its_ops_do(ranks: list[list[Op]]) -> None:
    """A moment is waiting if any op waits then, else transfer if any op is known to transfer."""
    expected = []
    for ops in ranks:
        told = [op for op in ops if op.waited is not None]
        exposed = {moment for op in ops for moment in range(op.start, op.end)}
        waiting = {moment for op in told for moment in range(op.start, op.came)}
        moving = {moment for op in told if op.transfers for moment in range(op.came, op.end)}
        expected.append((len(exposed), len(waiting), len(moving - waiting)))
    assert split(*((ops, []) for ops in ranks)) == expected


@given(
    st.lists(
        st.tuples(RANK_OPS, st.lists(st.tuples(st.integers(0, 40), st.integers(41, 80)))),
        min_size=1,
        max_size=3,
    )
)
def test_parts_never_exceed_what_is_exposed(
    ranks: list[tuple[list[Op], list[tuple[int, int]]]],
) -> None:
    for exposed_ns, waiting_ns, transfer_ns in split(*ranks):
        assert min(waiting_ns, transfer_ns) >= 0
        assert waiting_ns + transfer_ns <= exposed_ns


@pytest.mark.parametrize(
    ("computing", "expected"),
    [
        ([], (100, 40, 60)),
        ([(0, 40)], (60, 40, 20)),
        ([(0, 30)], (70, 40, 30)),
        ([(40, 100)], (40, 40, 0)),
        ([(0, 100)], (0, 0, 0)),
        ([(0, 40), (70, 100)], (30, 30, 0)),
    ],
)
def test_a_wait_that_computing_hides_puts_off_the_transfer(
    computing: list[tuple[int, int]], expected: tuple[int, int, int]
) -> None:
    """An op waits for 40 ns and transfers for 60: without the wait, as much would be hidden."""
    assert split(([Op(0, 100, 40)], computing)) == [expected]


def test_what_is_not_known_is_neither() -> None:
    """Of one op nobody tells who came last; of the other, others may have come later."""
    ops = [Op(0, 100), Op(200, 100, 30, transfers=False)]
    assert split((ops, [])) == [(200, 30, 0)]
