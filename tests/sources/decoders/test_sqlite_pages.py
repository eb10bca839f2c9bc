"""Proves that pages of a database hold what SQLite reads in them, or are left to SQLite."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.profile_shelf import ProfileShelf
from timeline import export
from timeline.sources.decoders import sqlite
from timeline.sources.decoders.sqlite import Database, open_database
from timeline.sources.decoders.sqlite_pages import OnlySqliteError, TablePages, is_compiled
from timeline.sources.decoders.sqlite_rows import BLOCK_ROWS
from timeline.sources.files.read_bytes import counting

pytestmark = pytest.mark.skipif(
    not is_compiled(), reason="the package was built without a compiler"
)
LEAST, GREATEST = -(2**63), 2**63 - 1
EDGES = [sign * 2**bits + more for bits in range(63) for sign in (1, -1) for more in (-1, 0, 1)]
WHOLE = st.sampled_from([*EDGES, LEAST, GREATEST]) | st.integers(LEAST, GREATEST)
DIGITS = st.sampled_from(["0", "-7", "1736410576395167660", str(GREATEST)]) | WHOLE.map(str)
ODD = st.sampled_from(["", "many", " 12", "12 ", "1.5", "-", "9" * 19, "9" * 400, b"", b"\x31"])
KINDS = ("INTEGER", "REAL", "NUMERIC", "TEXT", "BLOB", "INT", "")


@contextmanager
def database(
    columns: str, rows: Sequence[Sequence[Any]], *settings: str
) -> Iterator[tuple[Path, apsw.Connection]]:
    """A file with a table T, whose row numbers are the first value of each row."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "a.db"
        with closing(apsw.Connection(str(path))) as made:
            for setting in settings:
                made.execute(f"PRAGMA {setting}").fetchall()
            # What lies between pages of the table, and is no part of it.
            for name, spelled in (("A", "a"), ("T", columns), ("Z", "a")):
                made.execute(f"CREATE TABLE {name} ({spelled})")
            names = ", ".join(name for name, _ in declared(made))
            marks = ", ".join("?" * (1 + len(declared(made))))
            with made:
                made.executemany(f"INSERT INTO T (rowid, {names}) VALUES ({marks})", rows)
        with closing(apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)) as connection:
            yield path, connection


def declared(connection: apsw.Connection) -> list[tuple[str, str]]:
    return list(connection.execute("SELECT name, type FROM pragma_table_info('T')"))


def in_pages(
    path: Path, connection: apsw.Connection, columns: Mapping[str, float], dtype: Any
) -> dict[str, list[Any]]:
    """What the pages hold."""
    with closing(TablePages(connection, path)) as pages:
        blocks = list(pages.blocks("T", columns, dtype))
    made = {name: np.concatenate(parts) for name, *parts in zip(columns, *blocks, strict=True)}
    assert all(column.dtype == dtype for column in made.values())
    return {name: column.tolist() for name, column in made.items()}


def by_sqlite(
    path: Path, connection: apsw.Connection, columns: Mapping[str, float], dtype: Any
) -> dict[str, list[Any]]:
    """What SQLite reads."""
    read = Database(path, connection)
    whole = {name: int(value) for name, value in columns.items()}
    made = read.integers("T", whole) if dtype == np.int64 else read.floats("T", dict(columns))
    assert not read.damage.omissions(0)
    return {name: column.tolist() for name, column in made.items()}


@st.composite
def tables(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> tuple[str, list[list[Any]]]:
    """Columns of any kind, and rows with any numbers."""
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=6))
    spelled = ", ".join(f"c{number} {kind}" for number, kind in enumerate(kinds))
    numbers = draw(st.lists(WHOLE, unique=True, max_size=40))
    cells = st.lists(values, min_size=len(kinds), max_size=len(kinds))
    return spelled, [[number, *draw(cells)] for number in numbers]


@given(
    table=tables(st.none() | WHOLE),
    dtype=st.sampled_from([np.int64, np.float64]),
    page_bytes=st.sampled_from([512, 1024, 65536]),
)
@example(table=("c0 TEXT", [[0, -(2**63)], [1, 2**63 - 1]]), dtype=np.int64, page_bytes=512)
def test_whole_numbers_are_read_as_sqlite_reads_them(
    table: tuple[str, list[list[Any]]], dtype: Any, page_bytes: int
) -> None:
    """None is left to SQLite, but those that it stores as text or as real."""
    spelled, rows = table
    with database(spelled, rows, f"page_size = {page_bytes}") as (path, connection):
        columns = {name: -5.0 for name, _ in declared(connection)}
        if dtype == np.int64:
            columns = {name: -5.0 for name, kind in declared(connection) if kind != "REAL"}
        else:
            columns = {name: -5.0 for name, kind in declared(connection) if kind != "TEXT"}
        if columns:
            found = in_pages(path, connection, columns, dtype)
            assert found == by_sqlite(path, connection, columns, dtype)


