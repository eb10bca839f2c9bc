"""Proves that --open shows of a comparison the step that changed most, in both runs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import timeline
from simulator.simulation import make_run
from tests.support.perfetto_sql import TraceProcessor
from tests.support.profile_shelf import WRITERS
from timeline.tracks.root_rows import STEPS as STEPS_ROW
from timeline.tracks.summary import OVERLAP_ROWS
from timeline.viewer.comparison_view import view_of_comparison

STEPS = "SELECT slice.name, ts, ts + dur FROM slice JOIN track ON track.id = track_id WHERE {}"
PLACES = "SELECT id, parent_id, coalesce(name, '') FROM track"


def paths_of(trace: TraceProcessor) -> list[str]:
    """Names from the root, joined by " > ", as the UI knows rows."""
    rows = {one: (parent, str(name)) for one, parent, name in trace.rows(PLACES)}

    def path(row: object) -> str:
        parent, name = rows[row]
        return name if parent not in rows else f"{path(parent)} > {name}"

    return [path(row) for row in rows]


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("kind", [timeline.Kind.SUMMARY, timeline.Kind.DETAIL])
def test_the_step_that_changed_most_is_in_view(
    tmp_path: Path, ranks: int, kind: timeline.Kind
) -> None:
    """Below how all steps changed, with the overlap of the rank on which it takes longest now."""
    sides = [tmp_path / name for name in ("before", "after")]
    for side, slower in zip(sides, ({}, {"MatMulV2": 2.0}), strict=True):
        WRITERS["torch-db"](make_run(ranks, 5, ops_per_step=6, planes=2, slower=slower), side)
    before, after = sides
    report = timeline.compare(before, after, tmp_path / "t.pftrace", kind=kind)
    view = view_of_comparison(report)
    steps = report.comparison.steps
    worst = int(steps["delta_ns"].argmax())
    assert f"step {steps['base_step'][worst]} of rank" in view.description
    trace = TraceProcessor.load((tmp_path / "t.pftrace").read_bytes())
    differences = f"track.name = '{STEPS_ROW}'"
    ((name, start_ns, _),) = [
        row
        for row in trace.rows(STEPS.format(differences))
        if str(row[0]).startswith(f"Step {steps['base_step'][worst]} ")
    ]
    assert view.visible_ns is not None
    assert view.visible_ns[0] <= start_ns < view.visible_ns[1]
    assert view.visible_ns[1] - start_ns >= steps["new_ns"][worst]
    pinned = [path for path in paths_of(trace) if re.search(view.pinned, path)]
    rank = steps["new_rank"][worst]
    assert sorted(path.rpartition(" > ")[2] for path in pinned) == sorted(
        [STEPS_ROW, *OVERLAP_ROWS, *OVERLAP_ROWS]
    )
    own = [path for path in pinned if path != STEPS_ROW]
    assert all(re.search(rf"Rank {rank}\b", path) for path in own), name
    roots = {path.split(" > ")[0].strip().partition(":")[0] for path in own}
    assert roots == {f"Rank {rank} base", f"Rank {rank} new"}


def test_all_is_in_view_without_steps(tmp_path: Path) -> None:
    path = tmp_path / "run"
    WRITERS["torch-db"](make_run(1, 2, ops_per_step=6, planes=2), path)
    report = timeline.compare(path, path, tmp_path / "t.json")
    view = view_of_comparison(replace(report, changed=None))
    assert view.visible_ns is None
    assert view.pinned == ""
    assert view.description == "all of both runs"
