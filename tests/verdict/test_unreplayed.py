"""Proves what is said of a profile that has no times, however little its tables hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from timeline.cli.main import main


@pytest.mark.parametrize(
    ("figures", "says"),
    [
        ({}, ": its operators compute 8.17 GFLOP, at 9.87 TFLOP/s."),
        ({"FLOPs": "N/A"}, " between forward and backward, at 9.87 TFLOP/s."),
        ({"FLOPS": None}, ": its operators compute 8.17 GFLOP."),
        ({"FLOPs": None, "FLOPS": "N/A"}, " between forward and backward."),
    ],
)
def test_any_of_the_operations_of_a_rank_may_be_absent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], figures: dict[str, object], says: str
) -> None:
    told = {"FLOPs": 8167.743, "FLOPS": 9868.936, "FLOPS_Utilization": 3.765} | figures
    (tmp_path / "flops_summary_0.json").write_text(json.dumps(told))
    assert main([str(tmp_path), "--verdict"]) == 0
    out = capsys.readouterr().out
    assert "Rank 0 uses 3.8% of the FLOP/s of its device" in out
    assert says in out
