"""Proves that rows are grouped by any columns, and what is told of the values of groups."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timeline.columns.columns import Int64
from timeline.columns.constant import constant
from timeline.columns.distinct import DENSE
from timeline.columns.group_by import group_by, group_numbers, joined_keys, quartiles_by_group

VALUES = st.integers(-2, 2) | st.integers(0, 400) | st.sampled_from([-(2**63), 2**63 - 1, 2**40])


@st.composite
def columns(draw: st.DrawFn) -> list[Int64]:
    """Up to four columns of as many rows, some of which hold one value."""
    rows = draw(st.integers(1, 60))
    drawn = st.lists(VALUES, min_size=rows, max_size=rows).map(np.array)
    same = st.integers(0, 9).map(lambda value: constant(value, rows, np.int64))
    return draw(st.lists(drawn | same, min_size=1, max_size=4))


@given(keys=columns())
def test_groups_ascend_with_their_keys(keys: list[Int64]) -> None:
    rows = list(zip(*(key.tolist() for key in keys), strict=True))
    number = {row: place for place, row in enumerate(sorted(set(rows)))}
    expected = [number[row] for row in rows]
    assert group_numbers(len(rows), keys).tolist() == expected
    groups = group_by(len(rows), keys)
    assert groups.group.tolist() == expected
    assert groups.first.tolist() == [rows.index(row) for row in number]


@given(keys=columns())
def test_joined_keys_fit_into_a_small_table(keys: list[Int64]) -> None:
    joined, bound = joined_keys(len(keys[0]), keys)
    assert 0 <= joined.min() <= joined.max() < bound <= DENSE * len(joined)
    rows = list(zip(*(key.tolist() for key in keys), strict=True))
    assert len(set(joined.tolist())) == len(set(rows))
    order = np.argsort(joined, kind="stable")
    assert [rows[row] for row in order.tolist()] == sorted(rows)


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
