"""Proves that a database is known by its tables, and its name is but a hint."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.found_profiles import only, ranks_of, read
from tests.support.profile_shelf import Copier, ProfileShelf
from timeline.errors import NoProfileError
from timeline.sources.finding.discovery import discover


def copies(shelf: ProfileShelf, path: Path, *names: str, mapped: bool = True) -> Path:
    """A directory of copies of databases of torch_npu, one of each rank, under other names."""
    path.mkdir()
    for rank, name in enumerate(names):
        capture = shelf.get("torch-db").captures[rank]
        shutil.copyfile(only(capture, "ascend_pytorch_profiler_*.db"), path / name)
        if not mapped:
            with closing(sqlite3.connect(path / name)) as connection, connection:
                connection.execute("UPDATE RANK_DEVICE_MAP SET rankId = -1")
    return path


@pytest.mark.parametrize(
    "names",
    [
        ("msmonitor_4000_20260819112233000_5.db", "msmonitor_4001_20260819112233001_7.db"),
        ("one.db", "another one.db"),
        ("ascend_pytorch_profiler_3 (1).db", "ascend_pytorch_profiler_4.db"),
        ("a.sqlite", "b.db.copy"),
    ],
)
def test_the_map_of_ranks_tells_more_than_a_name(
    shelf: ProfileShelf, tmp_path: Path, names: tuple[str, str]
) -> None:
    """Whatever databases are called, alone or together, they are those of the ranks in them."""
    path = copies(shelf, tmp_path / "run", *names)
    assert ranks_of(path) == [0, 1]
    assert [ranks_of(path / name) for name in names] == [[0], [1]]
    known = read(discover(shelf.get("torch-db").path).sources[0])
    found = read(discover(path).sources[0])
    assert (found.tasks.start_ns == known.tasks.start_ns).all()
    assert "captured on" in found.communication_rule.evidence, "torch_npu counts by date"


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        (
            ("msmonitor_4000_20260819112233000_5.db", "msmonitor_4001_20260819112233001_7.db"),
            [5, 7],
        ),
        (("rank3.db", "profile-rank_12.db"), [3, 12]),
        (("copy of ascend_pytorch_profiler_3.db", "ascend_pytorch_profiler_4 (2).db"), [3, 4]),
    ],
)
def test_a_name_tells_the_rank_where_no_table_does(
    shelf: ProfileShelf, tmp_path: Path, names: tuple[str, str], ranks: list[int]
) -> None:
    """The last number of msMonitor's names, and numbers behind what a profiler calls ranks."""
    assert ranks_of(copies(shelf, tmp_path / "run", *names, mapped=False)) == ranks


def test_a_copy_beside_a_capture_is_no_other_rank(copied: Copier) -> None:
    """In the output of a framework the database with the profiler's name is the one to read."""
    profile = copied("torch-db")
    for capture in profile.captures:
        database = only(capture, "ascend_pytorch_profiler_*.db")
        shutil.copyfile(database, database.with_name("backup.db"))
    assert ranks_of(profile.path) == [0, 1]


@pytest.mark.parametrize("made", ["", "CREATE TABLE TASK (id INTEGER)", "no database"])
def test_other_files_are_no_profiles(tmp_path: Path, made: str) -> None:
    """Databases of other programs, empty ones, and files that are none."""
    path = tmp_path / "results.db"
    if made == "no database":
        path.write_text(made)
    else:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.executescript(made)
    for place in (path, tmp_path):
        with pytest.raises(NoProfileError):
            discover(place)


def test_what_msmonitor_writes_line_by_line_is_named(shelf: ProfileShelf, tmp_path: Path) -> None:
    """Alone it is refused with what to do; beside databases a note names it."""
    lines = tmp_path / "msmonitor_4000_20260819112233000_0.jsonl"
    lines.write_text('{"endNs":2,"kind":"Kernel","name":"Add","startNs":1}\n')
    for place in (lines, tmp_path):
        with pytest.raises(NoProfileError) as refused:
            discover(place)
        said = "\n".join([str(refused.value), *refused.value.hints])
        assert "line by line" in said
        assert "write a database" in said
    path = copies(shelf, tmp_path / "run", "one.db", "two.db")
    shutil.copyfile(lines, path / lines.name)
    (note,) = [note for note in discover(path).notes if lines.name in note]
    assert "write a database" in note
