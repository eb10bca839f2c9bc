"""Proves that codes are counted and numbered alike, however many strings there are."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from timeline.encoders.drawn_values import NumberOfCode, count_codes

CODES = st.lists(st.integers(0, 20) | st.sampled_from([5_000, 90_000]), max_size=40)


@given(CODES, CODES)
def test_codes_are_counted_where_they_are_present(first: list[int], second: list[int]) -> None:
    present = np.arange(len(second)) % 3 > 0
    columns = [(np.array(first, np.int32), None), (np.array(second, np.int32), present)]
    codes, count = count_codes(columns)
    wanted = Counter(first) + Counter(np.array(second, np.int32)[present].tolist())
    found = dict(zip(codes.tolist(), count.tolist(), strict=True))
    assert found == wanted
    assert list(found) == sorted(found)
    numbers = NumberOfCode(codes, range(1, len(found) + 1))
    asked = np.array([*found, 30, 99_999], np.int32)
    assert numbers.of(asked).tolist() == [*range(1, len(found) + 1), 0, 0]
