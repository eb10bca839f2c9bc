"""Proves that one bad row of a database costs itself at most, even beside a writer at work."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing

import pytest

from tests.support.damaged_profiles import (
    DATABASES,
    KEPT,
    LOST,
    REFUSED,
    Export,
    Outcome,
    Spot,
    check,
    device_slices,
)

TASK_COLUMNS = {
    "torch-db": ("TASK", "startNs", "endNs"),
    "msprof-sqlite": ("AscendTask", "start_time", "duration"),
}

DATABASE_CASES: dict[str, tuple[str, Outcome]] = {
    "start of NULL": ("UPDATE {table} SET {start} = NULL {where}", LOST),
    "start that is a word": ("UPDATE {table} SET {start} = 'soon' {where}", LOST),
    "start that is a blob": ("UPDATE {table} SET {start} = x'ff00' {where}", LOST),
    "start that is infinite": ("UPDATE {table} SET {start} = 9e999 {where}", LOST),
    "start of 10^30": ("UPDATE {table} SET {start} = 1e30 {where}", LOST),
    "start of 0": ("UPDATE {table} SET {start} = 0 {where}", LOST),
    "start of 9e18 ns": ("UPDATE {table} SET {start} = 9000000000000000000 {where}", LOST),
    "end before start": ("UPDATE {table} SET {end} = -5 {where}", LOST),
    "rows twice": ("INSERT INTO {table} SELECT * FROM {table} {where}", KEPT),
    "more columns and tables": (
        "ALTER TABLE {table} ADD COLUMN newer; CREATE TABLE NEWER (a, b);"
        " CREATE VIEW NEWEST AS SELECT * FROM NEWER",
        KEPT,
    ),
    "a column of another name": (
        "ALTER TABLE {table} RENAME COLUMN {start} TO beginNs",
        REFUSED,
    ),
}


@pytest.mark.parametrize("layout", DATABASES)
@pytest.mark.parametrize("case", DATABASE_CASES)
def test_database(export: Export, spot_of: Callable[[str], Spot], layout: str, case: str) -> None:
    """One bad row among good ones costs itself; newer schemas read, as far as they are known."""
    spot = spot_of(layout)
    if case == "start of 0" and layout == "msprof-sqlite":
        pytest.skip("its times count from the start of the host, so that 0 is one of them")
    script, outcome = DATABASE_CASES[case]
    table, start, end = TASK_COLUMNS[layout]
    known = Counter(length for _, length, _ in spot.slices)
    with closing(sqlite3.connect(spot.path)) as database, database:
        length = end if end == "duration" else f"{end} - {start}"
        rows = database.execute(f"SELECT rowid, {length} FROM {table} ORDER BY rowid").fetchall()
        row, span = next(found for found in rows[len(rows) // 2 :] if known[found[1]] == 1)
        database.executescript(
            script.format(table=table, start=start, end=end, where=f"WHERE rowid = {row}")
        )
    gone = [(first, length) for first, length, _ in spot.slices if length == span]
    check(export, spot, outcome, gone=gone if outcome is LOST else [])


HOLD = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("layout", DATABASES)
def test_database_locked_by_a_writer(
    export: Export, spot_of: Callable[[str], Spot], layout: str
) -> None:
    """What a writer has not written yet cannot be waited for; what is there is read."""
    spot = spot_of(layout)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(spot.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        try:
            assert writer.stdout.readline() == b"held\n"
            check(export, spot, KEPT)
        finally:
            writer.stdin.close()


def test_database_with_a_log(export: Export, spot_of: Callable[[str], Spot]) -> None:
    """What only the write-ahead log holds is read, and neither file changes."""
    spot = spot_of("torch-db")
    writer = sqlite3.connect(spot.path)
    with closing(writer):
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("PRAGMA wal_autocheckpoint = 0")
        writer.execute("UPDATE STRING_IDS SET value = 'only in the log'")
        writer.commit()
        ran = export(spot.root)
        assert ran.code == 0, ran.err
        assert {name for _, _, name in device_slices(ran.output)} == {"only in the log"}
        assert ran.tasks() == spot.tasks
