"""Proves which forward call the numbers of autograd join to which backward call."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from timeline.columns.strings import StringPool
from timeline.records.tables import FORWARD_BACKWARD
from timeline.sources.common.flow_events import gradient_arrows

CALLS = st.lists(
    st.tuples(st.integers(0, 1000), st.integers(-1, 4), st.integers(-1, 2)),
    max_size=20,
    unique_by=lambda call: call[0],
)
"""Start, sequence number and forward thread of calls."""


@given(CALLS)
def test_the_last_forward_call_is_joined_to_the_first_backward_call(
    calls: list[tuple[int, int, int]],
) -> None:
    """One arrow for each number that both have, from the innermost forward call."""
    strings = StringPool()
    start_ns, number, thread = np.array(calls, np.int64).reshape(-1, 3).T
    flows = gradient_arrows(strings, 7 + np.arange(len(calls)), start_ns, number, thread)
    expected = set()
    for one in range(1, 5):
        forward = [
            (call[0], row) for row, call in enumerate(calls) if call[1] == one and call[2] <= 0
        ]
        backward = [
            (call[0], row) for row, call in enumerate(calls) if call[1] == one and call[2] > 0
        ]
        if forward and backward:
            expected.add((7 + max(forward)[1], 7 + min(backward)[1]))
    found = list(zip(flows.source_row.tolist(), flows.target_row.tolist(), strict=True))
    assert len(found) == len(expected) and set(found) == expected
    assert {strings[code] for code in flows.category.tolist()} <= {FORWARD_BACKWARD}
