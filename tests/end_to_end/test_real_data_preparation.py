"""Holds what is said of the preparation of data of real runs against numbers worked out apart."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import real_capture
from timeline import TimelineWarning, export


def report_on(name: str, tmp_path: Path) -> dict[str, Any]:
    path = real_capture(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TimelineWarning)
        return export(path, tmp_path / "out.pftrace", jobs=1).to_dict()


def row(rows: list[dict[str, Any]], **keys: Any) -> dict[str, Any]:
    (found,) = [one for one in rows if all(one[name] == key for name, key in keys.items())]
    return found


def test_a_run_whose_queue_was_empty(tmp_path: Path) -> None:
    """What MindInsight shows of the queues, the pipeline and processors of the same files."""
    report = report_on("mindspore-run2", tmp_path)
    assert row(report["data_queues"], rank=1, queue="host") == {
        "rank": 1,
        "queue": "host",
        "records": 1,
        "empty": 1,
        "full": 0,
        "capacity": 64,
        "get_ns": 0,
        "push_ns": 4_000_000,
        "total_ns": 4_000_000,
    }
    device = row(report["data_queues"], rank=1, queue="device")
    assert (device["records"], device["empty"], device["total_ns"]) == (3, 0, 667)
    assert device["full"] is device["capacity"] is None
    assert row(report["data_preparation"], rank=1) == {
        "rank": 1,
        "bottleneck": "processing",
        "empty_share": 1.0,
        "operations": [3],
        "cpu_busy": 0.9,
    }
    root = row(report["data_pipeline"], rank=1, op=0)
    assert (root["usage"], root["mean_size"], root["children"]) == (0.015625, 1.0, [1])
    source = row(report["data_pipeline"], rank=1, op=3)
    assert (source["bottleneck"], source["workers"], source["children"]) == ("slow source", 8, [])
    said = " ".join(report["verdict"]["sentences"])
    assert "queue was empty" not in said, "the device is busy 97% of the time"


def test_the_mean_of_no_steps_is_no_wait_for_data(tmp_path: Path) -> None:
    """A single step without an interval, in a file whose last row has an interval alone."""
    verdict = report_on("mindspore-run2", tmp_path)["verdict"]
    assert verdict["findings"] == []
    assert verdict["sentences"][0].startswith("Device busy 97%: only faster kernels help; MatMul ")


def test_the_table_of_a_pipeline(tmp_path: Path) -> None:
    """Two ranks of which each names other operations, by MindInsight's own tests."""
    report = report_on("mindspore-pipeline", tmp_path)
    operations = {one["rank"]: one["operations"] for one in report["data_preparation"]}
    assert operations == {0: [2, 3, 4], 1: [1]}
    assert row(report["data_pipeline"], rank=0, op=4)["bottleneck"] == "fuller input"
    assert row(report["data_pipeline"], rank=1, op=1)["bottleneck"] == "fuller input"


@pytest.mark.parametrize(
    ("name", "rank", "share"),
    [("mindspore-2.1", 0, 0.583), ("mindspore-raw-JOB1", 0, 0.682)],
)
def test_runs_that_wait_for_data_say_so_first(
    name: str, rank: int, share: float, tmp_path: Path
) -> None:
    """Between steps devices wait for data, which takes more time than anything else is lost in."""
    verdict = report_on(name, tmp_path)["verdict"]
    culprit = verdict["culprit"]
    assert (culprit["rank"], culprit["cause"], culprit["waited_ns"]) == (rank, "input", 0)
    assert culprit["share"] == pytest.approx(share, abs=0.001)
    assert verdict["sentences"][0].startswith(f"Input-bound: rank {rank} waits ")
