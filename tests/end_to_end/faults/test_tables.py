"""Proves that one bad row of a table costs itself at the most, however the table is spelled."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.support.damaged_profiles import (
    KEPT,
    LOST,
    REFUSED,
    TABLES,
    TRACES,
    Export,
    Outcome,
    Spot,
    check,
)

pytestmark = pytest.mark.sweep

START = ("Start Time(us)", "Task Start Time(us)", "start_time(ms)")
LENGTH = ("Duration(us)", "Task Duration(us)", "duration(ms)")


@dataclass
class Table:
    """A table as lines, and one of its rows."""

    spot: Spot
    lines: list[bytes]
    victim: int
    columns: dict[str, int]
    place: tuple[int, int]

    def cell(self, name: str, value: bytes) -> None:
        cells = self.lines[self.victim].rstrip(b"\r\n").split(b",")
        cells[self.columns[name]] = value
        self.lines[self.victim] = b",".join(cells) + b"\n"


def table_of(spot: Spot) -> Table:
    lines = spot.path.read_bytes().splitlines(keepends=True)
    header = [cell.strip() for cell in lines[0].decode().split(",")]
    columns = {
        "start": next(header.index(name) for name in START if name in header),
        "length": next(header.index(name) for name in LENGTH if name in header),
        "name": next(
            header.index(name) for name in ("Name", "Op Name", "op_name") if name in header
        ),
    }
    lengths = Counter(length for _, length, _ in spot.slices)
    scale = 1_000_000 if "(ms)" in header[columns["start"]] else 1_000
    for number, line in enumerate(lines[1:], 1):
        length = round(float(line.decode().split(",")[columns["length"]]) * scale)
        if number > 2 and lengths[length] == 1:
            (place,) = [(start, found) for start, found, _ in spot.slices if found == length]
            return Table(spot, lines, number, columns, place)
    raise AssertionError("every task has a twin")


def cut_short(table: Table) -> None:
    table.lines[table.victim] = table.lines[table.victim][:20] + b"\n"


TABLE_CASES: dict[str, tuple[Callable[[Table], None], Outcome, str]] = {
    "start that is NaN": (lambda table: table.cell("start", b"NaN"), LOST, ""),
    "start that is N/A": (lambda table: table.cell("start", b"N/A"), LOST, ""),
    "start that is infinite": (lambda table: table.cell("start", b"Infinity"), LOST, ""),
    "start that is a word": (lambda table: table.cell("start", b"soon"), LOST, ""),
    "start of 10^30": (lambda table: table.cell("start", b"1" + b"0" * 30), LOST, ""),
    "start of 9e18 ns": (lambda table: table.cell("start", b"9000000000000000"), LOST, ""),
    "length that is infinite": (lambda table: table.cell("length", b"inf"), LOST, ""),
    "end before start": (lambda table: table.cell("length", b"-5"), LOST, ""),
    "short row": (cut_short, LOST, ""),
    "not UTF-8": (lambda table: table.cell("name", b"\xff\xc3"), KEPT, ""),
    "name of 1 MB": (lambda table: table.cell("name", b"x" * 1_000_000), KEPT, ""),
}


@pytest.mark.parametrize("layout", TABLES)
@pytest.mark.parametrize("case", TABLE_CASES)
def test_one_row(export: Export, spot_of: Callable[[str], Spot], layout: str, case: str) -> None:
    """One bad row among good ones costs itself at the most."""
    change, outcome, reason = TABLE_CASES[case]
    table = table_of(spot_of(layout))
    change(table)
    table.spot.path.write_bytes(b"".join(table.lines))
    # Beside op_summary lies task_time, which has the same tasks; a row with a start hides its twin.
    twin = layout == "op-summary" and case != "end before start"
    gone = [table.place] if outcome is LOST and not twin else []
    check(export, table.spot, outcome, reason, gone)


SPELLINGS: dict[str, Callable[[bytes], bytes]] = {
    "byte order mark": lambda data: b"\xef\xbb\xbf" + data,
    "CRLF": lambda data: data.replace(b"\n", b"\r\n"),
    "blanks behind lines": lambda data: data.replace(b"\n", b"\n\n"),
}


@pytest.mark.parametrize("layout", [*TRACES, *TABLES])
@pytest.mark.parametrize("case", SPELLINGS)
def test_other_spellings(
    export: Export, spot_of: Callable[[str], Spot], layout: str, case: str
) -> None:
    """What editors and other systems do to text changes nothing."""
    spot = spot_of(layout)
    spot.path.write_bytes(SPELLINGS[case](spot.path.read_bytes()))
    check(export, spot, KEPT)


@pytest.mark.parametrize("layout", [*TRACES, *TABLES])
def test_everything_twice(export: Export, spot_of: Callable[[str], Spot], layout: str) -> None:
    """A file that holds all its records twice shows each once, and says so.

    Except for those without a length: nothing tells copies of them from others of that moment.
    """
    spot = spot_of(layout)
    if layout in TRACES:
        document = json.loads(spot.path.read_bytes())
        events = document["traceEvents"] if isinstance(document, dict) else document
        events += list(events)
        spot.path.write_text(json.dumps(document), encoding="utf-8")
    else:
        lines = spot.path.read_bytes().splitlines(keepends=True)
        spot.path.write_bytes(b"".join([*lines, *lines[1:]]))
    ran = export(spot.root)
    assert ran.code == 0, ran.err
    found, known = (
        {place: count for place, count in tasks.items() if place[1]}
        for tasks in (ran.tasks(), spot.tasks)
    )
    assert found == known
    assert any("that are there twice" in omitted["reason"] for omitted in ran.omitted)


@pytest.mark.parametrize("layout", ["kernel-details", "op-summary"])
def test_a_table_without_starts(
    export: Export, spot_of: Callable[[str], Spot], layout: str
) -> None:
    spot = spot_of(layout)
    data = spot.path.read_bytes()
    for name in START:
        data = data.replace(name.encode(), b"Begin")
    spot.path.write_bytes(data)
    check(export, spot, REFUSED)
