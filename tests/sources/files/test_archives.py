"""Proves that a profile in an archive gives the timeline of the same profile unpacked."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import json
import lzma
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from simulator.archives import tar_of, write_archive, zip_of
from tests.support.perfetto_sql import TraceProcessor
from tests.support.profile_shelf import MAIN_LAYOUTS, Copier, Profile, ProfileShelf, tree_state
from tests.support.run_command import exported
from timeline.cli.main import main
from timeline.errors import SourceError
from timeline.sources.finding.discovery import Discovered
from timeline.sources.finding.packed import discover_unpacked

pytestmark = pytest.mark.sweep


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary directories are made."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(directory))
    monkeypatch.setenv("TMPDIR", str(directory))
    return directory


def silent(_stage: str, _done: int, _total: int) -> None:
    """Nobody watches."""


@contextlib.contextmanager
def opened(path: Path, assigned: dict[str, int] | None = None) -> Iterator[Discovered]:
    with discover_unpacked(path, assigned or {}, silent) as found:
        yield found


def ranks_of(path: Path, assigned: dict[str, int] | None = None) -> list[int]:
    with opened(path, assigned) as found:
        return [source.identity.rank for source in found.sources]


# -- the same timeline -----------------------------------------------------------------------------


@pytest.mark.parametrize("layout", MAIN_LAYOUTS)
def test_packed_is_the_same_as_plain(
    shelf: ProfileShelf, tmp_path: Path, temporary: Path, layout: str
) -> None:
    """Every layout in an archive gives the bytes that it gives unpacked, and nothing is left."""
    profile = shelf.get(layout, ranks=1)
    archive = write_archive(profile.path, tmp_path / "all.tar.gz")
    wanted = exported(profile.path, tmp_path / "plain.pftrace")
    assert exported(archive, tmp_path / "packed.pftrace") == wanted
    assert list(temporary.iterdir()) == []


def test_a_path_leads_into_an_archive(shelf: ProfileShelf, tmp_path: Path, temporary: Path) -> None:
    """Behind the name of an archive a path goes on in it, as listings and commands print it."""
    profile = shelf.get("mindstudio", ranks=2)
    archive = write_archive(profile.path, tmp_path / "all.zip")
    wanted = exported(profile.captures[1], tmp_path / "plain.pftrace")
    inner = archive / profile.path.name / profile.captures[1].relative_to(profile.path)
    assert exported(inner, tmp_path / "packed.pftrace") == wanted
    with pytest.raises(SourceError, match="does not exist"), opened(archive / "other"):
        pass
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("suffix", [".zip", ".tar", ".tgz", ".tar.bz2"])
def test_every_archive_is_read(
    shelf: ProfileShelf, tmp_path: Path, temporary: Path, suffix: str
) -> None:
    """Every kind of archive gives the same slices, whichever way its name is written."""
    profile = shelf.get("torch-text", ranks=1)
    archive = write_archive(profile.path, tmp_path / f"all{suffix}")
    shouted = archive.rename(tmp_path / f"ALL{suffix.upper()}")
    wanted = exported(profile.path, tmp_path / "plain.pftrace")
    packed = exported(shouted, tmp_path / "packed.pftrace")
    assert packed == wanted
    ((slices,),) = TraceProcessor.load(packed).rows("SELECT COUNT(*) FROM slice")
    tasks = sum(len(step.tasks) for rank in profile.run.ranks for step in rank.iterations)
    assert slices > tasks > 0
    assert list(temporary.iterdir()) == []


def test_the_archive_stays_as_it_is(shelf: ProfileShelf, tmp_path: Path, temporary: Path) -> None:
    """Nothing is written beside an archive but the timeline, which cannot take its place."""
    directory = tmp_path / "mine"
    directory.mkdir()
    archive = write_archive(shelf.get("torch-db").path, directory / "all.zip")
    linked = directory / "out.pftrace"
    linked.hardlink_to(archive)
    before = tree_state(directory)
    assert main([str(archive), "--force", "-o", str(linked)]) == 1
    assert main([str(archive), "--list"]) == 0
    assert tree_state(directory) == before


# -- what is packed in part ------------------------------------------------------------------------


def packed_ranks(profile: Profile, directory: Path, suffixes: Sequence[str]) -> list[Path]:
    """An archive of each capture, named after its rank, in a directory of its own."""
    directory.mkdir()
    return [
        write_archive(capture, directory / f"rank_{rank}{suffix}", top=capture.name)
        for rank, (capture, suffix) in enumerate(zip(profile.captures, suffixes, strict=True))
    ]


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_directory_of_archives_is_the_run_of_all(
    shelf: ProfileShelf, tmp_path: Path, temporary: Path, jobs: str
) -> None:
    """Where no profile lies unpacked, all archives in a directory are read, one a rank."""
    profile = shelf.get("mindstudio", ranks=3)
    archives = packed_ranks(profile, tmp_path / "run", [".zip", ".tar.gz", ".tar.xz"])
    (tmp_path / "run" / "node").mkdir()
    archives[2].rename(tmp_path / "run" / "node" / archives[2].name)
    before = tree_state(tmp_path / "run")
    wanted = exported(profile.path, tmp_path / "plain.pftrace", "--jobs", "1")
    assert exported(tmp_path / "run", tmp_path / "packed.pftrace", "--jobs", jobs) == wanted
    assert tree_state(tmp_path / "run") == before
    assert list(temporary.iterdir()) == []


def test_archives_of_many_ranks_keep_their_names(
    shelf: ProfileShelf, tmp_path: Path, temporary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The name of one archive may begin that of another one; the directory tells ranks too."""
    profile = shelf.copy("kernel-details", tmp_path / "plain")
    directory = tmp_path / "run"
    directory.mkdir()
    for number, capture in zip((1, 10), profile.captures, strict=True):
        for metadata in capture.rglob("profiler_info_*.json"):
            metadata.unlink()
        write_archive(capture, directory / f"rank_{number}.zip", top="data")
    (directory / "notes.tar").write_bytes(tar_of([]))
    assert main([str(directory), "--list", "--json"]) == 0
    ranks = json.loads(capsys.readouterr().out)["ranks"]
    wanted = [(number, f"{directory}/rank_{number}.zip/data") for number in (1, 10)]
    assert [(rank["rank"], rank["source"]) for rank in ranks] == wanted
    inside = f"{directory}/rank_10.zip/data=4"
    assert ranks_of(directory, {inside.rpartition("=")[0]: 4}) == [1, 4]


