"""Proves the work of operators from shapes: of calls with several kernels, and of odd shapes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import timeline
from timeline.cli.main import main

FLOP = 2 * 512 * 4096 * 512


def split_products(directory: Path, calls: int, kernel_us: tuple[int, ...] = (10, 3)) -> Path:
    """A PyTorch trace of matrix products, each of which launches several kernels."""
    events: list[dict[str, Any]] = []
    span = {"ph": "X", "pid": 1, "tid": 100}
    for at in range(calls):
        start_us, shapes = 1000 + 100 * at, [[512, 4096], [4096, 512]]
        call = {"name": "aten::mm", "cat": "cpu_op", "ts": start_us - 20, "dur": 15}
        events.append({**span, **call, "args": {"External id": at + 1, "Input Dims": shapes}})
        for number, dur in enumerate(kernel_us):
            args = {"External id": at + 1, "correlation": 10 * at + number + 1, "device": 0}
            launch = {"name": "cudaLaunchKernel", "cat": "cuda_runtime", "dur": 2}
            events.append({**span, **launch, "ts": start_us - 15 + 3 * number, "args": args})
            kernel = {"ph": "X", "pid": 0, "tid": 7, "cat": "kernel", "name": f"kernel_{number}"}
            place = {"ts": start_us + 11 * number, "dur": dur, "args": {**args, "stream": 7}}
            events.append({**kernel, **place})
    device = [{"id": 0, "name": "X"}]
    path = directory / "t_rank0.pt.trace.json"
    path.write_text(json.dumps({"deviceProperties": device, "traceEvents": events}))
    return directory


def _of_products(path: Path, **options: Any) -> dict[str, Any]:
    with timeline.open_profile(path, **options) as profile:
        (row,) = profile.operators(by="type").to_dicts()
    return dict(row)


def test_the_work_of_a_call_counts_once_in_the_time_of_all_kernels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A product that is split and reduced; the verdict counts calls, and adds up their kernels."""
    path = split_products(tmp_path, 50)
    row = _of_products(path, peak_flops="990T")
    assert row["count"] == 100
    assert row["flop"] == pytest.approx(50 * FLOP)
    assert row["flop_per_s"] == pytest.approx(FLOP / 13e-6)
    assert row["utilization"] == pytest.approx(FLOP / 13e-6 / 990e12)
    with timeline.open_profile(path, peak_flops="990T") as profile:
        by_name = profile.operators(by="name").to_dicts()
    assert sum(one["flop"] for one in by_name) == pytest.approx(50 * FLOP)
    assert {round(one["flop_per_s"]) for one in by_name} == {round(FLOP / 13e-6)}
    assert main(["--verdict", str(path), "--peak-flops", "990T"]) == 0
    answer = " ".join(capsys.readouterr().out.split())
    assert "aten::mm takes 13.0 us, 50 launches." in answer
    assert "no kernel runs for 86.0 us" in answer


def test_kernels_without_duration_share_the_work_of_their_call(tmp_path: Path) -> None:
    """Nothing is divided by 0, and work in no time is not known."""
    row = _of_products(split_products(tmp_path, 3, (0, 0, 0)), peak_flops="990T")
    assert (row["count"], row["flop"], row["flop_per_s"]) == (9, None, None)


def test_a_given_peak_asks_for_work_however_many_tasks_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit on tasks is one of work that nobody asked for."""
    path = split_products(tmp_path, 2)
    monkeypatch.setattr("timeline.analysis.work.operators.MOST_UNASKED_WORK", 3)
    assert _of_products(path, peak_flops="990T")["flop"] == pytest.approx(2 * FLOP)
    assert _of_products(path)["flop"] is None
