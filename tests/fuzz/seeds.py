"""Captures of a simulated run to fuzz in, and small valid inputs made from them."""

from __future__ import annotations

import functools
import itertools
import json
import re
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw

from simulator.model import Run
from simulator.simulation import make_run
from tests.support.profile_shelf import WRITERS
from timeline.commands.compare import compare
from timeline.commands.export import export
from timeline.figures.filed_verdict import TEXT
from timeline.sources.common.counter_tables import database_tables

Event = dict[str, Any]
SEED_EVENTS = 14
ALIKE = 2
PAGE_BYTES = 512
TRACE_LAYOUTS = ("torch-text", "mindspore-2.1", "mindstudio", "mindstudio-sliced")


@functools.cache
def small_run() -> Run:
    """One rank and two steps of the fewest operators."""
    return make_run(ranks=1, steps=2, ops_per_step=3, planes=1)


def write_capture(layout: str, directory: Path) -> Path:
    """Write the run in a layout; gives the directory of its capture."""
    (capture,) = WRITERS[layout](small_run(), directory)
    return capture


def _texts(pattern: str, layouts: Sequence[str] = TRACE_LAYOUTS) -> list[bytes]:
    """The distinct contents of all files that a pattern fits."""
    found: dict[bytes, None] = {}
    for layout in layouts:
        with tempfile.TemporaryDirectory(prefix="tlexport-seeds-") as name:
            write_capture(layout, Path(name))
            for path in sorted(Path(name).rglob(pattern)):
                found[path.read_bytes()] = None
    return list(found)


def file_seeds(pattern: str, *layouts: str) -> Callable[[], list[bytes]]:
    """The distinct contents of all files that a pattern fits, as they are."""
    return lambda: _texts(pattern, layouts)


# -- traces --------------------------------------------------------------------------------------


def _shape(event: Event) -> tuple[object, ...]:
    """What makes events alike: two of each are enough."""
    name = re.sub(r"\d+", "", str(event.get("name", "")))[:12]
    return (event.get("ph"), event.get("cat"), name, *sorted(event.get("args") or ()))


def _one_of_each(events: Sequence[Event]) -> list[Event]:
    """An event or two of each shape in each process; names and flows come with them later."""
    seen: dict[tuple[object, ...], int] = {}
    picked = []
    for event in events:
        if event.get("ph") not in ("M", "s", "f", "t"):
            shape = (*_shape(event), event.get("pid"))
            seen[shape] = seen.get(shape, 0) + 1
            if seen[shape] <= ALIKE:
                picked.append(event)
    return picked


def _with_their_own(picked: Sequence[Event], events: Sequence[Event]) -> list[Event]:
    """Events with the names of their lanes, and the flows that begin or end with them."""
    moments = {_moment(event) for event in picked}
    ids = {
        str(event.get("id"))
        for event in events
        if event.get("ph") in ("s", "f", "t") and _moment(event) in moments
    }
    flows = [event for event in events if "id" in event and str(event["id"]) in ids]
    lanes = {(event.get("pid"), event.get("tid")) for event in (*picked, *flows)}
    pids = {pid for pid, _ in lanes}
    named = [
        event
        for event in events
        if event.get("ph") == "M"
        and (
            (event.get("pid"), event.get("tid")) in lanes
            or (event.get("name") == "process_name" and event.get("pid") in pids)
        )
    ]
    return [*named, *picked, *flows]


