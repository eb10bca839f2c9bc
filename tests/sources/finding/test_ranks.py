"""Proves that each capture has the rank that its files tell, or a number of its own."""

from __future__ import annotations

import gzip
import json
import random
import shlex
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from simulator.overlap import expected_overlap
from tests.support.found_profiles import only, overlap_ns, ranks_of, read, without_rank
from tests.support.profile_shelf import MAIN_LAYOUTS, Copier, ProfileShelf, change_fields
from timeline.cli.main import main
from timeline.errors import RankIdentityError, UsageError
from timeline.sources.finding.copies import COMPARED_BYTES, have_same_files
from timeline.sources.finding.discovery import FindingOptions, discover


def told_by_info_name(capture: Path) -> None:
    (capture / "profiler_info.json").rename(capture / "profiler_info_5.json")


def told_by_info_text(capture: Path) -> None:
    change_fields(capture / "profiler_info.json", {"rank_id": "5"})
    (capture / "profiler_info.json").rename(capture / "profiler_info_5.json")


def told_by_database_name(capture: Path) -> None:
    path = only(capture, "ascend_pytorch_profiler.db")
    path.rename(path.with_name("ascend_pytorch_profiler_5.db"))


def told_by_database_map(capture: Path) -> None:
    path = only(capture, "ascend_pytorch_profiler.db")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE RANK_DEVICE_MAP SET rankId = 5")


def told_by_device_info(capture: Path) -> None:
    change_fields(only(capture, "device_1/info.json.1"), {"rank_id": 5})


def told_by_host_info(capture: Path) -> None:
    shutil.rmtree(capture / "device_1")
    change_fields(only(capture, "host/info.json"), {"rank_id": 5})


@pytest.mark.parametrize(
    ("layout", "tell"),
    [
        ("torch-text", told_by_info_name),
        ("torch-text", told_by_info_text),
        ("torch-db", told_by_info_name),
        ("torch-db", told_by_database_name),
        ("torch-db", told_by_database_map),
        ("mindstudio", told_by_device_info),
        ("mindstudio", told_by_host_info),
        ("mindspore-2.1", told_by_device_info),
    ],
)
def test_rank_from_metadata(copied: Copier, layout: str, tell: Callable[[Path], None]) -> None:
    """Each kind of metadata tells the rank where it is the only one that does."""
    profile = copied(layout)
    tell(without_rank(profile, 1))
    assert ranks_of(profile.path) == [0, 5]


@pytest.mark.parametrize("name", ["rank_5", "rank-5", "rank5", "rank5_ascend_pt"])
@pytest.mark.parametrize("layout", ["torch-text", "torch-db"])
def test_rank_from_the_name_of_a_capture(copied: Copier, layout: str, name: str) -> None:
    """A capture without metadata is the rank that its name says."""
    profile = copied(layout)
    without_rank(profile, 1).rename(profile.path / name)
    assert ranks_of(profile.path) == [0, 5]


def test_current_directory_without_a_rank(copied: Copier, monkeypatch: pytest.MonkeyPatch) -> None:
    """A capture can be given a rank by its name when it is the current directory."""
    profile = copied("mindstudio", ranks=1)
    capture = without_rank(profile, 0)
    monkeypatch.chdir(capture)
    assert ranks_of(Path()) == [0]
    assert ranks_of(Path(), {capture.name: 7}) == [7]


@pytest.mark.parametrize("layout", MAIN_LAYOUTS)
def test_rank_from_a_directory_above(shelf: ProfileShelf, tmp_path: Path, layout: str) -> None:
    """Without metadata the nearest directory that is named after a rank tells it."""
    profile = shelf.copy(layout, tmp_path / "run")
    capture = without_rank(profile, 1)
    lonely = tmp_path / "job" / "rank_5" / "profiler"
    lonely.mkdir(parents=True)
    moved = capture.rename(lonely / capture.name)
    assert ranks_of(tmp_path / "job") == [5]
    assert ranks_of(moved) == [5]


@pytest.mark.parametrize("layout", ["torch-text", "torch-db", "mindstudio", "mindspore-2.1"])
def test_a_capture_of_no_rank_is_rank_0(copied: Copier, layout: str) -> None:
    """rank_id -1 means that it was not distributed: that is assumed, and said once."""
    profile = copied(layout, ranks=1)
    capture = without_rank(profile, 0)
    found = discover(profile.path)
    (source,) = found.sources
    assert source.identity.rank == 0
    assert source.identity.evidence.startswith("not distributed")
    (note,) = found.notes
    assert capture.name in note
    assert "not distributed" in note
    assert overlap_ns(read(source)) == expected_overlap(profile.run, 0)
    assert ranks_of(profile.path, {capture.name: 7}) == [7]


@pytest.mark.parametrize("layout", ["torch-text", "torch-db", "mindstudio", "mindspore-2.1"])
def test_captures_of_no_rank_are_numbered(copied: Copier, layout: str) -> None:
    """Several of one run are ordinals by host, device and path; one note says which is which."""
    profile = copied(layout)
    captures = [without_rank(profile, number) for number in (1, 0)][::-1]
    found = discover(profile.path)
    assert [source.identity.rank for source in found.sources] == [0, 1]
    assert [source.identity.directory for source in found.sources] == [
        capture.resolve() for capture in captures
    ]
    (note,) = found.notes
    assert all(capture.name in note for capture in captures)
    for source in found.sources:
        expected = expected_overlap(profile.run, source.identity.rank)
        assert overlap_ns(read(source)) == expected


