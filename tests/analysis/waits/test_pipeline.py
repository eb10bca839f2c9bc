"""Proves that bubbles are the waits in receives, and that stages are found only where they show."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.layouts import LAYOUTS
from simulator.parallelism import Parallelism
from simulator.simulation import make_run
from timeline import export
from timeline.analysis.waits.collectives import Collectives, RankCollectives, kind_numbers
from timeline.analysis.waits.pipeline import Bubbles, Pairs, measure_bubbles
from timeline.columns.intervals import subtract, union
from timeline.records.not_given import NO_ID
from timeline.tables.parallel import pipeline_sentences
from timeline.tables.table import Table

pytestmark = pytest.mark.sweep

OTHER_COLUMNS = ("key", "communicator", "sign", "name", "group")


@dataclass(frozen=True)
class Passed:
    """One send and the receive that gets it."""

    step: int
    sender: int
    receiver: int
    send_ns: int
    receive_ns: tuple[int, int]


def found_of(
    passed: list[Passed],
    ranks: int,
    read: set[int] | None = None,
    computing: Mapping[int, list[tuple[int, int]]] = MappingProxyType({}),
) -> Bubbles:
    """The bubbles of made ops, of which only those of the ranks that are read are known.

    computing: by rank, when it computes.
    """
    read = set(range(ranks)) if read is None else read
    ops: dict[int, list[tuple[int, int, int, int, str, int]]] = defaultdict(list)
    for number, one in enumerate(passed):
        ops[one.sender].append((one.send_ns, one.send_ns + 1, one.step, number, "Send", 0))
        ops[one.receiver].append((*one.receive_ns, one.step, number, "Receive", 1))
    collectives, place = [], {}
    for at, rank in enumerate(sorted(read)):
        its = sorted(ops[rank])
        place.update({(its_op[3], its_op[5]): (at, row) for row, its_op in enumerate(its)})
        columns = np.array([row[:3] for row in its], np.int64).reshape(-1, 3).T
        made = Collectives.of(
            len(its),
            {
                "start_ns": columns[0],
                "end_ns": columns[1],
                "iteration": columns[2],
                "kind": kind_numbers([row[4] for row in its]),
                **{name: [0] * len(its) for name in OTHER_COLUMNS},
            },
        )
        collectives.append(RankCollectives(ops=made))
    both = [number for number in range(len(passed)) if {(number, 0), (number, 1)} <= place.keys()]
    rows = sorted((*place[number, 0], *place[number, 1]) for number in both)
    table = np.array(rows, np.int64).reshape(-1, 4).T
    busy = [computing.get(rank, []) for rank in sorted(read)]
    whole = union(np.array([-1_000_000]), np.array([1_000_000]))
    exposed = [subtract(whole, union(*np.array(its, np.int64).reshape(-1, 2).T)) for its in busy]
    return measure_bubbles(collectives, exposed, Pairs(*table))


def rows_of(bubbles: Bubbles) -> dict[tuple[int, int], dict[str, int]]:
    """The columns of each rank and step."""
    names = ("stage", "stages", "micro_batches", "receives", "matched", "bubble_ns", "exposed_ns")
    return {
        (int(bubbles.rank[at]), int(bubbles.iteration[at])): {
            name: int(getattr(bubbles, name)[at]) for name in names
        }
        for at in range(len(bubbles))
    }


@st.composite
def pipelines(draw: st.DrawFn) -> tuple[list[int], int, list[Passed]]:
    """Stages in the order of any ranks, micro-batches, and what is passed, at any times."""
    order = draw(st.permutations(range(draw(st.integers(2, 5)))))
    micro_batches = draw(st.integers(1, 4))
    passed = []
    for step in range(1, draw(st.integers(1, 3)) + 1):
        at_ns = 10_000 * step
        for way in (order, order[::-1]):
            for _ in range(micro_batches):
                for sender, receiver in pairwise(way):
                    at_ns += draw(st.integers(1, 50))
                    start_ns = at_ns + draw(st.integers(-300, 40))
                    end_ns = max(at_ns, start_ns) + draw(st.integers(0, 200))
                    passed.append(Passed(step, sender, receiver, at_ns, (start_ns, end_ns)))
    return order, micro_batches, passed


@given(
    pipelines(),
    st.dictionaries(
        st.integers(0, 4),
        st.lists(
            st.tuples(st.integers(9_500, 12_000), st.integers(0, 300)).map(
                lambda one: (one[0], one[0] + one[1])
            )
        ),
    ),
)
def test_bubbles_are_the_moments_in_which_a_receive_waits(
    pipeline: tuple[list[int], int, list[Passed]], computing: dict[int, list[tuple[int, int]]]
) -> None:
    """Every ns in which some receive waits for its send, counted once, and if nothing computes."""
    order, micro_batches, passed = pipeline
    found = rows_of(found_of(passed, len(order), None, computing))
    waiting: dict[tuple[int, int], set[int]] = defaultdict(set)
    for one in passed:
        start_ns, end_ns = one.receive_ns
        waiting[one.receiver, one.step] |= set(range(start_ns, min(one.send_ns, end_ns)))
    for (rank, step), moments in waiting.items():
        others = set().union(*(waiting[rank, other] for other in range(1, step)))
        busy = {at for some in computing.get(rank, []) for at in range(*some)}
        assert found[rank, step]["bubble_ns"] == len(moments - others)
        assert found[rank, step]["exposed_ns"] == len(moments - others - busy)
        assert found[rank, step]["stage"] == order.index(rank)
        assert found[rank, step]["stages"] == len(order)
        assert found[rank, step]["micro_batches"] == micro_batches
        edge = order.index(rank) in (0, len(order) - 1)
        assert found[rank, step]["receives"] == micro_batches * (1 if edge else 2)
        assert found[rank, step]["matched"] == found[rank, step]["receives"]
    assert found.keys() == waiting.keys()


@given(pipelines(), st.data())
def test_stages_whose_neighbours_are_not_read_are_not_numbered(
    pipeline: tuple[list[int], int, list[Passed]], data: st.DataObject
) -> None:
    """Where a rank also exchanges with ranks that are not read, it may be any stage of any many."""
    order, _, passed = pipeline
    read = set(data.draw(st.lists(st.sampled_from(order), min_size=1, max_size=len(order) - 1)))
    positions = dict(enumerate(sorted(read)))
    found = rows_of(found_of(passed, len(order), read))
    for (at, step), row in found.items():
        assert (row["stage"], row["stages"]) == (NO_ID, NO_ID)
        its = [one for one in passed if one.receiver == positions[at] and one.step == step]
        assert row["matched"] == sum(one.sender in read for one in its)
        longest_ns = sum(one.receive_ns[1] - one.receive_ns[0] for one in its)
        assert row["bubble_ns"] <= longest_ns


def test_ranks_in_a_ring_have_no_stages() -> None:
    """Where the last sends to the first, as in interleaved schedules, nobody is first."""
    passed = [
        Passed(1, at, (at + 1) % 3, 100 * (at + 1), (100 * at, 100 * at + 150)) for at in range(3)
    ]
    found = rows_of(found_of(passed, 3))
    assert {row["stages"] for row in found.values()} == {NO_ID}
    assert sum(row["bubble_ns"] for row in found.values()) > 0


def test_steps_that_do_not_agree_have_no_micro_batches() -> None:
    """A step of which the recording lost a receive tells no number of micro-batches."""
    passed = [Passed(1, 0, 1, at, (at - 5, at + 5)) for at in (10, 30)]
    passed += [Passed(1, 1, 0, 50, (40, 60))]
    found = rows_of(found_of(passed, 2))
    assert {row["micro_batches"] for row in found.values()} == {NO_ID}
    assert {row["stages"] for row in found.values()} == {2}


def test_nothing_is_received() -> None:
    """Without receives there are no bubbles."""
    nothing = union(*np.zeros((2, 0), np.int64))
    assert not len(measure_bubbles([RankCollectives()], [nothing], Pairs.empty()))
    assert not list(pipeline_sentences(Table({})))


@pytest.mark.parametrize("layout", ["torch-db", "torch-text", "kineto"])
@pytest.mark.parametrize(("tensor", "stages", "micro_batches"), [(1, 2, 4), (2, 4, 3), (1, 4, 1)])
def test_simulated_pipelines(
    tmp_path: Path, layout: str, tensor: int, stages: int, micro_batches: int
) -> None:
    """Bubbles, stages and micro-batches are those of the simulation, and nobody is blamed."""
    run = make_run(ranks=8, steps=3, seed=3, parallelism=Parallelism(tensor, stages, micro_batches))
    LAYOUTS[layout](run, tmp_path / "run")
    report = export(tmp_path / "run", tmp_path / "out.pftrace")
    rows = report.to_dict()["pipeline"]
    assert len(rows) == 8 * 3
    ideal = (stages - 1) / (micro_batches + stages - 1)
    for row in rows:
        assert row["bubble_ns"] == run.truth.received_ns(row["step"])[row["rank"]]
        assert row["stage"] == row["rank"] // (8 // stages)
        assert (row["stages"], row["micro_batches"]) == (stages, micro_batches)
        assert row["ideal_share"] == pytest.approx(ideal, abs=1e-6)
        assert 0 < row["exposed_share"] <= row["share"] < 1
    (sentence,) = pipeline_sentences(report.figures.pipeline)
    assert f"{stages} stages and {micro_batches} micro-batch" in sentence
    assert f"{ideal:.0%}" in sentence
    caused_ns = sum(row["caused_ns"] or 0 for row in report.to_dict()["waiting"])
    assert caused_ns == sum(run.truth.waited_for_ns().values())
