"""Proves that nothing wins more than what is said to be the most."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import timeline
from simulator.scenario import Scenario
from tests.support.faulty_clusters import Cluster, on_disk
from tests.support.profile_shelf import ProfileShelf
from timeline.analysis.idle.idle_sums import IdleCause
from timeline.analysis.questions import Questions
from timeline.figures.bound_table import COPIES, HOST, WAITING, bound_table
from timeline.figures.bounds import Bound, bounds_sentence, find_bounds
from timeline.figures.rank_tables import Figures
from timeline.figures.verdict import Verdict
from timeline.progress import Silent
from timeline.ranks.read_ranks import read_facts
from timeline.selection import Selection

pytestmark = pytest.mark.sweep

FAULTS = {
    "computing": Scenario(slow_computing={1: 1.8}),
    "host": Scenario(late_host_ns={1: 300_000}),
    "frequency": Scenario(megahertz={1: 1_000}),
    "input": Scenario(starved_ns={1: 3_000_000}),
}
"""What is wrong with rank 1, by cause."""
OF_HOST = frozenset({"host", "input"})
"""Faults of a host."""


def _figures(cluster: Cluster, *, healthy: bool) -> Figures:
    run = cluster.healthy_run() if healthy else cluster.run()
    with on_disk(run) as path, timeline.open_profile(path, align="recorded", jobs=1) as profile:
        sources, reading = profile.sources, profile.reading
        known = read_facts(path, sources, reading, Silent(), Selection(), Questions(causes=True))
        return Figures.of(known.facts, known.waiting, known.path)


@pytest.mark.parametrize("cause", FAULTS)
@pytest.mark.parametrize("seed", [1, 2])
def test_no_gain_is_above_its_bound(cause: str, seed: int) -> None:
    """The same cluster without its fault wins no more in ordinary steps than the bounds say."""
    cluster = Cluster(4, seed, FAULTS[cause])
    faulty, healthy = (_figures(cluster, healthy=healthy) for healthy in (False, True))
    ordinary = set(faulty.steps["step"][faulty.steps["ordinary"] == 1].tolist())
    lengths = []
    for figures in (faulty, healthy):
        path = figures.critical_path
        chosen = [step in ordinary for step in path["step"].tolist()]
        lengths.append(int(path["duration_ns"][chosen].sum()))
    won_ns = lengths[0] - lengths[1]
    bounds = {row["cause"]: row["at_most_ns"] for row in bound_table(faulty).to_dicts()}
    assert 0 < won_ns <= bounds[WAITING]
    if cause in OF_HOST:
        assert won_ns <= bounds[HOST]
    assert max(bounds.values()) <= lengths[0]


@pytest.mark.parametrize("cause", FAULTS)
def test_idle_time_on_the_path_is_no_more_than_the_path_may_idle(cause: str) -> None:
    """Where the path computes or transfers, no idle time can be taken out of it."""
    figures = _figures(Cluster(4, 1, FAULTS[cause]), healthy=False)
    ordinary = set(figures.steps["step"][figures.steps["ordinary"] == 1].tolist())
    path = figures.critical_path
    rows = [row for row in path.to_dicts() if row["step"] in ordinary]
    busy = ("computing", "transfer", "copy", "not_profiled")
    idle_ns = sum(row["duration_ns"] for row in rows if row["kind"] not in busy)
    causes = {one.value for one in IdleCause}
    for row in bound_table(figures).to_dicts():
        if row["cause"] in causes:
            assert row["at_most_ns"] <= idle_ns


@pytest.mark.parametrize("cause", FAULTS)
def test_a_path_that_only_computes_has_nothing_to_win_beside_waiting(cause: str) -> None:
    """So it is of a card that ran a single kernel, whose path has no other segment."""
    figures = _figures(Cluster(4, 1, FAULTS[cause]), healthy=False)
    path = figures.critical_path
    computing = path.take(path["kind"] == "computing")
    bounds = bound_table(replace(figures, critical_path=computing)).to_dicts()
    assert {row["cause"] for row in bounds} > {COPIES, HOST}
    assert not any(row["at_most_ns"] for row in bounds if row["cause"] != WAITING)


def test_nothing_is_offered_that_is_not_lost() -> None:
    """Of a loss that no sentence tells, none says what could be won."""
    figures = _figures(Cluster(4, 1, FAULTS["computing"]), healthy=False)
    assert find_bounds(figures, ()) == ()
    verdict = Verdict.of(figures)
    told = " ".join(verdict.sentences())
    assert WAITING in {bound.what for bound in verdict.bounds}
    for bound in verdict.bounds:
        if bound.what in {one.value for one in IdleCause}:
            assert IdleCause(bound.what).words in told


def test_bounds_in_words() -> None:
    """The largest first, of what; next to nothing is not told."""
    bounds = (Bound(WAITING, 0.14), Bound("host_not_asked", 0.06), Bound("queued", 0.001))
    assert bounds_sentence(bounds) == (
        "The critical path can shrink by at most 14% with no waiting for other ranks, 6% with "
        "work issued earlier by the host."
    )
    assert bounds_sentence(bounds[2:]) is None


def test_a_path_of_communication_alone(shelf: ProfileShelf, tmp_path: Path) -> None:
    """Where nothing but communication lies on the path, copies and idle time win nothing."""
    profile = shutil.copytree(shelf.get("torch-text", ranks=1).path, tmp_path / "profile")
    plane = {"ph": "M", "name": "process_name", "pid": 7, "args": {"name": "HCCL"}}
    events = [plane, {"ph": "X", "pid": 7, "ts": 3, "dur": 4}]
    for file in profile.rglob("trace_view.json"):
        file.write_text(json.dumps(events), encoding="utf-8")
    report = timeline.export(profile, tmp_path / "out.pftrace")
    assert {bound.what: bound.share for bound in report.verdict.bounds}.get("copies", 0) == 0
