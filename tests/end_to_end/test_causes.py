"""Proves on simulated clusters with a known fault that tlexport names the rank and the cause."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from simulator.overlap import IDLE, free_segments
from simulator.parallelism import Parallelism
from simulator.scenario import Scenario
from tests.support.faulty_clusters import Cluster, faulty_clusters, reported

pytestmark = pytest.mark.sweep

few = settings(max_examples=4, deadline=None, phases=[Phase.explicit, Phase.generate])
"""Each example simulates, writes and reads a profile: too much to make a failing one smaller."""
NOTIFIED_NS = 10_000
"""What a member takes at most from the start of its op until its notify comes to its peers."""

# -- the simulation ----------------------------------------------------------------------------


# -- who was waited for --------------------------------------------------------------------------
def _waited_for_ns(report: dict[str, Any]) -> dict[tuple[int, int | None], int]:
    return {
        (row["rank"], one["rank"]): one["waited_ns"]
        for row in report["waiting"]
        for one in row["waited_for"]
        if one["waited_ns"]
    }


@given(st.data())
@few
def test_ranks_of_groups_are_those_of_the_job(data: st.DataObject) -> None:
    """In a grid of tensor and data groups, some ranks of which left no profile."""
    late = data.draw(st.integers(0, 7))
    profiled = data.draw(st.sets(st.integers(0, 7), min_size=2))
    scenario = Scenario(late_host_ns={late: 300_000})
    cluster = Cluster(8, 3, scenario, tuple(sorted(profiled)), Parallelism(tensor=2))
    run = cluster.run()
    truth, found = run.truth.waited_for_ns(), _waited_for_ns(reported(run))
    ops = len({(one.step, one.name) for one in run.truth.meetings})
    for (rank, last), waited_ns in truth.items():
        if waited_ns > 1_000_000:
            assert found[rank, last] == pytest.approx(waited_ns, abs=ops * NOTIFIED_NS)
    assert {rank for rank, _ in found} <= profiled


# -- why devices idle ----------------------------------------------------------------------------


@given(st.data())
@few
def test_time_without_data_is_that_of_the_loader(data: st.DataObject) -> None:
    """Exactly what lies in gaps of the device of the calls that get the next batch."""
    run = data.draw(faulty_clusters("input")).run()
    found = _idle_ns(reported(run))
    for rank in run.truth.profiled:
        loads = [call for call in run.rank(rank).framework_calls if "DataLoader" in call.name]
        gaps = [one for one in free_segments(run, rank) if one.category == IDLE]
        lies_ns = sum(
            max(0, min(call.end_ns, gap.end_ns) - max(call.start_ns, gap.start_ns))
            for call in loads
            for gap in gaps
        )
        assert found[rank, "waiting_for_data"] == lies_ns


@given(st.data())
@few
def test_a_late_host_shows_in_what_it_had_not_asked(data: st.DataObject) -> None:
    """Of what idles longer than in good order, on the device of that rank, it is the most."""
    cluster = data.draw(faulty_clusters("host"))
    run = cluster.run()
    ((late, _),) = run.truth.causes
    found, usual = _idle_ns(reported(run)), _idle_ns(reported(cluster.healthy_run()))
    grown = {
        cause: one - usual.get((rank, cause), 0)
        for (rank, cause), one in found.items()
        if rank == late
    }
    assert max(grown, key=grown.__getitem__) == "host_not_asked"
    assert grown["host_not_asked"] > 0.5 * sum(grown.values()) > 0
    assert all(found.get(one) == usual.get(one) for one in found if one[0] != late)


def _idle_ns(report: dict[str, Any]) -> dict[tuple[int, str], int]:
    return {
        (row["rank"], row["cause"]): row["total_ns"]
        for row in report["idle"]
        if row["step"] is None
    }


# -- what determined the step --------------------------------------------------------------------


# -- the culprit ---------------------------------------------------------------------------------
