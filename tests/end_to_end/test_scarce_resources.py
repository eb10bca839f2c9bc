"""Proves that exports which may have little of something work or say of what, and leave nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.perfetto_sql import TraceProcessor
from tests.support.profile_shelf import ProfileShelf
from tests.support.run_command import OPERATOR_VARIABLES
from timeline.commands.export import export
from timeline.selection import Kind

resource = pytest.importorskip("resource", reason="limits are set as on POSIX")

LIMITED = """
import resource, sys
from timeline.cli.main import main
{before}
kind, most = getattr(resource, sys.argv.pop(1)), int(sys.argv.pop(1))
resource.setrlimit(kind, (most, most))
sys.exit(main())
"""


def export_with(
    limit: str, most: int, profile: Path, target: Path, *more: str, before: str = ""
) -> subprocess.CompletedProcess[str]:
    """An export of detail in a process that may have so much of something."""
    environment = {name: it for name, it in os.environ.items() if name not in OPERATOR_VARIABLES}
    words = [limit, str(most), str(profile), "--kind", "detail", "-o", str(target), *more]
    return subprocess.run(
        [sys.executable, "-c", LIMITED.format(before=before), *words],
        env=environment,
        cwd=target.parent,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("more", [(), ("--limit", "12KB", "--fit", "split")], ids=str)
def test_twelve_open_files_are_enough(
    shelf: ProfileShelf, tmp_path: Path, more: tuple[str, ...]
) -> None:
    """However many ranks and parts there are."""
    profile = shelf.get("mindspore-2.1", ranks=3).path
    here = tmp_path / "here"
    here.mkdir()
    ran = export_with("RLIMIT_NOFILE", 12, profile, here / "a.pftrace", "-j", "1", *more)
    assert ran.returncode == 0, ran.stderr
    made = list(here.iterdir())
    assert (len(made) > 2) == bool(more)
    assert all(TraceProcessor.load(path.read_bytes()).import_errors() == [] for path in made)


def test_too_few_open_files_for_several_processes_are_said(
    shelf: ProfileShelf, tmp_path: Path
) -> None:
    """It is not printing that fails."""
    profile = shelf.get("mindspore-2.1", ranks=3).path
    ran = export_with("RLIMIT_NOFILE", 12, profile, tmp_path / "a.pftrace", "-j", "2")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("tlexport: cannot go on: Too many open files. Use fewer --jobs")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="the size of a process is read in /proc")
@pytest.mark.parametrize("more_bytes", [0, 4 << 20])
def test_too_little_memory_is_said(shelf: ProfileShelf, tmp_path: Path, more_bytes: int) -> None:
    """Wherever it runs out, in a process that has loaded all that it needs."""
    few, many = (shelf.get("torch-db", ranks=1, steps=steps).path for steps in (3, 1200))
    before = f"""
main([{str(few)!r}, "--kind", "detail", "-q", "-o", {str(tmp_path / "few.pftrace")!r}])
pages = int(open("/proc/self/statm").read().split()[0])
sys.argv[2] = str(pages * resource.getpagesize() + {more_bytes})
"""
    target = tmp_path / "a.pftrace"
    ran = export_with("RLIMIT_AS", 0, many, target, "-j", "1", before=before)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "not enough memory" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["few.pftrace"]


@pytest.mark.skipif(sys.platform != "linux", reason="the size of a process is read in /proc")
@pytest.mark.parametrize("more_bytes", [2 << 20, 10 << 20, 14 << 20])
def test_too_little_memory_for_threads_ends_the_command(
    shelf: ProfileShelf, tmp_path: Path, more_bytes: int
) -> None:
    """A thread takes 8 MB of addresses: there is room for none, for one, or hardly for two."""
    profile = shelf.get("torch-db", ranks=3).path
    before = f"""
main([{str(profile)!r}, "--kind", "detail", "-q", "-o", {str(tmp_path / "first.pftrace")!r}])
pages = int(open("/proc/self/statm").read().split()[0])
sys.argv[2] = str(pages * resource.getpagesize() + {more_bytes})
"""
    target = tmp_path / "a.pftrace"
    ran = export_with("RLIMIT_AS", 0, profile, target, "-q", "-j", "2", before=before)
    assert ran.returncode == 1
    assert "Use fewer --jobs" in ran.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["first.pftrace"]


@pytest.mark.parametrize("forced", [False, True])
def test_two_writers_of_one_output_leave_a_whole_one(
    shelf: ProfileShelf, tmp_path: Path, *, forced: bool
) -> None:
    """Exports that differ: one of them is there in the end, and nothing beside it."""
    profile = shelf.get("mindspore-2.1", ranks=2).path
    kinds = (Kind.DETAIL, Kind.SUMMARY)
    for kind in kinds:
        export(profile, tmp_path / f"{kind.value}.pftrace", kind=kind)
    together = tmp_path / "together"
    together.mkdir()
    target = together / "a.pftrace"
    if forced:
        target.write_bytes(b"mine")
    command = [sys.executable, "-m", "timeline", *["--force"] * forced]
    writers = [
        subprocess.Popen(
            [*command, str(profile), "--kind", kind.value, "-q", "-o", str(target)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for kind in kinds
    ]
    said = [writer.communicate(timeout=60)[1] for writer in writers]
    codes = sorted(writer.returncode for writer in writers)
    assert codes == [0, 0] or (not forced and codes == [0, 1]), said
    assert target.read_bytes() in [
        (tmp_path / f"{kind.value}.pftrace").read_bytes() for kind in kinds
    ]
    assert list(together.iterdir()) == [target]


READ_ONLY = 'mount -t tmpfs -o ro none /dev/shm && exec "$@"'
FULL = 'mount -t tmpfs -o size=4k none /dev/shm && head -c 4096 /dev/zero >/dev/shm/a && exec "$@"'


@pytest.mark.skipif(sys.platform != "linux", reason="others share memory without a directory")
@pytest.mark.parametrize("mount", [READ_ONLY, FULL], ids=["read-only", "full"])
def test_one_process_goes_on_where_none_can_share_memory(
    shelf: ProfileShelf, tmp_path: Path, mount: str
) -> None:
    """It says so once, and reads all ranks."""
    profile, target = shelf.get("mindspore-2.1", ranks=2).path, tmp_path / "a.pftrace"
    command = [sys.executable, "-m", "timeline", str(profile), "--kind", "detail", "-j", "2"]
    inside = ["unshare", "-rm", "sh", "-c", mount, "sh"]
    if subprocess.run([*inside, "true"], capture_output=True).returncode:
        pytest.skip("this machine does not let a program mount directories of its own")
    ran = subprocess.run(
        [*inside, *command, "-q", "-o", str(target)], capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("one process reads all ranks") == 1
    trace = TraceProcessor.load(target.read_bytes())
    assert trace.import_errors() == []
    ranks = {str(name).strip() for (name,) in trace.rows("SELECT name FROM track")}
    assert {"Rank 0", "Rank 1"} <= {name[:6] for name in ranks}
