"""Proves that of a damaged database all rows are read that can be, and the others are counted."""

from __future__ import annotations

import contextlib
import random
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from tests.support.profile_shelf import Copier
from timeline.errors import SourceError
from timeline.records.tables import Records
from timeline.selection import DETAIL_LAYERS
from timeline.sources.decoders.sqlite import Database, open_database
from timeline.sources.finding.discovery import discover
from timeline.sources.source import ReadRequest

ROWS = 20_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database of one large table with an index that COUNT(*) would rather read."""
    made = tmp_path / "numbers.db"
    with contextlib.closing(sqlite3.connect(made)) as database:
        database.execute("CREATE TABLE T (a INTEGER, b INTEGER, c REAL)")
        database.executemany("INSERT INTO T VALUES (?, ?, ?)", ((n, 2 * n, n) for n in range(ROWS)))
        database.execute("CREATE INDEX I ON T (a)")
        database.commit()
    return made


def leaf_pages(path: Path) -> tuple[int, list[int]]:
    """The page size, and the leaf pages of tables, in file order."""
    data = path.read_bytes()
    page_bytes = int.from_bytes(data[16:18], "big")
    leaves = [page for page in range(1, len(data) // page_bytes) if data[page * page_bytes] == 0x0D]
    return page_bytes, leaves


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def test_rows_before_and_behind_a_damaged_page_are_read(path: Path) -> None:
    page_bytes, leaves = leaf_pages(path)
    overwrite(path, leaves[len(leaves) // 2] * page_bytes, b"\xa5" * page_bytes)
    with open_database(path) as database:
        integers = database.integers("T", {"a": -1, "b": -1, "absent": 7})
        floats = database.floats("T", {"c": 0.0})
        (lost,) = database.damage.omissions(0)
    found = integers["a"]
    assert (np.diff(found) > 0).all()
    assert found[0] == 0
    assert found[-1] == ROWS - 1
    assert (integers["b"] == 2 * found).all()
    assert (floats["c"] == found).all()
    assert (integers["absent"] == 7).all()
    assert len(integers["absent"]) == len(found)
    assert 0 < lost.rows == ROWS - len(found) < ROWS // 10
    assert lost.loss
    assert lost.reason.startswith("numbers.db: rows of T in damaged pages")


def test_a_table_without_a_readable_row_is_empty_and_told(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as database:
        ((root,),) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'T'")
    page_bytes, _ = leaf_pages(path)
    overwrite(path, (root - 1) * page_bytes, b"\xa5" * page_bytes)
    with open_database(path) as database:
        assert len(database.integers("T", {"a": -1})["a"]) == 0
        assert database.is_lost("T")
        assert len(database.damage.omissions(0)) == 1


def test_a_database_that_ends_early_gives_its_first_rows(path: Path) -> None:
    page_bytes, leaves = leaf_pages(path)
    path.write_bytes(path.read_bytes()[: leaves[len(leaves) // 2] * page_bytes])
    with open_database(path) as database:
        found = database.integers("T", {"a": -1})["a"]
        assert found.tolist() == list(range(len(found)))
        assert 1_000 < len(found) < ROWS
        assert database.damage.omissions(0)


@pytest.mark.parametrize("kept", [0, 1])
def test_tables_are_read_whose_names_lie_before_the_end(path: Path, kept: int) -> None:
    """What the tables are takes several pages, of which the file ends before some, or before all.

    kept: how many of those pages are left.
    """
    with contextlib.closing(sqlite3.connect(path)) as database:
        for number in range(200):
            database.execute(f"CREATE TABLE More{number} (a INTEGER, {'b' * 100} INTEGER)")
        database.commit()
    data = path.read_bytes()
    names = [at for at in range(0, len(data), 4096) if b"CREATE TABLE" in data[at : at + 4096]]
    assert len(names) > 3
    path.write_bytes(data[: sorted(names)[kept]])
    if not kept:
        with pytest.raises(SourceError, match="not the list of its tables"), open_database(path):
            pass
        return
    with open_database(path) as database:
        assert database.integers("T", {"a": -1})["a"].tolist() == list(range(ROWS))
        assert not database.has("More199")
        assert database.damage.omissions(0)


@pytest.mark.parametrize("value", ["many", b"\xff", ""])
def test_values_of_another_kind_are_absent_and_counted(path: Path, value: object) -> None:
    with contextlib.closing(sqlite3.connect(path)) as changed:
        changed.execute("UPDATE T SET b = ? WHERE a IN (3, 5)", (value,))
        changed.execute("UPDATE T SET c = ? WHERE a = 4", (value,))
        changed.commit()
    with open_database(path) as database:
        integers = database.integers("T", {"a": -1, "b": -1})
        floats = database.floats("T", {"c": -1.0})["c"]
        lost = database.damage.omissions(0)
    assert integers["b"][:7].tolist() == [0, 2, 4, -1, 8, -1, 12]
    assert floats[:6].tolist() == [0, 1, 2, 3, -1, 5]
    assert [(one.reason, one.rows) for one in lost] == [
        ("numbers.db: values of T.b that are no numbers, the first at row 4", 2),
        ("numbers.db: values of T.c that are no numbers, the first at row 5", 1),
    ]


def records_of(path: Path) -> Records:
    (source,) = discover(path).sources
    return source.read(ReadRequest(DETAIL_LAYERS))


def test_any_damage_reads_or_is_refused(copied: Copier) -> None:
    """A hundred disks that each lost a page: never a traceback, never a task that was not there."""
    profile = copied("torch-db", ranks=1, steps=4)
    (file,) = profile.captures[0].rglob("ascend_pytorch_profiler_0.db")
    whole = file.read_bytes()
    good = records_of(profile.path)
    known = set(zip(good.tasks.start_ns.tolist(), good.tasks.end_ns.tolist(), strict=True))
    dice, read, damaged = random.Random(7), 0, 0
    for _ in range(100):
        page = dice.randrange(1, len(whole) // 4096)
        overwrite(file, page * 4096, dice.randbytes(dice.choice([16, 512, 4096])))
        with contextlib.suppress(SourceError):
            records = records_of(profile.path)
            tasks = zip(records.tasks.start_ns.tolist(), records.tasks.end_ns.tolist(), strict=True)
            read += 1
            damaged += any("damaged pages" in omission.reason for omission in records.omissions)
            if not any("no numbers" in omission.reason for omission in records.omissions):
                assert len(set(tasks) - known) <= len(known) // 10
        file.write_bytes(whole)
    assert read > 50
    assert damaged > 5


def test_a_table_that_grew_since_its_rows_were_counted_is_told(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A profiler may still be writing: what is read then is neither the old table nor the new."""
    monkeypatch.setattr(Database, "_most_rows", lambda *_: ROWS - 1)
    told = f"T had {ROWS - 1} rows, and more when they were read"
    with pytest.raises(SourceError, match=told), open_database(path) as database:
        database.integers("T", {"a": -1})


@pytest.mark.parametrize(
    "query",
    [
        "WITH RECURSIVE n(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n) SELECT a, a AS b FROM n",
        "SELECT load_extension('nothing') AS a, 1 AS b",
        "SELECT length(randomblob(1000000000)) AS a, 1 AS b",
    ],
)
def test_a_view_in_place_of_a_table_is_never_run(tmp_path: Path, query: str) -> None:
    """It could take for ever, or run functions; the table is absent as if it were not there."""
    path = tmp_path / "hostile.db"
    with contextlib.closing(sqlite3.connect(path)) as hostile:
        hostile.execute("CREATE TABLE Other (a INTEGER)")
        hostile.execute(f"CREATE VIEW T AS {query}")
        hostile.commit()
    with open_database(path) as database:
        assert database.has("Other")
        assert not database.has("T")
        assert not len(database.integers("T", {"a": 0})["a"])