@given(
    table=tables(st.none() | WHOLE | st.floats(allow_nan=False) | DIGITS | ODD),
    dtype=st.sampled_from([np.int64, np.float64]),
)
def test_values_of_any_kind_are_read_as_sqlite_reads_them_or_left_to_it(
    table: tuple[str, list[list[Any]]], dtype: Any
) -> None:
    spelled, rows = table
    with database(spelled, rows) as (path, connection):
        for name, _ in declared(connection):
            try:
                found = in_pages(path, connection, {name: -5.0}, dtype)
            except OnlySqliteError:
                continue
            assert found == by_sqlite(path, connection, {name: -5.0}, dtype)


@st.composite
def alike_rows(draw: st.DrawFn) -> tuple[list[str], list[list[Any]]]:
    """Columns, and rows of few layouts: which cells have how many bytes, or are spelled."""
    kinds = draw(st.lists(st.sampled_from(["INTEGER", "TEXT", "INT"]), min_size=1, max_size=17))
    one = st.sampled_from([None, 0, 1, "text", 2**62, *(2**bits for bits in (6, 13, 20, 30, 45))])
    layouts = draw(st.lists(st.lists(one, min_size=17, max_size=17), min_size=1, max_size=3))
    random = draw(st.randoms(use_true_random=False))

    def cell(kind: str, like: int | str | None) -> int | str | None:
        if like == "text" and kind == "TEXT":
            return str(random.randrange(10**6, 10**7))
        if like in {None, 0, 1, "text"}:
            return None if like == "text" else like
        assert isinstance(like, int)
        return random.choice([1, -1]) * random.randrange(max(2, like // 2 + 1), like)

    rows = [
        [cell(kind, like) for kind, like in zip(kinds, random.choice(layouts), strict=False)]
        for _ in range(40)
    ]
    return kinds, rows


@given(table=alike_rows(), data=st.data())
def test_rows_that_lie_as_others_do_are_read_as_sqlite_reads_them(
    table: tuple[list[str], list[list[Any]]], data: st.DataObject
) -> None:
    """Where values lie is noted, and found by how a row begins, which most rows share."""
    kinds, rows = table
    spelled = ", ".join(f"c{number} {kind}" for number, kind in enumerate(kinds))
    with database(spelled, [[3 * at, *row] for at, row in enumerate(rows)]) as (path, connection):
        names = data.draw(st.permutations([name for name, _ in declared(connection)]))
        columns = dict.fromkeys(names[: data.draw(st.integers(1, len(names)))], -7.0)
        found = in_pages(path, connection, columns, np.int64)
        assert found == by_sqlite(path, connection, columns, np.int64)


@pytest.mark.parametrize("width", [6, 7, 8, 11, 12, 13, 14, 15, 16, 40])
def test_rows_of_as_many_bytes_are_told_apart_by_any_of_their_columns(width: int) -> None:
    """More layouts than are kept, which differ in the last columns alone."""
    dice = random.Random(width)
    sized = [None, "1234567", 100, 10_000, 10**12]
    rows: list[list[Any]] = []
    for number in range(4000):
        dice.shuffle(sized)
        rows.append([number, *[0] * (width - 6), *sized, dice.choice([None, 0, 1])])
    spelled = ", ".join(f"c{number}" for number in range(width))
    with database(spelled, rows) as (path, connection):
        columns = {name: -7.0 for name, _ in declared(connection)}
        found = in_pages(path, connection, columns, np.int64)
    for number, column in enumerate(found.values(), 1):
        assert column == [-7 if row[number] is None else int(row[number]) for row in rows]


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
@pytest.mark.parametrize("page_bytes", [512, 4096, 65536])
def test_large_tables_are_read_in_order(page_bytes: int, dtype: Any) -> None:
    """Below several pages that only name others, among those of other tables."""
    rows = [[3 * number, number, number % 7, -number] for number in range(3 * BLOCK_ROWS)]
    dice = random.Random(1)
    with database("a INTEGER, k INTEGER, b INTEGER", [], f"page_size = {page_bytes}") as (path, _):
        with closing(apsw.Connection(str(path))) as made, made:
            shuffled = dice.sample(rows, len(rows))
            for first in range(0, len(rows), 997):
                some = shuffled[first : first + 997]
                made.executemany("INSERT INTO T (rowid, a, k, b) VALUES (?, ?, ?, ?)", some)
                made.execute("INSERT INTO Z VALUES (zeroblob(900))")
            made.execute("DELETE FROM T WHERE a % 5 = 3")
        with closing(apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)) as connection:
            found = in_pages(path, connection, {"b": 0, "a": 0}, dtype)
    left = [number for number in range(len(rows)) if number % 5 != 3]
    assert found == {"b": [-number for number in left], "a": left}


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_a_key_that_is_the_number_of_the_row_is_read(dtype: Any) -> None:
    rows = [[number, number, 1] for number in (-5, 0, 3, 2**40)]
    with database("k INTEGER PRIMARY KEY, a", rows) as (path, connection):
        found = in_pages(path, connection, {"a": 0, "k": 0}, dtype)
    assert found == {"a": [1, 1, 1, 1], "k": [-5, 0, 3, 2**40]}


@pytest.mark.parametrize(
    ("spelled", "change"),
    [
        ("a INTEGER", "ALTER TABLE T ADD COLUMN b INTEGER DEFAULT 7"),
        ("a INTEGER, c AS (a + 1), b INTEGER", ""),
        ("a INTEGER, c INT GENERATED ALWAYS AS (a + 1) STORED, b INTEGER", ""),
        ("b INTEGER PRIMARY KEY DESC, a INTEGER", ""),
        ("a INTEGER, b INTEGER, c TEXT DEFAULT " + repr("x" * 9000), ""),
        (", ".join(["a INTEGER", "b INTEGER", *(f"c{n}" for n in range(63))]), ""),
    ],
    ids=["added", "computed", "computed-and-stored", "descending-key", "long-text", "wide"],
)
def test_unusual_tables_are_left_to_sqlite(spelled: str, change: str) -> None:
    with database(spelled, []) as (path, _):
        with closing(apsw.Connection(str(path))) as made:
            names = {name for name, _ in declared(made)}
            made.execute("INSERT INTO T (a) VALUES (1)")
            if change:
                made.execute(change)
            assert {"b"} | names == {name for name, _ in declared(made)}
        with closing(apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)) as connection:
            with pytest.raises(OnlySqliteError):
                in_pages(path, connection, {"a": 0, "b": 0}, np.int64)
            by_sqlite(path, connection, {"a": 0, "b": 0}, np.int64)


