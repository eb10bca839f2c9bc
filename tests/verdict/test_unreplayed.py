"""Proves what is said of a profile that has no times, however little its tables hold."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.support.made_figures import MILLISECOND_NS, made_report
from timeline.cli.main import main
from timeline.tables.table import Table
from timeline.verdict.figures import Figures
from timeline.verdict.unreplayed import find_uneven_stages


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


@pytest.mark.parametrize("ranks", [2, 8])
@pytest.mark.parametrize("slowest", [0, 1])
def test_an_uneven_stage_wins_what_it_computes_beyond_the_mean(ranks: int, slowest: int) -> None:
    """With two stages that is half of what it computes longer than the other."""
    made = made_report(ranks, 3).figures
    first = np.arange(ranks) < ranks // 2
    is_slow = first if slowest == 0 else ~first
    steps = made.steps
    of_slow = is_slow[np.asarray(steps["rank"])]
    steps = Table(
        {
            **steps.columns,
            "ordinary": np.ones(len(steps), np.int64),
            "computing_ns": np.where(of_slow, 60, 20) * MILLISECOND_NS,
            "period_ns": np.full(len(steps), 100 * MILLISECOND_NS),
        }
    )
    stages = [np.flatnonzero(first).tolist(), np.flatnonzero(~first).tolist()]
    parallel = Table(
        {
            "mode": np.array(["pipeline-parallel"], object),
            "stages": np.array([2]),
            "ranks": np.array([ranks]),
            "stage_ranks": np.array([stages, None], object)[:1],
        }
    )
    finding = find_uneven_stages(
        Figures({"overlap": made.overlap, "steps": steps, "parallel": parallel})
    )
    assert finding is not None
    assert finding.ranks == tuple(stages[slowest])
    assert finding.gain_share == pytest.approx(0.2)
    assert "60.00 ms per step, 40.00 ms were stages even: at most 20% to win" in finding.sentence
