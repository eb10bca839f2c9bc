"""Proves that the row of differences says how steps changed, in colours that do not mislead."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.ui_colours import GREEN, RED, hue
from timeline.tracks.assemble import RunOfRanks, StepDifferences, side_by_side
from timeline.tracks.model import Slices


def named(base_ns: int, new_ns: int, new_step: int = 7) -> str:
    """What the slice of a step says."""
    one = [np.array([value], np.int64) for value in (7, new_step, 1000, base_ns, new_ns)]
    none = RunOfRanks((), ())
    root, *_ = side_by_side(none, none, StepDifferences(*one), {}, by_layer=False)
    assert isinstance(root.content, Slices)
    (name,) = [root.content.strings[code] for code in root.content.name.tolist()]
    return name


@pytest.mark.parametrize("delta_ns", [1_000, 317_123, 12_345_678, 3_000_000_000])
def test_slower_is_red_and_faster_is_green(delta_ns: int) -> None:
    """Whatever the time; of steps of other numbers slower is at least never green."""
    base_ns = 4_000_000_000
    assert hue(named(base_ns, base_ns + delta_ns)) in RED
    assert hue(named(base_ns, base_ns - delta_ns)) in GREEN
    assert hue(named(base_ns, base_ns + delta_ns, 8)) not in GREEN
    assert hue(named(base_ns, base_ns - delta_ns, 8)) not in RED


def test_it_says_how_much_longer_a_step_takes() -> None:
    assert named(4_000_000, 4_500_000) == "Step 7 slower by 0.500 ms (+12.5%)"
    assert named(4_000_000, 3_000_000, 8) == "Step 7 and 8 faster by 1.000 ms (-25.0%)"
    assert named(4_000_000, 4_000_000) == "Step 7 as before"
