"""Proves that every answer says which run and ranks it is about, and what was assumed."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.profile_shelf import Copier
from tests.support.run_command import Command

WAYS: tuple[tuple[str, ...], ...] = (
    (),
    ("-q",),
    ("--verdict",),
    ("--verdict", "-q"),
    ("--json",),
    ("--verdict", "--json"),
)


@pytest.fixture
def two_runs(copied: Copier) -> Path:
    """Two runs of two ranks, of which the newer one has lost the end of its rank 1."""
    profile = copied("kineto", steps=3)
    for number, capture in enumerate(profile.captures):
        older = f"host_1234{number}.1736420000140000000.pt.trace.json"
        shutil.copyfile(capture, profile.path / older)
    cut = profile.captures[1]
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    return profile.path


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_runs_and_ranks_left_out_are_named(
    command: Command, two_runs: Path, way: Sequence[str]
) -> None:
    """On stderr in whatever way it is asked, and as `notes` for programs; once each."""
    output = () if "--verdict" in way else ("-o", "out.pftrace")
    outcome = command(two_runs, "--keep-going", *way, *output)
    assert outcome.code == 0, outcome.err
    assert outcome.err.count("2 runs lie in") == outcome.err.count("is left out") == 1
    if "--json" in way:
        notes = outcome.report["notes"]
        assert ["is left out" in notes[0], "2 runs lie in" in notes[1]] == [True, True]
        assert {*notes} <= {*outcome.report.get("warnings", notes)}


def test_a_file_says_them_again(command: Command, two_runs: Path) -> None:
    """`tlexport show` prints what was said when the file was written."""
    report = command.report(two_runs, "--keep-going", "-o", "out.pftrace")
    assert len(report["notes"]) == 2
    shown = command("show", "out.pftrace", "--json")
    assert shown.report["notes"] == report["notes"]
    assert all(note in shown.err for note in report["notes"])


def test_a_comparison_says_of_which_run(command: Command, two_runs: Path) -> None:
    """Each note begins with the run that it is about; a made up rank is one."""
    alone = command.directory / "alone.json"
    shutil.copyfile(next(two_runs.glob("*.json")), alone)
    report = command.report("compare", two_runs, alone, "--keep-going", "--verdict")
    assert [note.split(": ")[0] for note in report["notes"]] == ["base", "base"]
    quiet = command("compare", two_runs, alone, "--keep-going", "--verdict", "-q")
    assert all(note in quiet.err for note in report["notes"])
    assert quiet.out == ""
