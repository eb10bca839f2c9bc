"""Proves that ranks that cannot be read are told, and warnings are said once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.drawn_slices import DrawnSlice, drawn_slices
from tests.support.perfetto_sql import Row, TraceProcessor
from tests.support.profile_shelf import Copier, ProfileShelf
from tests.support.ranks_in_processes import DAMAGES, Command, Damage, Outcome
from timeline.ranks.read_ranks import merge_across_ranks

pytestmark = pytest.mark.sweep


@pytest.fixture(params=DAMAGES)
def damage(request: pytest.FixtureRequest) -> Damage:
    return DAMAGES[request.param]


def test_a_rank_that_cannot_be_read_fails_the_export(
    command: Command, copied: Copier, damage: Damage, processes: int
) -> None:
    """The message names the file, and nothing is written."""
    profile = copied(damage.layout, ranks=3)
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
    command: Command, copied: Copier, processes: int, more: Sequence[str]
) -> None:
    """Not one that blames the selection: it tells what is wrong with a rank."""
    damage = DAMAGES["one of many files cut off"]
    profile = copied(damage.layout, ranks=3)
    paths = [damage.strike(profile, rank) for rank in range(3)]
    outcome = command(profile.path, "--kind", "detail", "-j", processes, "--keep-going", *more)
    assert (outcome.code, outcome.out, outcome.files) == (1, "", {})
    assert str(paths[0]) in outcome.err


@pytest.mark.parametrize("more", [(), ("--ranks", "1")], ids=str)
def test_a_listing_without_any_rank_advises_what_it_can_do(
    command: Command, copied: Copier, more: Sequence[str]
) -> None:
    """Nobody gave it --keep-going; of several ranks it tells how to see why each fails."""
    damage = DAMAGES["one of many files cut off"]
    profile = copied(damage.layout, ranks=3)
    paths = [damage.strike(profile, rank) for rank in range(3)]
    outcome = command(profile.path, "--list", *more)
    assert (outcome.code, outcome.out, outcome.files) == (1, "", {})
    assert str(paths[1 if more else 0]) in outcome.err
    assert "--keep-going" not in outcome.err
    assert ("List one of the --ranks" in outcome.err) == (not more)


def test_keep_going_with_all_ranks_changes_nothing(command: Command, shelf: ProfileShelf) -> None:
    path = shelf.get("mindspore-2.1", ranks=3).path
    options = ("--kind", "detail", "--json", "-j", 2)
    assert command(path, *options, "--keep-going") == command(path, *options)


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["no steps.", "no tasks."]))))
def test_each_text_is_said_once_with_all_its_ranks(found: list[tuple[int, str]]) -> None:
    said = list(merge_across_ranks(f"rank {rank}: {text}" for rank, text in found))
    assert len(said) == len({text for _, text in found})
    for line in said:
        head, text = line.split(": ")
        ranks = {rank for rank, its in found if its == text}
        assert head.startswith("rank ") == (len(ranks) == 1)


def test_what_is_of_no_rank_stays_and_order_is_that_of_the_first() -> None:
    warnings = ["rank 3: b.", "of the run.", "rank 0: a.", "rank 1: b.", "rank 2: b."]
    assert list(merge_across_ranks(warnings)) == ["ranks 1-3: b.", "of the run.", "rank 0: a."]
