"""Proves on real captures that a verdict blames hosts only for late launches that are recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import timeline
from timeline.analysis.gains.findings import FindingKind

DATA = Path(__file__).parents[3] / "shared" / "data"
pytestmark = [
    pytest.mark.skipif(not DATA.is_dir(), reason="no real profiles beside the project"),
    pytest.mark.filterwarnings("ignore::timeline.TimelineWarning"),
]


def verdict_of(name: str) -> dict[str, Any]:
    """Return the verdict on a capture as plain values."""
    verdict: dict[str, Any] = timeline.find_verdict(DATA / name).to_dict()["verdict"]
    return verdict


def test_lost_kernels_are_no_late_launches() -> None:
    """Of 2.38 ms idle, kernels of 2.01 ms were lost: what is left is 6% of the run."""
    verdict = verdict_of("cases/kernels-lost-midway")
    hosts = [one for one in verdict["findings"] if one["kind"] == FindingKind.SLOW_HOSTS]
    assert all(one["gain_ns"] <= 380_000 for one in hosts)
    assert any("In 18 of 19 gaps" in one for one in verdict["sentences"])


def test_no_host_is_blamed_without_launches() -> None:
    """The device idles, and the sentence says that nothing recorded explains it."""
    verdict = verdict_of("cases/mindspore-kernel-details")
    assert not verdict["findings"]
    assert verdict["sentences"][0].endswith("launches are not recorded.")


def test_one_gain_is_said_everywhere() -> None:
    """The finding has the gain of the sentence on gaps between kernels."""
    verdict = verdict_of("msprof-single/cann9-relu")
    assert "at most 48% shorter" in verdict["findings"][0]["sentence"]
    assert any("at most 48% shorter" in one for one in verdict["sentences"])
    assert round(verdict["findings"][0]["gain_share"], 2) == 0.48


def test_busy_devices_need_no_faster_data_and_blocks_are_read() -> None:
    """A queue that is empty once does not matter to a device that computes 97% of the time."""
    with timeline.open_profile(DATA / "mindspore-run2") as profile:
        assert "num_parallel_workers" not in str(timeline.find_verdict(profile))
        assert 32 in profile.framework()["block_dim"].tolist()
