"""Proves that every fault that a profile can have is read around or refused.

Each case damages one file of a profile in one way. What comes of it is one of three: all is drawn
(KEPT), all but the damaged record is drawn and that is counted (LOST), or nothing is written and
the message names the file (REFUSED).
"""

from __future__ import annotations

import contextlib
import enum
import fnmatch
import json
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from simulator.writers.trace_json.torch_text import write_torch_text
from tests.support.drawn_slices import drawn_slices
from tests.support.perfetto_sql import TraceProcessor
from tests.support.profile_shelf import WRITERS, Profile, ProfileShelf, tiny_run
from timeline.cli.main import main
from timeline.encoders.drafts import publish_all, write_draft
from timeline.errors import OutputError
from timeline.printable import printable, printable_json

RUN = {"ranks": 1, "steps": 1}
MOST_SECONDS = 20.0
"""Most take a tenth of a second; one that waits for something takes forever."""
POSIX = pytest.mark.skipif(os.name != "posix", reason="needs POSIX files")

TRACES = {
    "torch-text": "trace_view.json",
    "mindstudio": "msprof_2*.json",
    "mindspore-2.1": "msprof_0_1_1.json",
    "kineto": "*.pt.trace.json",
}
TABLES = {
    "kernel-details": "kernel_details.csv",
    "op-summary": "op_summary_*.csv",
    "mindspore-text": "output_timeline_data_0.txt",
}
DATABASES = {
    "torch-db": "ascend_pytorch_profiler_0.db",
    "msprof-sqlite": "ascend_task.db",
}
RAW = {
    "raw": "stars_soc.data.0.slice_1",
    "raw-hwts": "hwts.data.0.slice_1",
    "mindspore-raw": "hwts.log.data.*.slice_1",
}
VARIANTS = {
    "mindspore-display": "timeline_display_0.json",
    "mindspore-display-1.5": "ascend_timeline_display_0.json",
    "mindformers": "msprof_2*.json",
    "mindformers-2.1": "msprof_0_1_1.json",
    "mindstudio-exported-twice": "msprof_20250109120100.json",
    "mindstudio-sliced": "msprof_slice_1_*.json",
    "kineto-2.2": "*.pt.trace.json",
    "kineto-alone": "*.pt.trace.json",
    "kineto-announced": "*.pt.trace.json",
    "summary-directory": "op_summary_0_1_1.csv",
    "mindspore-text-2.1": "output_timeline_data_0.txt",
    "mindspore-text-hccl": "output_timeline_data_0.txt",
    "msprof-sqlite-numbered": "ascend_task.db",
    "msprof-sqlite-launched": "ascend_task.db",
    "raw-v6": "stars_soc.data.0.slice_1",
    "raw-49-MHz": "stars_soc.data.0.slice_1",
}
"""Layouts that a reader above reads too; they get the faults that any file can have."""
MAIN_FILES = {**TRACES, **TABLES, **DATABASES, **RAW, **VARIANTS}
"""The file of each layout that holds device tasks."""
FROM_BOOT = frozenset({"mindspore-2.1", "mindspore-display", "mindspore-display-1.5"})
"""Layouts whose times are not wall time, so that 0 is a time like any other."""


class Outcome(enum.Enum):
    """What a fault may come to."""

    KEPT = "kept"
    LOST = "lost"
    PART = "part"
    """What is drawn is a part of what was there."""
    REFUSED = "refused"


KEPT, LOST, PART, REFUSED = Outcome


def test_every_layout_has_faults() -> None:
    assert set(MAIN_FILES) == set(WRITERS)


# -- running the command ---------------------------------------------------------------------------


