"""Proves of each defect that earlier timeline tools are known for that we do not have it.

The numbers D1 to D20 are those of the list of defects that the product was specified with.
"""

from __future__ import annotations

import json
import math
import re
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.drawn_slices import DrawnSlice, drawn_slices
from tests.support.found_profiles import only
from tests.support.perfetto_sql import TraceProcessor
from tests.support.profile_shelf import Copier, Event, ProfileShelf, change_events, change_fields
from tests.support.run_command import Command
from timeline.cli.main import main

pytestmark = pytest.mark.sweep

Report = dict[str, Any]


def chrome(command: Command, profile: Path) -> list[Event]:
    """The events of the Chrome file of a detail."""
    command.report(profile, "--kind", "detail", "-o", "out.json")
    document = json.loads((command.directory / "out.json").read_text(encoding="utf-8"))
    events: list[Event] = document["traceEvents"]
    return events


def refusal(command: Command, profile: Path, *options: str, code: int) -> str:
    """What is said about an export that has to fail, which leaves no file."""
    refused = command(profile, *options)
    assert (refused.code, refused.out, command.files()) == (code, "", [])
    return refused.err


def below(slices: Iterable[DrawnSlice], name: str) -> dict[tuple[str, ...], list[DrawnSlice]]:
    """Slices by the part of their row below a name; rows without the name are left out."""
    found: dict[tuple[str, ...], list[DrawnSlice]] = defaultdict(list)
    for one in slices:
        if name in one.row:
            found[one.row[one.row.index(name) + 1 :]].append(one)
    return found


def without_processes(trace: Path, names: Iterable[str]) -> None:
    """Remove the processes with these names from a trace, with all their events."""
    events = json.loads(trace.read_text(encoding="utf-8"))
    gone = {
        event["pid"]
        for event in events
        if event["name"] == "process_name" and event["args"]["name"] in names
    }
    change_events(trace, lambda event: None if event["pid"] in gone else event)


# -- D1 --------------------------------------------------------------------------------------------


def test_d1_tracks_of_a_rank_shift_alike(copied: Copier, command: Command) -> None:
    """When hosts are joined, every track of a rank moves by the one offset that is reported."""
    profile = copied("mindspore-2.1")
    other = only(profile.captures[1], "info.json.1")
    change_fields(other, {"hostname": "other", "mac": "02-00-00-00-00-02"})
    start = only(profile.captures[1], "start_info.1")
    told = json.loads(start.read_text(encoding="utf-8"))
    change_fields(start, {"collectionTimeBegin": str(int(told["collectionTimeBegin"]) + 4_000_100)})
    arguments = ("--kind", "detail", "--group-by", "rank", "--align", "recorded")
    joined = drawn_slices(command.picture(profile.path, *arguments))
    reported = {
        row["rank"]: row["offset_ns"] for row in command.report(profile.path, *arguments)["ranks"]
    }
    assert reported[1] - reported[0] == 4_000_100_000
    for rank in (0, 1):
        alone = drawn_slices(command.picture(profile.path, *arguments, "--ranks", str(rank)))
        before, after = below(alone, f"Rank {rank}"), below(joined, f"Rank {rank}")
        for rows in (before, after):
            rows.pop((), None)  # the rows around all others, and of the path, which join ranks
        layers = {row[0] for row in before}
        assert {"Step Trace", "Overlap Analysis", "Ascend Hardware", "Communication"} <= layers
        assert before.keys() == after.keys()
        for row, slices in before.items():
            moved = [(one.start_ns + reported[rank], one.duration_ns) for one in slices]
            assert sorted(moved) == sorted((one.start_ns, one.duration_ns) for one in after[row])


