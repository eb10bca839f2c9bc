"""Holds tasks, host calls and ops of real captures, one by one, to the files they are read from."""

from __future__ import annotations

import csv
import gzip
import json
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import timeline
from tests.support.places import DATA

pytestmark = pytest.mark.skipif(
    not DATA.is_dir(), reason=f"the real captures are not beside the project, in {DATA}"
)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def only_file(path: Path, pattern: str) -> Path:
    (found,) = path.rglob(pattern)
    return found


@pytest.mark.parametrize("rank", [0, 1])
def test_a_database_gives_its_rows(rank: int) -> None:
    """Tasks but FFTS+ wholes, which are counted; every call; ops with their names and times."""
    path = DATA / "torch-npu-db"
    with timeline.open_profile(path) as profile:
        tasks, calls = profile.tasks(ranks=rank), profile.host_calls(ranks=rank)
        ops, omissions = profile.collectives(ranks=rank, by="op"), profile.omissions(ranks=rank)
    file = only_file(path, f"ascend_pytorch_profiler_{rank}.db")
    with closing(sqlite3.connect(f"file:{file}?immutable=1", uri=True)) as database:

        def count(table: str) -> int:
            found: int = database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            return found

        told = database.execute(
            "SELECT value, endNs - startNs FROM COMMUNICATION_OP JOIN STRING_IDS ON id = opName"
        ).fetchall()
        (left_out,) = (row["rows"] for row in omissions.to_dicts() if row["code"] == "ffts_whole")
        assert len(tasks) == count("TASK") - left_out
        roles = Counter(tasks["role"])
        assert roles["computing"] == count("COMPUTE_TASK_INFO")
        assert roles["communication"] == count("COMMUNICATION_TASK_INFO")
        layers = Counter(calls["layer"])
        assert layers == {"CANN": count("CANN_API"), "Python": count("PYTORCH_API")}
    assert sorted(told) == sorted((row["name"], row["duration_ns"]) for row in ops.to_dicts())


@pytest.mark.parametrize("rank", [0, 1])
def test_kernels_of_text_are_those_of_its_table(rank: int) -> None:
    """By name: how often and how long (times of either file are rounded)."""
    path = DATA / "torch-npu-text"
    with timeline.open_profile(path) as profile:
        tasks = profile.tasks(ranks=rank)
        ops = profile.collectives(ranks=rank, by="op")
    kernels = rows_of(only_file(path / f"rank{rank}_ascend_pt", "kernel_details.csv"))
    computing = tasks.take(tasks["role"] == "computing")
    listed = [row for row in kernels if row["Accelerator Core"] != "HCCL"]
    assert Counter(computing["name"]) == Counter(row["Name"] for row in listed)
    assert Counter(computing["type"]) == Counter(row["Type"] for row in listed)
    told_ns = sum(float(row["Duration(us)"]) for row in listed) * 1e3
    assert computing["duration_ns"].sum() == pytest.approx(told_ns, abs=len(listed))
    file = only_file(path / f"rank{rank}_ascend_pt", "communication.json")
    steps = json.loads(file.read_text(encoding="utf-8"))
    elapsed = {
        name.partition("@")[0]: one["Communication Time Info"]["Elapse Time(ms)"]
        for step in steps.values()
        for name, one in step["collective"].items()
        if not name.startswith("Total")
    }
    assert {row["name"]: row["duration_ns"] / 1e6 for row in ops.to_dicts()} == pytest.approx(
        elapsed, abs=1e-3
    )


def test_ops_wait_for_the_rank_that_their_notifications_name() -> None:
    """Rank 5, not in the profile, for 101.8 of 106.0 ms; sums say the same as single ops."""
    with timeline.open_profile(DATA / "torch-npu-text") as profile:
        ops, by_kind = profile.collectives(ranks=0, by="op"), profile.collectives(by="kind")
        by_group, pairs = profile.collectives(by="group"), profile.waiting()
    assert set(ops["last_rank"].tolist()) == {5}
    assert ops["waited_ns"].sum() == 101_767_553
    assert ops["duration_ns"].sum() == 105_991_878
    for sums in (by_kind, by_group):
        assert sums["waited_ns"][0] == ops["waited_ns"].sum()
        assert sums["total_ns"][0] == ops["duration_ns"].sum()
    (pair,) = (row for row in pairs.to_dicts() if row["rank"] == 0)
    assert (pair["waited_for_rank"], pair["profiled"]) == (5, False)
    assert pair["waited_ns"] == ops["waited_ns"].sum()


def test_links_are_those_of_the_matrix() -> None:
    """What went over each link is what communication_matrix.json sums up, to its rounding."""
    path = DATA / "torch-npu-text"
    with timeline.open_profile(path) as profile:
        links = profile.links(ranks=0).to_dicts()
    file = only_file(path / "rank0_ascend_pt", "communication_matrix.json")
    told: Counter[tuple[int, int]] = Counter()
    for step in json.loads(file.read_text(encoding="utf-8")).values():
        for name, pairs in step["collective"].items():
            if "-total@" in name:
                for ends, one in pairs.items():
                    source, target = map(int, ends.split("-"))
                    told[source, target] += one["Transit Size(MB)"] * 1e6
    found: Counter[tuple[int, int]] = Counter()
    for row in links:
        found[row["source_rank"], row["target_rank"]] += row["size_bytes"]
    assert found
    assert {ends: size for ends, size in told.items() if ends in found} == pytest.approx(
        dict(found), rel=1e-5
    )


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
