"""Proves that errors speak to who gets them: options at the terminal, keywords in Python."""

from __future__ import annotations

import errno
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import timeline
from tests.support.profile_shelf import ProfileShelf
from timeline.cli.main import main
from timeline.declarations import options_in
from timeline.errors import SWITCHES, SourceError, TimelineError, in_python
from timeline.options import CompareOptions, ExportOptions, ReadingOptions
from timeline.selection import Selection

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
DECLARED = [
    one
    for each in (Selection, ExportOptions, CompareOptions, ReadingOptions)
    for one in options_in(each)
]


def test_switches_are_those_that_are_declared() -> None:
    assert {one.keyword for one in DECLARED if one.default is False} == SWITCHES


@pytest.mark.parametrize("one", DECLARED, ids=lambda one: one.keyword)
def test_every_option_becomes_its_keyword(one: Any) -> None:
    """The one that `help` shows, with a value where it is a switch."""
    switch = "=True" if one.default is False else ""
    for flag in one.flags:
        if flag.startswith("--"):
            assert in_python(f"leave out {flag}.") == f"leave out {one.keyword}{switch}."


@given(st.text(alphabet="ab-= \n.:"), st.sampled_from(["tlexport", "msprof", "pip"]))
def test_what_is_typed_stays(text: str, program: str) -> None:
    """A command line in a message is still one, and nothing is changed twice."""
    once = in_python(text)
    assert in_python(once) == once
    assert not OPTION.search(once) or OPTION.search(text)
    assert in_python(f"Do: {program} --all {text}") == f"Do: {program} --all {text}"


ASKED: list[tuple[list[str], Callable[[timeline.Profile, Path], object], str]] = [
    (["--ranks", "7"], lambda p, _: p.overlap(ranks=7), r"found ranks 0,1. Profile.ranks lists"),
    (["--steps", "9"], lambda p, _: p.tasks(steps=9), r"found steps 1-3. Profile.steps\(\) lists"),
    (["--graphs", "9"], lambda p, _: p.idle(graphs=9), r"drop graphs\.|Profile.steps\(\) lists"),
    (["--window", "9s:"], lambda p, _: p.waiting(window="9s:"), r"Choose a window inside"),
    (
        ["--offset", "9=1us"],
        lambda p, _: timeline.open_profile(p.path, offset={9: "1us"}).links(),
        r"^offset: rank 9 is not selected. Profile.ranks lists them",
    ),
    (["-o", "there.pftrace"], lambda p, _: timeline.export(p, "there.pftrace"), "Pass force=True"),
    (
        ["--assign-rank", "x=1"],
        lambda p, _: timeline.open_profile(p.path, assign_rank={"x": 1}),
        "^assign_rank x=1: there is no such capture",
    ),
]


@pytest.mark.parametrize(("words", "ask", "said"), ASKED, ids=lambda one: str(one)[:16])
def test_an_error_is_told_in_the_words_of_the_caller(
    shelf: ProfileShelf,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    ask: Callable[[timeline.Profile, Path], object],
    said: str,
) -> None:
    """The same error, with options where it was a command and with keywords where a call."""
    monkeypatch.chdir(tmp_path)
    Path("there.pftrace").write_bytes(b"not ours")
    profile = timeline.open_profile(shelf.get("torch-db").path)
    with pytest.raises(timeline.TimelineError, match=said) as caught:
        ask(profile, tmp_path)
    assert not OPTION.search(str(caught.value))
    assert main([str(profile.path), *words]) == caught.value.exit_code
    printed = capsys.readouterr().err
    assert OPTION.search(printed)
    assert printed.startswith(f"tlexport: {caught.value.lines()[0]}")


def test_both_ways_survive_a_process() -> None:
    """Errors of ranks come from others."""
    error = TimelineError("--ranks 3 is gone.", do="Use --list.", python_do="See Profile.ranks.")
    for one in (error, pickle.loads(pickle.dumps(error))):
        assert one.lines() == ["--ranks 3 is gone. Use --list."]
        assert str(one) == "--ranks 3 is gone. Use --list."
        one.say_in_python()
        assert str(one) == "ranks 3 is gone. See Profile.ranks."
        assert one.lines() == ["--ranks 3 is gone. Use --list."]


def test_memory_that_runs_out_is_no_fault_of_a_path() -> None:
    """The advice is then about memory, not about the file."""
    error = OSError(errno.ENOMEM, "Cannot allocate memory")
    with pytest.raises(MemoryError):
        SourceError.of_system(Path("a.db"), "cannot be read", error)
