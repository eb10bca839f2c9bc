"""Proves that real shells complete options, values and files with the script that is printed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import timeline
from timeline.cli.main import main
from timeline.cli.parser import SHELLS
from timeline.layers import Layer

Complete = Callable[[str], list[str]]
ANSWER_SECONDS = 60.0

BASH = """
source ./script
COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9
_python_argcomplete tlexport
printf '%s\\n' "${COMPREPLY[@]}"
"""
ZSH = """
compdef() { :; }  # outside of the line editor there is nothing to tell
source ./script
_describe() { print -rl -- "${completions[@]%%:*}" }  # shows what it is given
words=(tlexport) BUFFER=$1 CURSOR=${#1}
_python_argcomplete
"""
FISH = """
source ./script
complete -C $argv[1]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a profile and a file in it, and the command on the PATH."""
    (tmp_path / "profile").mkdir()
    (tmp_path / "profile.tar.gz").touch()
    command = tmp_path / "bin" / "tlexport"
    command.parent.mkdir()
    command.write_text(f"#!/bin/sh\nexec '{sys.executable}' -m timeline \"$@\"\n")
    command.chmod(0o755)
    monkeypatch.setenv("PYTHONPATH", str(Path(timeline.__file__).parents[1]))
    monkeypatch.setenv("PATH", f"{command.parent}:/usr/local/bin:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(params=SHELLS)
def complete(
    request: pytest.FixtureRequest, folder: Path, capsys: pytest.CaptureFixture[str]
) -> Complete:
    """What a shell offers for a line; that shell has read the script, and nothing else."""
    shell: str = request.param
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not installed")
    assert main(["--completion", shell]) == 0
    (folder / "script").write_text(capsys.readouterr().out)
    words = {
        "bash": [path, "--norc", "-c", BASH, "bash"],
        "zsh": [path, "-f", "-c", ZSH, "zsh"],
        "fish": [path, "--no-config", "-c", FISH],
    }[shell]

    def offered(line: str) -> list[str]:
        ran = subprocess.run(
            [*words, line], capture_output=True, text=True, timeout=ANSWER_SECONDS, check=True
        )
        assert ran.stderr == ""
        return sorted(word.split("\t")[0].rstrip() for word in ran.stdout.split("\n") if word)

    return offered


def test_options_complete(complete: Complete) -> None:
    assert complete("tlexport --ki") == ["--kind"]
    assert complete("tlexport profile --kind detail --op") == ["--open"]
    assert {"--ranks", "--steps", "--fit", "--list"} <= set(complete("tlexport --"))


def test_values_complete(complete: Complete) -> None:
    assert complete("tlexport --kind ") == ["detail", "summary"]
    assert complete("tlexport --kind d") == ["detail"]
    assert complete("tlexport profile --fit s") == ["split", "steps"]
    assert complete("tlexport --args ") == ["all", "default", "none"]
    assert complete("tlexport --ranks ") == ["all"]
    assert complete("tlexport --window ") == []


def test_lists_of_layers_complete(complete: Complete) -> None:
    assert complete("tlexport --layers ") == sorted(layer.value for layer in Layer)
    assert complete("tlexport --layers steps,ov") == ["steps,overlap"]
    assert "steps,overlap,steps" not in complete("tlexport --layers steps,overlap,")
    assert len(complete("tlexport --layers steps,overlap,")) == len(Layer) - 2


def test_files_complete(complete: Complete) -> None:
    assert complete("tlexport prof") == ["profile.tar.gz", "profile/"]
    assert complete("tlexport --assign-rank ") == ["bin/", "profile/"]


def test_words_of_commands_complete(complete: Complete) -> None:
    """The first word is a path or a command, whose own options follow it."""
    assert complete("tlexport sh") == ["show"]
    assert "compare" in complete("tlexport com")
    assert complete("tlexport show prof") == ["profile.tar.gz", "profile/"]
    shown = ["--help", "--json", "--lang", "--verbose"]
    assert complete("tlexport show profile.tar.gz --") == shown
    assert complete("tlexport compare profile profile --sh") == []
    assert complete("tlexport compare profile profile --kind d") == ["detail"]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_says_how_it_is_installed(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--completion", shell]) == 0
    assert f"# Install: {SHELLS[shell]}" in capsys.readouterr().out


def test_completing_needs_no_library_that_reads(folder: Path) -> None:
    """The key is answered at once because nothing is loaded but what parses the command line."""
    code = (
        "import sys, timeline.cli.main, timeline.cli.export, timeline.cli.completion;"
        "print([n for n in ('numpy', 'orjson', 'apsw', 'google.protobuf') if n in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
