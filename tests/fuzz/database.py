"""Changes that leave a SQLite database nearly valid, and ways to make it smaller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from random import Random

import apsw
import atheris

from tests.fuzz.target import Still

VALUES: tuple[object, ...] = (
    None,
    0,
    -1,
    1,
    5,
    50002,
    1 << 31,
    1 << 32,
    (1 << 32) - 1,
    (1 << 62) + 1,
    (1 << 63) - 1,
    -(1 << 63),
    1.5,
    -0.0,
    1e300,
    float("inf"),
    float("nan"),
    "",
    "N/A",
    "12",
    "1736424000129323387",
    "9223372036854775808",
    "1e400",
    "Enqueue",
    "é漢\ud7ff",
    "a\0b",
    b"",
    b"\xff\xfe",
    b"7",
)
TYPES = ("INTEGER", "TEXT", "REAL", "NUMERIC", "BLOB", "", "INTEGER PRIMARY KEY", "REAL INTEGER")
TABLES = (
    "TASK",
    "COMPUTE_TASK_INFO",
    "COMMUNICATION_OP",
    "COMMUNICATION_TASK_INFO",
    "CANN_API",
    "PYTORCH_API",
    "MSTX_EVENTS",
    "STRING_IDS",
    "STEP_TIME",
    "RANK_DEVICE_MAP",
    "ENUM_API_TYPE",
    "HBM",
    "sqlite_sequence",
)
_NAMES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"

Change = Callable[["_Changed"], None]


def change_database(data: bytes, random: Random) -> bytes:
    """Change rows, columns and tables by SQL; one in six times, bytes of the file."""
    if random.randrange(6) == 0:
        return bytes(atheris.Mutate(data, len(data)))
    try:
        with closing(apsw.Connection(":memory:")) as connection:
            connection.deserialize("main", data)
            changed = _Changed(connection, random)
            for _ in range(random.choice((1, 1, 2, 3, 8))):
                with suppress(apsw.Error):
                    random.choice(CHANGES)(changed)
            return connection.serialize("main")
    except apsw.Error:
        return bytes(atheris.Mutate(data, len(data)))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class _Changed:
    """A database that is being changed, with the choice of where."""

    def __init__(self, connection: apsw.Connection, random: Random) -> None:
        self.connection, self.random = connection, random

    def run(self, statement: str, *values: object) -> None:
        self.connection.execute(statement, values)

    def table(self) -> str:
        """Any table; those that are read for every picture more often."""
        names = [str(name) for (name,) in self.connection.execute(_NAMES)]
        main = [name for name in names if name in TABLES[:6]]
        if main and self.random.randrange(2):
            names = main
        return _quoted(self.random.choice(names or ["TASK"]))

    def column(self, table: str) -> str:
        held = list(self.connection.execute(f"SELECT name FROM pragma_table_info({table})"))
        return _quoted(str(self.random.choice(held)[0]) if held else "id")

    def row(self, table: str) -> str:
        """SQL for some row of a table."""
        return f"(SELECT rowid FROM {table} LIMIT 1 OFFSET {self.random.randrange(8)})"


def _one_value(database: _Changed) -> None:
    table = database.table()
    column, value = database.column(table), database.random.choice(VALUES)
    database.run(
        f"UPDATE OR IGNORE {table} SET {column} = ? WHERE rowid = {database.row(table)}", value
    )


def _all_values(database: _Changed) -> None:
    table = database.table()
    column, value = database.column(table), database.random.choice(VALUES)
    database.run(f"UPDATE OR IGNORE {table} SET {column} = ?", value)


def _same_as_another(database: _Changed) -> None:
    """A value of another column, so that rows of tables find each other."""
    table, other = database.table(), database.table()
    source, place = database.column(other), database.random.randrange(5)
    value = f"(SELECT {source} FROM {other} LIMIT 1 OFFSET {place})"
    column, row = database.column(table), database.row(table)
    database.run(f"UPDATE OR IGNORE {table} SET {column} = {value} WHERE rowid = {row}")


def _moved(database: _Changed) -> None:
    """A number a little or a lot larger or smaller."""
    table = database.table()
    column, by = (
        database.column(table),
        database.random.choice((1, -1, 1000, -(10**6), 1 << 40, -(1 << 61))),
    )
    row = database.row(table)
    database.run(f"UPDATE OR IGNORE {table} SET {column} = {column} + {by} WHERE rowid = {row}")


def _copied_rows(database: _Changed) -> None:
    table = database.table()
    database.run(
        f"INSERT OR IGNORE INTO {table} SELECT * FROM {table} LIMIT {database.random.randrange(5)}"
    )


def _without_row(database: _Changed) -> None:
    table = database.table()
    database.run(f"DELETE FROM {table} WHERE rowid = {database.row(table)}")


def _without_rows(database: _Changed) -> None:
    database.run(f"DELETE FROM {database.table()}")


def _without_column(database: _Changed) -> None:
    table = database.table()
    database.run(f"ALTER TABLE {table} DROP COLUMN {database.column(table)}")


def _renamed_column(database: _Changed) -> None:
    table = database.table()
    old, new = database.column(table), database.column(database.table())
    database.run(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}")


def _without_table(database: _Changed) -> None:
    database.run(f"DROP TABLE {database.table()}")


def _renamed_table(database: _Changed) -> None:
    new = database.random.choice(TABLES)
    old = database.table()
    with suppress(apsw.Error):
        database.run(f'DROP TABLE "{new}"')
    database.run(f'ALTER TABLE {old} RENAME TO "{new}"')


def _other_kind(database: _Changed) -> None:
    """The same table as a view, without rowid, or with a column of another type."""
    table = database.table()
    kind = database.random.randrange(3)
    if kind == 0:
        database.run(f'ALTER TABLE {table} RENAME TO "away"')
        database.run(f'CREATE VIEW {table} AS SELECT * FROM "away"')
        return
    columns = [
        str(name)
        for (name,) in database.connection.execute(f"SELECT name FROM pragma_table_info({table})")
    ]
    types = {name: database.random.choice(TYPES[:6]) for name in columns}
    declared = ", ".join(f"{_quoted(name)} {types[name]}" for name in columns)
    if kind == 1:
        declared += f", PRIMARY KEY ({', '.join(_quoted(name) for name in columns)})"
    database.run(f'CREATE TABLE "new" ({declared}){" WITHOUT ROWID" if kind == 1 else ""}')
    database.run(f'INSERT OR IGNORE INTO "new" SELECT * FROM {table}')
    database.run(f"DROP TABLE {table}")
    database.run(f'ALTER TABLE "new" RENAME TO {table}')


CHANGES: tuple[Change, ...] = (
    *(_one_value,) * 8,
    *(_same_as_another,) * 4,
    *(_moved,) * 3,
    *(_all_values,) * 2,
    *(_copied_rows,) * 2,
    _without_row,
    _without_rows,
    _without_column,
    _renamed_column,
    _without_table,
    _renamed_table,
    *(_other_kind,) * 2,
)


# -- smaller -------------------------------------------------------------------------------------


def shrink_database(data: bytes, still: Still) -> bytes:
    """Leave out tables, then rows, then columns, as long as the fault stays."""
    for statements in (_drops_of_tables, _drops_of_rows, _drops_of_columns):
        for statement in statements(data):
            fewer = _after(data, statement)
            if fewer is not None and still(fewer):
                data = fewer
    return data


def _after(data: bytes, statement: str) -> bytes | None:
    with suppress(apsw.Error), closing(apsw.Connection(":memory:")) as connection:
        connection.deserialize("main", data)
        connection.execute(statement)
        connection.execute("VACUUM")
        return connection.serialize("main")
    return None


def _tables(data: bytes) -> list[tuple[str, list[str], list[int]]]:
    """Name, columns and rows of all tables."""
    with suppress(apsw.Error), closing(apsw.Connection(":memory:")) as connection:
        connection.deserialize("main", data)
        found = []
        for (name,) in list(connection.execute(_NAMES)):
            columns = connection.execute("SELECT name FROM pragma_table_info(?)", (name,))
            held = [str(column) for (column,) in columns]
            rows = []
            with suppress(apsw.Error):
                rows = [
                    int(row)
                    for (row,) in connection.execute(f"SELECT rowid FROM {_quoted(str(name))}")
                ]
            found.append((_quoted(str(name)), held, rows))
        return found
    return []


def _drops_of_tables(data: bytes) -> Iterator[str]:
    for name, _, _ in _tables(data):
        yield f"DROP TABLE {name}"


def _drops_of_rows(data: bytes) -> Iterator[str]:
    for name, _, rows in _tables(data):
        yield f"DELETE FROM {name}"
        for row in rows:
            yield f"DELETE FROM {name} WHERE rowid = {row}"


def _drops_of_columns(data: bytes) -> Iterator[str]:
    for name, columns, _ in _tables(data):
        for column in columns:
            yield f"ALTER TABLE {name} DROP COLUMN {_quoted(column)}"
