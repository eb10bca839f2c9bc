"""Proves that what is worked out by runs is what a walk from item to item finds."""

from __future__ import annotations

import time

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from timeline.analysis.path.item_runs import ItemRuns
from timeline.columns.columns import Codes, Int64
from timeline.records.not_given import NO_ID


@st.composite
def forests(draw: st.DrawFn) -> tuple[Codes, Int64]:
    """What each item waited for, mostly the one just before; and ends, later than those of that."""
    before, ends_ns = list[int](), list[int]()
    for row in range(draw(st.integers(1, 40))):
        near = row - 1 if row and draw(st.integers(0, 3)) else NO_ID
        before.append(near if near != NO_ID else draw(st.integers(NO_ID, row - 1)))
        since_ns = ends_ns[before[-1]] if before[-1] != NO_ID else draw(st.integers(-9, 9))
        ends_ns.append(since_ns + draw(st.integers(0, 3)))
    return np.array(before, np.int32), np.array(ends_ns, np.int64)


def path_of(before: Codes, row: int) -> list[int]:
    """An item and all that lead to it, last first."""
    found = [row]
    while before[found[-1]] != NO_ID:
        found.append(int(before[found[-1]]))
    return found


@given(forests(), st.data())
def test_what_leads_to_items(forest: tuple[Codes, Int64], data: st.DataObject) -> None:
    """It is what walks from each of them come to."""
    before, _ = forest
    some = st.lists(st.booleans(), min_size=len(before), max_size=len(before))
    reached = np.array(data.draw(some), np.bool_)
    expected = {row for one in np.flatnonzero(reached).tolist() for row in path_of(before, one)}
    assert set(np.flatnonzero(ItemRuns(before).leading_to(reached)).tolist()) == expected


@given(forests(), st.data())
def test_sums_over_what_leads_to_items(forest: tuple[Codes, Int64], data: st.DataObject) -> None:
    """They hold the item itself, and leave out the first of all."""
    before, _ = forest
    values = [data.draw(st.integers(0, 9)) for _ in before.tolist()]
    found = ItemRuns(before).sum_at(np.array(values, np.int64), np.arange(len(before)))
    assert found.tolist() == [
        sum(values[one] for one in path_of(before, row)[:-1]) for row in range(len(before))
    ]


def test_sums_where_all_items_overflow() -> None:
    """Only what leads to one item must fit into 64 bits, not what all items add up to."""
    items = 9
    values = np.full(items, 1 << 62)
    before = np.zeros(items, np.int32)
    before[0] = NO_ID
    found = ItemRuns(before).sum_at(values, np.arange(items))
    assert found.tolist() == [0] + [1 << 62] * (items - 1)


@given(forests(), st.data())
def test_the_first_that_ends_after_a_moment(
    forest: tuple[Codes, Int64], data: st.DataObject
) -> None:
    """It is the last that a walk back comes to while what it comes to ends after the moment."""
    before, ends_ns = forest
    rows = np.arange(len(before))
    since_ns = np.array([data.draw(st.integers(-12, 40)) for _ in rows], np.int64)
    found = ItemRuns(before).first_after(ends_ns, rows, since_ns)
    for row, since, first in zip(rows.tolist(), since_ns.tolist(), found.tolist(), strict=True):
        after = [one for one in path_of(before, row)[1:] if ends_ns[one] > since]
        assert first == (after[-1] if after else row)


def test_many_short_runs_take_no_longer_each() -> None:
    """Two chains in turns are runs of one item each, at most of which nothing is looked at."""
    items = 100_000
    before = np.arange(-2, items - 2, dtype=np.int32)
    before[:2] = NO_ID
    ends_ns, rows = np.arange(items), np.arange(items - 5_000, items)
    begin = time.perf_counter()
    found = ItemRuns(before).first_after(ends_ns, rows, np.full(len(rows), 10))
    assert time.perf_counter() - begin < 5
    assert found.tolist() == [11 if row % 2 else 12 for row in rows.tolist()]
