"""Proves that rows become the same columns with the compiled module and without it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import apsw
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timeline.sources.decoders import sqlite
from timeline.sources.decoders.sqlite import column_blocks, is_compiled

compiled = pytest.mark.skipif(not is_compiled(), reason="the package was built without a compiler")
LEAST, GREATEST = -(2**63), 2**63 - 1
WHOLE = st.integers(LEAST, GREATEST) | st.integers(-2, 2)
REAL = st.floats(allow_nan=False) | st.integers(-(2**53), 2**53)


def tables(cells: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    """Rows that are equally wide."""
    return st.integers(1, 12).flatmap(lambda width: st.lists(st.tuples(*[cells] * width)))


@pytest.fixture(params=["compiled", "interpreted"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to read."""
    if request.param == "interpreted":
        monkeypatch.setattr(sqlite, "_is_loaded", lambda: False)
    elif not is_compiled():
        pytest.skip("the package was built without a compiler")
    return str(request.param)


@pytest.fixture
def connection() -> Iterator[apsw.Connection]:
    """A database that holds nothing."""
    with closing(apsw.Connection(":memory:")) as made:
        yield made


def stored(connection: apsw.Connection, rows: list[tuple[Any, ...]], width: int) -> None:
    """Put rows into a table whose columns take every kind of value."""
    names = [f"c{number}" for number in range(width)]
    connection.execute(f"CREATE TABLE T ({', '.join(names)})")
    with connection:
        connection.executemany(f"INSERT INTO T VALUES ({', '.join('?' * width)})", rows)


def read(
    connection: apsw.Connection, width: int, dtype: Any, query: str = "SELECT * FROM T"
) -> list[tuple[Any, ...]]:
    """The rows that the columns of all blocks make."""
    made: list[tuple[Any, ...]] = []
    for block in column_blocks(connection, query, width, dtype):
        assert [column.dtype for column in block] == [dtype] * width
        made += zip(*(column.tolist() for column in block), strict=True)
    return made


def assert_both_ways(rows: list[tuple[Any, ...]], dtype: Any, most: int) -> None:
    width = len(rows[0]) if rows else 1
    with closing(apsw.Connection(":memory:")) as connection, pytest.MonkeyPatch.context() as patch:
        stored(connection, rows, width)
        patch.setattr(sqlite, "BLOCK_ROWS", most)
        made = read(connection, width, dtype)
        patch.setattr(sqlite, "_is_loaded", lambda: False)
        assert made == read(connection, width, dtype) == rows


@compiled
@given(rows=tables(WHOLE), most=st.integers(1, 9))
def test_compiled_columns_hold_the_whole_numbers_of_rows(
    rows: list[tuple[int, ...]], most: int
) -> None:
    assert_both_ways(rows, np.int64, most)


@compiled
@given(rows=tables(REAL), most=st.integers(1, 9))
def test_compiled_columns_hold_the_real_numbers_of_rows(
    rows: list[tuple[float, ...]], most: int
) -> None:
    assert_both_ways(rows, np.float64, most)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("dtype", [np.int64, np.float64])
@pytest.mark.parametrize("cell", [None, "text", b"\x00"], ids=repr)
def test_a_cell_that_is_no_number_is_refused(
    connection: apsw.Connection, cell: object, dtype: Any
) -> None:
    stored(connection, [(1, 2), (3, cell)], 2)
    with pytest.raises((TypeError, ValueError)):
        read(connection, 2, dtype)


@pytest.mark.usefixtures("way")
def test_what_sqlite_says_is_raised(connection: apsw.Connection) -> None:
    """A query may be wrong, and reading may fail behind rows that are whole."""
    with pytest.raises(apsw.SQLError, match="no such table: T"):
        read(connection, 1, np.int64)
    stored(connection, [(1,), (LEAST,)], 1)
    with pytest.raises(apsw.SQLError, match="integer overflow"):
        read(connection, 1, np.int64, "SELECT ABS(c0) FROM T")


@pytest.mark.usefixtures("way")
def test_a_query_that_is_not_read_to_its_end_keeps_nothing_open(tmp_path: Any) -> None:
    """A file that is open cannot be removed everywhere."""
    with closing(apsw.Connection(str(tmp_path / "a.db"))) as connection:
        stored(connection, [(number,) for number in range(20_000)], 1)
        blocks = column_blocks(connection, "SELECT c0 FROM T", 1, np.int64)
        assert next(blocks)[0][-1] == sqlite.BLOCK_ROWS - 1
        blocks.close()
        connection.execute("DROP TABLE T")


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("query", ["SELECT ABS(c0) FROM T", "SELECT * FROM T", "SELECT nothing"])
def test_a_database_is_closed_while_an_error_is_on_its_way(query: str) -> None:
    """The error, which knows where it came from, is not replaced by one about open queries."""
    with pytest.raises((apsw.SQLError, TypeError, ValueError)):  # noqa: SIM117
        with closing(apsw.Connection(":memory:")) as connection:
            stored(connection, [(LEAST,), ("text",)], 1)
            read(connection, 1, np.int64, query)


@compiled
def test_other_threads_run_while_rows_are_read(connection: apsw.Connection) -> None:
    """What one step of SQLite takes does not stop the interpreter."""
    query = """WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000000)
        SELECT COUNT(*) FROM n"""
    turns, done = 0, threading.Event()

    def read_all() -> None:
        try:
            assert read(connection, 1, np.int64, query) == [(2_000_000,)]
        finally:
            done.set()

    reader = threading.Thread(target=read_all)
    reader.start()
    while not done.wait(0.001):
        turns += 1
    reader.join()
    assert turns > 1


@compiled
def test_blocks_and_queries_of_nothing_are_refused(connection: apsw.Connection) -> None:
    from timeline.sources.decoders import _rows

    assert read(connection, 1, np.int64, "SELECT 1") == [(1,)]
    query = _rows.query(connection.sqlite3_pointer(), "SELECT 1")
    with pytest.raises(ValueError, match="rows and columns"):
        _rows.next_columns(query, _rows.INTEGER, 0)
    with pytest.raises(ValueError, match="null"):
        _rows.query(connection.sqlite3_pointer(), "-- nothing")
