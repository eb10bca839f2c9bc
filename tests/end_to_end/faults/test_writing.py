"""Proves that files that cannot be written leave what was there, and nothing half written."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.damaged_profiles import POSIX, RUN, as_nobody
from tests.support.profile_shelf import ProfileShelf
from tests.support.unnamed_files import holds_unnamed_files
from timeline.cli.main import main
from timeline.encoders.drafts import publish_all, write_draft
from timeline.errors import OutputError


@POSIX
def test_directory_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shelf: ProfileShelf
) -> None:
    profile = shelf.copy("torch-text", tmp_path / "profile", **RUN)
    closed = tmp_path / "closed"
    closed.mkdir(0o555)
    # What is imported late may lie where nobody else may read.
    assert main([str(profile.path), "-o", str(tmp_path / "first.pftrace")]) == 0
    capsys.readouterr()
    with as_nobody(profile.path):
        assert main([str(profile.path), "-o", str(closed / "out.pftrace")]) == 1
    said = capsys.readouterr()
    assert said.err.startswith(f"tlexport: {closed / 'out.pftrace'}: cannot be written")
    assert list(closed.iterdir()) == []


def test_full_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str], shelf: ProfileShelf) -> None:
    """A disk without room for the file keeps nothing of it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(disk)]
    mounts = shutil.which("mount") and hasattr(os, "geteuid") and os.geteuid() == 0
    if not mounts or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root may mount a small disk here")
    try:
        profile = shelf.get("mindstudio", **RUN).path
        assert main([str(profile), "--kind", "detail", "-o", str(disk / "out.pftrace")]) == 1
        said = capsys.readouterr()
        assert "out.pftrace: cannot be written: No space left on device." in said.err
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)


KILLED = """
import os, signal, sys
from timeline.encoders import drafts
fsync = os.fsync
def die(handle):
    fsync(handle)
    os.kill(os.getpid(), signal.SIGKILL)
os.fsync = die
from timeline.cli.main import main
main()
"""


@POSIX
def test_killed_while_writing(tmp_path: Path, shelf: ProfileShelf) -> None:
    """Under the name of the target is all of the file that was there, or nothing."""
    target = tmp_path / "out.pftrace"
    for old in (None, b"older"):
        if old is not None:
            target.write_bytes(old)
        arguments = [str(shelf.get("torch-text", **RUN).path), "-o", str(target), "--force"]
        ran = subprocess.run([sys.executable, "-c", KILLED, *arguments], timeout=60, check=False)
        assert ran.returncode == -signal.SIGKILL
        assert (target.read_bytes() if target.exists() else None) == old
        others = {path.name for path in tmp_path.iterdir()} - {target.name}
        assert not others or not holds_unnamed_files(tmp_path)


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_parts_replace_all_or_none(tmp_path: Path, failing: int) -> None:
    """If one part cannot have its name, files that were there keep their content."""
    targets = [tmp_path / f"part{number}" for number in range(3)]
    targets[0].write_bytes(b"old 0")
    targets[2].write_bytes(b"old 2")
    drafts = [(write_draft([b"new"], target), target) for target in targets]
    blocked = targets[failing]
    blocked.unlink(missing_ok=True)
    blocked.mkdir()
    (blocked / "inside").touch()
    before = {path.name: path.read_bytes() for path in targets if path.is_file()}
    with pytest.raises(OutputError, match=blocked.name):
        publish_all(drafts)
    assert {path.name: path.read_bytes() for path in targets if path.is_file()} == before
    assert {path.name for path in tmp_path.iterdir()} == {*before, blocked.name}


def test_parts_replace_older_ones(tmp_path: Path) -> None:
    targets = [tmp_path / f"part{number}" for number in range(3)]
    targets[1].write_bytes(b"old")
    publish_all([(write_draft([b"new"], target), target) for target in targets])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        target.name: b"new" for target in targets
    }
