"""Proves that what a recording lacks makes the first finding weaker, and never another one."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from simulator.layouts import LAYOUTS, SPARSE_LAYOUTS
from simulator.scenario import Scenario
from tests.support.faulty_clusters import Cluster, on_disk, reported
from tests.support.run_command import Command

SLOW_RANK = 2
Event = dict[str, Any]


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    """Four ranks, of which one computes slowly in all steps."""
    return Cluster(4, 3, Scenario(slow_computing={SLOW_RANK: 1.5}), ops_per_step=24)


@pytest.fixture(scope="module")
def whole(cluster: Cluster) -> dict[str, Any]:
    """The verdict on the recording as it is."""
    verdict: dict[str, Any] = reported(cluster.run(), "kineto")["verdict"]
    return verdict


def _damaged(cluster: Cluster, into: Path, edit: Callable[[int, list[Event]], list[Event]]) -> Path:
    """The cluster as traces of PyTorch, with the events of each file edited."""
    with on_disk(cluster.run(), "kineto") as path:
        shutil.copytree(path, into / "run")
    for file in (into / "run").rglob("*.pt.trace.json*"):
        opened = gzip.open if file.suffix == ".gz" else open
        with opened(file, "rt") as read:
            trace = json.load(read)
        trace["traceEvents"] = edit(trace["distributedInfo"]["rank"], trace["traceEvents"])
        with opened(file, "wt") as written:
            json.dump(trace, written)
    return into / "run"


def _rounded(unit_us: float, _: int, events: list[Event]) -> list[Event]:
    for event in events:
        if "ts" in event:
            event["ts"] = round(float(event["ts"]) / unit_us) * unit_us
    return events


def _unmarked(unmarked: int, rank: int, events: list[Event]) -> list[Event]:
    if rank != unmarked:
        return events
    return [one for one in events if not one["name"].startswith("ProfilerStep")]


@pytest.mark.parametrize("unit_us", [0.25, 1])
def test_rounded_times_change_no_finding(
    command: Command, cluster: Cluster, whole: dict[str, Any], tmp_path: Path, unit_us: float
) -> None:
    """As in traces that write microseconds as integers, or as doubles since 1970."""
    path = _damaged(cluster, tmp_path, partial(_rounded, unit_us))
    verdict = command.report(path, "--verdict")["verdict"]
    first, expected = verdict["findings"][0], whole["findings"][0]
    assert (first["kind"], first["ranks"], first["cause"]) == (
        "slow_rank",
        [SLOW_RANK],
        "computing",
    )
    assert first["gain_share"] == pytest.approx(expected["gain_share"], abs=0.01)


@pytest.mark.parametrize("rank", range(4))
def test_a_rank_without_step_marks_is_compared_like_others(
    command: Command, cluster: Cluster, whole: dict[str, Any], tmp_path: Path, rank: int
) -> None:
    """Its steps are those of the others by time."""
    path = _damaged(cluster, tmp_path, partial(_unmarked, rank))
    verdict = command.report(path, "--verdict")["verdict"]
    assert [row["rank"] for row in verdict["ranks"] if not row["steps"]] == [rank]
    first, expected = verdict["findings"][0], whole["findings"][0]
    assert (first["kind"], first["ranks"]) == ("slow_rank", [SLOW_RANK])
    assert first["gain_share"] == pytest.approx(expected["gain_share"], abs=0.03)


@pytest.mark.parametrize(("layout", "basis"), [("raw", "bound"), ("torch-text-marks", "replay")])
def test_a_slow_rank_is_named_where_little_links_the_ranks(
    command: Command,
    cluster: Cluster,
    whole: dict[str, Any],
    tmp_path: Path,
    layout: str,
    basis: str,
) -> None:
    """Without links all may wait for it, or none: what it takes longer is the most to win."""
    (LAYOUTS | SPARSE_LAYOUTS)[layout](cluster.run(), tmp_path / "run")
    first = command.report(tmp_path / "run", "--verdict")["verdict"]["findings"][0]
    assert (first["kind"], first["ranks"], first["basis"]) == ("slow_rank", [SLOW_RANK], basis)
    assert first["gain_share"] == pytest.approx(whole["findings"][0]["gain_share"], abs=0.05)
    assert (" at most " in first["sentence"]) == (basis == "bound")


def test_a_window_that_cuts_steps_makes_no_step_odd(command: Command, tmp_path: Path) -> None:
    """One whole step between parts of two others is compared with neither."""
    with on_disk(Cluster(2, 3, Scenario()).run(), "kineto") as path:
        report = command.report(path, "--window", "30%:80%", "--verdict")
    assert [one for one in report["verdict"]["findings"] if one["kind"] == "slow_steps"] == []


def test_data_that_are_at_hand_but_slowly_are_a_lever(whole: dict[str, Any]) -> None:
    """Nothing is worse than its like, yet every device waits for its data."""
    (lever,) = [one for one in whole["findings"] if one["kind"] == "starved"]
    assert lever["ranks"] is None
    assert not lever["fault"]
    assert lever["sentence"].startswith("The hosts of all 4 ranks wait ")
