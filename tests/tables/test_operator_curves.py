"""Proves that curves of operator types hold what steps hold, in room that goes with its rows."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from timeline.tables.operators import MOST_CURVES, OperatorCurves, operator_curves
from timeline.tables.table import Table

Row = tuple[int, str | None, int]
"""Step, type and time of one rank."""


def curves_of(rows: Sequence[Row]) -> OperatorCurves | None:
    kinds = np.array([kind for _, kind, _ in rows], object)
    steps = Table(
        {
            "rank": np.zeros(len(rows), np.int64),
            "step": np.ma.masked_array([step for step, _, _ in rows]),
            "level": np.array(["type"] * len(rows), object),
            "type": kinds,
            "total_ns": np.array([total_ns for _, _, total_ns in rows], np.int64),
        }
    )
    named = np.array(sorted({kind for kind in kinds if kind is not None}), object)
    return operator_curves(
        steps, Table({"type": named, "communication": np.zeros(len(named), np.int64)})
    )


@given(
    st.lists(
        st.tuples(
            st.integers(1, 4),
            st.one_of(st.none(), st.sampled_from([f"Op{at}" for at in range(MOST_CURVES + 3)])),
            st.integers(0, 100),
        ),
        min_size=1,
    )
)
def test_curves_and_others_are_all_time(rows: list[Row]) -> None:
    """Each curve holds the times of its type by step; all that is in none is in the others."""
    found = curves_of(rows)
    if found is None:
        assert len({step for step, _, _ in rows}) < 2
        return
    for kind, curve in zip(found.types, found.mean_ns.tolist(), strict=True):
        for step, mean_ns in zip(found.steps.tolist(), curve, strict=True):
            assert mean_ns == sum(ns for at, name, ns in rows if (at, name) == (step, kind))
    assert found.totals_ns.sum() + found.others_ns == sum(ns for _, _, ns in rows)


def test_types_of_one_step_each_need_no_room_in_all_others() -> None:
    """Nor does one long name: 20,000 types and steps, and a name of 20,000 letters."""
    rows: list[Row] = [(at, f"Op{at}", at) for at in range(1, 20_000)]
    rows.append((1, "x" * 20_000, 1))
    tracemalloc.start()
    try:
        found = curves_of(rows)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found is not None
    assert found.types[0] == "Op19999"
    assert most < 50 << 20
