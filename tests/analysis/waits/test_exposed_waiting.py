"""Proves how exposed communication is split, moment by moment where nothing is hidden."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.waits.collectives import Collectives, RankCollectives
from timeline.analysis.waits.exposed_waiting import split_exposed
from timeline.analysis.waits.waiting import Waits
from timeline.columns.intervals import subtract, union
from timeline.columns.strings import StringPool
from timeline.options import StepOperators
from timeline.ranks.rank_work import RankRequest, draw_rank_from_records
from timeline.records.not_given import NO_TIME
from timeline.records.tables import Records
from timeline.selection import Selection

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
