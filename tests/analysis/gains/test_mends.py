"""Proves what each part of a run is compared with, by a plain look at all parts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from statistics import median
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.random_recordings import START_NS, random_ranks
from timeline.analysis.gains.mends import (
    AT_HAND_NS,
    LEAST_GAP,
    STALL_NS,
    Mends,
    Part,
    Parts,
    split_odd,
)
from timeline.analysis.gains.replay import Replay
from timeline.columns.group_by import count_turns
from timeline.columns.strings import StringPool
from timeline.records.not_given import NO_ID

MS = 1_000_000
seeds = st.integers(0, 1 << 30)
Row = tuple[Any, ...]


def middle(times_ns: Iterable[int]) -> int:
    """The median, rounded down."""
    return int(median(times_ns) // 1)


def _of_run(seed: int, ranks: int, steps: int, classes: list[int]) -> Mends:
    made = random_ranks(seed, ranks, steps)
    replay = Replay(made, START_NS)
    return Mends.of(replay, made, [np.arange(steps)] * ranks, classes)


def _rows(parts: Parts, *names: str) -> list[Row]:
    return list(zip(*(getattr(parts, name).tolist() for name in names), strict=True))


def _beyond_ns(parts: Parts, likes_ns: list[int | None]) -> list[int]:
    """By how much parts of steps exceed their likes, as long as all of a kind in a step do."""
    rows = _rows(parts, "part", "rank", "step", "time_ns")
    beyond = [
        0 if like_ns is None or step == NO_ID else time_ns - like_ns
        for (*_, step, time_ns), like_ns in zip(rows, likes_ns, strict=True)
    ]
    net, longer = Counter[Row](), Counter[Row]()
    for row, one in zip(rows, beyond, strict=True):
        net[row[:3]] += one
        longer[row[:3]] += max(one, 0)
    return [
        int(max(one, 0) * (max(net[row[:3]], 0) / max(longer[row[:3]], 1)))
        for row, one in zip(rows, beyond, strict=True)
    ]


def _completed(parts: Parts, likes_ns: list[int | None]) -> list[int | None]:
    """Where no other rank tells, the median of all steps of the own one, or nothing at all."""
    own = defaultdict[Row, list[int]](list)
    rows = _rows(parts, "part", "rank", "name", "turn", "step", "time_ns")
    for *key, step, time_ns in rows:
        if step != NO_ID:
            own[tuple(key)].append(time_ns)
    enough = len({row[4] for row in rows} - {NO_ID}) >= 3
    return [
        like_ns
        if like_ns is not None
        else middle(own[row[:4]])
        if len(own[row[:4]]) > 1
        else 0
        if enough and row[4] != NO_ID
        else None
        for row, like_ns in zip(rows, likes_ns, strict=True)
    ]


@given(seeds, st.integers(1, 5), st.integers(1, 5), st.data())
def test_likes_are_medians_of_the_other_ranks(
    seed: int, ranks: int, steps: int, data: st.DataObject
) -> None:
    """Of the same work, told by class, step, name and turn; else of other steps of the own rank."""
    classes = data.draw(st.lists(st.integers(0, 1), min_size=ranks, max_size=ranks))
    mends = _of_run(seed, ranks, steps, classes)
    parts = mends.parts
    same = defaultdict[Row, dict[int, int]](dict)
    rows = _rows(parts, "part", "step", "name", "turn", "rank", "time_ns")
    for *key, rank, time_ns in rows:
        its = same[(*key, classes[rank])]
        assert rank not in its
        its[rank] = time_ns
    likes_ns: list[int | None] = []
    for *key, rank, _ in rows:
        others = [ns for other, ns in same[(*key, classes[rank])].items() if other != rank]
        likes_ns.append(middle(others) if others else None)
    assert mends.peers_ns.tolist() == _beyond_ns(parts, _completed(parts, likes_ns))
    assert not mends.peers_ns[parts.step == NO_ID].any()


@given(seeds, st.integers(1, 3), st.integers(2, 5), st.data())
def test_odd_steps_are_compared_with_the_others(
    seed: int, ranks: int, steps: int, data: st.DataObject
) -> None:
    """By the same work of the own rank; what no other step has would not be there."""
    mends = _of_run(seed, ranks, steps, [0] * ranks)
    parts = mends.parts
    odd_step = data.draw(st.integers(0, steps - 1))
    others = defaultdict[Row, list[int]](list)
    rows = _rows(parts, "part", "rank", "name", "turn", "step", "time_ns")
    for *key, step, time_ns in rows:
        if step != odd_step:
            others[tuple(key)].append(time_ns)
    likes_ns: list[int | None] = [middle(others[row[:4]]) if others[row[:4]] else 0 for row in rows]
    wanted = [
        one if row[4] == odd_step else 0
        for row, one in zip(rows, _beyond_ns(parts, likes_ns), strict=True)
    ]
    assert mends.beyond_steps(parts.step == odd_step).tolist() == wanted


@given(seeds, st.integers(2, 5), st.integers(1, 5), st.data())
def test_slow_ranks_are_compared_with_the_others(
    seed: int, ranks: int, steps: int, data: st.DataObject
) -> None:
    """All slow ones with the median of the ranks that are not slow."""
    mends = _of_run(seed, ranks, steps, [0] * ranks)
    parts = mends.parts
    slow = data.draw(st.sets(st.integers(0, ranks - 1), min_size=1, max_size=ranks - 1))
    others = defaultdict[Row, list[int]](list)
    rows = _rows(parts, "part", "step", "name", "turn", "rank", "time_ns")
    for *key, rank, time_ns in rows:
        if rank not in slow:
            others[tuple(key)].append(time_ns)
    likes_ns = [middle(others[row[:4]]) if others[row[:4]] else None for row in rows]
    wanted = [
        one if row[4] in slow else 0
        for row, one in zip(rows, _beyond_ns(parts, _completed(parts, likes_ns)), strict=True)
    ]
    assert mends.beyond_ranks(np.isin(parts.rank, list(slow))).tolist() == wanted


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
        ([AT_HAND_NS] * 3, [0] * 3),
        ([], []),
    ],
)
def test_data_are_late_where_calls_take_longer_than_handing_over(
    waits_ns: list[int], wanted: list[int]
) -> None:
    """What is short lies in all steps anyway; what is never short is all waiting."""
    mends = made_mends(part=[Part.INPUT] * len(waits_ns), time_ns=waits_ns)
    assert mends.late_data(100 * MS).tolist() == wanted


def test_data_that_take_most_of_a_short_step_are_late() -> None:
    mends = made_mends(part=[Part.INPUT] * 3, time_ns=[1 * MS] * 3)
    assert mends.late_data(2 * MS).tolist() == [1 * MS] * 3


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
