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
from timeline.commands.show import read_timeline
from timeline.reports.first_look import WHY_IDLE
from timeline.tracks.root_rows import STEPS as STEPS_ROW
from timeline.viewer.links import view_of, view_of_file
from timeline.viewer.queries import definitions

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
    """Where time goes on the rank on which it takes longest now is pinned twice."""
    sides = [tmp_path / name for name in ("before", "after")]
    for side, slower in zip(sides, ({}, {"MatMulV2": 2.0}), strict=True):
        WRITERS["torch-db"](make_run(ranks, 5, ops_per_step=6, planes=2, slower=slower), side)
    before, after = sides
    report = timeline.compare(before, after, tmp_path / "t.pftrace", kind=kind)
    view = view_of(report)
    steps = report.comparison.steps
    worst = int(steps["delta_ns"].argmax())
    assert f"step {steps['base_step'][worst]} of rank" in view.description
    written = read_timeline(tmp_path / "t.pftrace")
    again = view_of_file(written.output, written.look)
    assert (again.visible_ns, again.commands) == (view.visible_ns, view.commands)
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
    rank = steps["new_rank"][worst]
    rows = [path.strip() for path in paths_of(trace) if re.search(view.rows, path)]
    roots = {path.partition(":")[0] for path in rows}
    assert roots == {f"Rank {rank} base", f"Rank {rank} new"}
    assert len(rows) == 2, name


def test_all_is_in_view_without_steps(tmp_path: Path) -> None:
    path = tmp_path / "run"
    WRITERS["torch-db"](make_run(1, 2, ops_per_step=6, planes=2), path)
    report = timeline.compare(path, path, tmp_path / "t.json")
    view = view_of(replace(report, changed=None))
    assert view.visible_ns is None
    assert view.description == "all of both runs"


@pytest.mark.parametrize("suffix", [".pftrace", ".json"])
def test_tables_tell_both_runs_apart(tmp_path: Path, suffix: str) -> None:
    """The steps that became slower come first, and views have rows of each run."""
    sides = [tmp_path / name for name in ("before", "after")]
    for side, slower in zip(sides, ({}, {"MatMulV2": 2.0}), strict=True):
        WRITERS["torch-db"](make_run(2, 4, ops_per_step=6, planes=2, slower=slower), side)
    report = timeline.compare(sides[0], sides[1], tmp_path / f"t{suffix}")
    commands = view_of(report).commands
    prelude, *tables = (one.args[0] for one in commands if "RunQuery" in one.id)
    trace = TraceProcessor.load((tmp_path / f"t{suffix}").read_bytes())
    trace.rows(prelude)
    answers = {table.split()[-1]: trace.rows(table) for table in tables}
    assert [*answers] == ["which_steps_changed"]
    steps = report.comparison.steps
    deltas_ms = [round(ns / 1e6, 3) for ns in steps["delta_ns"].tolist()]
    changes = sorted(zip(steps["base_step"].tolist(), deltas_ms, strict=True))
    shown = [(int(str(row[0]).split()[1]), row[3]) for row in answers["which_steps_changed"]]
    assert sorted(shown) == changes
    assert [ms for _, ms in shown] == sorted((ms for _, ms in changes), reverse=True)
    trace.rows(definitions(["where_time_goes"]))
    times = trace.rows("SELECT * FROM where_time_goes")
    assert [row[:2] for row in times] == [(0, "base"), (0, "new"), (1, "base"), (1, "new")]


@pytest.mark.parametrize("layout", ["torch-db", "kineto"])
def test_the_rows_of_the_device_are_unfolded(tmp_path: Path, layout: str) -> None:
    """Whatever the profile calls them, like those of steps, of overlap and of communication."""
    path, target = tmp_path / "run", tmp_path / "t.pftrace"
    WRITERS[layout](make_run(2, 3, ops_per_step=6, planes=2), path)
    report = timeline.export(path, target, kind=timeline.Kind.DETAIL)
    wanted, *_ = (one.args[0] for one in view_of(report).commands if "Expand" in one.id)
    paths = paths_of(TraceProcessor.load(target.read_bytes()))
    unfolded = {path.rpartition("> ")[2] for path in paths if re.search(wanted, path)}
    device = "GPU" if layout == "kineto" else "Ascend Hardware"
    assert {device, "Step Trace", "Overlap Analysis"} <= unfolded
    assert not re.search(wanted, "Ranks 0-9 > ")


def test_the_table_fits_the_first_finding(tmp_path: Path) -> None:
    """All ranks wait for data, and one computes longer in a step, which would win less."""
    WRITERS["torch-text"](make_run(2, 6), tmp_path / "run")
    verdict = timeline.export(tmp_path / "run", tmp_path / "t.pftrace").verdict
    assert [finding.cause for finding in verdict.findings.found[:2]] == ["input", "computing"]
    assert verdict.culprit is not None
    assert verdict.culprit.waiters
    look = read_timeline(tmp_path / "t.pftrace").look
    assert (look.question, look.waiting) == (WHY_IDLE, None)
