"""Proves that one bad event of a trace costs itself at the most, and that names change nothing."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing

import pytest

from tests.support.damaged_profiles import (
    KEPT,
    LOST,
    TRACES,
    Event,
    Export,
    Outcome,
    Spot,
    check,
    trace_of,
)
from tests.support.perfetto_sql import TraceProcessor

pytestmark = pytest.mark.sweep


def without(event: Event, *names: str) -> Event:
    return {key: value for key, value in event.items() if key not in names}


EventCase = tuple[Callable[[Event], "bytes | Event"], Outcome, str]

NESTED = 100_000
SOME_EVENT_CASES = ("no JSON", "end before start", "far away", "id of 2^64", "not UTF-8")
"""For layouts that one of the others shares its reader with."""
EVENT_CASES: dict[str, EventCase] = {
    "no JSON": (lambda event: b'{"name": @}', LOST, "not valid JSON"),
    "NaN": (lambda event: event | {"ts": float("nan")}, LOST, ""),
    "Infinity": (lambda event: event | {"dur": float("inf")}, LOST, ""),
    "start of another kind": (lambda event: event | {"ts": [1]}, LOST, "without a valid time"),
    "start that is a word": (lambda event: event | {"ts": "soon"}, LOST, ""),
    "no start": (lambda event: without(event, "ts"), LOST, ""),
    "end before start": (lambda event: event | {"dur": -5}, LOST, "without a valid time"),
    "start of 10^30": (lambda event: event | {"ts": 10**30}, LOST, ""),
    "length of 10^30": (lambda event: event | {"dur": 10**30}, LOST, ""),
    "far away": (lambda event: event | {"ts": 4 * 10**15}, LOST, "more than ten years"),
    "start of 9e18 ns": (lambda event: event | {"ts": 9 * 10**15}, LOST, ""),
    "nested deeply": (
        lambda event: (
            json.dumps(event | {"args": "@"})
            .replace('"@"', '{"a":' * NESTED + "1" + "}" * NESTED)
            .encode()
        ),
        LOST,
        "",
    ),
    "id of 2^64": (lambda event: event | {"args": {"Task Id": 2**64, "x": 10**30}}, KEPT, ""),
    "not UTF-8": (
        lambda event: json.dumps(event | {"name": "@@"}).encode().replace(b"@@", b"\xff\xc3"),
        KEPT,
        "not UTF-8",
    ),
    "name of 1 MB": (lambda event: event | {"name": "x" * 1_000_000}, KEPT, ""),
}


@pytest.mark.parametrize(
    ("layout", "case"),
    [
        *((layout, case) for layout in ("torch-text", "kineto") for case in EVENT_CASES),
        *(
            (layout, case)
            for layout in ("mindstudio", "mindspore-2.1")
            for case in SOME_EVENT_CASES
        ),
    ],
)
def test_one_event(export: Export, spot_of: Callable[[str], Spot], layout: str, case: str) -> None:
    """One bad event among good ones costs itself at the most."""
    change, outcome, reason = EVENT_CASES[case]
    spot = spot_of(layout)
    trace = trace_of(spot)
    spot.path.write_bytes(trace.with_victim(change(trace.victim)))
    check(export, spot, outcome, reason, [trace.place] if outcome is LOST else [])


@pytest.mark.parametrize("layout", ["torch-text", "mindstudio"])
def test_event_at_zero(export: Export, spot_of: Callable[[str], Spot], layout: str) -> None:
    """Where times are wall time, one task at 0 must not stretch the picture over decades."""
    spot = spot_of(layout)
    trace = trace_of(spot)
    spot.path.write_bytes(trace.with_victim(trace.victim | {"ts": 0}))
    check(export, spot, LOST, "more than ten years from the others", [trace.place])


NASTY = {
    "path": "../../etc/passwd",
    "format": "{0.__class__} %s%n %(x)s ${HOME} `id` $(id)",
    "HTML": "<script>alert('x')</script>&amp;",
    "SQL": "'; DROP TABLE slice; --",
    "terminal": "\x1b[2J\x1b]0;owned\x07\x9b31m\r\b",
    "directions": "abc\u202edef\u2066",
    "lines": 'a\nb\tc"d\\e',
}


@pytest.mark.parametrize("layout", [*TRACES, "torch-db", "kernel-details", "mindspore-text"])
def test_names_are_data(export: Export, spot_of: Callable[[str], Spot], layout: str) -> None:
    """Whatever a name looks like, it is drawn as it is and changes nothing else.

    Kernels are called by the type of their operator; their names are args.
    """
    spot = spot_of(layout)
    names = list(NASTY.values())
    if layout in TRACES:
        trace = trace_of(spot)
        made = [trace.victim | {"name": name, "args": {}} for name in names]
        for number, event in enumerate(made, 1):
            event["ts"] = type(event["ts"])(float(event["ts"]) + number * 1e6)
        spot.path.write_bytes(trace.with_victim(json.dumps([trace.victim, *made])[1:-1].encode()))
    elif layout == "torch-db":
        with closing(sqlite3.connect(spot.path)) as database, database:
            ids = database.execute(
                "SELECT DISTINCT name FROM COMPUTE_TASK_INFO LIMIT ?", (len(names),)
            ).fetchall()
            names = names[: len(ids)]
            assert len(names) > 4
            for (number,), name in zip(ids, names, strict=True):
                database.execute("UPDATE STRING_IDS SET value = ? WHERE id = ?", (name, number))
    else:
        names = [name for name in names if not set(name) & set('\n\t"\r,')]
        column = "Name" if layout == "kernel-details" else "op_name"
        lines = spot.path.read_text(encoding="utf-8").splitlines()
        place = [cell.strip() for cell in lines[0].split(",")].index(column)
        for number, name in enumerate(names, 1):
            cells = lines[number].split(",")
            cells[place] = name
            lines[number] = ",".join(cells)
        spot.path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    ran = export(spot.root)
    assert ran.code == 0, ran.err
    processor = TraceProcessor.load(ran.output.read_bytes())
    drawn = {name for (name,) in processor.rows("SELECT DISTINCT name FROM slice")}
    drawn |= {name for (name,) in processor.rows("SELECT DISTINCT string_value FROM args")}
    assert set(names) <= drawn