@pytest.mark.parametrize("layout", ["torch-text", "torch-db", "mindstudio", "mindspore-2.1"])
def test_a_capture_of_no_rank_beside_one_with_a_rank(
    copied: Copier, capsys: pytest.CaptureFixture[str], layout: str
) -> None:
    """It is not known which it is: an error by path, whose command works as it stands."""
    profile = copied(layout)
    capture = without_rank(profile, 1)
    with pytest.raises(RankIdentityError) as caught:
        discover(profile.path)
    assert str(capture.resolve()) in str(caught.value)
    command = str(caught.value).partition("as in: tlexport ")[2]
    assert main([*shlex.split(command), "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [rank["rank"] for rank in listed["ranks"]] == [0, 1]


@pytest.mark.parametrize("layout", ["torch-text", "torch-db", "mindstudio", "mindspore-2.1"])
def test_duplicate_rank(copied: Copier, capsys: pytest.CaptureFixture[str], layout: str) -> None:
    """Two captures of one moment that claim one rank are an error that lists both."""
    profile = copied(layout)
    first, second = profile.captures
    claim = {"rank_id": 0}
    for path in [*second.glob("device_*/info.json.?"), *second.glob("host/info.json")]:
        change_fields(path, claim)
    for path in second.glob("profiler_info_*.json"):
        change_fields(path, claim)
        path.rename(second / "profiler_info_0.json")
    for path in second.rglob("ascend_pytorch_profiler_*.db"):
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE RANK_DEVICE_MAP SET rankId = 0")
        path.rename(path.with_name("ascend_pytorch_profiler_0.db"))
    with pytest.raises(RankIdentityError) as caught:
        discover(profile.path)
    for said in ("rank 0", "twice", str(first.resolve()), str(second.resolve())):
        assert said in str(caught.value)
    command = str(caught.value).partition("ranks of their own: tlexport ")[2]
    assert main([*shlex.split(command), "--list"]) == 0
    assert main([str(profile.path), "--list"]) == 0
    assert str(second.resolve()) in capsys.readouterr().out.splitlines()[-1]
    assert ranks_of(profile.path, {second.name: 4}) == [0, 4]
    assert ranks_of(second) == [0]


def test_databases_of_one_rank_in_one_directory_are_named(
    shelf: ProfileShelf, tmp_path: Path
) -> None:
    """By their files, which --assign-rank takes."""
    for number, capture in enumerate(shelf.get("torch-db").captures):
        path = tmp_path / f"ascend_pytorch_profiler_{number}.db"
        shutil.copyfile(only(capture, "ascend_pytorch_profiler_?.db"), path)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE RANK_DEVICE_MAP SET rankId = 0")
    found = discover(tmp_path, finding=FindingOptions(lists_all=True))
    paths = [tmp_path / f"ascend_pytorch_profiler_{number}.db" for number in (0, 1)]
    assert [one.path for one in found.unclear] == paths
    assert all(
        str(path) in one.problem for path, one in zip(paths[::-1], found.unclear, strict=True)
    )
    with pytest.raises(RankIdentityError) as caught:
        discover(tmp_path)
    command = str(caught.value).partition("ranks of their own: tlexport ")[2]
    assert main([*shlex.split(command), "--list"]) == 0
    assert ranks_of(tmp_path, {str(paths[1]): 1}) == [0, 1]


@pytest.mark.parametrize("changed", [False, True])
def test_gzip_of_several_parts_is_a_copy(tmp_path: Path, changed: bool) -> None:
    """Its last bytes are the size of the last part alone."""
    content = random.Random(1).randbytes(COMPARED_BYTES + 5_000)
    plain, packed = tmp_path / "a.json", tmp_path / "a.json.gz"
    plain.write_bytes(content)
    at = COMPARED_BYTES + 100
    parts = content[:at], content[at:] + b"x" * changed
    packed.write_bytes(b"".join(map(gzip.compress, parts)))
    assert have_same_files(plain, packed) != changed


def test_contradictory_rank(copied: Copier) -> None:
    """Metadata and names that disagree are an error that quotes every statement."""
    profile = copied("mindformers")
    folder = profile.path / "output" / "profile"
    (folder / "rank_1").rename(folder / "rank_3")
    with pytest.raises(RankIdentityError) as caught:
        discover(profile.path)
    capture = profile.captures[1].name
    for said in (capture, "info.json.1", "says 1", "rank_3", "says 3", "--assign-rank"):
        assert said in str(caught.value)
    assert ranks_of(profile.path, {capture: 1}) == [0, 1]


def test_contradictory_metadata(copied: Copier) -> None:
    """A database that says another rank than the file beside it is an error too."""
    profile = copied("torch-db", ranks=1)
    capture = profile.captures[0]
    (capture / "profiler_info_0.json").rename(capture / "profiler_info_2.json")
    with pytest.raises(RankIdentityError, match=r"says 0.*says 2"):
        discover(profile.path)
    assert ranks_of(profile.path, {capture.name: 2}) == [2]


@pytest.mark.parametrize("spell", ["name", "path", "inside the current directory"])
def test_assign_rank_spellings(
    shelf: ProfileShelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spell: str
) -> None:
    """--assign-rank takes the name of a capture, its path, and a path from here."""
    profile = shelf.copy("mindstudio", tmp_path / "run")
    capture = without_rank(profile, 1)
    monkeypatch.chdir(tmp_path)
    spelled = {
        "name": capture.name,
        "path": str(capture),
        "inside the current directory": f"run/{capture.name}",
    }
    assert ranks_of(profile.path, {spelled[spell]: 6}) == [0, 6]


def test_assign_rank_to_nothing(shelf: ProfileShelf) -> None:
    """An assignment that fits no capture is a usage error that lists the captures."""
    profile = shelf.get("mindstudio")
    with pytest.raises(UsageError) as caught:
        discover(profile.path, {"PROF_absent": 1})
    for capture in profile.captures:
        assert capture.name in str(caught.value)
