"""Proves that command lines give the files, words and exit codes that they should."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.places import ROOT
from tests.support.profile_shelf import Copier, Profile, ProfileShelf, change_events
from tests.support.run_command import Command
from timeline import __version__

# -- exit codes and messages -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        ("--rank", "0"),
        ("--kind", "both"),
        ("--ranks", ""),
        ("--ranks", "first"),
        ("--ranks", "3-1"),
        ("--steps", "1,,2"),
        ("--graphs", "-1"),
        ("--window", "5"),
        ("--window", "5:3"),
        ("--window", "60%:60%"),
        ("--limit", "20"),
        ("--window", "1 minute:"),
        ("--window", "30%:120%"),
        ("--limit", "plenty"),
        ("--limit", "-5"),
        ("--layers", "hardware,hccl"),
        ("--fit", "luck"),
        ("--assign-rank", "PROF_1"),
        ("--assign-rank", "PROF_1=first"),
        ("--assign-rank", "PROF_absent=1"),
        ("one", "two"),
    ],
    ids=" ".join,
)
def test_wrong_usage(command: Command, profile: Profile, options: Sequence[str]) -> None:
    """An option or value without a meaning is exit 2, told on stderr, and nothing is written."""
    outcome = command(profile.path, *options)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("tlexport: ")
    assert "Traceback" not in outcome.err
    assert command.files() == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--ranks", "9"), ("rank 9 is not in", "found ranks 0,1", "--list")),
        (("--ranks", "0,7-9"), ("ranks 7-9 are not in", "found ranks 0,1")),
        (("--graphs", "2"), ("graph 2 is not in", "found graphs 1,3", "--list")),
        (("--steps", "3-5"), ("steps 4,5 are not in", "found steps 1-3", "--list")),
        (("--window", "5s:6s"), ("outside", "5.000 s", "6.000 s")),
    ],
)
def test_selection_that_is_not_there(
    command: Command, profile: Profile, options: Sequence[str], said: Sequence[str]
) -> None:
    """Asking for what is not there is exit 3, and the message lists what is."""
    outcome = command(profile.path, *options)
    assert (outcome.code, outcome.out) == (3, "")
    for part in said:
        assert part in outcome.err
    assert command.files() == []


def test_list_of_a_rank_that_is_not_there(command: Command, profile: Profile) -> None:
    """--list refuses an unknown rank as an export does."""
    outcome = command(profile.path, "--list", "--ranks", "9")
    assert (outcome.code, outcome.out) == (3, "")
    assert "found ranks 0,1" in outcome.err


def test_missing_profile(command: Command) -> None:
    """A path without a profile is exit 1, and the message says what was looked for."""
    outcome = command(command.directory)
    assert outcome.code == 1
    assert "holds no Ascend profile" in outcome.err
    assert "msprof --export=on" in outcome.err
    assert command("absent").code == 1


def test_questions_in_sql(command: Command) -> None:
    """--sql prints the questions of the package as they are, where there is no profile too."""
    outcome = command("--sql")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == (ROOT / "timeline" / "viewer" / "queries.sql").read_text(encoding="utf-8")
    assert command.files() == []


def test_quiet(command: Command, copied: Copier) -> None:
    """-q says nothing on success, warnings included, and still tells errors."""
    broken = copied("torch-text", ranks=1)
    trace = next(broken.path.rglob("trace_view.json"))
    change_events(trace, lambda event: event if event["ph"] == "M" else None)
    loud = command(broken.path, "-o", "loud.pftrace")
    assert loud.code == 0
    assert "holds nothing" in loud.err
    quiet = command(broken.path, "-q", "-o", "quiet.pftrace")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    assert command.files() == ["loud.pftrace", "quiet.pftrace"]
    assert "exists" in command(broken.path, "-q", "-o", "quiet.pftrace").err


def test_words_of_success(command: Command, profile: Profile) -> None:
    """The result is on stdout: what is slow, then what was written, its size and steps."""
    outcome = command(profile.path, "--kind", "detail", "-o", "out.pftrace")
    assert outcome.err == ""
    lines = outcome.out.splitlines()
    assert re.match(r"[-\w]+: hiding all .* would make the run \d+% shorter[.;]", lines[0])
    assert any(line.startswith("Step (") for line in lines)
    table = lines.index("") + 1
    assert lines[table + 1].split()[:2] == ["rank", "step"]
    assert [line.split()[0] for line in lines[table + 2 : table + 4]] == ["1", "0"]
    (written,) = [line for line in lines if line.startswith("Wrote ")]
    size = (command.directory / "out.pftrace").stat().st_size
    assert f"{size / 1024:.1f} KB, 2 ranks, " in written
    assert written.endswith(", steps 1-3")


def interrupt(*_: object, **_more: object) -> None:
    raise KeyboardInterrupt


def test_interrupt_while_reading(
    command: Command, profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt is exit 130 and leaves nothing."""
    monkeypatch.setattr("timeline.sources.trace_json.source.MindStudioSource.read", interrupt)
    outcome = command(profile.path)
    assert outcome.code == 130
    assert outcome.out == ""
    assert "interrupted" in outcome.err
    assert command.files() == []


