"""Proves that drafts leave nothing behind, whoever dies, with and without names until the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.unnamed_files import holds_unnamed_files
from timeline.encoders import drafts
from timeline.encoders.drafts import Draft, publish_all, write_draft
from timeline.errors import OutputError

POSIX = pytest.mark.skipif(os.name != "posix", reason="locks end with their process on POSIX")
WRITES = """
import os, signal, sys
from pathlib import Path
from timeline.encoders import drafts
if sys.argv[2] == "named":
    drafts.HANDLES = Path("/nowhere")
draft = drafts.write_draft([b"whole"], Path(sys.argv[1]))
print("written", flush=True)
sys.stdin.read()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(params=["unnamed", "named", "without links"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With a file system that holds files without names, one that does not, one without links."""
    if request.param == "named":
        monkeypatch.setattr(drafts, "HANDLES", Path("/nowhere"))
    elif request.param == "without links":

        def refuse(*_args: object, **_keywords: object) -> None:
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(os, "link", refuse)
    return str(request.param)


@pytest.fixture(autouse=True)
def none_stays_open() -> Iterator[None]:
    """All files are closed in the end."""
    yield
    assert Draft._open == 0


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("old", [None, b"older"])
def test_a_draft_gets_its_name_or_none(tmp_path: Path, old: bytes | None) -> None:
    """Its content is there at once, or what was there stays; nothing is beside it."""
    target = tmp_path / "a.pftrace"
    for publishes in (False, True):
        if old is not None:
            target.write_bytes(old)
        draft = write_draft([b"one", b"two"], target)
        assert draft.size_bytes == 6
        assert (target.read_bytes() if target.exists() else None) == old
        if publishes:
            draft.publish(target)
            assert target.read_bytes() == b"onetwo"
        else:
            draft.discard()
            assert (target.read_bytes() if target.exists() else None) == old
        assert names_in(tmp_path) <= {"a.pftrace"}
    assert target.stat().st_mode & 0o777 == 0o666 & ~drafts._umask()


@pytest.mark.usefixtures("way")
def test_hundreds_of_parts_keep_few_files_open(tmp_path: Path) -> None:
    parts = [tmp_path / f"part{number}" for number in range(drafts.MOST_OPEN + 9)]
    made = [(write_draft([part.name.encode()], part), part) for part in parts]
    assert Draft._open == drafts.MOST_OPEN
    publish_all(made)
    assert {part.name: part.read_bytes().decode() for part in parts} == {
        part.name: part.name for part in parts
    }
    assert names_in(tmp_path) == {part.name for part in parts}


@pytest.mark.usefixtures("way")
def test_writing_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise OSError(28, "No space left on device")

    with pytest.raises(OutputError, match="No space left"):
        write_draft(pieces(), tmp_path / "a.pftrace")
    assert names_in(tmp_path) == set()


def writer(target: Path, way: str) -> subprocess.Popen[str]:
    """A process that wrote a draft, and dies when it is told to."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITES, target, way],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "written\n"
    return process


@POSIX
def test_a_writer_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    if not holds_unnamed_files(tmp_path):
        pytest.skip("the file system holds no files without names")
    process = writer(tmp_path / "a.pftrace", "unnamed")
    assert names_in(tmp_path) == set()
    process.communicate("", timeout=10)
    assert process.returncode == -signal.SIGKILL
    assert names_in(tmp_path) == set()


@POSIX
def test_the_next_writer_removes_what_a_dead_one_left_and_nothing_else(tmp_path: Path) -> None:
    """Not what a live one writes, nor what only looks like a draft of this target."""
    target = tmp_path / "a.pftrace"
    kept = {".a.pftrace.abcdefgh.old", ".b.pftrace.abcdefgh.part", ".a.pftrace.part"}
    for name in kept:
        (tmp_path / name).write_bytes(b"mine")
    os.mkfifo(tmp_path / ".a.pftrace.00000000.part")
    kept.add(".a.pftrace.00000000.part")
    process = writer(target, "named")
    (draft,) = names_in(tmp_path) - kept
    write_draft([b"other"], target).publish(target)
    assert names_in(tmp_path) == {*kept, "a.pftrace", draft}
    process.communicate("", timeout=10)
    assert names_in(tmp_path) == {*kept, "a.pftrace", draft}
    write_draft([b"next"], target).discard()
    assert names_in(tmp_path) == {*kept, "a.pftrace"}
    assert target.read_bytes() == b"other"
