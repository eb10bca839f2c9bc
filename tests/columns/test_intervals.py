"""Proves interval arithmetic against sets of single nanoseconds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from tests.support.random_intervals import Interval, columns_of, covered_ns, intervals, normal_ns
from timeline.columns.intervals import subtract, union, union_of_sets


@given(intervals())
def test_union_covers_the_same_nanoseconds(pairs: list[Interval]) -> None:
    start_ns, end_ns = columns_of(pairs)
    merged = union(start_ns, end_ns)
    wanted = covered_ns(start_ns, end_ns)
    assert normal_ns(merged) == wanted
    assert merged.total_ns == len(wanted)
    assert merged.span_ns == ((min(wanted), max(wanted) + 1) if wanted else None)


@given(intervals(), intervals())
def test_a_union_of_sets_covers_what_any_of_them_does(
    left: list[Interval], right: list[Interval]
) -> None:
    first, second = union(*columns_of(left)), union(*columns_of(right))
    merged = union_of_sets(first, second, first)
    assert normal_ns(merged) == covered_ns(*columns_of(left)) | covered_ns(*columns_of(right))


@given(intervals(), intervals())
def test_subtract_removes_exactly_the_nanoseconds_of_the_right_side(
    left: list[Interval], right: list[Interval]
) -> None:
    rest = subtract(union(*columns_of(left)), union(*columns_of(right)))
    assert normal_ns(rest) == covered_ns(*columns_of(left)) - covered_ns(*columns_of(right))


def test_union_leaves_its_arguments_alone() -> None:
    start_ns, end_ns = np.array([5, 0]), np.array([9, 6])
    union(start_ns, end_ns)
    assert (start_ns.tolist(), end_ns.tolist()) == ([5, 0], [9, 6])


def test_intervals_of_all_of_time_are_merged_and_subtracted() -> None:
    first, last = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    merged = union(np.array([first, 0, 5]), np.array([0, last, 5]))
    assert (merged.start_ns.tolist(), merged.end_ns.tolist()) == ([first], [last])
    rest = subtract(merged, union(np.array([-3]), np.array([7])))
    assert (rest.start_ns.tolist(), rest.end_ns.tolist()) == ([first, 7], [-3, last])


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match=r"different lengths|broadcast"):
        union(np.array([1, 2]), np.array([3]))
