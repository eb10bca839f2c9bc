"""Proves what each part of a run is compared with, by a plain look at all parts."""

from __future__ import annotations

from collections import Counter, defaultdict
from statistics import median
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timeline.analysis.gains.mends import (
    HANDOVER_NS,
    LEAST_GAP,
    STALL_NS,
    Mends,
    Part,
    Parts,
    split_odd,
)
from timeline.columns.group_by import count_turns
from timeline.columns.strings import StringPool
from timeline.records.not_given import NO_ID

MS = 1_000_000
Row = tuple[Any, ...]


def _rows(parts: Parts, *names: str) -> list[Row]:
    return list(zip(*(getattr(parts, name).tolist() for name in names), strict=True))


def made_mends(**columns: Any) -> Mends:
    """Mends of parts that differ in these columns alone; nodes are counted through."""
    count = len(columns["time_ns"])
    usual = {
        "node": np.arange(count),
        "part": [Part.COMPUTING] * count,
        "rank": [0] * count,
        "step": [0] * count,
        "name": [0] * count,
        "turn": [0] * count,
    }
    parts = Parts.of(count, usual | columns)
    return Mends(parts, np.zeros(count, np.int64), StringPool(), count)


@given(st.data(), st.integers(1, 60))
def test_transfers_are_compared_with_those_of_other_groups(data: st.DataObject, count: int) -> None:
    """Of the same kind and size: with the median of what is usual in each other group."""
    ints = st.lists(st.integers(0, 3), min_size=count, max_size=count)
    like, group, time_ns = (np.array(data.draw(ints)) for _ in range(3))
    like = np.where(like == 3, NO_ID, like)
    mends = made_mends(
        part=[Part.TRANSFER] * count, like=like, group=group, time_ns=time_ns * 100 + 1
    )
    times = defaultdict[Row, list[int]](list)
    for *key, one in _rows(mends.parts, "like", "group", "time_ns"):
        times[tuple(key)].append(one)
    usual = {key: sorted(its)[len(its) // 2] for key, its in times.items()}
    wanted = []
    for code, number, one in _rows(mends.parts, "like", "group", "time_ns"):
        others = [ns for key, ns in usual.items() if key[0] == code and key[1] != number]
        compared = code != NO_ID and others
        wanted.append(max(one - int(median(others)), 0) if compared else 0)
    assert mends.slow_transfers().tolist() == wanted


@pytest.mark.parametrize(
    ("waits_ns", "wanted"),
    [
        ([1 * MS, 1 * MS, 1 * MS, 9 * MS], [0, 0, 0, 8 * MS]),
        ([9 * MS, 9 * MS, 9 * MS, 9 * MS], [9 * MS] * 4),
        ([HANDOVER_NS] * 3, [0] * 3),
        ([], []),
    ],
)
def test_data_are_late_where_calls_take_longer_than_handing_over(
    waits_ns: list[int], wanted: list[int]
) -> None:
    """What is short lies in all steps anyway; what is never short is all waiting."""
    count = len(waits_ns)
    mends = made_mends(part=[Part.INPUT] * count, time_ns=waits_ns, step=np.arange(count))
    assert mends.late_data(100 * MS).tolist() == wanted


def test_data_that_take_most_of_a_short_step_are_late() -> None:
    mends = made_mends(part=[Part.INPUT] * 3, time_ns=[1 * MS] * 3)
    assert mends.late_data(2 * MS).tolist() == [1 * MS] * 3


def test_data_are_late_by_the_sum_of_a_step() -> None:
    """However many calls hand them over: in the second step four take what one takes else."""
    mends = made_mends(
        part=[Part.INPUT] * 6, time_ns=[1 * MS] + [MS // 4] * 4 + [3 * MS], step=[0] + [1] * 4 + [2]
    )
    assert mends.late_data(100 * MS).tolist() == [0] * 5 + [2 * MS]


def test_stalls_of_hosts_are_what_does_not_lie_there_usually() -> None:
    """A long way of a host counts beyond the median of its place in other steps and ranks."""
    time_ns = [1 * MS, 1 * MS, 90 * MS, 3 * MS, STALL_NS]
    mends = made_mends(part=[Part.HOST] * 5, time_ns=time_ns, step=[0, 1, 2, 3, 4])
    assert mends.stalls().tolist() == [0, 0, 87 * MS, 0, 0]
    outside = made_mends(part=[Part.HOST] * 3, time_ns=time_ns[:3], step=[0, 1, NO_ID])
    assert not outside.stalls().any()


def test_what_comes_late_for_an_absent_rank_comes_no_sooner_for_its_own() -> None:
    mends = made_mends(part=[Part.COMPUTING, Part.ABSENCE], time_ns=[5, 7], node=[1, 1])
    first_ns, second_ns = mends.sooner_ns(np.array([2, 3]))
    assert first_ns.tolist() == [0, 2]
    assert second_ns.tolist() == [0, 5]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2))))
def test_turns_count_what_came_before(keys: list[tuple[int, int]]) -> None:
    seen = Counter[tuple[int, int]]()
    wanted = []
    for key in keys:
        wanted.append(seen[key])
        seen[key] += 1
    columns = [np.array([key[at] for key in keys], np.int64) for at in range(2)]
    assert count_turns(*columns).tolist() == wanted


@given(st.lists(st.integers(0, 10_000), max_size=30))
def test_odd_values_are_few_and_far_above_the_others(values: list[int]) -> None:
    odd = split_odd(np.array(values, np.int64))
    assert len(odd) == len(values)
    upper = [value for value, is_odd in zip(values, odd, strict=True) if is_odd]
    lower = [value for value, is_odd in zip(values, odd, strict=True) if not is_odd]
    assert len(upper) <= len(lower)
    if upper:
        gap = min(upper) - max(lower)
        assert gap > LEAST_GAP * median(lower)
        assert gap >= max(np.diff(sorted(values)))


@pytest.mark.parametrize(
    ("values", "odd"),
    [
        ([100, 101, 102, 200], [3]),
        ([200, 100, 100, 200], [0, 3]),
        ([100, 200], []),
        ([100, 105, 103, 108], []),
        ([100, 200, 200, 200], []),
        ([100, 150, 200, 250, 300], []),
        ([0, 0, 0, 5], [3]),
    ],
)
def test_which_values_are_odd(values: list[int], odd: list[int]) -> None:
    """The upper of two groups that lie far apart; neither two values nor the rule are odd."""
    assert np.flatnonzero(split_odd(np.array(values))).tolist() == odd


@pytest.mark.parametrize(
    ("values", "odd"),
    [
        ([100, 101, 102, 200, 201, 202, 203], [3, 4, 5, 6]),
        ([100, 101, 200, 201, 202], []),
        ([200, 100, 101, 102, 200, 201, 202], []),
        ([100, 101, 200, 102], [2]),
    ],
)
def test_steps_may_be_slower_from_one_on(values: list[int], odd: list[int]) -> None:
    """Even if they are more, as long as enough came before them."""
    assert np.flatnonzero(split_odd(np.array(values), in_order=True)).tolist() == odd
