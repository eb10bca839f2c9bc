"""Proves on real captures what MindSpore's tables tell of operators."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import real_capture
from timeline.cli.main import main
from timeline.profile import open_profile

Row = dict[str, Any]


def _report(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, list[Row]]:
    assert main([str(path), "--json", "-o", str(tmp_path / "out.pftrace")]) == 0
    found: dict[str, list[Row]] = json.loads(capsys.readouterr().out)
    return found


def _row(rows: list[Row], **wanted: object) -> Row:
    (row,) = (row for row in rows if wanted.items() <= row.items())
    return row


def test_sums_of_each_source_stand_side_by_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """AI Core and AI CPU sums are the file's, shares are of their own source."""
    rows = _report(real_capture("mindspore-run2"), tmp_path, capsys)["operators"]
    fetched = _row(rows, rank=1, source="aicpu_intermediate", type="GetNext")
    assert (fetched["count"], fetched["total_ns"], fetched["mean_ns"]) == (2, 1181000, 590500)
    assert fetched["dispatch_ns"] == 205000
    assert fetched["share"] == pytest.approx(0.12183, abs=1e-5)
    started = _row(rows, source="aicpu_intermediate", type="InitData")
    assert (started["total_ns"], started["run_ns"]) == (7906000, 160000)
    product = _row(rows, source="aicore_intermediate", type="MatMul")
    assert (product["count"], product["total_ns"]) == (9, 20657740)
    of_tasks = _row(rows, source="tasks", type="MatMul")
    assert (of_tasks["count"], of_tasks["total_ns"]) == (9, 20657740)


def test_details_name_each_operator() -> None:
    """By name the library tells what each file tells of an operator."""
    with open_profile(real_capture("mindspore-run2")) as profile:
        table = profile.operators(by="name")
        rows = table.take(table["source"] == "aicore_intermediate").to_dicts()
    row = _row(rows, name="Default/AssignAdd-op142")
    assert (row["type"], row["mean_ns"], row["total_ns"]) == ("AssignAdd", 2190, None)


def test_operators_without_a_name_are_summed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A log of threads alone tells when AI CPUs worked, for operators that have no type."""
    report = _report(real_capture("mindspore-raw-JOB3"), tmp_path, capsys)
    row = _row(report["operators"], rank=1, source="aicpu", type="")
    assert (row["count"], row["total_ns"]) == (323, 324140000)
    assert (row["dispatch_ns"], row["run_ns"]) == (29226000, 294901130)
    assert report["framework"] == []


def test_dynamic_shapes_are_told_by_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An operator may run twice in a step; a step may lack it."""
    rows = _report(real_capture("mindspore-dynamic-shape"), tmp_path, capsys)["operator_steps"]
    first = _row(rows, rank=0, level="type", type="GetNext", step=1)
    assert (first["count"], first["total_ns"], first["mean_ns"]) == (2, 307040, 153520)
    second = _row(rows, level="type", type="GetNext", step=2)
    assert (second["count"], second["total_ns"], second["mean_ns"]) == (1, 80224, 80224)
    assert not [row for row in rows if row["type"] == "GetNext" and row["step"] == 9]
    add = _row(rows, level="name", name="Add-op6", step=1)
    assert (add["side"], add["shapes"], add["total_ns"]) == ("gpu", "32,1;32,1", 75616)
    kernel = _row(rows, level="kernel", step=1)
    assert (kernel["type"], kernel["count"], kernel["total_ns"]) == ("cuLaunchKernel", 1, 3904)
