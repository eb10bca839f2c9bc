"""Proves that a rank whose files are damaged fails the export, or is left out with --keep-going."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.drawn_slices import DrawnSlice, drawn_slices
from tests.support.perfetto_sql import Row, TraceProcessor
from tests.support.profile_shelf import ProfileShelf
from tests.support.ranks_in_processes import DAMAGES, Command, Damage, Outcome

pytestmark = pytest.mark.sweep


@pytest.fixture(params=DAMAGES)
def damage(request: pytest.FixtureRequest) -> Damage:
    return DAMAGES[request.param]


def test_a_rank_that_cannot_be_read_fails_the_export(
    command: Command, shelf: ProfileShelf, tmp_path: Path, damage: Damage, processes: int
) -> None:
    """The message names the file, and nothing is written."""
    profile = shelf.copy(damage.layout, tmp_path / "run", ranks=3)
    path = damage.strike(profile, 1)
    outcome = command(profile.path, "--kind", "detail", "-j", processes)
    assert (outcome.code, outcome.out, outcome.files) == (1, "", {})
    assert outcome.err.startswith(f"tlexport: {path}")
    assert outcome.err.count("\n") == 1


def test_keep_going_exports_the_other_ranks(
    command: Command, shelf: ProfileShelf, tmp_path: Path, damage: Damage, processes: int
) -> None:
    """The picture is what it is without the rank; the rank and the reason are a warning."""
    profile = shelf.copy(damage.layout, tmp_path / "run", ranks=3)
    path = damage.strike(profile, 1)
    options = ("--kind", "detail", "--json")
    outcome = command(profile.path, *options, "--keep-going", "-j", processes)
    assert outcome.code == 0, outcome.err
    intact = command(shelf.get(damage.layout, ranks=3).path, *options, "--ranks", "0,2", "-j", "1")
    assert shown(outcome) == shown(intact)
    report = json.loads(outcome.out)
    assert [row["rank"] for row in report["ranks"]] == [0, 2]
    (warning,) = (text for text in report["warnings"] if str(path) in text)
    assert " is left out: " in warning
    assert f"tlexport: {warning}\n" in outcome.err


def shown(outcome: Outcome) -> tuple[list[DrawnSlice], list[Row], list[Row]]:
    """All slices, samples and arrows of the only file; without its notes, which name the rank."""
    (content,) = outcome.files.values()
    processor = TraceProcessor.load(content)
    slices = [one for one in drawn_slices(processor) if one.row[0] != "Notes"]
    samples = "SELECT t.name, c.ts, c.value FROM counter c JOIN track t ON c.track_id = t.id"
    arrows = (
        "SELECT a.name, a.ts, b.name, b.ts FROM flow f"
        " JOIN slice a ON f.slice_out = a.id JOIN slice b ON f.slice_in = b.id"
    )
    return slices, sorted(processor.rows(samples)), sorted(processor.rows(arrows))


@pytest.mark.parametrize("more", [(), ("--steps", "1"), ("--window", "0:50%")], ids=str)
def test_keep_going_without_any_rank_is_an_error(
    command: Command, shelf: ProfileShelf, tmp_path: Path, processes: int, more: Sequence[str]
) -> None:
    """Not one that blames the selection: it tells what is wrong with a rank."""
    damage = DAMAGES["one of many files cut off"]
    profile = shelf.copy(damage.layout, tmp_path / "run", ranks=3)
    paths = [damage.strike(profile, rank) for rank in range(3)]
    outcome = command(profile.path, "--kind", "detail", "-j", processes, "--keep-going", *more)
    assert (outcome.code, outcome.out, outcome.files) == (1, "", {})
    assert str(paths[0]) in outcome.err


@pytest.mark.parametrize("more", [(), ("--ranks", "1")], ids=str)
def test_a_listing_without_any_rank_advises_what_it_can_do(
    command: Command, shelf: ProfileShelf, tmp_path: Path, more: Sequence[str]
) -> None:
    """Nobody gave it --keep-going; of several ranks it tells how to see why each fails."""
    damage = DAMAGES["one of many files cut off"]
    profile = shelf.copy(damage.layout, tmp_path / "run", ranks=3)
    paths = [damage.strike(profile, rank) for rank in range(3)]
    outcome = command(profile.path, "--list", *more)
    assert (outcome.code, outcome.out, outcome.files) == (1, "", {})
    assert str(paths[1 if more else 0]) in outcome.err
    assert "--keep-going" not in outcome.err
    assert ("List one of the --ranks" in outcome.err) == (not more)
