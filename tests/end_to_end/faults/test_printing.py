"""Proves that what is printed is printable, wherever it is printed to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from simulator.writers.trace_json.torch_text import write_torch_text
from tests.support.damaged_profiles import POSIX, RUN
from tests.support.profile_shelf import ProfileShelf, tiny_run
from timeline.cli.main import main
from timeline.printable import printable, printable_json


@POSIX
def test_messages_cannot_move_the_cursor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Controls in names of directories are escaped, in words and in JSON, also where one fails."""
    root = tmp_path / "run\x1b[2J\x9b1m\n\u202e"
    root.mkdir()
    (capture,) = write_torch_text(tiny_run(**RUN), root)
    output = str(root / "out.pftrace")
    for more in (["-o", output], ["--list"], ["--list", "--json"], ["-o", output, "--json"]):
        assert main([str(root), *more, "--force"] if "-o" in more else [str(root), *more]) == 0
        said = capsys.readouterr()
        assert all(line.isprintable() for line in said.out.split("\n")), said.out
        if "--json" in more:
            told = json.loads(said.out)
            place = told["outputs"][0]["path"] if "outputs" in told else told["ranks"][0]["source"]
            assert place.startswith(str(root))
    (capture / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").write_bytes(b"")
    assert main([str(root)]) == 1
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert said.err.removesuffix("\n").isprintable()
    assert "run\\x1b[2J\\x9b1m\\n\\u202e" in said.err


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain 中文 é", "plain 中文 é"),
        ("\x1b[2J\x07\x7f\x9b", "\\x1b[2J\\x07\\x7f\\x9b"),
        ("two\nlines\r", "two\\nlines\\r"),
        ("\u202eleft", "\\u202eleft"),
        ("no text \udcff", "no text \\udcff"),
        ("wide\u3000blank", "wide\u3000blank"),
    ],
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown
    document = json.dumps({text: 1}, ensure_ascii=False)
    assert json.loads(printable_json(document, "utf-8")) == {text: 1}
    assert json.loads(printable_json(document, "ascii")) == {text: 1}
    assert printable_json(document, "ascii").isascii()


FULL = Path("/dev/full")
NO_SPACE = "tlexport: cannot print: No space left on device.\n"


def command(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    start = [sys.executable, "-m", "timeline", *map(str, arguments)]
    return subprocess.run(start, text=True, stderr=subprocess.PIPE, timeout=60, **options)


@POSIX
@pytest.mark.parametrize("stdout", ["/dev/full", "closed pipe", "closed"])
def test_output_that_cannot_be_printed(tmp_path: Path, shelf: ProfileShelf, stdout: str) -> None:
    """No traceback, whatever is the matter with standard output."""
    profile = shelf.get("torch-text", **RUN).path
    arguments = (profile, "-o", tmp_path / "out.pftrace")
    if stdout == "/dev/full":
        if not FULL.exists():
            pytest.skip("this system has no /dev/full")
        with FULL.open("w", encoding="utf-8") as full:
            ran = command(*arguments, stdout=full)
        assert (ran.returncode, ran.stderr) == (1, NO_SPACE)
    elif stdout == "closed pipe":
        read, write = os.pipe()
        os.close(read)
        ran = command(*arguments, stdout=write)
        os.close(write)
        assert (ran.returncode, ran.stderr) == (1, "")
    else:
        ran = command(*arguments, preexec_fn=lambda: os.close(1))
        assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("words", [("--help",), ("--version",), ("compare", "--help")])
def test_help_that_cannot_be_printed(words: Sequence[str]) -> None:
    """It fails as any other output does, and is not taken for help that was read."""
    with FULL.open("w", encoding="utf-8") as full:
        ran = command(*words, stdout=full)
    assert (ran.returncode, ran.stderr) == (1, NO_SPACE)


@POSIX
def test_places_that_are_none(tmp_path: Path) -> None:
    """A directory that was removed under the command, and a pipe or device as PATH, are named."""
    gone, pipe = tmp_path / "gone", tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/null")):
        ran = command(path)
        assert (ran.returncode, ran.stderr) == (
            1,
            f"tlexport: {path}: is a pipe or device. Name a directory or a file.\n",
        )
    gone.mkdir()
    start = f"import os; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r});"
    start += "from timeline.cli.main import main; raise SystemExit(main(['--list']))"
    ran = subprocess.run(
        [sys.executable, "-c", start], text=True, stderr=subprocess.PIPE, timeout=60, check=False
    )
    assert ran.returncode == 1
    assert "the current directory was removed. Move to another one." in ran.stderr


def test_a_terminal_of_ascii(tmp_path: Path, shelf: ProfileShelf) -> None:
    """Characters that the terminal lacks are escaped."""
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    for more in ((), ("--json",)):
        output = tmp_path / "中文.pftrace"
        ran = command(
            *(shelf.get("torch-text", **RUN).path, "-o", output, "--force", *more),
            stdout=subprocess.PIPE,
            env=environment,
        )
        assert (ran.returncode, ran.stderr) == (0, "")
        assert "\\u4e2d\\u6587.pftrace" in ran.stdout
