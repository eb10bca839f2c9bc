"""Proves interval arithmetic against sets of single nanoseconds."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from tests.support.random_intervals import Interval, columns_of, covered_ns, intervals, normal_ns
from timeline.columns.intervals import subtract, union


@given(intervals())
def test_union_covers_the_same_nanoseconds(pairs: list[Interval]) -> None:
    start_ns, end_ns = columns_of(pairs)
    merged = union(start_ns, end_ns)
    wanted = covered_ns(start_ns, end_ns)
    assert normal_ns(merged) == wanted
    assert merged.total_ns == len(wanted)
    assert merged.span_ns == ((min(wanted), max(wanted) + 1) if wanted else None)


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
