"""Proves that nothing depends on what only this system has: its locale, its encoding, its calls."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.support.perfetto_sql import TraceProcessor
from tests.support.places import ROOT
from tests.support.profile_shelf import ProfileShelf
from timeline.printable import command_line
from timeline.ranks.workers import MOST_WINDOWS_PROCESSES

TEXT = ("torch-text", "torch-db", "mindstudio", "mindspore-text")
"""JSON, a database, tables and text."""
WARNED = r"""
import sys, warnings
warnings.filterwarnings("ignore", category=EncodingWarning)
warnings.filterwarnings("error", category=EncodingWarning, module=r"timeline\b")
from timeline.cli.main import main
sys.exit(main())
"""
"""Takes the warning of Python for an error where the package is warned, and not a library."""
NOT_ON_WINDOWS = """
import importlib.abc, os, signal, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name in {"fcntl", "grp", "pwd", "resource", "termios", "tty", "pty"}:
            raise ModuleNotFoundError(name)

for name in ("fcntl", "grp", "pwd", "resource", "termios", "tty", "pty"):
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Absent())
for module, names in {
    os: ("fork", "forkpty", "sched_getaffinity", "getuid", "geteuid", "O_NONBLOCK", "mkfifo",
         "statvfs", "fchmod", "chown", "wait3", "wait4", "killpg", "setsid"),
    signal: ("pthread_sigmask", "SIGHUP", "SIGPIPE", "SIGUSR1", "SIGALRM", "SIGQUIT", "SIGCHLD",
             "sigwait", "alarm", "setitimer"),
}.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
"""
"""Takes away, when Python starts, what the standard library of Windows does not have."""


def tlexport(
    *arguments: str | Path,
    cwd: Path,
    python: tuple[str, ...] = ("-m", "timeline"),
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run the command in a process of its own."""
    ran = subprocess.run(
        [sys.executable, *python, *map(str, arguments)],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | dict(environment or {}),
        capture_output=True,
    )
    assert (ran.returncode, ran.stderr.decode("utf-8", "replace")) == (0, "")
    return ran


@pytest.mark.parametrize("layout", TEXT)
def test_no_file_is_read_or_written_in_the_encoding_of_the_locale(
    shelf: ProfileShelf, tmp_path: Path, layout: str
) -> None:
    """Python itself would warn of any text that is opened without an encoding."""
    python = ("-X", "warn_default_encoding", "-c", WARNED)
    profile = shelf.get(layout).path
    outputs = ("-o", "out.json.gz", "--csv", "steps.csv", "--report", "page.html")
    options = ("-q", "--ranks", "0", "--kind", "detail")
    tlexport(profile, *options, *outputs, cwd=tmp_path, python=python)
    assert (tmp_path / "steps.csv").read_bytes().count(b"\r") == 0


def test_a_western_terminal_in_a_locale_that_knows_nothing(
    shelf: ProfileShelf, tmp_path: Path
) -> None:
    """The table is printed in code page 1252, and the file has the same bytes as elsewhere."""
    narrow = {
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONIOENCODING": "cp1252",
    }
    profile = shelf.get("torch-text").path
    files, words = [], []
    for name, environment in (("wide", {"PYTHONUTF8": "1"}), ("narrow", narrow)):
        directory = tmp_path / name
        directory.mkdir()
        ran = tlexport(
            *(profile, "--kind", "detail", "-v", "-o", "größe.pftrace", "--csv", "steps.csv"),
            cwd=directory,
            environment=environment,
        )
        words.append(ran.stdout.decode("cp1252" if name == "narrow" else "utf-8"))
        files.append([path.read_bytes() for path in sorted(directory.iterdir())])
    assert files[0] == files[1]
    assert "mean" in words[1]
    assert "größe.pftrace" in words[0]
    # Code page 1252 has no bars.
    lines = [
        re.sub(r" +(late by.*|[ ▁-█]+\(.*\))$", "", text, flags=re.MULTILINE) for text in words
    ]
    assert lines[0].splitlines()[:20] == lines[1].splitlines()[:20]