def few_events(events: Sequence[Event], most: int) -> list[Event]:
    """Events of each shape, some of them, with the names and flows that belong to them."""
    picked = _one_of_each(events)
    return _with_their_own(picked[:: -(-len(picked) // most) or 1], events)


def _moment(event: Event) -> tuple[object, ...]:
    return (event.get("pid"), event.get("tid"), str(event.get("ts")))


@functools.cache
def _traces() -> tuple[tuple[Event, ...], ...]:
    """Parts of the traces of every layout: some events of each, and what belongs to them."""
    made = []
    for text in _texts("*.json"):
        document = json.loads(text)
        events = document if isinstance(document, list) else document.get("traceEvents")
        if isinstance(events, list) and all(isinstance(event, dict) for event in events):
            picked = _one_of_each(events)
            parts = -(-len(picked) // SEED_EVENTS)
            made += [tuple(_with_their_own(picked[at::parts], events)) for at in range(parts)]
    return tuple(made)


def trace_events() -> list[bytes]:
    """Single events of every shape that any layout has."""
    by_shape = {
        _shape(event): json.dumps(event, separators=(",", ":")).encode()
        for event in itertools.chain.from_iterable(_traces())
    }
    return list(by_shape.values())


def trace_seeds() -> list[bytes]:
    """Small traces of every layout: lists and objects, names first or last, spaced or not."""
    made = []
    for number, events in enumerate(_traces()):
        listed: list[Event] = list(events)
        if number % 3 == 1:
            listed.sort(key=lambda event: event.get("ph") == "M")
        compact = number % 2 == 0
        document = {"displayTimeUnit": "ns", "traceEvents": listed} if number % 4 == 3 else listed
        separators = (",", ":") if compact else None
        made.append(json.dumps(document, separators=separators).encode())
    for ph in ("X", "C", "s"):
        of_phase = [event for event in _traces()[0] if event.get("ph") in ("M", ph)]
        made.append(json.dumps(of_phase[:12], indent=1).encode())
    return [*made, b"[]", b'{"traceEvents":[]}']


# -- tables --------------------------------------------------------------------------------------


def table_seeds(pattern: str) -> Callable[[], list[bytes]]:
    """Tables of all layouts whose name fits a pattern, whole, and with few rows."""

    def seeds() -> list[bytes]:
        made: dict[bytes, None] = {}
        for text in _texts(pattern):
            lines = text.splitlines(keepends=True)
            for rows in (2, 4, len(lines)):
                made[b"".join(lines[:rows])] = None
        return list(made)

    return seeds


# -- databases -----------------------------------------------------------------------------------


def database_seeds() -> list[bytes]:
    """Small databases: whole, of device tables, of host tables, and with all other tables."""
    with tempfile.TemporaryDirectory(prefix="tlexport-seeds-") as name:
        write_capture("torch-db", Path(name))
        (path,) = Path(name).rglob("ascend_pytorch_profiler_0.db")
        with closing(apsw.Connection(str(path))) as connection:
            connection.execute(f"PRAGMA page_size={PAGE_BYTES}; VACUUM")
        whole = path.read_bytes()
    device = ("TASK", "COMPUTE_TASK_INFO", "STRING_IDS", "RANK_DEVICE_MAP", "STEP_TIME")
    ops = ("COMMUNICATION_OP", "COMMUNICATION_TASK_INFO")
    host = ("CANN_API", "PYTORCH_API", "CONNECTION_IDS", "ENUM_API_TYPE")
    return [
        _with_few_rows(whole, 4, None),
        _with_few_rows(whole, 3, (*device, *ops)),
        _with_few_rows(whole, 3, (*device, *host)),
        _with_few_rows(whole, 2, (*device, *ops, *host), more=True),
        _with_few_rows(whole, 12, (*device, *ops, "CANN_API")),
    ]


def _with_few_rows(
    database: bytes, rows: int, kept: Sequence[str] | None, *, more: bool = False
) -> bytes:
    with closing(apsw.Connection(":memory:")) as connection:
        connection.deserialize("main", database)
        names = [name for (name,) in connection.execute(_ALL_TABLES)]
        for name in names:
            if kept is not None and name not in kept:
                connection.execute(f'DROP TABLE "{name}"')
            elif name != "STRING_IDS":
                connection.execute(
                    f'DELETE FROM "{name}" WHERE rowid NOT IN '
                    f'(SELECT rowid FROM "{name}" LIMIT {rows})'
                )
        if more:
            _add_tables(connection)
        connection.execute("VACUUM")
        return connection.serialize("main")


_ALL_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"


def _add_tables(connection: apsw.Connection) -> None:
    """Tables that the run does not fill: marks, and every kind of sample."""
    connection.execute(
        "CREATE TABLE MSTX_EVENTS (startNs INTEGER, endNs INTEGER, eventType INTEGER, "
        "rangeId INTEGER, category INTEGER, message INTEGER, globalTid INTEGER, "
        "endGlobalTid INTEGER, domainId INTEGER, connectionId INTEGER);"
        "INSERT INTO MSTX_EVENTS SELECT startNs, endNs, 2, 1, 0, name, globalTid, globalTid, 0, "
        "connectionId FROM CANN_API"
    )
    for table in database_tables():
        columns = [table.time, "deviceId", *table.ids, *table.kinds, *table.values]
        declared = ", ".join(f"{column} NUMERIC" for column in columns)
        values = f"SELECT startNs, 0{', 1' * (len(columns) - 2)} FROM TASK LIMIT 2"
        connection.execute(f"CREATE TABLE {table.table} ({declared})")
        connection.execute(f"INSERT INTO {table.table} {values}")


# -- metadata ------------------------------------------------------------------------------------


def metadata_seeds() -> list[bytes]:
    """What any capture says about itself."""
    found = [
        *_texts("info.json*"),
        *_texts("start_info*"),
        *_texts("profiler_info_*.json"),
        *_texts("profiler_metadata.json"),
    ]
    merged: Event = {}
    for text in found:
        if text.lstrip().startswith(b"{"):
            merged |= json.loads(text)
    few = {key: value for key, value in merged.items() if not isinstance(value, (dict, list))}
    return [*found, json.dumps(few).encode(), b'{"rank_id": 0}', b'{"rank_id": "0"}', b"{}"]


# -- written files -------------------------------------------------------------------------------


def filed_seeds() -> list[bytes]:
    """What the file of an export says, and that of a comparison, as JSON text."""
    with tempfile.TemporaryDirectory(prefix="tlexport-seeds-") as name:
        capture, base, new = (Path(name, part) for part in ("capture", "base.json", "new.json"))
        write_capture("torch-db", capture)
        export(capture, base)
        compare(capture, capture, new)
        return [json.loads(path.read_bytes())["otherData"][TEXT].encode() for path in (base, new)]
