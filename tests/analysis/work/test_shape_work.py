"""Proves the work of operators from shapes: of calls with several kernels, and of odd shapes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import timeline
from timeline.analysis.work.shape_work import shape_work
from timeline.cli.main import main
from timeline.errors import UsageError

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


_HUGE = ",".join(["999999999999999"] * 25)


@pytest.mark.parametrize(
    ("kind", "inputs", "outputs", "flop"),
    [
        # a batch of one side only, and of one matrix
        ("BatchMatMulV2", "64,32;4,32,8", "4,64,8", 2 * 4 * 64 * 32 * 8),
        ("aten::matmul", "1,32,64;8,64,128", "", 2 * 8 * 32 * 64 * 128),
        ("aten::matmul", "32,64;8,64,128", "", 2 * 8 * 32 * 64 * 128),
        ("aten::matmul", "8,32,64;64,128", "", 2 * 8 * 32 * 64 * 128),
        ("MatMulV2", "8,32,64;64,16", "256,16", 2 * 256 * 64 * 16),
        ("BatchMatMulV2", "3,64,32;4,32,8", "4,64,8", None),
        # a bias, which is no matrix of the product
        ("aten::addmm", "32,128;32,64;64,128;;", "", 2 * 32 * 64 * 128),
        ("aten::baddbmm", "8,32,64;8,32,16;8,16,64", "", 2 * 8 * 32 * 16 * 64),
        ("aten::baddbmm", "1,1,64;8,64,32;8,32,64", "", 2 * 8 * 64 * 32 * 64),
        ("aten::linear", "32,128;64,128;64", "", 2 * 32 * 128 * 64),
        ("aten::linear", "4,8,128;64,128", "", 2 * 32 * 128 * 64),
        ("aten::matmul_backward", "32,64;32,128;128,64", "", None),
        # formats of the device, and sizes that are not known
        ("BatchMatMulV2", "64,64,16,16;64,64,16,16", "64,64,16,16", None),
        ("MatMulV2", "32,64;4,4,16,16", "32,64", None),
        ("MatMulV2", "-1,64;64,10", "-1,10", None),
        ("MatMulV2", "32.0,64.0;64.0,10.0", "32.0,10.0", None),
        ("aten::mm", "[8,16;16,4];8,16", "", None),
        # inner dimensions that do not fit together
        ("MatMulV2", "32,48;48,48", "48,48", None),
        ("MatMulV2", "48,32;48,48", "32,48", 2 * 32 * 48 * 48),
        # nothing, and more than there can be
        ("MatMulV2", "32,64;64,10", "0,10", None),
        ("MatMulV2", "32,64;64,10", "32,0", None),
        ("MatMulV2", f"{_HUGE};{_HUGE}", _HUGE, None),
        ("Conv2D", f"{_HUGE};{_HUGE}", _HUGE, None),
        ("MatMulV2", "3037000500,3037000500;3037000500,1", "3037000500,1", None),
    ],
)
def test_only_products_that_shapes_tell_have_work(
    kind: str, inputs: str, outputs: str, flop: int | None
) -> None:
    """Batches, biases and turned matrices are those of the operator; all else is not known."""
    work = shape_work(kind, inputs, outputs, "FLOAT16;FLOAT16;FLOAT16")
    assert (work.flop, work.is_product) == (flop, True)
    assert (work.peak_cycles > 0) == (flop is not None)
    if _HUGE in inputs or "-" in inputs or "." in inputs:
        assert work.moved_bytes is None


@pytest.mark.parametrize(
    ("types", "cycles"),
    [
        ("FLOAT16;FLOAT16", 2 * 64**3 // 8192),
        ("DT_FLOAT16;DT_FLOAT16", 2 * 64**3 // 8192),
        ("FLOAT;FLOAT", 2 * 64**3 // 2048),
        ("INT8;INT8", 0),
        ("DOUBLE;DOUBLE", 0),
        ("", 0),
    ],
)
def test_only_types_with_a_known_peak_have_one(types: str, cycles: int) -> None:
    """Products of bytes run faster than those of 32 bits, by how much nothing here says."""
    work = shape_work("MatMulV2", "64,64;64,64", "64,64", types)
    assert (work.flop, work.peak_cycles) == (2 * 64**3, cycles)


@pytest.mark.parametrize("given", ["0", "0.5", 0.001, "1e-3", "-5", "T", "9e400", "5X"])
def test_a_peak_below_one_operation_per_second_is_refused(given: Any, tmp_path: Path) -> None:
    """As is text; nothing is taken for "not given" in silence."""
    with pytest.raises(UsageError, match=r"peak.flops"):
        timeline.open_profile(split_products(tmp_path, 1), peak_flops=given)


@pytest.mark.parametrize(
    "given", ["312T", "312TFLOPS", "312 TFLOPS", "312tflop/s", "312e12", 312e12, "0.312P"]
)
def test_a_peak_may_be_written_with_its_unit(given: Any, tmp_path: Path) -> None:
    """As data sheets write it."""
    row = _of_products(split_products(tmp_path, 2), peak_flops=given)
    assert row["utilization"] == pytest.approx(row["flop_per_s"] / 312e12)


def test_a_peak_below_the_measured_rate_is_remarked_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """165 TFLOP/s are not 165% of a device."""
    path, remark = str(split_products(tmp_path, 2)), "given lower than what was measured"
    for peak, is_low in (("100T", True), ("200T", False)):
        assert main(["--verdict", path, "--peak-flops", peak]) == 0
        assert (remark in " ".join(capsys.readouterr().out.split())) == is_low
