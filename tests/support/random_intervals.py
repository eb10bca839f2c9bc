"""Columns of intervals from Hypothesis, so small that a set of ns can check them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from timeline.columns.columns import Int64
from timeline.columns.intervals import IntervalSet

Interval = tuple[int, int]
"""Half-open [start, end) in ns; an interval without length has start == end."""

EPOCH_NS = 1_736_424_000_123_000_217
"""Where intervals begin: a float64 cannot tell neighbours of such times apart."""
SPAN_NS = 16
"""So short that edges often meet."""


@st.composite
def intervals(draw: st.DrawFn, most: int = 12) -> list[Interval]:
    """Any intervals, in any order, empty and equal ones among them."""
    pairs = draw(
        st.lists(st.tuples(st.integers(0, SPAN_NS), st.integers(0, SPAN_NS // 2)), max_size=most)
    )
    return [(EPOCH_NS + start, EPOCH_NS + start + length) for start, length in pairs]


@st.composite
def laminar_intervals(draw: st.DrawFn) -> list[Interval]:
    """Intervals that nest or are disjoint, in any order."""
    kept: list[Interval] = []
    for candidate in draw(intervals(most=20)):
        if not any(crosses(candidate, other) for other in kept):
            kept.append(candidate)
    return kept


def columns_of(pairs: Sequence[Interval]) -> tuple[Int64, Int64]:
    """The starts and the ends."""
    starts, ends = zip(*pairs, strict=True) if pairs else ((), ())
    return np.array(starts, np.int64), np.array(ends, np.int64)


def covered_ns(start_ns: Int64, end_ns: Int64) -> set[int]:
    """Every nanosecond inside any of the intervals."""
    pairs = zip(start_ns.tolist(), end_ns.tolist(), strict=True)
    return {moment for start, end in pairs for moment in range(start, end)}


def normal_ns(found: IntervalSet) -> set[int]:
    """Every nanosecond of intervals that must be normal: not empty, ascending, with gaps."""
    assert (found.end_ns > found.start_ns).all()
    assert (found.start_ns[1:] > found.end_ns[:-1]).all()
    return covered_ns(found.start_ns, found.end_ns)


def crosses(one: Interval, other: Interval) -> bool:
    """Whether both hold moments of their own and share others: a stack cannot draw the two."""
    first, second = sorted((one, other))
    return first[0] < second[0] < first[1] < second[1]


def is_laminar(pairs: Sequence[Interval]) -> bool:
    """Whether every two intervals are disjoint or one lies inside the other."""
    return not any(
        crosses(one, other) for place, one in enumerate(pairs) for other in pairs[:place]
    )
