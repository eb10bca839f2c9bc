"""Proves that clocks of hosts and lost records change little of what is said of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simulator.faulty_recording import FaultyRecording
from simulator.layouts import LAYOUTS
from simulator.scenario import Scenario
from simulator.simulation import make_run
from tests.support.run_command import Command

LAYOUT = "kineto"
LATE = Scenario(slow_computing={2: 1.6})
CLOCKS_NS = (0, 50_000, 300_000, 5_000_000)
DRIFTS_PPB = (0, 50_000, 0, 50_000)


def _waiting(
    command: Command, path: Path, faults: FaultyRecording
) -> tuple[list[dict[str, Any]], str]:
    """What is said of the waiting of each rank, and the warnings."""
    run = make_run(ranks=4, steps=8, scenario=LATE, recording=faults)
    LAYOUTS[LAYOUT](run, path)
    report = command.report(path)
    return report["waiting"], "\n".join(report["warnings"])


def test_a_lost_record_loses_one_op(command: Command, tmp_path: Path) -> None:
    """Whatever clocks show, all ops but the lost ones are compared, and these are said to be."""
    whole, _ = _waiting(command, tmp_path / "whole", FaultyRecording())
    assert [rank["shared"] for rank in whole] == [16] * 4
    each_ns = whole[2]["caused_ns"] / 16
    lost = {1: (3, 8), 2: (5,)}
    for clock_ns, drift_ppb in zip(CLOCKS_NS, DRIFTS_PPB, strict=True):
        faults = FaultyRecording({1: clock_ns, 3: -clock_ns}, {2: drift_ppb}, lost)
        waiting, warnings = _waiting(command, tmp_path / f"faulty{clock_ns}", faults)
        assert [rank["shared"] for rank in waiting] == [13] * 4
        assert [rank["unmatched"] for rank in waiting] == [3, 1, 2, 3]
        assert "could not be paired: records are missing" in warnings
        caused = [rank["caused_ns"] for rank in waiting]
        assert max(range(4), key=caused.__getitem__) == 2
        assert caused[2] == pytest.approx(13 * each_ns, rel=0.2)


def test_the_truth_of_a_recording_says_what_was_wrong() -> None:
    """Clocks and lost records are in the truth, and the run itself stays."""
    faults = FaultyRecording({1: 300_000}, {1: 40_000}, {0: (2,)})
    whole, faulty = make_run(), make_run(recording=faults)
    assert faulty.truth.clocks == ((1, 300_000, 40_000),)
    assert faulty.truth.lost == ((0, 2),)
    assert faulty.truth.meetings == whole.truth.meetings
    ops = [
        [op for one in run.rank(0).iterations for op in one.collectives] for run in (whole, faulty)
    ]
    assert ops[1] == [op for at, op in enumerate(ops[0]) if at != 2]
    moved_ns = [run.rank(1).steps[-1].host_end_ns for run in (whole, faulty)]
    after_ns = moved_ns[0] - whole.rank(1).start_ns
    assert moved_ns[1] - moved_ns[0] == 300_000 + after_ns * 40_000 // 10**9
