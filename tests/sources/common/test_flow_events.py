"""Proves that arrows lead from launches to what they run, and from operators to gradients."""

from __future__ import annotations

from collections import Counter as Multiset
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profile_shelf import ProfileShelf, change_events
from tests.support.read_profiles import records_of
from timeline.columns.strings import StringPool
from timeline.records.tables import FORWARD_BACKWARD, FlowEnd, Records
from timeline.sources.common.flow_events import gradient_arrows


def arrows(records: Records) -> Multiset[tuple[Any, ...]]:
    """Start, kind and end of each arrow."""
    starts = {
        FlowEnd.HOST: records.host.start_ns,
        FlowEnd.TASK: records.tasks.start_ns,
        FlowEnd.OP: records.ops.start_ns,
        FlowEnd.PLANE: records.planes.start_ns,
    }
    flows = records.flows
    return Multiset(
        (
            records.strings[category],
            int(starts[FlowEnd(source_kind)][source]),
            int(starts[FlowEnd(target_kind)][target]),
        )
        for category, source_kind, source, target_kind, target in zip(
            flows.category.tolist(),
            flows.source_kind.tolist(),
            flows.source_row.tolist(),
            flows.target_kind.tolist(),
            flows.target_row.tolist(),
            strict=True,
        )
    )


@pytest.mark.parametrize("phases", ["s", "f", "sf"])
def test_arrows_of_a_connection_need_no_events(
    shelf: ProfileShelf, tmp_path: Path, phases: str
) -> None:
    """Where an exporter leaves out starts or ends, connections draw the arrows that tasks have."""
    whole = records_of(shelf.get("mindstudio", ranks=1).path)
    profile = shelf.copy("mindstudio", tmp_path / "run", ranks=1)
    for path in profile.path.rglob("msprof_[0-9]*.json"):
        change_events(path, lambda event: None if event["ph"] in phases else event)
    found = records_of(profile.path)
    assert len(whole.flows) > 10
    assert arrows(found) == arrows(whole)
    assert not any(
        omission.reason.startswith("arrows")
        for records in (whole, found)
        for omission in records.omissions
    )


@pytest.mark.parametrize("layout", ["torch-text", "mindstudio"])
def test_a_trace_has_the_arrows_of_a_database(shelf: ProfileShelf, layout: str) -> None:
    """Those from calls of CANN: the exporter draws no flow to tasks that copy, record or wait."""

    def launches(layout: str) -> Multiset[tuple[Any, ...]]:
        found = arrows(records_of(shelf.get(layout, ranks=1, ops_per_step=24).path))
        return Multiset(
            {arrow: count for arrow, count in found.items() if arrow[0] == "HostToDevice"}
        )

    assert launches(layout) == launches("torch-db")


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