def state_of(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """The kind, change time and content of everything below a directory."""
    found = {}
    for path in sorted([root, *root.rglob("*")]):
        own = path.lstat()
        regular = stat.S_ISREG(own.st_mode)
        mode = stat.S_IMODE(own.st_mode)
        if regular and not mode & 0o400:
            path.chmod(0o600)
        content = path.read_bytes() if regular else b""
        if regular and not mode & 0o400:
            path.chmod(mode)
        found[str(path.relative_to(root))] = (own.st_mode, own.st_mtime_ns, content)
    return found


@dataclass(frozen=True)
class Ran:
    """What one run of the command returned, said and wrote."""

    code: int
    out: str
    err: str
    output: Path

    @property
    def losses(self) -> list[str]:
        """The reasons of what was left out of the profile."""
        return [own["reason"] for own in self.omitted if own["loss"]]

    @property
    def omitted(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.out)["omitted"]
        return found

    def tasks(self) -> Counter[tuple[int, int]]:
        """Where the device tasks are, and how long, that the real trace processor finds."""
        return Counter((start, length) for start, length, _ in device_slices(self.output))


def device_slices(output: Path) -> list[tuple[int, int, str]]:
    processor = TraceProcessor.load(output.read_bytes())
    assert processor.import_errors() == []
    return [
        (one.start_ns, one.duration_ns, one.name)
        for one in drawn_slices(processor)
        if one.row[-1].startswith("Stream") or (len(one.row) > 1 and one.row[-2].startswith("Str"))
    ]


@dataclass(frozen=True)
class Export:
    """Runs the command on a profile, which must stay as it is."""

    directory: Path
    capsys: pytest.CaptureFixture[str]

    def __call__(self, profile: Path, *options: str) -> Ran:
        before = state_of(profile)
        output = self.directory / "out.pftrace"
        output.unlink(missing_ok=True)
        began = time.monotonic()
        options = (*options, *assigned(profile))
        arguments = [str(profile), "--kind", "detail", "--json", "-o", str(output), *options]
        with deadline():
            code = main(arguments)
        said = self.capsys.readouterr()
        assert time.monotonic() - began < MOST_SECONDS
        assert state_of(profile) == before
        assert "Traceback" not in said.err
        assert all(line.isprintable() for line in (said.out + said.err).splitlines())
        left = [path.name for path in self.directory.iterdir()]
        assert left == ([output.name] if code == 0 else [])
        return Ran(code, said.out, said.err, output)

    def refused(self, profile: Path, *options: str, names: str) -> Ran:
        """A run that has to fail, and to name a file."""
        ran = self(profile, *options)
        assert ran.code == 1, (ran.out, ran.err)
        assert ran.out == ""
        assert ran.err.startswith("tlexport: ")
        assert names in ran.err
        return ran


def assigned(profile: Path) -> tuple[str, ...]:
    """The rank of a trace that was not part of a distributed run."""
    (found, *_) = [*profile.glob("*.pt.trace.json"), profile]
    alone = found.is_file() and b"distributedInfo" not in found.read_bytes()
    return ("--assign-rank", f"{found}=0") if alone and found.stat().st_size else ()


@contextlib.contextmanager
def deadline() -> Iterator[None]:
    """End a test that hangs."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def too_long(*_: object) -> None:
        raise AssertionError("the command hangs")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(int(MOST_SECONDS))
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Export:
    directory = tmp_path / "written"
    directory.mkdir()
    return Export(directory, capsys)


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path, str], list[Any]]:
    """The device slices of each layout as it was written."""
    directory = tmp_path_factory.mktemp("undamaged")
    known: dict[str, list[tuple[int, int, str]]] = {}

    def slices(profile: Path, layout: str) -> list[tuple[int, int, str]]:
        if layout not in known:
            output = directory / f"{layout}.pftrace"
            arguments = ["--kind", "detail", "--quiet", "-o", str(output), *assigned(profile)]
            assert main([str(profile), *arguments]) == 0
            known[layout] = device_slices(output)
            assert known[layout]
        return known[layout]

    return slices


@dataclass(frozen=True)
class Spot:
    """The file of a profile that a case damages, and the device slices that were there."""

    layout: str
    root: Path
    path: Path
    slices: list[tuple[int, int, str]]

    @property
    def tasks(self) -> Counter[tuple[int, int]]:
        return Counter((start, length) for start, length, _ in self.slices)


@pytest.fixture
def spot_of(
    shelf: ProfileShelf, tmp_path: Path, undamaged: Callable[[Path, str], list[Any]]
) -> Callable[[str], Spot]:
    def make(layout: str) -> Spot:
        slices = undamaged(shelf.get(layout, **RUN).path, layout)
        profile = shelf.copy(layout, tmp_path / "profile", **RUN)
        return Spot(layout, profile.path, main_file(profile, layout), slices)

    return make


def main_file(profile: Profile, layout: str) -> Path:
    found = [
        path
        for path in profile.path.rglob("*")
        if fnmatch.fnmatch(path.name, MAIN_FILES[layout]) and "_tx_" not in path.name
    ]
    (path,) = [one for one in found if not one.name.endswith(".done")]
    return path


def check(
    export: Export, spot: Spot, outcome: Outcome, reason: str = "", gone: Sequence[Any] = ()
) -> None:
    """Prove that a damaged profile comes to what it should, with --strict and without."""
    if outcome is REFUSED:
        export.refused(spot.root, names=reason or spot.path.name)
        return
    ran = export(spot.root)
    assert ran.code == 0, ran.err
    found = ran.tasks()
    if outcome is PART:
        assert not found - spot.tasks
        assert found
    else:
        assert found == spot.tasks - Counter(gone)
    if reason:
        reasons = [own["reason"] for own in ran.omitted]
        assert any(reason in own for own in reasons), reasons
    if ran.losses:
        assert export(spot.root, "--strict").code == 4
    else:
        assert outcome is KEPT


# -- traces ----------------------------------------------------------------------------------------

Event = dict[str, Any]


@dataclass(frozen=True)
class Trace:
    """A trace as text, and the event of one device task in it."""

    text: str
    victim: Event
    place: tuple[int, int]
    """Start and length of its slice."""

    def with_victim(self, made: bytes | Event) -> bytes:
        before, _, after = self.text.partition(json.dumps(self.victim))
        middle = made if isinstance(made, bytes) else json.dumps(made).encode()
        return before.encode() + middle + after.encode()


def trace_of(spot: Spot) -> Trace:
    """The trace, with the task in its middle that is the only one of its length."""
    document = json.loads(spot.path.read_bytes())
    events = document["traceEvents"] if isinstance(document, dict) else document
    spans = [event for event in events if event.get("ph") == "X"]
    of_length: dict[int, list[Event]] = {}
    for event in spans:
        of_length.setdefault(round(float(event["dur"]) * 1000), []).append(event)
    lengths = Counter(length for _, length, _ in spot.slices)
    alone = [
        (start, length, of_length[length][0])
        for start, length, _ in sorted(spot.slices)
        if lengths[length] == 1 and len(of_length.get(length, ())) == 1
    ]
    start, length, victim = alone[len(alone) // 2]
    return Trace(json.dumps(document), victim, (start, length))


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
    "name of 10 MB": (lambda event: event | {"name": "x" * 10_000_000}, KEPT, ""),
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
    """Whatever a name looks like, it is drawn as it is and changes nothing else."""
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
    assert set(names) <= drawn


# -- tables ----------------------------------------------------------------------------------------

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
            (place,) = [(start, own) for start, own, _ in spot.slices if own == length]
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
    "name of 10 MB": (lambda table: table.cell("name", b"x" * 10_000_000), KEPT, ""),
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
    assert any("that are there twice" in own["reason"] for own in ran.omitted)


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


# -- databases -------------------------------------------------------------------------------------

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
        row, span = next(own for own in rows[len(rows) // 2 :] if known[own[1]] == 1)
        database.executescript(
            script.format(table=table, start=start, end=end, where=f"WHERE rowid = {row}")
        )
    gone = [(first, own) for first, own, _ in spot.slices if own == span]
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


# -- any file --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "share"),
    [
        *((layout, 0.3) for layout in MAIN_FILES if layout not in VARIANTS),
        *((layout, 0.9) for layout in MAIN_FILES),
    ],
)
def test_truncated(
    export: Export, spot_of: Callable[[str], Spot], layout: str, share: float
) -> None:
    """A file that ends early is read as far as it goes and told, or refused by its name."""
    spot = spot_of(layout)
    data = spot.path.read_bytes()
    spot.path.write_bytes(data[: int(len(data) * share) | 1])
    ran = export(spot.root)
    if ran.code:
        export.refused(spot.root, names=spot.path.name)
        return
    made = sum((ran.tasks() - spot.tasks).values())
    # SQLite takes what is missing of a page for zeros; without its rest, a display has no clock.
    assert made <= (1 if "sqlite" in layout else 0) or layout.startswith("mindspore-display")
    assert ran.losses
    assert export(spot.root, "--strict").code == 4


@pytest.mark.parametrize("layout", MAIN_FILES)
def test_empty(export: Export, spot_of: Callable[[str], Spot], layout: str) -> None:
    """A file without a byte is refused, unless others beside it hold tasks: then it is told."""
    spot = spot_of(layout)
    spot.path.write_bytes(b"")
    ran = export(spot.root)
    if layout in RAW or layout in ("raw-v6", "raw-49-MHz"):
        assert ran.code == 0
        assert not ran.tasks() - spot.tasks
        assert ran.losses
    else:
        export.refused(spot.root, names=spot.path.name)


INSTEAD: dict[str, Callable[[Path], None]] = {
    "directory": lambda path: path.mkdir(),
    "pipe": os.mkfifo,
    "loop": lambda path: path.symlink_to(path.name),
    "dangling": lambda path: path.symlink_to("nowhere"),
}


@POSIX
@pytest.mark.parametrize(
    "layout", ["torch-text", "torch-db", "mindstudio", "kineto", "mindspore-text"]
)
@pytest.mark.parametrize("case", INSTEAD)
def test_no_file(export: Export, spot_of: Callable[[str], Spot], layout: str, case: str) -> None:
    """Something else under the name of a file is refused at once."""
    spot = spot_of(layout)
    spot.path.unlink()
    INSTEAD[case](spot.path)
    hidden = case == "directory" and layout == "kineto"
    export.refused(spot.root, names="holds no Ascend profile" if hidden else spot.path.name)


@POSIX
@pytest.mark.parametrize(
    "layout", ["torch-text", "torch-db", "mindstudio", "raw", "kernel-details"]
)
def test_no_permission(export: Export, spot_of: Callable[[str], Spot], layout: str) -> None:
    """A file that may not be read is refused by its name."""
    spot = spot_of(layout)
    spot.path.chmod(0)
    with as_nobody(export.directory):
        assert main([str(spot.root), "-o", str(export.directory / "out.pftrace")]) == 1
    said = export.capsys.readouterr()
    assert said.err.startswith(f"tlexport: {spot.path}: cannot be read")


@POSIX
@pytest.mark.parametrize("layout", ["torch-text", "mindstudio", "raw"])
def test_directory_without_permission(
    export: Export, spot_of: Callable[[str], Spot], layout: str
) -> None:
    """A directory that may not be read is refused by its name."""
    spot = spot_of(layout)
    before = spot.path.parent.stat().st_mode
    spot.path.parent.chmod(0)
    try:
        with as_nobody(export.directory):
            assert main([str(spot.root), "-o", str(export.directory / "out.pftrace")]) == 1
    finally:
        spot.path.parent.chmod(before)
    said = export.capsys.readouterr()
    assert said.err.startswith(f"tlexport: {spot.path.parent}: cannot be read: ")


@POSIX
def test_directory_without_permission_is_passed_over(
    export: Export, shelf: ProfileShelf, tmp_path: Path
) -> None:
    """With --keep-going the other rank is drawn, and the directory is named."""
    profile = shelf.copy("torch-text", tmp_path / "run", ranks=2)
    hidden, target = profile.captures[0], str(export.directory / "out.pftrace")
    assert main([str(profile.path), "-o", target]) == 0
    before = hidden.stat().st_mode
    hidden.chmod(0)
    try:
        with as_nobody(export.directory):
            assert main([str(profile.path), "-o", target, "--force", "--keep-going"]) == 0
    finally:
        hidden.chmod(before)
    said = export.capsys.readouterr()
    assert f"left out: {hidden}: cannot be read" in said.err
    assert "1 rank," in said.out


@contextlib.contextmanager
def as_nobody(directory: Path) -> Iterator[None]:
    """Without the rights of root, which may read everything; a directory stays writable."""
    if os.geteuid() != 0:
        yield
        return
    opened = [own for own in directory.parents if not own.stat().st_mode & 0o001]
    modes = [own.stat().st_mode for own in opened]
    for own in opened:
        own.chmod(own.stat().st_mode | 0o711)
    directory.chmod(0o777)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
        for own, mode in zip(opened, modes, strict=True):
            own.chmod(mode)


@pytest.mark.parametrize("layout", ["torch-text", "torch-db", "kernel-details", "kineto"])
def test_file_that_goes_while_it_is_read(
    export: Export, spot_of: Callable[[str], Spot], layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is gone by the time it is opened is refused by its name."""
    from timeline.sources.companions.source import WithCompanionFiles

    spot = spot_of(layout)
    read = WithCompanionFiles.read

    def late(source: WithCompanionFiles, wanted: Any) -> Any:
        spot.path.unlink()
        return read(source, wanted)

    monkeypatch.setattr(WithCompanionFiles, "read", late)
    output = export.directory / "out.pftrace"
    assert main([str(spot.root), "-o", str(output)]) == 1
    said = export.capsys.readouterr()
    assert said.err.startswith("tlexport: ")
    assert str(spot.path.parent) in said.err
    assert list(export.directory.iterdir()) == []


@pytest.mark.parametrize("layout", ["torch-text", "kineto"])
def test_trace_that_shrinks_while_it_is_read(
    export: Export, spot_of: Callable[[str], Spot], layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read before is drawn, and the byte at which the file ends now is told."""
    from timeline.sources.ascend_trace import reader
    from timeline.sources.decoders.json_events import read_events
    from timeline.sources.kineto import source

    spot = spot_of(layout)
    shorter = spot.path.stat().st_size * 3 // 4

    def shrinking(decoder: Any, path: Path, damage: Any, scan: Any) -> Any:
        blocks = read_events(decoder, path, 2048, damage, scan=scan)
        for number, block in enumerate(blocks):
            yield block
            if number == 0:
                os.truncate(path, shorter)

    for module in (reader, source):
        monkeypatch.setattr(module, "read_events", shrinking)
    output = export.directory / "out.pftrace"
    arguments = [str(spot.root), "--kind", "detail", "--json", "-o", str(output)]
    assert main(arguments) == 0
    said = export.capsys.readouterr()
    assert any(f"byte {shorter}" in own["reason"] for own in json.loads(said.out)["omitted"])


# -- several ranks ---------------------------------------------------------------------------------


def test_a_rank_without_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shelf: ProfileShelf
) -> None:
    """Beside other ranks it is named in a note, alone in an error."""
    profile = shelf.copy("torch-text", tmp_path / "profile", ranks=2, steps=1)
    first, second = profile.captures
    for path in (first / "ASCEND_PROFILER_OUTPUT").iterdir():
        path.unlink()
    output = str(tmp_path / "out.pftrace")
    assert main([str(profile.path), "-o", output]) == 0
    assert f"tlexport: {first.name} holds nothing that can be read" in capsys.readouterr().err
    shutil.rmtree(second)
    assert main([str(profile.path), "-o", output, "--force"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"tlexport: {first}: holds nothing that can be read")


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_list_without_a_rank(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    shelf: ProfileShelf,
    more: tuple[str, ...],
) -> None:
    """With --keep-going too, nothing to list is an error."""
    profile = shelf.copy("torch-text", tmp_path / "profile", ranks=2, steps=1)
    for capture in profile.captures:
        (capture / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").write_bytes(b"")
    assert main([str(profile.path), "--list", "--keep-going", *more]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "trace_view.json" in said.err


# -- what is printed -------------------------------------------------------------------------------


@POSIX
def test_messages_cannot_move_the_cursor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Controls in names of directories are escaped, in words and in JSON, also where one fails."""
    root = tmp_path / "run\x1b[2J\x9b1m\n\u202e"
    root.mkdir()
    (capture,) = write_torch_text(tiny_run(**RUN), root)
    output = str(root / "out.pftrace")
    for more in (["-o", output], ["--list"], ["--list", "--json"], ["-o", output, "--json"]):
        assert main([str(root), *more, "--force"] if "-o" in more else [str(root), *more]) == 0
        said = capsys.readouterr()
        assert all(line.isprintable() for line in said.out.split("\n")), said.out
        if "--json" in more:
            told = json.loads(said.out)
            place = told["outputs"][0]["path"] if "outputs" in told else told["ranks"][0]["source"]
            assert place.startswith(str(root))
    (capture / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").write_bytes(b"")
    assert main([str(root)]) == 1
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert said.err.removesuffix("\n").isprintable()
    assert "run\\x1b[2J\\x9b1m\\n\\u202e" in said.err


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain 中文 é", "plain 中文 é"),
        ("\x1b[2J\x07\x7f\x9b", "\\x1b[2J\\x07\\x7f\\x9b"),
        ("two\nlines\r", "two\\nlines\\r"),
        ("\u202eleft", "\\u202eleft"),
        ("no text \udcff", "no text \\udcff"),
        ("wide\u3000blank", "wide\u3000blank"),
    ],
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown
    document = json.dumps({text: 1}, ensure_ascii=False)
    assert json.loads(printable_json(document, "utf-8")) == {text: 1}
    assert json.loads(printable_json(document, "ascii")) == {text: 1}
    assert printable_json(document, "ascii").isascii()


def command(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    start = [sys.executable, "-m", "timeline", *map(str, arguments)]
    return subprocess.run(start, text=True, stderr=subprocess.PIPE, timeout=60, **options)


@POSIX
@pytest.mark.parametrize("stdout", ["/dev/full", "closed pipe", "closed"])
def test_output_that_cannot_be_printed(tmp_path: Path, shelf: ProfileShelf, stdout: str) -> None:
    """No traceback, whatever is the matter with standard output."""
    profile = shelf.get("torch-text", **RUN).path
    arguments = (profile, "-o", tmp_path / "out.pftrace")
    if stdout == "/dev/full":
        if not Path(stdout).exists():
            pytest.skip("this system has no /dev/full")
        with Path(stdout).open("w", encoding="utf-8") as full:
            ran = command(*arguments, stdout=full)
        assert (ran.returncode, ran.stderr) == (
            1,
            "tlexport: cannot print: No space left on device.\n",
        )
    elif stdout == "closed pipe":
        read, write = os.pipe()
        os.close(read)
        ran = command(*arguments, stdout=write)
        os.close(write)
        assert (ran.returncode, ran.stderr) == (1, "")
    else:
        ran = command(*arguments, preexec_fn=lambda: os.close(1))
        assert (ran.returncode, ran.stderr) == (0, "")


def test_a_terminal_of_ascii(tmp_path: Path, shelf: ProfileShelf) -> None:
    """Characters that the terminal lacks are escaped."""
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    for more in ((), ("--json",)):
        output = tmp_path / "中文.pftrace"
        ran = command(
            *(shelf.get("torch-text", **RUN).path, "-o", output, "--force", *more),
            stdout=subprocess.PIPE,
            env=environment,
        )
        assert (ran.returncode, ran.stderr) == (0, "")
        assert "\\u4e2d\\u6587.pftrace" in ran.stdout


# -- where it is written ---------------------------------------------------------------------------


@POSIX
def test_directory_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shelf: ProfileShelf
) -> None:
    profile = shelf.copy("torch-text", tmp_path / "profile", **RUN)
    closed = tmp_path / "closed"
    closed.mkdir(0o555)
    # What is imported late may lie where nobody else may read.
    assert main([str(profile.path), "-o", str(tmp_path / "first.pftrace")]) == 0
    capsys.readouterr()
    with as_nobody(profile.path):
        assert main([str(profile.path), "-o", str(closed / "out.pftrace")]) == 1
    said = capsys.readouterr()
    assert said.err.startswith(f"tlexport: {closed / 'out.pftrace'}: cannot be written")
    assert list(closed.iterdir()) == []


def test_full_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str], shelf: ProfileShelf) -> None:
    """A disk without room for the file keeps nothing of it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(disk)]
    mounts = shutil.which("mount") and hasattr(os, "geteuid") and os.geteuid() == 0
    if not mounts or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root may mount a small disk here")
    try:
        profile = shelf.get("mindstudio", **RUN).path
        assert main([str(profile), "--kind", "detail", "-o", str(disk / "out.pftrace")]) == 1
        said = capsys.readouterr()
        assert "out.pftrace: cannot be written: No space left on device." in said.err
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)


KILLED = """
import os, signal, sys
from timeline.encoders import drafts
fsync = os.fsync
def die(handle):
    fsync(handle)
    os.kill(os.getpid(), signal.SIGKILL)