def test_a_table_without_row_numbers_is_left_to_sqlite(tmp_path: Path) -> None:
    with closing(apsw.Connection(str(tmp_path / "a.db"))) as made:
        made.execute("CREATE TABLE T (a INTEGER PRIMARY KEY, b INTEGER) WITHOUT ROWID")
        with pytest.raises(OnlySqliteError):
            in_pages(tmp_path / "a.db", made, {"a": 0}, np.int64)


def test_a_table_behind_the_end_of_the_file_is_left_to_sqlite() -> None:
    rows = [[number, number] for number in range(9)]
    with database("a INTEGER", rows) as (path, connection):
        assert in_pages(path, connection, {"a": 0}, np.int64)["a"] == list(range(9))
        path.write_bytes(path.read_bytes()[: 2 * 4096])  # T begins with the third page
        connection.execute("PRAGMA writable_schema = ON")  # without which SQLite reads nothing
        with pytest.raises(OnlySqliteError):
            in_pages(path, connection, {"a": 0}, np.int64)


def test_damage_is_left_to_sqlite_or_read_as_it_does() -> None:
    """Two thousand files with some bytes changed: whoever reads one reads what the other does."""
    rows = [[number, number * 2**20, str(number), number % 3] for number in range(600)]
    columns = {"a": -5, "b": -5, "c": -5}
    dice, same, left = random.Random(3), 0, 0
    with database("a INTEGER, b TEXT, c INTEGER", rows, "page_size = 512") as (path, _):
        whole = path.read_bytes()
        for _ in range(2_000):
            damaged = bytearray(whole)
            for _ in range(dice.randrange(1, 4)):
                damaged[dice.randrange(512, len(damaged))] = dice.randrange(256)
            path.write_bytes(damaged[: dice.choice([len(damaged)] * 9 + [len(damaged) - 700])])
            with (
                closing(apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)) as connection,
                closing(TablePages(connection, path)) as pages,
            ):
                try:
                    blocks = list(pages.blocks("T", columns, np.int64))
                except (OnlySqliteError, apsw.CorruptError):
                    left += 1
                    continue
                query = """SELECT IFNULL(a, -5), CAST(IFNULL(b, -5) AS INTEGER), IFNULL(c, -5)
                    FROM T"""
                found = [list(column) for column in zip(*connection.execute(query), strict=True)]
                made = [np.concatenate(parts).tolist() for parts in zip(*blocks, strict=True)]
                assert made == (found or [[], [], []])
                same += 1
    assert same > 200
    assert left > 200


