"""Proves that distinct values are found alike however far apart they lie, or if they are one."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from timeline.columns import chunks
from timeline.columns.columns import Int64
from timeline.columns.constant import constant, is_constant
from timeline.columns.distinct import (
    distinct,
    distinct_pairs,
    distinct_values,
    map_values,
    rows_by_value,
)

Integers = npt.NDArray[np.integer[Any]]
FAR: dict[type[np.integer[Any]], list[int]] = {
    np.int64: [-(2**63), 2**63 - 1, 2**40],
    np.uint64: [2**64 - 1, 2**63],
    np.int32: [-(2**31), 2**31 - 1],
}


@st.composite
def integers(draw: st.DrawFn, kinds: tuple[type[np.integer[Any]], ...] = tuple(FAR)) -> Integers:
    """Columns of numbers that lie near to each other or far apart, or of one number."""
    dtype = draw(st.sampled_from(kinds))
    near = st.integers(0, 12)
    if draw(st.booleans()):
        return constant(draw(near), draw(st.integers(0, 5)), dtype)
    numbers = near | st.sampled_from(FAR[dtype]) if draw(st.booleans()) else near
    return np.array(draw(st.lists(numbers, max_size=40)), dtype)


@pytest.fixture(autouse=True)
def in_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_ROWS", 7)
    monkeypatch.setattr("timeline.columns.distinct.FEW_ROWS", 3)


with_parts = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@with_parts
@given(values=integers())
def test_distinct_values_ascend_and_each_row_knows_its_own(values: Integers) -> None:
    alone = distinct(values)
    found, which = distinct_values(values)
    assert alone.tolist() == found.tolist() == sorted(set(values.tolist()))
    assert alone.dtype == found.dtype == values.dtype
    np.testing.assert_array_equal(found[which], values)


@with_parts
@given(values=integers(kinds=(np.int64,)))
def test_each_distinct_value_is_translated_once(values: Int64) -> None:
    asked: list[int] = []

    def meaning(numbers: Int64) -> Int64:
        asked.extend(numbers.tolist())
        return numbers // 2

    made = map_values(values, meaning)
    assert asked == sorted(set(values.tolist()))
    np.testing.assert_array_equal(made, values // 2)
    assert is_constant(made) or not is_constant(values) or not len(values)


@with_parts
@given(data=st.data(), count=st.integers(0, 30))
def test_distinct_pairs_are_in_order_and_each_row_knows_its_own(
    data: st.DataObject, count: int
) -> None:
    numbers = st.integers(-3, 3) | st.sampled_from(FAR[np.int64])
    columns = st.lists(numbers, min_size=count, max_size=count)
    first, second = (np.array(data.draw(columns), np.int64) for _ in range(2))
    pairs, which = distinct_pairs(first, second)
    rows = list(zip(first.tolist(), second.tolist(), strict=True))
    assert [tuple(pair) for pair in pairs.tolist()] == sorted(set(rows))
    assert [tuple(pair) for pair in pairs[which].tolist()] == rows


@with_parts
@given(values=st.lists(st.integers(0, 30)), wanted=st.sets(st.integers(0, 40)))
def test_rows_by_value_are_those_of_each_value_that_is_wanted(
    values: list[int], wanted: set[int]
) -> None:
    column, some = np.array(values, np.int64), np.array(sorted(wanted), np.int64)
    found = {value: rows.tolist() for value, rows in rows_by_value(column, some)}
    assert found == {
        value: [row for row, held in enumerate(values) if held == value] for value in wanted
    }
    of_each = [(value, rows.tolist()) for value, rows in rows_by_value(column)]
    assert of_each == [
        (value, [row for row, held in enumerate(values) if held == value])
        for value in sorted(set(values))
    ]
