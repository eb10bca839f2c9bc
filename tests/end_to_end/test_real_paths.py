"""Holds critical paths of real captures against what was worked out by hand, and their sums."""

from __future__ import annotations

import warnings
from collections import Counter

import numpy as np

import timeline
from tests.support.places import real_capture
from timeline.tables.table import Table


def opened(name: str) -> timeline.Profile:
    return timeline.open_profile(real_capture(name))


def path_of(profile: timeline.Profile) -> Table:
    """The segments of all paths; what readers have to say does not matter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", timeline.TimelineWarning)
        return profile.critical_path()


def test_a_rank_that_is_not_profiled_determines_the_step() -> None:
    """Of 141.2 ms, 134.0 are rank 5's, 4.2 transfer, 2.3 computing, 0.7 between tasks."""
    with opened("torch-npu-text") as profile:
        table = path_of(profile)
        (finding, *_) = profile._measure(None, {}).figures.findings.found
    spent = Counter[str]()
    for kind, time_ns in zip(table["kind"].tolist(), table["duration_ns"].tolist(), strict=True):
        spent[kind] += time_ns
    found = {kind: round(time_ns / 1e6, 1) for kind, time_ns in spent.items() if time_ns > 50_000}
    assert found == {"not_profiled": 134.0, "transfer": 4.2, "computing": 2.3, "between_tasks": 0.7}
    strangers = table["rank"][table["kind"] == "not_profiled"].tolist()
    assert set(strangers) == {5}
    # Rank 0 waited 101.8 ms for it and rank 1 96.2 ms; either had other work to do meanwhile.
    assert (finding.ranks, finding.evidence["profiled"]) == ((5,), False)
    assert 70_000_000 <= finding.gain_ns <= 102_000_000


def test_a_capture_without_steps_has_a_path_over_its_work() -> None:
    """Profilers mark their own start and stop on the device, here a second after the last kernel.

    The path is 11.4 ms as the kernels are, and no call is longer on it than it is.
    """
    with opened("msprof-single/cann9-matmul/PROF_000001_20260716234341283_00087317MDEDFEKD") as one:
        table = path_of(one)
        overlap = one.overlap().to_dicts()[0]
    path_ns = int(table["duration_ns"].sum())
    assert path_ns == overlap["computing_ns"] + overlap["idle_ns"]
    on_host = table.take(table["kind"] == "host")
    assert (np.ma.filled(on_host["call_ns"], 0) < 0.5 * on_host["duration_ns"]).all()