@pytest.mark.parametrize("layout", ["torch-db", "torch-db-no-operators"])
def test_a_timeline_is_the_same_whoever_reads_the_pages(
    layout: str, shelf: ProfileShelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables of so few rows are only here read so."""
    profile = shelf.get(layout, graphs=(1, 3)).path
    export(profile, tmp_path / "sqlite.pftrace", kind="detail")
    read, blocks = set(), TablePages.blocks

    def noted(self: TablePages, table: str, *args: Any) -> Any:
        yield from blocks(self, table, *args)
        read.add(table)

    monkeypatch.setattr(TablePages, "blocks", noted)
    monkeypatch.setattr(sqlite, "FEW_ROWS", 0)
    export(profile, tmp_path / "pages.pftrace", kind="detail")
    assert len(read) > 3
    assert (tmp_path / "pages.pftrace").read_bytes() == (tmp_path / "sqlite.pftrace").read_bytes()


def large(path: Path, rows: int = 20_000) -> None:
    with closing(apsw.Connection(str(path))) as made, made:
        made.execute("CREATE TABLE T (a INTEGER, c REAL)")
        made.executemany("INSERT INTO T VALUES (?, ?)", ((n, n / 2) for n in range(rows)))


def test_large_tables_of_a_database_are_read_in_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large(tmp_path / "a.db")
    monkeypatch.setattr(sqlite, "column_blocks", None)
    read: list[int] = []
    with counting(read.append), open_database(tmp_path / "a.db") as opened:
        assert opened.integers("T", {"a": 0, "b": 9})["a"].tolist() == list(range(20_000))
        assert opened.floats("T", {"c": 0})["c"][-1] == 19_999 / 2
    assert sum(read) > (tmp_path / "a.db").stat().st_size


def test_what_is_in_a_log_beside_the_file_is_read(tmp_path: Path) -> None:
    """Pages in the log are newer than those of the file."""
    path, log = tmp_path / "a.db", tmp_path / "a.db-wal"
    with closing(apsw.Connection(str(path))) as made:
        made.execute("PRAGMA journal_mode = wal").fetchall()
        made.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
        made.execute("CREATE TABLE T (a INTEGER)")
        with made:
            made.executemany("INSERT INTO T VALUES (?)", ((n,) for n in range(20_000)))
        made.execute("PRAGMA wal_checkpoint").fetchall()
        made.execute("UPDATE T SET a = a + 1")
        assert log.stat().st_size
        with open_database(path) as opened:
            assert opened.integers("T", {"a": 0})["a"].tolist() == list(range(1, 20_001))


def test_a_file_that_can_no_longer_be_read_is_left_to_sqlite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large(tmp_path / "a.db")

    def fail(self: TablePages, first: int, size: int) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(TablePages, "_read", fail)
    with open_database(tmp_path / "a.db") as opened:
        assert opened.integers("T", {"a": 0})["a"].tolist() == list(range(20_000))


def test_what_is_no_table_is_refused() -> None:
    from timeline.sources.decoders import _pages

    def read(first: int, size: int) -> bytes:
        return b""

    for sizes in (
        (2, 9, 500, 500, 1),
        (2, 9, 512, 513, 1),
        (1, 9, 512, 512, 1),
        (2, 1, 512, 512, 1),
    ):
        with pytest.raises(ValueError, match="no table"):
            _pages.table(read, *sizes, False, [])
    for columns in (
        [(2, 0, 0)],
        [(-1, 0, 0)],
        [(0, 3, 0)],
        [(0, 0, 0), (0, 0, 0)],
        [(0, _pages.AS_ROW, 0), (1, _pages.AS_ROW, 0)],
    ):
        with pytest.raises(ValueError, match="a column is in the table"):
            _pages.table(read, 2, 9, 512, 512, 2, False, columns)
    table = _pages.table(read, 2, 9, 512, 512, 1, False, [(0, 0, 0)])
    with pytest.raises(ValueError, match="a block has rows"):
        _pages.next_rows(table, 0)
    assert _pages.next_rows(table, 1) is None
