"""Proves on simulated clusters and real captures that the verdict names who holds up the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timeline
from tests.support.faulty_clusters import CAUSES, faulty_clusters, reported
from tests.support.places import DATA

pytestmark = pytest.mark.sweep

few = settings(max_examples=4, deadline=None)
"""Each example simulates, writes and reads a profile."""


@pytest.mark.parametrize("cause", CAUSES)
@given(st.data())
@few
def test_the_faulty_rank_is_the_culprit(cause: str, data: st.DataObject) -> None:
    """By its rank and its cause, in the first sentence too; among two, links cannot be compared."""
    cluster = data.draw(faulty_clusters(cause))
    if cause == "link" and cluster.ranks < 3:
        return
    run = cluster.run()
    verdict = reported(run)["verdict"]
    ((rank, _),) = run.truth.causes
    culprit = verdict["culprit"]
    assert (culprit["rank"], culprit["profiled"], culprit["cause"]) == (rank, True, cause)
    assert culprit["steps"] == 4
    assert verdict["sentences"][0].startswith(f"Rank {rank} holds up ")


@given(st.data())
@few
def test_a_culprit_that_is_not_profiled(data: st.DataObject) -> None:
    """Its cause is not known, and the first sentence says that it is not in the profile.

    Of other numbers of ranks, one alone does not tell that it sees all.
    """
    clusters = faulty_clusters("computing", most_ranks=8, unprofiled=True)
    run = data.draw(clusters.filter(lambda cluster: cluster.ranks in (4, 8))).run()
    verdict = reported(run)["verdict"]
    ((rank, _),) = run.truth.causes
    culprit = verdict["culprit"]
    assert (culprit["rank"], culprit["profiled"], culprit["cause"]) == (rank, False, "unknown")
    assert f"Rank {rank}, which is not in this profile" in verdict["sentences"][0]


def verdict_on(path: Path, tmp_path: Path) -> dict[str, Any]:
    if not path.exists():
        pytest.skip(f"{path.name} does not lie beside the checkout")
    found: dict[str, Any] = timeline.export(path, tmp_path / "x.pftrace").verdict.to_dict()
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("path", "rank", "cause"),
    [
        ("torch-npu-text", 5, "unknown"),
        ("torch-npu-db", 6, "unknown"),
        ("gpu-ranks/sst_long_a2a_optimizer_2.tar.gz", 2, "host"),
        ("gpu-ranks/sst_long_a2a_optimizer_4.tar.gz", 2, "host"),
        ("gpu/dlrm_kineto.tar.gz", 7, "host"),
    ],
)
def test_culprits_of_real_runs(tmp_path: Path, path: str, rank: int, cause: str) -> None:
    """The rank that plain sums over the captures' own records name, profiled or not.

    Rank 2 of four computes less than others in a step; its all-to-alls begin the moment they are
    launched, 20 ms after those of others.
    """
    verdict = verdict_on(DATA / path, tmp_path)
    culprit = verdict["culprit"]
    assert (culprit["rank"], culprit["cause"]) == (rank, cause)
    assert culprit["profiled"] is (cause != "unknown")
    assert verdict["sentences"][0].startswith(f"Rank {rank}")


@pytest.mark.filterwarnings("ignore")
def test_steps_without_device_tasks_are_not_measured(tmp_path: Path) -> None:
    """Device tasks end at step 15 of 322; the steps before are what shares are of."""
    verdict = verdict_on(DATA / "mindspore-0.7-text", tmp_path)
    said = verdict["sentences"]
    assert "Device tasks end at step 15 of 322." in said
    (step,) = (line for line in said if line.startswith("Step "))
    assert "compute 62%" in step
    assert verdict["culprit"] is None


@pytest.mark.filterwarnings("ignore")
def test_the_warm_up_is_not_the_slowest_step(tmp_path: Path) -> None:
    """The first step takes three times as long, and is no ordinary one."""
    verdict = verdict_on(DATA / "mindspore-2.1", tmp_path)
    assert verdict["slowest_step"]["slowest"] == 5
    assert verdict["slowest_step"]["slowest_ns"] < 20_000_000


@pytest.mark.filterwarnings("ignore")
def test_a_single_card_waits_for_nobody(tmp_path: Path) -> None:
    """Nothing is said of ranks or waiting where there is one."""
    captures = sorted((DATA / "msprof-single").glob("*/")) if DATA.exists() else []
    if not captures:
        pytest.skip("captures of single cards do not lie beside the checkout")
    for at, path in enumerate(captures):
        (tmp_path / str(at)).mkdir()
        verdict = verdict_on(path, tmp_path / str(at))
        assert verdict["culprit"] is None
        assert verdict["sentences"]
        for line in verdict["sentences"]:
            assert " rank" not in line.lower()
            assert "waiting" not in line
            assert any(character.isdigit() for character in line)
