"""Proves that a run takes as long without the compiled module, which refuses what is no run."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.random_recordings import START_NS, random_ranks
from timeline.analysis.gains import replay as replaying
from timeline.analysis.gains.replay import Replay, is_compiled

pytestmark = pytest.mark.skipif(not is_compiled(), reason="there was no compiler")
seeds = st.integers(0, 1 << 30)


@given(seeds, st.integers(1, 4), st.integers(1, 12), st.integers(0, 5))
def test_each_node_comes_as_without_the_compiled_module(
    seed: int, ranks: int, items: int, shared: int
) -> None:
    """Whatever takes less or more time."""
    run = Replay(random_ranks(seed, ranks, 4, items, shared), START_NS)
    first_ns, second_ns = np.random.default_rng(seed).integers(-9, 60, (2, len(run.recorded_ns)))
    fast = run.play((first_ns, second_ns)).times_ns
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replaying, "_replay", None)
        slow = run.play((first_ns, second_ns)).times_ns
    assert fast.dtype == slow.dtype
    assert fast.tolist() == slow.tolist()


@pytest.mark.parametrize(
    ("words", "groups", "needs"),
    [
        ("different lengths", 0, ([0, 0], [0], [-1, -1], [0, 0], [-1, -1])),
        ("node 1 precedes", 0, ([0, 1], [0, 0], [-1, -1], [0, 0], [-1, -1])),
        ("node 1 precedes", 0, ([0, 0], [0, 0], [-1, 1], [0, 0], [-1, -1])),
        ("node 1 precedes", 1, ([0, -2], [0, 0], [-1, -1], [0, 0], [-1, -1])),
        ("node 1 precedes", 1, ([0, 0], [0, 0], [-1, -1], [0, 0], [-1, 1])),
        ("node 1 precedes", -1, ([0, -1], [0, 0], [-1, -1], [0, 0], [-1, -1])),
    ],
)
def test_needs_that_are_not_earlier_are_refused(
    words: str, groups: int, needs: tuple[list[int], ...]
) -> None:
    from timeline.analysis.gains import _replay

    first, *rest = (np.array(column, np.int64).tobytes() for column in needs)
    with pytest.raises(ValueError, match=words):
        _replay.play(groups, first, *rest)