os.fsync = die
from timeline.cli.main import main
main()
"""


@POSIX
def test_killed_while_writing(tmp_path: Path, shelf: ProfileShelf) -> None:
    """Under the name of the target is all of the file that was there, or nothing."""
    target = tmp_path / "out.pftrace"
    for old in (None, b"older"):
        if old is not None:
            target.write_bytes(old)
        arguments = [str(shelf.get("torch-text", **RUN).path), "-o", str(target), "--force"]
        ran = subprocess.run([sys.executable, "-c", KILLED, *arguments], timeout=60, check=False)
        assert ran.returncode == -signal.SIGKILL
        assert (target.read_bytes() if target.exists() else None) == old
        others = {path.name for path in tmp_path.iterdir()} - {target.name}
        assert all(name.startswith(".out.pftrace.") for name in others)


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_parts_replace_all_or_none(tmp_path: Path, failing: int) -> None:
    """If one part cannot have its name, files that were there keep their content."""
    targets = [tmp_path / f"part{number}" for number in range(3)]
    targets[0].write_bytes(b"old 0")
    targets[2].write_bytes(b"old 2")
    drafts = [(write_draft([b"new"], target), target) for target in targets]
    blocked = targets[failing]
    blocked.unlink(missing_ok=True)
    blocked.mkdir()
    (blocked / "inside").touch()
    before = {path.name: path.read_bytes() for path in targets if path.is_file()}
    with pytest.raises(OutputError, match=blocked.name):
        publish_all(drafts)
    assert {path.name: path.read_bytes() for path in targets if path.is_file()} == before
    assert {path.name for path in tmp_path.iterdir()} == {*before, blocked.name}


def test_parts_replace_older_ones(tmp_path: Path) -> None:
    targets = [tmp_path / f"part{number}" for number in range(3)]
    targets[1].write_bytes(b"old")
    publish_all([(write_draft([b"new"], target), target) for target in targets])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        target.name: b"new" for target in targets
    }
