"""Proves that a gate fails where a run is slower than allowed beyond noise, and only there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timeline.comparison.comparison import LEAST_STEPS, Gate

STEADY = [100, 101, 102, 103, 104]
NOISY = [80, 90, 100, 130, 160]


@pytest.mark.parametrize(
    ("base", "new", "limit", "ratio", "separated", "failed"),
    [
        (STEADY, [time + 20 for time in STEADY], 0.05, 122 / 102, True, True),
        (STEADY, [time + 20 for time in STEADY], 0.5, 122 / 102, True, False),
        (STEADY, STEADY, 0.0, 1.0, False, False),
        ([time + 20 for time in STEADY], STEADY, 0.05, 102 / 122, False, False),
        # Longer by more than is allowed, but a quarter of the steps before were as long.
        (NOISY, [110, 111, 112, 113, 114], 0.05, 1.12, False, False),
        # A few steps do not tell a change from noise.
        ([100, 100, 100, 100], [120] * 9, 0.05, 1.2, None, False),
        ([100] * 9, [120, 120, 120, 120], 0.05, 1.2, None, False),
        ([100], [900], 0.05, 9.0, None, False),
        ([100], [104], 0.05, 1.04, None, False),
        # Without steps the times from end to end do.
        ([], [120], 0.05, 1.5, None, True),
        ([], [], 0.6, 1.5, None, False),
    ],
)
def test_the_median_and_the_quartiles_decide(
    base: list[int],
    new: list[int],
    limit: float,
    ratio: float,
    separated: bool | None,
    failed: bool,
) -> None:
    gate = Gate.of(limit, np.array(base, np.int64), np.array(new, np.int64), (1000, 1500))
    assert gate.ratio == pytest.approx(ratio)
    assert (gate.separated, gate.failed) == (separated, failed)
    assert ("fails" in gate.sentence()) == failed
    assert bool(gate.warning) == (separated is None)


@pytest.mark.parametrize(("base", "new"), [([100] * 4, [120] * 9), ([100] * 9, [120] * 4)])
def test_too_few_steps_pass_and_say_why(base: list[int], new: list[int]) -> None:
    gate = Gate.of(0.05, np.array(base), np.array(new), (0, 0))
    told = f"fewer than {LEAST_STEPS} steps do not tell a change from noise"
    assert "passes" in gate.sentence()
    assert told in gate.sentence()
    assert f"does not fail on {len(base)} and {len(new)} steps" in gate.warning
    assert gate.to_dict()["separated"] is None


def test_nothing_is_judged_of_a_run_that_holds_nothing() -> None:
    nothing = np.empty(0, np.int64)
    gate = Gate.of(0.05, nothing, nothing, (0, 1500))
    assert (gate.ratio, gate.failed) == (None, False)
    assert gate.warning
    assert gate.to_dict()["ratio"] is None


TIMES = st.lists(st.integers(1, 10**9), min_size=LEAST_STEPS, max_size=30)


@given(TIMES, TIMES, st.floats(0, 2))
def test_it_never_fails_both_ways(some: list[int], others: list[int], limit: float) -> None:
    """Nor for what is not longer, nor where quartiles overlap."""
    base, new = np.array(some, np.int64), np.array(others, np.int64)
    there, back = Gate.of(limit, base, new, (0, 0)), Gate.of(limit, new, base, (0, 0))
    assert not (there.failed and back.failed)
    if there.failed:
        assert there.new_ns > there.base_ns
        assert np.quantile(new, 0.25) > np.quantile(base, 0.75)
