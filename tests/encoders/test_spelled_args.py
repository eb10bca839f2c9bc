"""Proves that real numbers of any size are drawn as what they are, with few digits."""

from __future__ import annotations

import numpy as np
import pytest

from timeline.encoders.drawn_values import round_reals


def test_the_ends_of_floats_stay_what_they_are() -> None:
    """Rounded through a power of ten they would become infinite, or no number."""
    ends = np.array([1.79e308, -1.79e308, 1.2345e-308, 5e-324, np.inf, -np.inf, 0.0])
    assert round_reals(ends).tolist() == ends.tolist()
    assert np.isnan(round_reals(np.array([np.nan]))).all()


def test_few_digits_are_kept_on_either_side_of_one() -> None:
    """Of numbers of any usual size, to the nearest."""
    rounded = round_reals(np.array([1.23456e290, 9.99999e-290, 99_999.0, -0.000123456]))
    assert rounded.tolist() == pytest.approx([1.235e290, 1e-289, 100_000.0, -0.0001235], rel=1e-14)