def test_a_broken_archive_among_others(
    shelf: ProfileShelf, tmp_path: Path, temporary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends the export by its name, or is left out and named."""
    directory = tmp_path / "run"
    archives = packed_ranks(shelf.get("torch-text"), directory, [".tar.gz", ".zip"])
    archives[0].write_bytes(archives[0].read_bytes()[:-2000])
    command = [str(directory), "-o", str(tmp_path / "out.pftrace")]
    assert main(command) == 1
    assert capsys.readouterr().err.startswith(f"tlexport: {archives[0]}")
    assert main([*command, "--keep-going"]) == 0
    said = capsys.readouterr()
    assert f"left out: {archives[0]}" in said.err
    assert "1 rank," in said.out
    assert list(temporary.iterdir()) == []


def test_archives_beside_a_profile_are_left(copied: Copier) -> None:
    """A profile that lies unpacked is the one that is meant."""
    profile = copied("torch-db", ranks=1)
    (profile.path / "rank_7.zip").write_bytes(b"no archive")
    assert ranks_of(profile.path) == [0]


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}


def pack_databases(profile: Profile, suffix: str) -> list[Path]:
    """Compress the database of every rank of a copied profile; returns what became of them."""
    made = []
    for path in sorted(profile.path.rglob("ascend_*.db")):
        packed = path.with_name(path.name + suffix)
        packed.write_bytes(PACKERS[suffix](path.read_bytes()))
        path.unlink()
        made.append(packed)
    assert made
    return made


@pytest.mark.parametrize("suffix", PACKERS)
def test_compressed_databases_are_read(
    shelf: ProfileShelf, tmp_path: Path, temporary: Path, suffix: str
) -> None:
    """A database gives the same bytes compressed, with what lies beside it, also inside a zip."""
    profile = shelf.copy("torch-db", tmp_path / "run", ranks=1)
    wanted = exported(profile.path, tmp_path / "plain.pftrace")
    packed = pack_databases(profile, suffix)
    before = tree_state(profile.path)
    assert exported(profile.path, tmp_path / "packed.pftrace") == wanted
    assert tree_state(profile.path) == before
    assert ranks_of(packed[0]) == [0]
    archive = write_archive(profile.path, tmp_path / "run.zip")
    assert exported(archive, tmp_path / "twice.pftrace") == wanted
    assert list(temporary.iterdir()) == []


def test_a_plain_database_wins(copied: Copier, temporary: Path) -> None:
    """What is compressed beside it is not looked at."""
    profile = copied("torch-db", ranks=1)
    (path,) = profile.path.rglob("ascend_*.db")
    path.with_name(path.name + ".gz").write_bytes(b"\x1f\x8b no gzip")
    assert ranks_of(profile.path) == [0]


@pytest.mark.parametrize("keep_going", [False, True])
def test_a_damaged_compressed_database_is_named(
    shelf: ProfileShelf,
    tmp_path: Path,
    temporary: Path,
    capsys: pytest.CaptureFixture[str],
    *,
    keep_going: bool,
) -> None:
    """By the name that people know, whether its compression or its content is damaged."""
    profile = shelf.copy("torch-db", tmp_path / "run")
    packed, other = pack_databases(profile, ".gz")
    whole = packed.read_bytes()
    more = ["--keep-going"] if keep_going else []
    command = [str(profile.path), "-o", str(tmp_path / "out.pftrace"), "--force", *more]
    for content in (whole[: len(whole) // 2], gzip.compress(b"no database" * 100)):
        packed.write_bytes(content)
        assert main(command) == (0 if keep_going else 1)
        said = capsys.readouterr().err
        assert str(packed) in said
        assert str(temporary) not in said
    assert other.is_file()
    assert list(temporary.iterdir()) == []


def test_an_executor_cannot_see_what_is_unpacked(
    shelf: ProfileShelf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """So what is packed is wrong usage with --executor, wherever it lies."""
    profile = shelf.copy("torch-db", tmp_path / "run")
    directory = tmp_path / "packed"
    packed_ranks(profile, directory, [".zip", ".zip"])
    pack_databases(profile, ".gz")
    for path in (directory, directory / "rank_0.zip", profile.path):
        assert main([str(path), "--executor", "dask://127.0.0.1:1"]) == 2
        assert "its workers cannot see what is unpacked here" in capsys.readouterr().err


# -- names -----------------------------------------------------------------------------------------


def test_names_are_those_of_the_archive(
    shelf: ProfileShelf, tmp_path: Path, temporary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The list, the report and the file name captures as they lie in the archive."""
    profile = shelf.get("torch-text")
    archive = write_archive(profile.path, tmp_path / "all.tgz", top="run")
    wanted = [f"{archive}/run/{capture.name}" for capture in profile.captures]
    assert main([str(archive), "--list"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in wanted)
    assert main([str(archive), "--list", "--json"]) == 0
    assert [rank["source"] for rank in json.loads(capsys.readouterr().out)["ranks"]] == wanted
    target = tmp_path / "out.pftrace"
    assert main([str(archive), "--json", "-o", str(target)]) == 0
    assert [rank["source"] for rank in json.loads(capsys.readouterr().out)["ranks"]] == wanted
    assert str(temporary) not in shown
    assert str(temporary).encode() not in target.read_bytes()


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_errors_name_the_file_in_the_archive(
    shelf: ProfileShelf,
    tmp_path: Path,
    temporary: Path,
    capsys: pytest.CaptureFixture[str],
    jobs: str,
) -> None:
    """A broken file is named as it lies in the archive, by every process, and left out if asked."""
    profile = shelf.copy("torch-text", tmp_path / "run")
    (trace,) = profile.captures[1].rglob("trace_view.json")
    trace.write_bytes(trace.read_bytes()[:50])
    archive = write_archive(profile.path, tmp_path / "all.tar.xz")
    inside = f"{archive}/run/{trace.relative_to(profile.path)}"
    command = [str(archive), "--jobs", jobs, "-o", str(tmp_path / "out.pftrace")]
    assert main(command) == 1
    assert f"tlexport: {inside}, byte " in capsys.readouterr().err
    assert main([*command, "--keep-going"]) == 0
    said = capsys.readouterr().err
    assert f"rank 1 is left out: {inside}, byte " in said
    assert str(temporary) not in said
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("name", ["rank_5.zip", "host_20250109130000123_ascend_pt.tar.gz"])
def test_the_name_of_the_archive_counts(
    shelf: ProfileShelf, tmp_path: Path, temporary: Path, name: str
) -> None:
    """Packed without a directory around it, a capture is called as its archive."""
    nameless = without_ranks(shelf, tmp_path / "plain")
    archive = write_archive(nameless, tmp_path / name, top="")
    if name.startswith("rank"):
        assert ranks_of(archive) == [5]
    with opened(archive, {archive.name.partition(".")[0]: 3}) as found:
        (source,) = found.sources
        assert source.identity.directory == archive
        assert source.identity.taken == ("20250109130000123" if "host" in name else "")


def without_ranks(shelf: ProfileShelf, directory: Path) -> Path:
    """A capture that tells its rank nowhere."""
    profile = shelf.copy("torch-text", directory, ranks=1)
    capture = profile.captures[0].rename(directory.parent / "capture")
    for path in capture.glob("profiler_info*.json"):
        path.unlink()
    return capture


def test_the_place_of_the_archive_counts(
    shelf: ProfileShelf, tmp_path: Path, temporary: Path
) -> None:
    """A directory that is named after a rank names that of the archive in it."""
    around = tmp_path / "rank_6" / "monday"
    around.mkdir(parents=True)
    archive = write_archive(without_ranks(shelf, tmp_path / "plain"), around / "all.zip")
    assert ranks_of(archive) == [6]


def test_the_temporary_directory_does_not_count(
    shelf: ProfileShelf,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Where the temporary directory happens to be named after a rank, that says nothing."""
    temporary = tmp_path / "rank_7"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    archive = write_archive(without_ranks(shelf, tmp_path / "plain"), tmp_path / "all.zip")
    assert main([str(archive), "--list"]) == 0
    assert "capture is rank 0" in capsys.readouterr().out


def test_ranks_are_assigned_by_any_name(
    shelf: ProfileShelf, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--assign-rank takes the name inside, the path of the archive, and the path into it."""
    archive = write_archive(without_ranks(shelf, tmp_path / "plain"), tmp_path / "all.zip")
    monkeypatch.chdir(tmp_path)
    for name in ("capture", str(archive), "all.zip", "all.zip/capture"):
        assert ranks_of(Path("all.zip"), {name: 4}) == [4]


# -- what cannot be done ---------------------------------------------------------------------------


def test_an_archive_without_a_profile(
    tmp_path: Path, temporary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named; archives inside it are not opened, and that is said."""
    archive = tmp_path / "all.zip"
    archive.write_bytes(zip_of([("run/rank_0.tar.gz", b"x"), ("run/notes.txt", b"x")]))
    assert main([str(archive)]) == 1
    said = capsys.readouterr().err
    assert f"{archive}: holds no Ascend profile." in said
    assert "all.zip: archives inside it are not opened, unless it is unpacked" in said
    assert str(temporary) not in said
    assert list(temporary.iterdir()) == []


def test_notes_reach_the_report(
    shelf: ProfileShelf, tmp_path: Path, temporary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where a profile is found, archives beside it in the archive are a warning."""
    profile = shelf.copy("torch-text", tmp_path / "run")
    (profile.path / "more.zip").write_bytes(b"")
    archive = write_archive(profile.path, tmp_path / "all.tar")
    assert main([str(archive), "--json", "-q", "-o", str(tmp_path / "out.pftrace")]) == 0
    (warning,) = json.loads(capsys.readouterr().out)["warnings"]
    assert (
        warning
        == "all.tar: archives inside it are not opened, unless it is unpacked: 'run/more.zip'."
    )


# -- Ctrl-C ----------------------------------------------------------------------------------------


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.002)
    return False


@pytest.mark.skipif(os.name != "posix", reason="interrupts are sent as on POSIX")
@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_an_interrupt_leaves_nothing(
    tmp_path: Path, temporary: Path, number: signal.Signals, code: int, word: str
) -> None:
    """Ctrl-C or SIGTERM while files are unpacked: one line, and nothing stays behind."""
    files = [(f"run/{at}/file.json", b"{}") for at in range(12_000)]
    archive = tmp_path / "all.zip"
    archive.write_bytes(zip_of(files))
    process = subprocess.Popen(
        [sys.executable, "-m", "timeline", archive], stderr=subprocess.PIPE, text=True
    )
    unpacking = wait_until(lambda: len(list(temporary.glob("*/archives/*/*/run/*"))) > 10, 20)
    process.send_signal(number)
    _, said = process.communicate(timeout=20)
    assert unpacking
    assert (process.returncode, said) == (code, f"tlexport: {word}; nothing was written.\n")
    assert list(temporary.iterdir()) == []
