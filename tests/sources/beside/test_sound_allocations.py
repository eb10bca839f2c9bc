"""Proves which allocations are taken for ones, by their sizes."""

from __future__ import annotations

import numpy as np

from timeline.sources.beside.counters import are_sound


def test_no_memory_holds_more_than_a_number_tells_exactly() -> None:
    sizes = np.array([512.0, -512.0, float(1 << 53), float(1 << 64), np.inf, np.nan])
    times_ns = np.arange(len(sizes))
    assert are_sound(sizes, times_ns, times_ns + 1).tolist() == [True, True] + [False] * 4
