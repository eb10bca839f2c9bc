"""Holds tasks, host calls and ops of real captures, one by one, to the files they are read from."""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import timeline
from tests.support.places import DATA, needs_captures

pytestmark = needs_captures


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def only_file(path: Path, pattern: str) -> Path:
    (found,) = path.rglob(pattern)
    return found


def test_an_export_of_one_device_gives_every_line() -> None:
    """As many tasks as task_time lists, and as many calls of each name as api_statistic counts."""
    output = min(
        (DATA / "msprof-single" / "cann9-matmul").glob("PROF_*/mindstudio_profiler_output")
    )
    with timeline.open_profile(output.parent) as profile:
        tasks, calls = profile.tasks(), profile.host_calls()
    listed = rows_of(only_file(output, "task_time_*.csv"))
    told_us = sum(float(row["task_time(us)"]) for row in listed)
    assert len(tasks) == len(listed)
    assert tasks["duration_ns"].sum() / 1e3 == pytest.approx(told_us, rel=0.05)
    counted = rows_of(only_file(output, "api_statistic_*.csv"))
    assert Counter(calls["name"]) == {row["API Name"]: int(row["Count"]) for row in counted}
    assert not np.ma.getmaskarray(tasks["call"]).all()


def test_a_trace_of_a_gpu_gives_every_event() -> None:
    """Kernels, copies and calls by category; a kernel is launched by a call of the runtime."""
    path = DATA / "gpu" / "xdit_sd_3.5"
    (file,) = path.glob("*.json.gz")
    with gzip.open(file) as opened:
        events: list[dict[str, Any]] = json.load(opened)["traceEvents"]
    by_category = Counter(event.get("cat") for event in events if event.get("ph") == "X")
    with timeline.open_profile(path) as profile:
        tasks, calls = profile.tasks(), profile.host_calls()
    roles, layers = Counter(tasks["role"]), Counter(calls["layer"])
    assert roles["computing"] == by_category["kernel"]
    assert roles["copy"] == by_category["gpu_memcpy"] + by_category["gpu_memset"]
    assert layers["Runtime"] == by_category["cuda_runtime"]
    assert layers["Python"] == sum(
        by_category[name] for name in ("python_function", "cpu_op", "user_annotation")
    )
    launches = calls.take(tasks["call"])
    assert set(launches["layer"]) == {"Runtime"}
    assert (launches["start_ns"] <= tasks["start_ns"]).all()


def test_tasks_of_mindspore_are_those_of_its_steps() -> None:
    """Each task lies in the step that counts it; its computing is no longer than theirs."""
    with timeline.open_profile(DATA / "mindspore-2.1") as profile:
        tasks, steps = profile.tasks(), profile.steps()
    measured = [row for row in steps.to_dicts() if row["tasks"]]
    assert measured
    for row in measured:
        own = tasks.take((tasks["rank"] == row["rank"]) & (tasks["step"] == row["step"]))
        assert len(own) == row["tasks"]
        computing = own.take(own["role"] == "computing")
        assert computing["duration_ns"].sum() >= row["computing_ns"]
