"""Proves that the call that took most of a stretch is found, however many stretches share it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timeline.analysis.idle import host_calls
from timeline.analysis.idle.host_calls import Calls
from timeline.analysis.path.rank_path import longest_calls

LAST = 60


def _by_hand(calls: list[tuple[int, int, int]], since: int, until: int) -> dict[int, int]:
    """How long the innermost calls of each name took, moment by moment."""
    found: dict[int, int] = {}
    for moment in range(since, until):
        inside = [call for call in calls if call[0] <= moment < call[1]]
        if inside:
            name = max(inside, key=lambda call: (call[0], -call[1]))[2]
            found[name] = found.get(name, 0) + 1
    return found


@st.composite
def _nested(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Calls that nest, with names."""
    calls: list[tuple[int, int, int]] = []
    spans = [(0, LAST)]
    for _ in range(draw(st.integers(0, 12))):
        low, high = draw(st.sampled_from(spans))
        start = draw(st.integers(low, high))
        end = draw(st.integers(start, high))
        if all(
            end <= s or start >= e or (s <= start and end <= e) or (start < s and e < end)
            for s, e, _ in calls
        ) and (start, end) not in [call[:2] for call in calls]:
            calls.append((start, end, draw(st.integers(1, 4))))
            spans.append((start, end))
    return calls


@given(
    _nested(),
    st.lists(st.integers(0, LAST), min_size=2, max_size=5, unique=True),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, LAST)), min_size=1, max_size=12),
    st.integers(1, 4),
)
@settings(deadline=None)
def test_the_longest_call_of_each_stretch_is_found(
    calls: list[tuple[int, int, int]], edges: list[int], wanted: list[tuple[int, int]], window: int
) -> None:
    """As counted moment by moment, in windows of any size."""
    edges = sorted(edges)
    stretches = []
    for which, length in wanted:
        at = which % (len(edges) - 1)
        stretches.append((edges[at], min(edges[at] + length, edges[at + 1])))
    since, until = (np.array(column, np.int64) for column in zip(*stretches, strict=True))
    table = Calls(
        np.array([call[0] for call in calls], np.int64),
        np.array([call[1] for call in calls], np.int64),
        np.arange(len(calls)),
    )
    names = np.array([call[2] for call in calls], np.int32)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(host_calls, "WINDOW_CALLS", window)
        name, total_ns = longest_calls(table, names, since, until)
    for row, (start, end) in enumerate(stretches):
        by_name = _by_hand([call for call in calls if call[0] < call[1]], start, end)
        assert total_ns[row] == max(by_name.values(), default=0)
        assert by_name.get(int(name[row]), 0) == total_ns[row]
