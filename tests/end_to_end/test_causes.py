"""Proves on simulated clusters with a known fault that tlexport names the rank and the cause."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.model import Run
from simulator.parallelism import Parallelism, group_number
from simulator.scenario import Scenario
from tests.support.faulty_clusters import CAUSES, Cluster, faulty_clusters, on_disk

few = settings(max_examples=6, deadline=None)
"""Each example simulates, writes and reads a profile, which takes a good tenth of a second."""
LATE = ("computing", "host", "frequency", "input")
"""Causes that make a rank come late; links make all of them slow."""
NOTIFIED_NS = 10_000
"""What a member takes at most from the start of its op until its notify comes to its peers."""

# -- the simulation ----------------------------------------------------------------------------


@pytest.mark.parametrize("cause", CAUSES)
@given(st.data())
@few
def test_a_fault_changes_nothing_but_what_it_is(cause: str, data: st.DataObject) -> None:
    """The same cluster without its fault has the same work: what it gains is due to the fault."""
    cluster = data.draw(faulty_clusters(cause))
    run, healthy = cluster.run(), cluster.healthy_run()
    ((rank, name),) = run.truth.causes
    assert name == cause
    assert healthy.truth.causes == ()
    for one, other in zip(run.ranks, healthy.ranks, strict=True):
        lengths, others = _kernel_lengths_ns(one), _kernel_lengths_ns(other)
        if one.rank == rank and cause in ("computing", "frequency"):
            assert all(length >= usual for length, usual in zip(lengths, others, strict=True))
        else:
            assert lengths == others
    assert _end_ns(run) > _end_ns(healthy)


def _kernel_lengths_ns(rank: Any) -> list[int]:
    """In order of launch."""
    kernels = (task for one in rank.iterations for task, _ in one.kernels)
    return [task.duration_ns for task in sorted(kernels, key=lambda task: task.connection_id)]


def _end_ns(run: Run) -> int:
    return max(rank.steps[-1].device_end_ns for rank in run.ranks)


@pytest.mark.parametrize("cause", LATE)
@given(st.data())
@few
def test_a_late_rank_is_last(cause: str, data: st.DataObject) -> None:
    """It causes nearly all of the waiting, which is the truth that verdicts are held against."""
    truth = data.draw(faulty_clusters(cause)).run().truth
    ((rank, _),) = truth.causes
    waited_ns = truth.waited_for_ns()
    caused_ns = sum(one for (_, last), one in waited_ns.items() if last == rank)
    assert caused_ns > 0.8 * sum(waited_ns.values())


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 2), (2, 6), (4, 4)])
def test_a_pipeline_has_the_bubble_that_it_must_have(stages: int, micro_batches: int) -> None:
    """Of each stage's time (p - 1) / (m + p - 1), and what its sends and receives take."""
    cluster = Cluster(stages, 1, Scenario(), None, Parallelism(1, stages, micro_batches))
    run = cluster.run()
    ideal = (stages - 1) / (micro_batches + stages - 1)
    for rank in run.ranks:
        step = rank.steps[1]
        share = run.truth.received_ns(step.id)[rank.rank] / (
            step.device_end_ns - step.device_start_ns
        )
        assert share == pytest.approx(ideal, abs=0.08)


def test_groups_are_told_as_torch_npu_tells_them() -> None:
    """With their ranks in the job, while HCCL tasks name ranks by their number in the group."""
    run = Cluster(8, 1, Scenario(), None, Parallelism(2, 2, 2)).run()
    with on_disk(run) as path:
        (database,) = path.rglob("ascend_pytorch_profiler_6.db")
        with closing(sqlite3.connect(database)) as opened:
            ((text,),) = opened.execute(
                "SELECT value FROM META_DATA WHERE name = 'parallel_group_info'"
            )
            seen = opened.execute(
                "SELECT DISTINCT s.value, srcRank, dstRank FROM COMMUNICATION_TASK_INFO"
                " JOIN STRING_IDS s ON s.id = groupName WHERE dstRank < 100"
            ).fetchall()
            names = opened.execute(
                "SELECT DISTINCT g.value, n.value FROM COMMUNICATION_OP"
                " JOIN STRING_IDS g ON g.id = groupName JOIN STRING_IDS n ON n.id = opName"
            ).fetchall()
    groups = json.loads(text)
    told = {info["group_name"]: info for info in groups.values()}
    assert told["tp"]["global_ranks"] == [6, 7]
    assert told["dp"]["global_ranks"] == [4, 6]
    assert told["dp"]["group_rank"] == 1
    assert told["pp"]["global_ranks"] == [2, 6]
    assert {groups[group]["group_name"] for group, _, _ in seen} == {"tp", "dp", "pp"}
    assert all(source == groups[group]["group_rank"] for group, source, _ in seen)
    assert {target for _, _, target in seen} == {0, 1}
    assert all(f"__{group_number(group):03d}_" in name for group, name in names)


def test_the_number_of_a_group_is_that_of_its_hash() -> None:
    """As a published msprof computes it; a byte is enough to do by hand."""
    assert group_number("a") == (97 << 32 | 97) % 1000
    assert group_number("ab") == ((97 * 29 + 98) << 32 | (97 * 131 + 98)) % 1000


# -- who was waited for --------------------------------------------------------------------------
