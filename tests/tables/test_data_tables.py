"""Proves the rules that name what limits a pipeline against a plain reading of their formulas."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timeline.records.not_given import NO_ID
from timeline.records.profiler_tables import PipelineOperations
from timeline.tables.data import Limit, pipeline_limits

CAPACITY = 10


def operations(parents: list[int], sizes: list[list[int] | None]) -> PipelineOperations:
    """Operations 0 to n, each with its parent and what its queue held."""
    return PipelineOperations.of(
        len(parents),
        {
            "op": range(len(parents)),
            "parent": parents,
            "samples": [NO_ID if one is None else len(one) for one in sizes],
            "capacity": [NO_ID if one is None else CAPACITY for one in sizes],
            "total_size": [sum(one or []) for one in sizes],
        },
    )


@st.composite
def pipelines(draw: st.DrawFn) -> tuple[list[int], list[list[int] | None]]:
    """Trees of any form, of which the root may have no queue."""
    count = draw(st.integers(1, 8))
    parents = [NO_ID, *(draw(st.integers(0, op - 1)) for op in range(1, count))]
    queue = st.lists(st.integers(0, CAPACITY), min_size=1, max_size=3)
    root = draw(queue | st.none())
    return parents, [root, *(draw(queue) for _ in range(count - 1))]


@given(made=pipelines())
def test_operations_are_named_by_the_rules(
    made: tuple[list[int], list[list[int] | None]],
) -> None:
    """Fuller input, slow source and slow sink, each exactly where its inequality holds.

    It is MindInsight's, of floating-point numbers: by how much 23 / 30 exceeds 20 / 30 depends on
    the order of the divisions.
    """
    parents, sizes = made
    use = [0.0 if one is None else sum(one) / len(one) / CAPACITY for one in sizes]
    children = {op: [at for at, parent in enumerate(parents) if parent == op] for op in range(9)}
    fuller = {
        op for op in range(1, len(use)) if any(use[child] - use[op] > 0.1 for child in children[op])
    }
    slow = {op for op in range(len(use)) if not children[op] and use[op] < 0.6}
    expected = dict.fromkeys(slow, Limit.SLOW_SOURCE) | dict.fromkeys(fuller, Limit.FULLER_INPUT)
    if all(one >= 0.8 for one in use[1:]):
        expected = {0: Limit.SLOW_SINK}
    assert pipeline_limits(operations(parents, sizes)) == expected


@pytest.mark.parametrize(
    ("sizes", "named"),
    [
        ([[5], [8], [8]], {0: Limit.SLOW_SINK}),
        ([[5], [7], [7]], {}),
        ([None, [0], [5]], {1: Limit.FULLER_INPUT, 2: Limit.SLOW_SOURCE}),
        ([[10], [5], [6]], {}),
        ([[0], [9], [10]], {0: Limit.SLOW_SINK}),
    ],
)
def test_a_chain(sizes: list[list[int] | None], named: dict[int, Limit]) -> None:
    """The root is never named for a fuller input; a source at the threshold is fast enough."""
    assert pipeline_limits(operations([NO_ID, 0, 1], sizes)) == named
