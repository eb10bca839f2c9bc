"""Proves that each operator of two runs is in one pair, whatever is told of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import example, given, settings

from tests.support.examples import at_most
from timeline.comparison.pairs import RunOperators, pair_operators
from timeline.tables.table import Table

_words = st.sampled_from(["", "a", "b", "c"])
_operators = st.lists(
    st.tuples(st.sampled_from("XY"), _words, _words, st.integers(1, 9), st.integers(0, 1000)),
    max_size=12,
)


def _table(rows: Sequence[tuple[str, str, str, int, int]]) -> Table:
    kinds = {"type": object, "name": object, "shapes": object, "count": int, "total_ns": int}
    columns = list(zip(*rows, strict=True)) or [()] * len(kinds)
    return Table(
        {
            name: np.array(column, np.int64 if kind is int else object)
            for (name, kind), column in zip(kinds.items(), columns, strict=True)
        }
    )


@settings(max_examples=at_most(60))
@given(_operators, _operators)
@example(  # what has no shapes in both runs, and other shapes in each, are told by the same name
    [("X", "a", "", 1, 5), ("X", "a", "b", 1, 5)], [("X", "a", "", 1, 5), ("X", "a", "c", 1, 5)]
)
def test_every_operator_is_in_one_pair(base: list[Any], new: list[Any]) -> None:
    """Whatever is told of operators: totals stay, sides can be swapped, who lost most is first."""
    pairs = pair_operators(RunOperators(_table(base), 1.0), RunOperators(_table(new), 1.0))
    for side, rows in (("base", base), ("new", new)):
        assert pairs[f"{side}_ns"].sum() == sum(row[4] for row in rows)
        assert pairs[f"{side}_count"].sum() == sum(row[3] for row in rows)
    assert (np.diff(pairs["delta_ns"]) <= 0).all()
    keys = list(zip(*(pairs[name].tolist() for name in ("type", "name", "shapes")), strict=True))
    alone = pairs["matched"] == "one run only"
    assert len(set(keys)) == len(keys)
    assert ((pairs["base_count"] == 0) | (pairs["new_count"] == 0)).tolist() == alone.tolist()
    swapped = pair_operators(RunOperators(_table(new), 1.0), RunOperators(_table(base), 1.0))
    told = ("matched", "type", "name", "shapes", "base_ns", "new_ns")
    other = ("matched", "type", "name", "shapes", "new_ns", "base_ns")
    assert sorted(zip(*(pairs[name].tolist() for name in told), strict=True)) == sorted(
        zip(*(swapped[name].tolist() for name in other), strict=True)
    )


@given(_operators)
def test_operators_of_one_run_are_all_matched(rows: list[Any]) -> None:
    """A run against itself: by name and shapes as far as they are told, and without change."""
    pairs = pair_operators(RunOperators(_table(rows), 0.5), RunOperators(_table(rows), 0.5))
    assert not pairs["delta_ns"].any()
    assert "one run only" not in pairs["matched"].tolist()
