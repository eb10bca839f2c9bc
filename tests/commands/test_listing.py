"""Proves that --list and --json say what a profile and a timeline hold."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from simulator.overlap import expected_overlap
from tests.support.profile_shelf import Profile, ProfileShelf
from tests.support.run_command import OVERLAP_FIELDS, REPORTED, Command, hardware_tasks, overlap_of


def test_list(command: Command, profile: Profile) -> None:
    """--list shows a line per rank and graph, and writes nothing."""
    outcome = command(profile.path, "--list")
    assert (outcome.code, outcome.err) == (0, "")
    head, *lines = outcome.out.splitlines()
    assert head.split()[:3] == ["rank", "graph", "steps"]
    assert lines[0].split()[:3] == ["0", "1", "1-3"]
    assert lines[1].split()[:2] == ["3", "1-3"]
    assert lines[2].split()[:3] == ["1", "1", "1-3"]
    for capture in profile.captures:
        assert capture.name in outcome.out
    assert command.files() == []


def test_list_as_json(command: Command, profile: Profile) -> None:
    """--list --json holds the same facts as integers and lists."""
    outcome = command(profile.path, "--list", "--json", "--ranks", "1")
    assert outcome.code == 0
    (found,) = outcome.report["ranks"]
    rank = profile.run.rank(1)
    assert outcome.report["schema"] == 1
    assert found["rank"] == 1
    assert found["graphs"] == [{"graph": graph, "steps": [1, 2, 3]} for graph in (1, 3)]
    assert found["tasks"] == hardware_tasks(rank)
    assert found["comm_ops"] == sum(len(one.collectives) for one in rank.iterations)
    assert found["span_ns"] == rank.switches[1].end_ns - rank.switches[0].start_ns
    assert found["bytes"] > 10_000
    assert found["clock"] == "wall"
    assert "info.json" in found["evidence"]
    assert Path(found["source"]).name == profile.captures[1].name


def test_list_of_runs(command: Command, shelf: ProfileShelf, tmp_path: Path) -> None:
    """A directory of runs is a table of runs, newest first; -v tells the ranks of the newest."""
    for name, date in (("old", "20250109"), ("new", "20250211")):
        copy = shelf.copy("torch-text", tmp_path / "runs" / name)
        for capture in copy.captures:
            capture.rename(capture.with_name(capture.name.replace("20250109", date)))
    outcome = command(tmp_path / "runs", "--list")
    head, newest, oldest, advice = outcome.out.splitlines()
    assert head.split() == ["run", "started", "ranks", "layout", "path"]
    assert newest.split() == [
        *("2025-02-11", "12:00:00", "0,1", "trace_view.json"),
        str(tmp_path / "runs" / "new"),
    ]
    assert oldest.split()[0] == "2025-01-09"
    assert advice == f"Ranks and steps of a run: tlexport {tmp_path}/runs/new --list"
    verbose = command(tmp_path / "runs", "--list", "-v").out
    assert verbose.startswith(outcome.out + "\nnewest run:\nrank  graph  steps")
    assert verbose.endswith(command(tmp_path / "runs" / "new", "--list").out)


@pytest.mark.parametrize("quiet", [(), ("-q",)], ids=["", "-q"])
def test_json_report(command: Command, profile: Profile, quiet: Sequence[str]) -> None:
    """--json prints one object: what was written, per rank, and overlap in integer ns."""
    outcome = command(profile.path, "--kind", "detail", "--json", *quiet, "-o", "out.json.gz")
    assert (outcome.code, outcome.err) == (0, "")
    report = outcome.report
    assert (report["schema"], report["status"], report["kind"]) == (1, "ok", "detail")
    (output,) = report["outputs"]
    assert {key: output[key] for key in ("path", "format", "steps")} == {
        "path": "out.json.gz",
        "format": "json",
        "steps": [1, 2, 3],
    }
    assert output["bytes"] == (command.directory / "out.json.gz").stat().st_size
    for rank, row in zip(profile.run.ranks, report["ranks"], strict=True):
        reduces = [reduce for one in rank.iterations for reduce in one.collectives]
        assert row["rank"] == rank.rank
        assert row["graphs"] == [1, 3]
        assert row["tasks"] == hardware_tasks(rank)
        assert row["comm_ops"] == len(reduces)
        assert row["comm"] == sum(len(reduce.tasks) for reduce in reduces)
        assert (row["offset_ns"], row["align"]) == (0, "recorded")
    assert report["omitted"] == []
    assert report["warnings"] == []
    assert report["suggestion"] == ""


@pytest.mark.parametrize("layout", ["torch-text", "torch-db", "mindstudio", "mindspore-2.1"])
def test_json_overlap(command: Command, shelf: ProfileShelf, layout: str) -> None:
    """One object per rank for the whole, one per rank, graph and step, equal to the run's own."""
    graphs = (1, 3) if layout.startswith("mind") else (1,)
    found = shelf.get(layout, graphs=graphs)
    rows = command.report(found.path)["overlap"]
    expected: list[tuple[int, int | None, int | None, dict[str, int]]] = []
    for rank in (0, 1):
        expected.append((rank, None, None, expected_overlap(found.run, rank)))
        for step in (1, 2, 3):
            for graph in graphs:
                shown = graph if layout.startswith("mind") else None
                overlap = expected_overlap(found.run, rank, step, graph)
                expected.append((rank, shown, step, overlap))
    assert [(row["rank"], row["graph"], row["step"], overlap_of(row)) for row in rows] == expected
    for row in rows:
        parts = {"copies_ns", "outside_ns", "idle_ns"}
        around = {"period_ns", "before_ns", "between_ns", "late_ns"}
        fields = {REPORTED.get(field, field) for field in OVERLAP_FIELDS}
        renamed = {"not_overlapped_ns"}
        assert set(row) == {"rank", "graph", "step", *fields, *parts, *around, *renamed}
        assert row["exposed_communication_ns"] == row["not_overlapped_ns"]
        if row["step"] is None:
            assert {row[name] for name in around} == {None}
        else:
            span_ns = row["computing_ns"] + row["exposed_communication_ns"] + row["free_ns"]
            assert row["period_ns"] == row["before_ns"] + span_ns + row["between_ns"]
        assert row["free_ns"] == sum(row[part] or 0 for part in parts)
        assert {type(row[field]) for field in fields} == {int}
