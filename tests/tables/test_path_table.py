"""Proves that sums of critical paths are whole, and that paths are drawn as they were found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import timeline
from simulator.scenario import Scenario
from tests.support.faulty_clusters import Cluster, on_disk
from tests.support.perfetto_sql import TraceProcessor
from timeline.analysis.path.critical_path import CriticalPath, PathSteps, Segments
from timeline.analysis.path.rank_path import PathKind
from timeline.tracks.model import Slices
from timeline.tracks.overview import with_critical_path

pytestmark = pytest.mark.sweep

KINDS = frozenset(
    {
        "computing",
        "transfer",
        "copy",
        "host",
        "queued",
        "launch",
        "between_tasks",
        "not_profiled",
    }
)
SEGMENTS = (
    "SELECT slice.ts, slice.dur, slice.name FROM slice JOIN track ON slice.track_id = track.id"
    " WHERE trim(track.name) = 'Critical path' ORDER BY slice.ts"
)
STAYS = (
    "SELECT slice.dur FROM slice JOIN track ON slice.track_id = track.id"
    " JOIN track AS above ON track.parent_id = above.id WHERE trim(above.name) = 'Critical path'"
)


@pytest.mark.parametrize("profiled", [None, (0, 2)])
def test_parts_add_up_and_rows_show_the_segments(
    tmp_path: Path, profiled: tuple[int, ...] | None
) -> None:
    """Parts of each step add up to its path, as the segments do in table and timeline."""
    cluster = Cluster(3, 5, Scenario(slow_computing={1: 2.0}), profiled)
    target = tmp_path / "timeline.pftrace"
    with on_disk(cluster.run()) as path:
        report = timeline.export(path, target, align="recorded", jobs=1, limit=0)
        with timeline.open_profile(path, align="recorded", jobs=1) as profile:
            table = profile.critical_path()
    rows = report.to_dict()["critical_path"]
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5]
    for row in rows:
        assert sum(part["total_ns"] for part in row["parts"]) == row["path_ns"] > 0
        assert {part["kind"] for part in row["parts"]} <= KINDS
        chosen = table["step"] == row["step"]
        assert int(table["duration_ns"][chosen].sum()) == row["path_ns"]
    strangers = {part["rank"] for row in rows for part in row["parts"] if not part["profiled"]}
    assert strangers == (set() if profiled is None else {1})
    drawn = TraceProcessor.load(target.read_bytes())
    found = drawn.rows(SEGMENTS)
    assert [dur for _, dur, _ in found] == table["duration_ns"].tolist()
    assert int(found[-1][0]) - int(found[0][0]) == table["start_ns"][-1] - table["start_ns"][0]
    if profiled is not None:
        assert "rank 1, not profiled" in {name for _, _, name in found}
    assert sum(int(dur) for (dur,) in drawn.rows(STAYS)) == int(table["duration_ns"].sum())


def test_ranks_on_a_path_are_called_what_they_are() -> None:
    """Of a rank that is read only the op may be missing; of others it is said why."""
    kinds = {"path": np.zeros(3), "kind": np.full(3, PathKind.NOT_PROFILED)}
    times = {"start_ns": np.arange(3), "end_ns": np.arange(1, 4)}
    who = {"rank": np.array([5, 6, 7]), "profiled": np.array([True, False, False])}
    path = CriticalPath(
        PathSteps.of(1, {"start_ns": np.zeros(1), "end_ns": np.full(1, 3)}),
        Segments.of(3, kinds | times | who),
        on_disk=frozenset({5, 6}),
    )
    every, *rows = with_critical_path((), path)
    assert isinstance(every.content, Slices)
    assert [every.content.strings[name] for name in every.content.name.tolist()] == [
        "rank 5: op not found",
        "rank 6, not selected",
        "rank 7, not profiled",
    ]
    assert [row.name for row in rows] == [
        "On rank 5",
        "On rank 6, not selected",
        "On rank 7, not profiled",
    ]


def test_without_causes_there_is_no_path(tmp_path: Path) -> None:
    """What was not asked for is neither drawn nor told."""
    target = tmp_path / "timeline.pftrace"
    with on_disk(Cluster(2, 1, Scenario()).run()) as path:
        report = timeline.export(path, target, jobs=1, causes=False)
    assert report.to_dict()["critical_path"] == []
    assert not TraceProcessor.load(target.read_bytes()).rows(SEGMENTS)


SLOW, LATE = Scenario(slow_computing={1: 1.6}), Scenario(late_host_ns={1: 300_000})


@pytest.mark.parametrize(
    ("scenario", "seed"), [*((SLOW, seed) for seed in range(1, 11)), (LATE, 1), (LATE, 2)]
)
def test_the_estimate_is_within_5_percent(scenario: Scenario, seed: int) -> None:
    """The same cluster made again without its slow rank ends as much earlier as estimated."""
    cluster = Cluster(4, seed, scenario)
    ends_ns, gain_ns = list[int](), None
    for run in (cluster.run(), cluster.healthy_run()):
        with on_disk(run) as path, timeline.open_profile(path, align="recorded", jobs=1) as profile:
            table = profile.critical_path()
            gain_ns = profile.estimate_gain(1) if not ends_ns else gain_ns
            ends_ns.append(int((table["start_ns"] + table["duration_ns"]).max()))
    assert gain_ns == pytest.approx(ends_ns[0] - ends_ns[1], rel=0.05)


def test_nothing_is_won_by_ranks_that_wait_for_others_not_profiled() -> None:
    """However fast they are, the rank that is not profiled comes when it does."""
    cluster = Cluster(3, 5, Scenario(slow_computing={1: 2.0}), (0, 2))
    with on_disk(cluster.run()) as path, timeline.open_profile(path, jobs=1) as profile:
        assert profile.estimate_gain(0) == 0
        assert profile.estimate_gain(1) is None
