"""Proves on a simulated cluster that tables, picture and terminal show when a rank came late."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import timeline
from simulator.scenario import Scenario
from simulator.simulation import make_run
from tests.support.faulty_clusters import STEPS, Cluster, on_disk
from tests.support.run_command import Command

LATE_RANK, LATE_STEP = 2, 3
COUNTERS = """
SELECT thread.name AS name, counter.ts AS ts, counter.value AS value
FROM counter JOIN counter_track AS thread ON counter.track_id = thread.id
WHERE thread.name GLOB 'Late by*' ORDER BY thread.id, counter.ts
"""


@pytest.fixture(scope="module", params=["torch-db", "torch-text", "kineto"])
def profile(request: pytest.FixtureRequest) -> Iterator[Path]:
    """Four ranks, of which one computes slowly in one step."""
    scenario = Scenario(slow_computing={LATE_RANK: 2.0}, faulty_step=LATE_STEP - 1)
    with on_disk(Cluster(4, 3, scenario).run(), request.param) as path:
        yield path


def test_only_the_faulty_step_of_the_faulty_rank_is_late(profile: Path) -> None:
    """By how long its peers wait; what is left of all others is noise."""
    with timeline.open_profile(profile) as opened:
        steps = opened.steps()
    late_ns = np.ma.filled(steps["late_ns"], 0)
    worst = int(np.argmax(late_ns))
    assert (steps["rank"][worst], steps["step"][worst]) == (LATE_RANK, LATE_STEP)
    others_ns = late_ns[steps["rank"] != LATE_RANK]
    assert late_ns[worst] > 10 * np.abs(others_ns).max()


def test_who_waits_as_long_as_most_is_not_late(profile: Path) -> None:
    """The median rank of each step is late by nothing, and the sum has both signs."""
    with timeline.open_profile(profile) as opened:
        steps = opened.steps()
    for step in range(1, STEPS + 1):
        late_ns = np.ma.compressed(steps["late_ns"][steps["step"] == step])
        assert late_ns.min() <= 0 <= late_ns.max()
        assert abs(np.median(late_ns)) <= 1


def test_the_picture_has_the_history_of_each_rank(command: Command, profile: Path) -> None:
    """One value for each step, in microseconds, from the begin of the step on."""
    report = command.report(profile, "-o", "out.pftrace")
    rows = command.loaded("out.pftrace").rows(COUNTERS)
    told = [row["late_ns"] for row in report["overlap"] if row["step"] is not None]
    assert [value for *_, value in rows] == [late_ns / 1000 for late_ns in told]


def test_the_terminal_draws_it(command: Command, profile: Path) -> None:
    """The late rank has one high bar, and its length beside it."""
    out = command(profile).out
    (line,) = [line for line in out.splitlines() if "█" in line and line.split()[0] == "2"]
    report = command.report(profile)
    (row,) = [row for row in report["verdict"]["stragglers"] if row["rank"] == LATE_RANK]
    assert row["history"] in line
    assert row["history"].index("█") == LATE_STEP - 1


def test_a_rank_that_is_read_is_not_called_unselected(command: Command) -> None:
    """A window ends before the rank comes to the op that the others wait in."""
    run = make_run(ranks=8, steps=4, scenario=Scenario(slow_computing={5: 1.4}))
    with on_disk(run) as path:
        first = command(path, "--verdict", "--window", "4%:25%").out.splitlines()[0]
        culprit = command.report(path, "--window", "4%:25%")["verdict"]["culprit"]
    assert (culprit["rank"], culprit["profiled"]) == (5, True)
    assert first.startswith("Rank 5 comes late to collectives")


@pytest.mark.parametrize(("late", "remark"), [(1, "not selected"), (2, "not profiled")])
def test_each_rank_is_called_what_it_is(command: Command, late: int, remark: str) -> None:
    """Whoever is waited for and not read: one rank is in the profile and another is not."""
    run = Cluster(4, 5, Scenario(late_host_ns={late: 400_000}), profiled=(0, 1, 3)).run()
    with on_disk(run) as path:
        picture = command.picture(path, "--ranks", "0,3")
    waits = picture.rows("SELECT DISTINCT name FROM slice WHERE name GLOB 'Waiting for rank *'")
    remarks = {name.partition(f"rank {late} ")[2] for (name,) in waits if f"rank {late}" in name}
    assert remarks == {f"({remark})"}
