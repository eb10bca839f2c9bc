"""Proves that the verdict alone is what an export says, and that it writes nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import timeline
from tests.support.html_page import read
from tests.support.profile_shelf import Profile, ProfileShelf
from tests.support.run_command import Command
from timeline.commands.verdict import answer
from timeline.ranks import rank_work
from timeline.selection import Selection

WAYS: tuple[tuple[str, ...], ...] = (
    (),
    ("-v",),
    ("--ranks", "1"),
    ("--steps", "2-3"),
    ("--no-causes",),
)


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
@pytest.mark.parametrize("layout", ["torch-text", "torch-db", "mindspore-2.1", "kineto"])
def test_it_is_what_an_export_says(
    command: Command, shelf: ProfileShelf, layout: str, way: Sequence[str]
) -> None:
    """Word for word, with the next command; warnings too. There is no file."""
    profile = shelf.get(layout, steps=4)
    said = command(profile.path, *way, "--verdict")
    assert said.code == 0
    assert command.files() == []
    exported = command(profile.path, *way)
    assert said.err == exported.err
    verdict, _, files = exported.out.partition("\nWrote ")
    text, _, why = said.out.partition("\nSee why: ")
    assert text == verdict
    assert (f"\nSee why: {why}" in f"\n{files}") == bool(why)


def test_for_programs(command: Command, profile: Profile) -> None:
    """As JSON it is what `tlexport show` says of a file of it; -q prints nothing."""
    said = command(profile.path, "--verdict", "--json").report
    command.report(profile.path, "-o", "out.pftrace")
    assert said == command("show", "out.pftrace", "--json").report
    quiet = command(profile.path, "--verdict", "-q")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")


def test_of_a_path_it_sums_no_host_calls(profile: Profile) -> None:
    """A verdict names none of the sums; tables of an open profile do, of the same reading."""
    alone = answer(profile.path, None, {}).figures.facts
    assert [len(rank.host_calls.times) for rank in alone] == [0, 0]
    with timeline.open_profile(profile.path) as opened:
        facts = answer(opened, None, {}).figures.facts
        assert set(opened.host_calls()["rank"]) == {rank.rank for rank in facts} == {0, 1}
    assert all(len(rank.host_calls.times) for rank in facts)
    idle_ns = [rank.host_calls.idle_ns for rank in facts]
    assert [rank.host_calls.idle_ns for rank in alone] == idle_ns > [0, 0]


def test_in_python(profile: Profile) -> None:
    """Of a path or of a profile that is open, whole or in part."""
    report = json.loads(timeline.find_verdict(profile.path).to_json())
    with timeline.open_profile(profile.path) as opened:
        assert json.loads(timeline.find_verdict(opened).to_json()) == report
        one = timeline.find_verdict(opened, selection=Selection(ranks=1))
    assert one.verdict is not None
    assert one.sentences != tuple(report["sentences"])


@pytest.mark.parametrize("more", [("-o", "a.pftrace"), ("--csv", "-"), ("--open",), ("--list",)])
def test_it_writes_no_file(command: Command, profile: Profile, more: tuple[str, ...]) -> None:
    """What asks for one is an error that says so."""
    outcome = command(profile.path, "--verdict", *more)
    assert outcome.code == 2
    assert f"--verdict and {more[0]} exclude each other" in outcome.err
    assert command.files() == []


def test_the_page_comes_alone(command: Command, profile: Profile) -> None:
    """With the figures of an export's page, and the answer printed as without it."""
    told = command(profile.path, "--verdict", "--report", "alone.html")
    assert (told.code, command.files()) == (0, ["alone.html"])
    assert told.out.startswith(command(profile.path, "--verdict").out)
    assert told.out.rstrip().endswith("Look at: alone.html")
    again = command(profile.path, "--verdict", "--report", "alone.html")
    assert again.code == 1
    assert "alone.html exists" in again.err
    command.report(profile.path, "-o", "out.pftrace", "--report", "beside.html")
    alone, beside = (read(Path(name).read_bytes()) for name in ("alone.html", "beside.html"))
    assert alone.tables.keys() == beside.tables.keys()
    for name, table in alone.tables.items():
        shown = [
            one
            for one in beside.tables[name]["columns"]
            if "timeline" not in one["title"] and one.get("kind") != "command"
        ]
        assert table["columns"] == shown


@pytest.mark.parametrize(
    ("word", "option"), [("verdict", "--verdict"), ("list", "--list"), ("help", "--help")]
)
def test_words_mean_options(
    command: Command, profile: Profile, word: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A first word that is no path is the option of that name."""
    if word == "help":
        for said in (word, option):
            with pytest.raises(SystemExit, match="0"):
                command(said)
        text = capsys.readouterr().out
        assert text[: len(text) // 2] == text[len(text) // 2 :]
        return
    assert command(word, profile.path).out == command(profile.path, option).out
    assert command.files() == []


def test_a_path_comes_before_a_word(command: Command, shelf: ProfileShelf, tmp_path: Path) -> None:
    """A profile that is called like a word is read."""
    shelf.copy("torch-db", command.directory / "list")
    outcome = command("list", "--verdict")
    assert outcome.code == 0
    assert outcome.out == command("./list", "--verdict").out


@pytest.mark.parametrize(
    ("slip", "meant"),
    [("--detail", "--kind detail"), ("--summary", "--kind summary"), ("-V", "--version")],
)
def test_slips(command: Command, slip: str, meant: str) -> None:
    """Options of other programs get the one that is meant."""
    outcome = command(slip)
    assert outcome.code == 2
    assert f"there is no option {slip}; did you mean {meant}?" in outcome.err


# -- of two runs -----------------------------------------------------------------------------------


def test_of_two_runs_it_is_what_a_comparison_says(command: Command, shelf: ProfileShelf) -> None:
    """Word for word, and in JSON but for what was written; nothing is."""
    base, new = shelf.get("torch-text", steps=8).path, shelf.get("torch-db", steps=8).path
    gate = ("--fail-above", "5%")
    said = command("compare", base, new, "--verdict", *gate)
    report = command("compare", base, new, "--verdict", *gate, "--json").report
    assert command.files() == []
    compared = command("compare", base, new, *gate)
    assert (said.code, said.err) == (compared.code, compared.err)
    verdict, wrote, files = compared.out.partition("\nWrote ")
    assert wrote
    assert said.out.startswith(verdict)
    assert said.out.removeprefix(verdict).strip() in files  # what is left out of both
    written = command("compare", base, new, *gate, "--json").report
    assert report["outputs"] == []
    apart = ("outputs", "omitted", "resolution")
    assert {key: value for key, value in report.items() if key not in apart} == {
        key: value for key, value in written.items() if key not in apart
    }


def test_of_two_runs_in_python(profile: Profile) -> None:
    """The report has no outputs."""
    report = timeline.find_changes(profile.path, profile.path, ranks=0)
    assert report.outputs == ()
    assert report.comparison.ranks["rank"].tolist() == [0]


def test_what_is_too_much_to_replay_is_said(
    profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No gain is reported then, and the first of the last words is how to get one."""
    monkeypatch.setattr(rank_work, "MOST_ITEMS", 10)
    found = timeline.find_verdict(profile.path, jobs=1)
    assert found.verdict is not None
    assert found.verdict["findings"] == []
    assert found.verdict["culprit"] is None
    assert any("are too many to replay, choose --steps" in line for line in found.sentences)
