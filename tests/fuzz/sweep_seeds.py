"""Small profiles that are swept: made ones of every layout, and real ones that are cut small."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import apsw

from tests.fuzz.seeds import few_events, small_run
from tests.support.places import DATA
from tests.support.profile_shelf import MAIN_LAYOUTS, VARIANTS, WRITERS

KEPT_ROWS = 16
KEPT_LINES = 12
KEPT_BYTES = 64 * 48
MOST_EVENTS = 80
MOST_JSON_BYTES = 32_768
_JOINS = ("globalTaskId", "connectionId", "opId", "correlationId")
"""Columns by which tables of databases find each other."""


@dataclass(frozen=True)
class Seed:
    """A small profile by its name; `write` puts it into a directory."""

    name: str
    write: Callable[[Path], object]


def made_seeds() -> list[Seed]:
    """The small run in every layout, the main ones first."""
    order = [*MAIN_LAYOUTS, *(name for name in (WRITERS | VARIANTS) if name not in MAIN_LAYOUTS)]
    return [Seed(name, partial((WRITERS | VARIANTS)[name], small_run())) for name in order]


def real_seeds(data: Path = DATA) -> list[Seed]:
    """Each capture of real runs, cut small; none where there are no such captures."""
    if not data.is_dir():
        return []
    return [
        Seed(f"real-{path.name}", partial(_copy_small, path)) for path in sorted(data.iterdir())
    ]


def _copy_small(source: Path, target: Path) -> None:
    for path in sorted(source.rglob("*")):
        if not path.is_file() or path.name.endswith(("-shm", "-wal", ".tar.gz")):
            continue
        name = target / path.relative_to(source)
        name.parent.mkdir(parents=True, exist_ok=True)
        if path.name.endswith(".json.gz"):
            name.with_suffix("").write_bytes(_small_json(gzip.decompress(path.read_bytes())))
        else:
            name.write_bytes(_small(path))


def _small(path: Path) -> bytes:
    content = path.read_bytes()
    if content.startswith(b"SQLite format 3"):
        return _small_database(path)
    if content.lstrip()[:1] in (b"[", b"{"):
        return _small_json(content)
    if b"\0" in content:
        return content[:KEPT_BYTES]
    return b"".join(content.splitlines(keepends=True)[:KEPT_LINES])


def _small_json(content: bytes) -> bytes:
    try:
        document = json.loads(content)
    except ValueError:
        return content[:KEPT_BYTES]
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if isinstance(events, list) and events and all(isinstance(one, dict) for one in events):
        kept = few_events(events, MOST_EVENTS)
        document = kept if isinstance(document, list) else document | {"traceEvents": kept}
    elif len(content) > MOST_JSON_BYTES:
        document = _with_few_items(document)
    return json.dumps(document).encode()


def _with_few_items(value: object) -> object:
    if isinstance(value, dict):
        return {key: _with_few_items(one) for key, one in list(value.items())[:KEPT_ROWS]}
    if isinstance(value, list):
        return [_with_few_items(one) for one in value[:4]]
    return value


def _small_database(path: Path) -> bytes:
    """Some tasks, with the rows of other tables that belong to them, and the names of all."""
    with (
        closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as source,
        closing(apsw.Connection(":memory:")) as made,
    ):
        with made.backup("main", source, "main") as backup:
            backup.step()
        tables = {name: _columns(made, name) for name in _names(made)}
        first = next((name for name in ("TASK", "AscendTask") if name in tables), None)
        if first is not None:
            _keep_some(made, first)
        for name, columns in tables.items():
            shared = [
                join for join in _JOINS if join in columns and first and join in tables[first]
            ]
            if name in (first, "STRING_IDS"):
                continue
            if shared:
                (join, *_) = shared
                made.execute(
                    f'DELETE FROM "{name}" WHERE "{join}" NOT IN (SELECT "{join}" FROM "{first}")'
                )
            _keep_some(made, name)
        if "STRING_IDS" in tables:
            used = {
                cell
                for name in tables
                if name != "STRING_IDS"
                for row in made.execute(f'SELECT * FROM "{name}"')
                for cell in row
                if isinstance(cell, int)
            }
            for (number,) in list(made.execute("SELECT id FROM STRING_IDS")):
                if number not in used:
                    made.execute("DELETE FROM STRING_IDS WHERE id = ?", (number,))
        made.execute("PRAGMA page_size = 512; VACUUM")
        return made.serialize("main")


def _names(connection: apsw.Connection) -> Iterator[str]:
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    for (name,) in list(connection.execute(query)):
        yield str(name)


def _columns(connection: apsw.Connection, table: str) -> list[str]:
    return [str(row[1]) for row in connection.execute(f'PRAGMA table_info("{table}")')]


def _keep_some(connection: apsw.Connection, table: str) -> None:
    """The rows in the middle of a table, where most of it runs."""
    ((count,),) = connection.execute(f'SELECT count(*) FROM "{table}"')
    skipped = max(0, (count - KEPT_ROWS) // 2)
    connection.execute(
        f'DELETE FROM "{table}" WHERE rowid NOT IN '
        f'(SELECT rowid FROM "{table}" ORDER BY rowid LIMIT {KEPT_ROWS} OFFSET {skipped})'
    )
