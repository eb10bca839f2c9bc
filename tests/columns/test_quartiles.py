"""Proves that quartiles and deviations of groups are those that NumPy finds one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timeline.columns.quartiles import quartiles_by_group

LENGTHS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 10**12)), max_size=60)


@given(LENGTHS)
def test_each_group_is_as_by_itself(rows: list[tuple[int, int]]) -> None:
    """Rounded to whole numbers; a group without values has none."""
    group = np.array([row[0] for row in rows], np.int64)
    values = np.array([row[1] for row in rows], np.int64)
    found = quartiles_by_group(group, values, 5)
    for one in range(5):
        own = values[group == one]
        assert found.count[one] == len(own)
        if not len(own):
            assert found.median[one] == 0
            continue
        told = (found.first[one], found.median[one], found.third[one])
        assert told == pytest.approx(np.quantile(own, [0.25, 0.5, 0.75]), abs=1, rel=1e-12)
        assert found.deviation[one] == pytest.approx(np.std(own), abs=1, rel=1e-6)


def test_large_times_keep_small_differences() -> None:
    """Unix times in ns, whose squares no float holds."""
    moment = 1_736_424_000_123_456_789
    values = moment + np.array([0, 2, 4], np.int64)
    found = quartiles_by_group(np.zeros(3, np.int64), values, 1)
    assert found.median.tolist() == [moment + 2]
    assert found.deviation.tolist() == [2]
