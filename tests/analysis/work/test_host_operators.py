"""Proves what is told of a profile that holds the host alone: steps, and operators by own time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.kineto_traces import CALL, KERNEL
from tests.support.profile_shelf import Event
from tests.support.run_command import Command
from timeline.cli.main import main


def span(name: str, ts: int, dur: int, tid: int = 1, cat: str = "cpu_op") -> Event:
    return {"ph": "X", "cat": cat, "name": name, "pid": 9, "tid": tid, "ts": ts, "dur": dur}


OPERATORS = [
    span("aten::linear", 10, 50),
    span("aten::addmm", 15, 30),
    span("aten::empty", 20, 5),
    span("aten::linear", 110, 20),
    span("aten::addmm", 115, 10),
    span("aten::relu", 20, 7, tid=2),
    span("train.py(3): f", 0, 200, cat="python_function"),
]
STEPS = [span(f"ProfilerStep#{at}", at * 100, 90, cat="user_annotation") for at in range(2)]
OWN_US = {"aten::addmm": 35, "aten::linear": 30, "aten::relu": 7, "aten::empty": 5}


def written(tmp_path: Path, events: list[Event]) -> Path:
    path = tmp_path / "traces" / "trace.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}), encoding="utf-8")
    return path


def own_us(report: dict[str, Any]) -> dict[str, int]:
    rows = report["verdict"]["operators"]
    assert {row["core"] for row in rows} <= {"host"}
    return {row["type"]: row["total_ns"] // 1000 for row in rows}


def test_operators_count_without_those_that_they_call(tmp_path: Path, command: Command) -> None:
    """Of each thread, and frames of Python are none; sentences name the longest."""
    report = command.report(written(tmp_path, [*STEPS, *OPERATORS]))
    assert own_us(report) == OWN_US
    assert report["verdict"]["sentences"] == [
        "Host only: a step takes 90.0 us, the mean of 2.",
        "Host only: operators take 77.0 us without those they call: aten::addmm 35.0 us (45%), "
        "aten::linear 30.0 us (39%), aten::relu 7.00 us (9%).",
    ]


@pytest.mark.parametrize("events", [[*STEPS, *OPERATORS], OPERATORS])
def test_a_window_counts_from_the_first_record_of_the_host(
    tmp_path: Path, command: Command, events: list[Event]
) -> None:
    """That is a step or, without steps, a call."""
    report = command.report(written(tmp_path, events), "--window", "0us:90us")
    assert own_us(report) == {
        "aten::addmm": 25,
        "aten::linear": 20,
        "aten::relu": 7,
        "aten::empty": 5,
    }
    assert not any("holds nothing" in one for one in report["warnings"])


def test_ranks_with_a_device_are_told_alone(tmp_path: Path, command: Command) -> None:
    """What a host took is not laid beside what devices took."""
    kernel = [CALL, KERNEL]
    path = written(tmp_path, OPERATORS)
    for rank, events in enumerate((OPERATORS, kernel)):
        document = {"distributedInfo": {"rank": rank}, "schemaVersion": 1, "traceEvents": events}
        path.with_name(f"{rank}.json").write_text(json.dumps(document), encoding="utf-8")
    path.unlink()
    report = command.report(path.parent)
    assert [row["core"] for row in report["verdict"]["operators"]] == ["kernel"]


def test_nothing_to_count_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A trace of counters has no beginning for a window."""
    counter = {"ph": "C", "name": "c", "pid": 1, "ts": 5, "args": {"v": 1}}
    path = written(tmp_path, [counter])
    assert main([str(path), "--window", "0us:1us", "-o", str(tmp_path / "x.pftrace")]) == 3
    assert "no records to count from" in capsys.readouterr().err