# -- D5, D6 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("process", "layer", "said"),
    [
        ("Ascend Hardware", "hardware", "device tasks"),
        ("Communication", "communication", "communication"),
        ("CANN", "cann", "host calls"),
        ("HBM", "counters", "counters"),
    ],
)
def test_d5_missing_layer_is_named(
    shelf: ProfileShelf,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    process: str,
    layer: str,
    said: str,
) -> None:
    """A layer that was asked for and that the profile does not hold is a warning that names it."""
    profile = shelf.copy("mindstudio", tmp_path / "run", ranks=1)
    gone = {process, "LLC", "NPU MEM", "AI Core Freq"} if layer == "counters" else {process}
    without_processes(only(profile.captures[0], "msprof_2*.json"), gone)
    output = ["-o", str(tmp_path / "out.pftrace")]
    asked = ["--kind", "detail", "--layers", f"steps,overlap,{layer}"]
    assert main([str(profile.path), *asked, *output]) == 0
    warnings = capsys.readouterr().err
    assert re.search(said, warnings, re.IGNORECASE), warnings
    whole = shelf.get("mindstudio", ranks=1)
    assert main([str(whole.path), *asked, *output, "--force"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("share", [0.02, 0.5, 0.9])
def test_d6_truncated_metadata(copied: Copier, command: Command, share: float) -> None:
    """Metadata that ends early is an error with the file and the byte where it ends."""
    profile = copied("mindstudio", ranks=1)
    path = only(profile.captures[0], "info.json.0")
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    said = refusal(command, profile.path, code=1)
    assert said.startswith(f"tlexport: {path}, byte ")


# -- D7, D8, D9 ------------------------------------------------------------------------------------


def test_d7_unknown_rank_lists_ranks(shelf: ProfileShelf, command: Command) -> None:
    """A rank that is not there is an error that lists those that are."""
    profile = shelf.get("torch-db", ranks=3)
    said = refusal(command, profile.path, "--ranks", "1,9", code=3)
    assert "rank 9 is not in" in said
    assert "found ranks 0-2" in said


@pytest.mark.parametrize("spell", [int, float, str])
def test_d9_ids_are_integers(
    copied: Copier, command: Command, spell: Callable[[int], object]
) -> None:
    """A graph is the same graph whether an export writes 3, 3.0 or "3", and leaves as 3."""
    profile = copied("mindstudio", ranks=1, graphs=(1, 3))
    trace = only(profile.captures[0], "msprof_2*.json")
    change_events(trace, lambda event: with_ids_spelled(event, spell))
    table = only(profile.captures[0], "step_trace_*.csv")
    only(profile.captures[0], "step_trace_*.json").unlink()
    change_events(trace, lambda event: None if event.get("tid", 0) in (70_001, 70_003) else event)
    header, *rows = [line.split(",") for line in table.read_text(encoding="utf-8").splitlines()]
    at = header.index("Model ID")
    for row in rows:
        row[at] = str(spell(int(row[at])))
    table.write_text("".join(",".join(row) + "\n" for row in [header, *rows]), encoding="utf-8")
    report = command.report(profile.path, "--kind", "detail", "--graphs", "3")
    (found,) = report["ranks"]
    (rank,) = profile.run.ranks
    assert found["graphs"] == [3]
    assert found["tasks"] == sum(len(one.tasks) for one in rank.iterations if one.graph == 3)
    ids = [
        value
        for row in report["overlap"]
        for name, value in row.items()
        if value is not None and name in ("rank", "graph", "step")
    ]
    assert {type(value) for value in [*ids, *found["graphs"], found["rank"]]} == {int}
    assert {(row["graph"], row["step"]) for row in report["overlap"][1:]} == {
        (3, 1),
        (3, 2),
        (3, 3),
    }


def with_ids_spelled(event: Event, spell: Callable[[int], object]) -> Event:
    args = {
        key: spell(value) if key.lower() == "model id" else value
        for key, value in event.get("args", {}).items()
    }
    return event | {"args": args}


# -- D10 -------------------------------------------------------------------------------------------


def lane(process: str, pid: int, tid: int, thread: str) -> list[Event]:
    """The names of one process and one of its threads."""
    return [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": process}},
        {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": thread}},
    ]


def task(
    name: str, ts: str | float, dur: float, *, pid: int = 3, tid: int = 2, **args: object
) -> Event:
    """One AI Core task."""
    args = {"Task Type": "AI_CORE", "Task Id": 1, "Model Id": 4294967295} | args
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def trace_view(directory: Path, events: list[Event]) -> Path:
    """A capture of rank 0 that holds nothing but these events."""
    output = directory / "rank_0" / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True)
    (output / "trace_view.json").write_text(json.dumps(events), encoding="utf-8")
    return directory / "rank_0"


@pytest.mark.parametrize("zero", ["0", 0, 0.0, "0.000"], ids=repr)
def test_d10_time_zero_is_a_time(tmp_path: Path, command: Command, zero: str | float) -> None:
    """A record at time 0 is drawn at 0 like any other."""
    events = [*lane("Ascend Hardware", 3, 2, "Stream 2"), task("a", zero, 2.5), task("b", 4, 1)]
    capture = trace_view(tmp_path, events)
    picture = command.picture(capture, "--kind", "detail")
    drawn = drawn_slices(picture, "Ascend Hardware")
    assert [(one.name, one.start_ns, one.duration_ns) for one in drawn] == [
        ("a", 0, 2500),
        ("b", 4000, 1000),
    ]


def events_of(events: Sequence[Event], rows: str) -> list[Event]:
    """The slices of a Chrome file on rows whose names begin so."""
    threads = {
        event["tid"]
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"].startswith(rows)
    }
    return [event for event in events if event["ph"] == "X" and event["tid"] in threads]


# -- D11 -------------------------------------------------------------------------------------------


def test_d11_scopes_cover_parallel_operators(tmp_path: Path, command: Command) -> None:
    """Operators that run at the same time all count for the length of their scopes."""
    tasks = [
        task("Default/net/a/Conv-op1", 10, 190),
        task("Default/net/a/Conv-op2", 20, 150),
        task("Default/net/b/Relu-op3", 30, 20),
        task("Default/net/a/Conv-op4", 60, 900),
        task("Default/opt/Adam-op5", 500, 10),
    ]
    capture = trace_view(tmp_path, [*lane("Ascend Hardware", 3, 2, "Stream 2"), *tasks])
    picture = command.picture(capture, "--kind", "detail", "--scopes")
    scopes = drawn_slices(picture, "Scope Layer")
    for operator in drawn_slices(picture, "Ascend Hardware"):
        for scope in operator.name.split("/")[:-1]:
            covering = [
                one
                for one in scopes
                if one.name == scope
                and one.start_ns <= operator.start_ns
                and operator.end_ns <= one.end_ns
            ]
            assert covering, f"no scope {scope} covers {operator}"
    assert len(drawn_slices(picture, "Ascend Hardware")) == len(tasks)
    (whole,) = [one for one in scopes if one.name == "Default"]
    assert (whole.start_ns, whole.end_ns) == (10_000, 960_000)


# -- D14, D15, D17 ---------------------------------------------------------------------------------


def test_d15_ranks_share_no_process(copied: Copier, command: Command) -> None:
    """Ranks that were recorded under the same process ids stay apart: one process each."""
    profile = copied("mindspore-2.1")
    old, new = (str(rank.os_pid) for rank in reversed(profile.run.ranks))
    for path in profile.captures[1].rglob("timeline/*.json"):
        path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    events = chrome(command, profile.path)
    names = [
        (event["pid"], event["args"]["name"]) for event in events if event["name"] == "process_name"
    ]
    assert len({pid for pid, _ in names}) == len({name for _, name in names}) == len(names)
    for rank in profile.run.ranks:
        expected = sum(len(one.tasks) for one in rank.iterations)
        (pid,) = [pid for pid, name in names if re.match(rf"Rank {rank.rank}\b", name)]
        its = [one for one in events_of(events, "Ascend Hardware: ") if one["pid"] == pid]
        assert len(its) == expected
    picture = command.picture(profile.path, "--kind", "detail")
    for rank in profile.run.ranks:
        drawn = drawn_slices(picture, f"Rank {rank.rank}", "Ascend Hardware")
        assert len(drawn) == sum(len(one.tasks) for one in rank.iterations)


def test_d17_flow_ids_are_our_own(tmp_path: Path, command: Command) -> None:
    """Two arrows that end at one moment and share the recorded id are still two arrows."""
    shared = 1_736_408_883_700_059_821
    moment = "1736408883700059.821"
    calls = [("call a", "1736408883700000.101", 2), ("call b", "1736408883700010.202", 3)]
    events = [
        *lane("Python", 7, 7, "Thread 7"),
        *lane("Ascend Hardware", 3, 2, "Stream 2"),
        *lane("Ascend Hardware", 3, 3, "Stream 3"),
    ]
    for name, ts, stream in calls:
        call = {"ph": "X", "name": name, "pid": 7, "tid": 7, "ts": ts, "dur": 5, "cat": "cpu_op"}
        events += [call, task(f"Task{name[-1]}", moment, 3, tid=stream)]
        flow = {"name": "torch_to_npu", "cat": "async_npu", "id": shared, "bp": "e"}
        events += [flow | {"ph": "s", "pid": 7, "tid": 7, "ts": ts}]
        events += [flow | {"ph": "f", "pid": 3, "tid": stream, "ts": moment}]
    capture = trace_view(tmp_path, events)
    picture = command.picture(capture, "--kind", "detail")
    query = """
        SELECT source.name, target.name FROM flow
        JOIN slice source ON source.id = flow.slice_out
        JOIN slice target ON target.id = flow.slice_in
    """
    assert sorted(picture.rows(query)) == [("call a", "Taska"), ("call b", "Taskb")]
    drawn = chrome(command, capture)
    ids = [event["id"] for event in drawn if event["ph"] in ("s", "f")]
    assert sorted(ids) == [1, 1, 2, 2]


# -- D19, D20 --------------------------------------------------------------------------------------


@pytest.mark.parametrize("silent", [("Communication",), ("Communication", "Ascend Hardware")])
def test_d19_nothing_to_divide_by(
    shelf: ProfileShelf,
    tmp_path: Path,
    command: Command,
    capsys: pytest.CaptureFixture[str],
    silent: tuple[str, ...],
) -> None:
    """A rank that does not communicate, or does nothing, has zeros and shares, never NaN."""
    profile = shelf.copy("mindstudio", tmp_path / "run")
    for capture in profile.captures:
        without_processes(only(capture, "msprof_2*.json"), silent)
    report = command.report(profile.path, "--kind", "detail", "-o", "out.pftrace")
    assert command.loaded("out.pftrace").rows("SELECT count(*) FROM slice") != [(0,)]
    for row in report["overlap"]:
        assert row["communication_ns"] == row["exposed_communication_ns"] == 0
        assert (row["computing_ns"] > 0) == (len(silent) == 1)
    numbers = [value for row in report["overlap"] for value in row.values() if value is not None]
    assert all(math.isfinite(value) for value in numbers)
    assert main([str(profile.path), "-o", str(tmp_path / "again.pftrace")]) == 0
    said = capsys.readouterr()
    assert "nan" not in (said.out + said.err).lower().replace("nanosecond", "")


def empty_database(path: Path) -> None:
    """Delete the rows of all tables that hold measurements."""
    with closing(sqlite3.connect(path)) as connection, connection:
        found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in found:
            if table not in ("RANK_DEVICE_MAP", "HOST_INFO", "NPU_INFO", "META_DATA"):
                connection.execute(f"DELETE FROM {table}")


def empty_trace(path: Path) -> None:
    path.write_text("[]", encoding="utf-8")


@pytest.mark.parametrize("suffix", [".pftrace", ".json"])
@pytest.mark.parametrize("kind", ["summary", "detail"])
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(
    ("layout", "file", "empty"),
    [
        ("torch-text", "trace_view.json", empty_trace),
        ("torch-db", "ascend_pytorch_profiler_*.db", empty_database),
    ],
)
def test_d20_empty_rank(
    shelf: ProfileShelf,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    layout: str,
    file: str,
    empty: Callable[[Path], None],
    ranks: int,
    kind: str,
    suffix: str,
) -> None:
    """A rank without records gives a valid file and a warning, alone or beside another rank."""
    profile = shelf.copy(layout, tmp_path / "run", ranks=ranks)
    empty(only(profile.captures[-1], file))
    for table in profile.captures[-1].rglob("kernel_details.csv"):
        table.unlink()
    output = tmp_path / f"out{suffix}"
    assert main([str(profile.path), "--kind", kind, "-o", str(output)]) == 0
    said = capsys.readouterr()
    assert f"rank {ranks - 1}: holds nothing" in said.err
    picture = TraceProcessor.load(output.read_bytes())
    assert picture.import_errors() == []
    shown = drawn_slices(picture)
    assert f"rank {ranks - 1}: holds nothing." in {one.name for one in shown}, "the file says so"
    drawn = [one for one in shown if one.duration_ns]
    assert bool(drawn) == (ranks == 2)
    assert [one for one in drawn if f"Rank {ranks - 1}" in one.row] == []
