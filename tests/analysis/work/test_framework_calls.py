"""Proves that calls hang below the one that began last of those that have not ended."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.support.random_intervals import Interval, columns_of, intervals
from timeline.analysis.work.framework_calls import NO_CALL, CallTree


def tree_of(pairs: list[Interval]) -> CallTree:
    return CallTree.of(np.arange(len(pairs)), *columns_of(pairs))


def parents_of(pairs: list[Interval]) -> dict[int, int]:
    """The row of the call around each row, as a program finds it that keeps what is open."""
    order = sorted(range(len(pairs)), key=lambda row: (pairs[row][0], -pairs[row][1], row))
    opened, found = list[int](), dict[int, int]()
    for row in order:
        opened = [one for one in opened if pairs[one][1] > pairs[row][0]]
        found[row] = opened[-1] if opened else NO_CALL
        opened.append(row)
    return found


@given(intervals(most=24))
def test_each_call_hangs_below_the_last_open_one(pairs: list[Interval]) -> None:
    """That holds for calls that cross, that are equal and that have no length."""
    tree = tree_of(pairs)
    row = np.append(tree.row, NO_CALL)
    found = dict(zip(tree.row.tolist(), row[tree.parent].tolist(), strict=True))
    assert found == parents_of(pairs)


@given(intervals(most=24), st.data())
def test_sums_and_labels_follow_the_tree(pairs: list[Interval], data: st.DataObject) -> None:
    """A sum is that of all calls below; a label is that of the nearest call that has one."""
    tree, parents = tree_of(pairs), parents_of(pairs)
    own = data.draw(st.lists(st.integers(-1, 9), min_size=len(pairs), max_size=len(pairs)))
    values = np.array(own, np.int64)[tree.row]
    sums, labels = dict(enumerate(own)), dict(enumerate(own))
    for row in reversed(tree.row.tolist()):
        if parents[row] != NO_CALL:
            sums[parents[row]] += sums[row]
    for row in tree.row.tolist():
        if labels[row] == -1 and parents[row] != NO_CALL:
            labels[row] = labels[parents[row]]
    assert tree.totals(values).tolist() == [sums[row] for row in tree.row.tolist()]
    assert tree.inherited(values, -1).tolist() == [labels[row] for row in tree.row.tolist()]


def test_a_deep_tree_has_a_level_for_each_depth() -> None:
    """Calls nested thousands deep, of which no two are equal, each have a level of their own."""
    count = 5000
    start_ns = np.arange(count)
    tree = CallTree.of(np.arange(count), start_ns, 3 * count - start_ns)
    assert [level.tolist() for level in tree.levels] == [[place] for place in range(count)]
    assert tree.totals(np.ones(count, np.int64)).tolist() == list(range(count, 0, -1))


def test_rows_are_found_in_the_tree() -> None:
    """A row that is no call of the tree has no place in it."""
    tree = CallTree.of(np.array([7, 3]), np.array([5, 0]), np.array([6, 9]))
    assert tree.places(np.array([3, 7, 4])).tolist() == [0, 1, NO_CALL]
    assert tree.open_at(np.array([5, 6, 9])).tolist() == [1, 0, NO_CALL]
