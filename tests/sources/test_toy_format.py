"""Proves that a new format takes a folder and one line in the list of formats, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.perfetto_sql import TraceProcessor
from tests.support.toy_format import TOY
from timeline.cli.main import main
from timeline.sources import formats
from timeline.sources.source import OUTPUT

START_NS = 1_700_000_000_000_000_000
TASKS = ((0, 4_000, "gemm"), (5_000, 2_000, "add"), (8_000, 1_000, "gemm"))
COUNTS = "SELECT name, COUNT(*) AS n FROM slice WHERE name IN ('gemm', 'add') GROUP BY name"


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A profile of two ranks, read by a program whose list of formats has one more line."""
    monkeypatch.setattr(formats, "FORMATS", (*formats.FORMATS, TOY))
    directory = tmp_path / "profile"
    directory.mkdir()
    for rank in range(2):
        lines = [f"{START_NS + start} {length} {name}" for start, length, name in TASKS]
        (directory / f"rank{rank}.toy").write_text("\n".join(lines), encoding="utf-8")
    return directory


def test_it_is_listed(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--list --json` names the format, the file and what told the rank."""
    assert main([str(profile), "--list", "--json"]) == 0
    ranks = json.loads(capsys.readouterr().out)["ranks"]
    told = [(rank["rank"], rank["layout"], rank["tasks"], rank["evidence"]) for rank in ranks]
    assert told == [(rank, TOY.name, len(TASKS), f"file name rank{rank}.toy") for rank in range(2)]
    assert [Path(rank["source"]) for rank in ranks] == sorted(profile.iterdir())


@pytest.mark.parametrize(("kind", "counts"), [("summary", {}), ("detail", {"gemm": 4, "add": 2})])
def test_it_is_exported(
    profile: Path, kind: str, counts: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    """A summary and a detail are written: the sums are those of its tasks, which a detail draws."""
    output = profile.parent / "timeline.pftrace"
    assert main([str(profile), "--kind", kind, "-o", str(output), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [rank["layout"] for rank in report["ranks"]] == [TOY.name] * 2
    assert {row["computing_ns"] for row in report["overlap"]} == {sum(task[1] for task in TASKS)}
    trace = TraceProcessor.load(output.read_bytes())
    assert trace.rows("SELECT * FROM slice LIMIT 1")
    assert dict(trace.rows(COUNTS)) == counts


def test_a_file_of_it_is_a_profile(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One file is read when it is passed itself."""
    assert main([str(profile / "rank1.toy"), "--list", "--json"]) == 0
    (rank,) = json.loads(capsys.readouterr().out)["ranks"]
    assert (rank["rank"], rank["layout"]) == (1, TOY.name)


def test_it_stands_behind_those_before_it(
    profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where a directory holds something that stands before it in the list, that is read."""
    (profile / "trace_view.json").write_text("[]", encoding="utf-8")
    assert main([str(profile), "--list", "--json"]) == 0
    (rank,) = json.loads(capsys.readouterr().out)["ranks"]
    assert rank["layout"] == "trace_view.json"


def test_without_the_line_it_is_no_profile(
    profile: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing else in the program knows of it."""
    monkeypatch.setattr(formats, "FORMATS", tuple(one for one in formats.FORMATS if one != TOY))
    assert main([str(profile), "--list"]) != 0
    assert OUTPUT in capsys.readouterr().err