def test_interrupt_within_a_decoder_of_text(
    command: Command, profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python gives an interrupt args of its own there, which are not ours to tell."""

    def decode(*_: object, **_more: object) -> None:
        raise KeyboardInterrupt("decoding with 'cp437' codec failed (KeyboardInterrupt: )")

    monkeypatch.setattr("timeline.sources.trace_json.source.MindStudioSource.read", decode)
    assert command(profile.path).err == "tlexport: interrupted; nothing was written.\n"


@pytest.mark.parametrize("arguments", [(), ("--quiet", "--open")], ids=["told", "shown"])
def test_interrupt_behind_the_writing(
    command: Command, profile: Profile, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    """What is written stays, and the message does not deny it."""
    monkeypatch.setattr("timeline.reports.terminal.Display.of", interrupt)
    monkeypatch.setattr("timeline.viewer.opening.show", interrupt)
    outcome = command(profile.path, *arguments)
    assert outcome.code == 130
    assert outcome.err == "tlexport: interrupted; the timeline was written before.\n"
    assert command.files() == [f"timeline-{profile.path.name}-summary-r0-1.pftrace"]


# -- the installed command -------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["module", "script"])
def test_as_a_process(command: Command, shelf: ProfileShelf, way: str) -> None:
    """`tlexport` and `python -m timeline` do what `main` does, in a process of their own."""
    script = Path(sysconfig.get_path("scripts")) / "tlexport"
    start = [sys.executable, "-m", "timeline"] if way == "module" else [str(script)]
    found = shelf.get("torch-db")

    def run(*arguments: str, cwd: Path = command.directory) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"COLUMNS": "100"}
        return subprocess.run(
            [*start, *arguments], capture_output=True, text=True, cwd=cwd, env=environment
        )

    assert run("--version").stdout == f"tlexport {__version__}\n"
    output = str(command.directory / "out.pftrace")
    exported = run("--ranks", "0,1", "--kind", "summary", "-o", output, cwd=found.path)
    assert (exported.returncode, exported.stderr) == (0, "")
    assert "Wrote " in exported.stdout
    command.loaded("out.pftrace")
    refused = run("--ranks", "7", cwd=found.path)
    assert (refused.returncode, refused.stdout) == (3, "")
    assert refused.stderr.startswith("tlexport: rank 7 is not in .: found ranks 0,1.")
    assert run("--no-such-option").returncode == 2
    assert sorted(path.name for path in found.path.iterdir()) == sorted(
        capture.name for capture in found.captures
    )


def test_help_tells_every_option(command: Command) -> None:
    """--help-all shows all options and the examples; --help the usual ones, on one screen."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        start = [sys.executable, "-m", "timeline", *words]
        return subprocess.run(start, capture_output=True, text=True, check=True)

    ran = run("--help-all")
    options = (
        *("--ranks", "--graphs", "--steps", "--window", "--layers", "--assign-rank", "--kind"),
        *("--group-by", "--merge-graphs", "--no-merge-graphs", "--scopes", "--args"),
        *("--fp-start", "--bp-end", "--output", "--limit", "--fit", "--force", "--strict"),
        *("--list", "--csv", "--json", "--verbose", "--quiet", "--sql", "--version"),
    )
    for option in options:
        assert option in ran.stdout
    assert ran.stdout.index("tlexport prof --list") < ran.stdout.index("options:")
    for words in ((), ("compare",), ("show",), ("query",)):
        short = run(*words, "--help").stdout
        assert len(short.splitlines()) <= 60
        assert "--json" in short
    short = run("--help").stdout
    assert len(short.splitlines()) <= 45
    assert {"--ranks", "--steps", "--kind", "--help-all"} <= set(short.replace(",", "").split())
    assert "--offset" not in short