def test_a_profile_whose_path_the_terminal_cannot_show(shelf: ProfileShelf, tmp_path: Path) -> None:
    """It is read, and its name is escaped in code page 1252."""
    profile = shelf.copy("torch-text", tmp_path / "训练").path
    environment = {"PYTHONUTF8": "0", "PYTHONIOENCODING": "cp1252"}
    for more in ((), ("--list", "--json")):
        ran = tlexport(profile, "--force", *more, cwd=tmp_path, environment=environment)
        assert "\\u8bad\\u7ec3" in ran.stdout.decode("cp1252")


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are bytes on Linux alone")
@pytest.mark.parametrize("name", [b"b\xff", "训练".encode()], ids=["bytes", "Chinese"])
def test_a_directory_of_any_name_is_read_in_any_locale(
    shelf: ProfileShelf, tmp_path: Path, name: bytes
) -> None:
    """SQLite is asked by a URI, and what is no text is escaped in files and reports."""
    (tmp_path / "runs").mkdir()
    shelf.copy("torch-db", tmp_path / "runs" / os.fsdecode(name), ranks=1)
    shelf.copy("torch-db", tmp_path / "runs" / "other", ranks=1)
    narrow = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for words in (
        (b".", b"--list"),
        (name, b"-o", name + b".pftrace", b"--report", name + b".html"),
        (b"compare", name, b"other", b"-o", b"both.json"),
    ):
        ran = subprocess.run(
            [os.fsencode(sys.executable), b"-m", b"timeline", *words, b"--json"],
            cwd=tmp_path / "runs",
            env=os.environ | {"PYTHONPATH": str(ROOT)} | narrow,
            capture_output=True,
        )
        assert ran.returncode == 0, ran.stderr
        said = json.dumps(json.loads(ran.stdout), ensure_ascii=False).replace("\\\\", "\\")
        assert name.decode("utf-8", "backslashreplace") in said
    for path in (tmp_path / "runs").glob("*.pftrace"):
        assert TraceProcessor.load(path.read_bytes()).import_errors() == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_windows_lacks_is_not_needed(shelf: ProfileShelf, tmp_path: Path, jobs: int) -> None:
    """Modules and calls of POSIX are away, in worker processes too; the bytes are the same."""
    profile = shelf.get("torch-text").path
    tlexport(profile, "--kind", "detail", "-o", "all.pftrace", cwd=tmp_path)
    (tmp_path / "sitecustomize.py").write_text(NOT_ON_WINDOWS, encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    without = {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    tlexport(
        *(profile, "--kind", "detail", "--jobs", str(jobs), "-o", "some.pftrace"),
        *("--csv", "steps.csv"),
        cwd=tmp_path,
        environment=without,
    )
    assert (tmp_path / "all.pftrace").read_bytes() == (tmp_path / "some.pftrace").read_bytes()
    check = "import os, signal; assert not hasattr(os, 'fork'); import resource"
    ran = subprocess.run(
        [sys.executable, "-c", check], env=os.environ | without, capture_output=True, check=False
    )
    assert ran.stderr.endswith(b"ModuleNotFoundError: resource\n")  # else nothing was away


def test_commands_are_quoted_as_the_shell_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that is suggested can be pasted: cmd.exe knows no single quotes."""
    words = ["tlexport", "C:\\my runs\\a", "--steps", "2"]
    assert command_line(words) == "tlexport 'C:\\my runs\\a' --steps 2"
    monkeypatch.setattr(os, "name", "nt")
    assert command_line(words) == 'tlexport "C:\\my runs\\a" --steps 2'


def test_windows_has_as_many_processes_as_it_can_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more and the standard library refuses to start any."""
    monkeypatch.setattr(sys, "platform", "win32")
    ProcessPoolExecutor(MOST_WINDOWS_PROCESSES).shutdown()
    with pytest.raises(ValueError, match="max_workers"):
        ProcessPoolExecutor(MOST_WINDOWS_PROCESSES + 1)
