"""Proves which losses are found, in which order, and what each part of a run is compared with."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.made_runs import FIRST_STEP, MadeRun
from timeline.analysis.gains import findings
from timeline.analysis.gains.findings import (
    ALIKE,
    FAR_MORE,
    NOTABLE,
    Basis,
    Cause,
    Finding,
    FindingKind,
    estimate_gain_ns,
    find_losses,
)
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

# -- losses ----------------------------------------------------------------------------------------


EVERY = range(4)
"""All steps."""


def faults(run: MadeRun) -> list[Finding]:
    return [one for one in find_losses(run.made()).found if one.fault]


def levers(run: MadeRun) -> list[Finding]:
    return [one for one in find_losses(run.made()).found if not one.fault]


@given(
    st.integers(2, 6),
    st.integers(0, 5),
    st.floats(1.2, 3),
    st.sets(st.integers(0, 3), min_size=1),
)
def test_a_slow_rank_wins_what_the_run_without_it_is_shorter_by(
    ranks: int, slow: int, factor: float, steps: set[int]
) -> None:
    """To the nanosecond; in which steps it is slow is told where those are few."""
    healthy = MadeRun.alike(ranks, 4)
    slow %= ranks
    run = healthy.computing(factor, [slow], sorted(steps))
    first, *others = faults(run)
    assert (first.kind, first.ranks, first.cause) == (
        FindingKind.SLOW_RANK,
        (slow,),
        Cause.COMPUTING,
    )
    assert first.gain_ns == first.further_ns == run.total_ns - healthy.total_ns
    numbers = tuple(FIRST_STEP + step for step in sorted(steps))
    assert first.steps == (numbers if len(steps) <= 2 else None)
    assert not others
    assert estimate_gain_ns(run.made(), slow) == first.gain_ns
    assert estimate_gain_ns(run.made(), (slow + 1) % ranks) == 0


@given(st.integers(2, 5), st.integers(0, 4), st.integers(250_000, 900_000))
def test_a_late_host_wins_what_it_is_late_by(ranks: int, late: int, host_ns: int) -> None:
    healthy = MadeRun.alike(ranks, 4)
    late %= ranks
    hosts_ns = healthy.host_ns.copy()
    hosts_ns[late] = host_ns
    run = replace(healthy, host_ns=hosts_ns)
    first, *others = faults(run)
    assert (first.kind, first.ranks, first.cause) == (FindingKind.SLOW_RANK, (late,), Cause.HOST)
    assert first.gain_ns == run.total_ns - healthy.total_ns
    assert not others


def test_a_host_that_its_device_never_waits_for_wins_nothing() -> None:
    healthy = MadeRun.alike(3, 4)
    hosts_ns = healthy.host_ns.copy()
    hosts_ns[1, :, 1:] *= 100
    assert not faults(replace(healthy, host_ns=hosts_ns))


@pytest.mark.parametrize("starved", [(1,), (0, 1, 2)])
def test_late_data_are_of_a_rank_or_of_all(starved: tuple[int, ...]) -> None:
    healthy = MadeRun.alike(3, 4)
    data_ns = healthy.data_ns.copy()
    data_ns[list(starved)] = 5_000_000
    run = replace(healthy, data_ns=data_ns)
    first, *others = faults(run)
    assert (first.kind, first.cause, first.steps) == (FindingKind.STARVED, Cause.INPUT, None)
    assert first.ranks == (starved if len(starved) == 1 else None)
    assert first.gain_ns == pytest.approx(run.total_ns - healthy.total_ns, abs=4 * 1000)
    assert not others


def test_steps_in_which_all_ranks_are_slow_are_named() -> None:
    """No rank is slower than its peers there, but each is than in other steps."""
    healthy = MadeRun.alike(3, 6)
    run = healthy.computing(2.5, [0, 1, 2], [3])
    first, *others = faults(run)
    assert (first.kind, first.ranks, first.steps, first.cause) == (
        FindingKind.SLOW_STEPS,
        None,
        (FIRST_STEP + 3,),
        Cause.COMPUTING,
    )
    assert first.gain_ns == run.total_ns - healthy.total_ns
    assert not others


def test_ranks_that_are_slow_together_are_named_together() -> None:
    """Neither wins anything alone."""
    healthy = MadeRun.alike(6, 4)
    run = healthy.computing(1.5, [1, 4], EVERY)
    first, *others = faults(run)
    assert (first.kind, first.ranks, first.steps) == (FindingKind.SLOW_RANKS, (1, 4), None)
    assert first.gain_ns == run.total_ns - healthy.total_ns
    assert not others


def test_ranks_that_do_other_work_are_no_peers() -> None:
    """Of two classes, neither is held against the other one."""
    run = MadeRun.alike(4, 4).computing(2, [2, 3], EVERY)
    assert not [one for one in find_losses(run.made([0, 0, 1, 1])).found if one.fault]


@given(st.floats(1.3, 2), st.floats(1.3, 2), st.integers(0, 2), st.integers(1, 2))
def test_losses_are_found_one_at_a_time(
    factor: float, other: float, first_rank: int, further: int
) -> None:
    """One of the largest first; each wins on top of those before, and all win all that is lost.

    One rank computes slowly in most steps, and the data of another one come late in one.
    """
    second_rank = (first_rank + further) % 3
    healthy = MadeRun.alike(3, 6)
    run = healthy.computing(factor, [first_rank], [0, 1, 2, 3])
    data_ns = run.data_ns.copy()
    data_ns[second_rank, 5] = round(other * 1_000_000)
    run = replace(run, data_ns=data_ns)
    found = faults(run)
    assert {(one.ranks, one.cause) for one in found} == {
        ((first_rank,), Cause.COMPUTING),
        ((second_rank,), Cause.INPUT),
    }
    assert found[0].further_ns == found[0].gain_ns
    assert found[0].gain_ns >= ALIKE * max(one.gain_ns for one in found)
    won_ns = sum(one.further_ns for one in found)
    assert won_ns == pytest.approx(run.total_ns - healthy.total_ns, abs=len(found) * 1000)
    assert all(one.further_ns >= NOTABLE * run.total_ns for one in found)


@given(st.floats(1.05, 2.0), st.floats(1.05, 2.0), st.integers(0, 1 << 30))
def test_any_losses_win_no_more_than_all_together(factor: float, other: float, seed: int) -> None:
    """Whatever takes longer: further gains add up to less than the run, the first is its own."""
    chance = np.random.default_rng(seed)
    healthy = MadeRun.alike(4, 5)
    noise = chance.normal(1, 0.05, healthy.computing_ns.shape)
    run = replace(healthy, computing_ns=(healthy.computing_ns * noise).astype(np.int64))
    run = run.computing(factor, [int(chance.integers(4))], EVERY)
    run = run.computing(other, [0, 1, 2, 3], [int(chance.integers(5))])
    found = faults(run)
    assert sum(one.further_ns for one in found) < run.total_ns
    for at, one in enumerate(found):
        assert NOTABLE * run.total_ns <= one.further_ns
        assert at or one.further_ns == one.gain_ns
        assert one.took_ns >= one.less_ns > 0


def test_the_narrowest_of_what_wins_nearly_as_much_is_found() -> None:
    """A rank that is slow in one step for nearly all of its loss is slow in that step."""
    run = MadeRun.alike(3, 4).computing(3, [1], [2])
    little = run.computing(1.02, [1], [0, 1, 3])
    first, *_ = faults(little)
    whole_ns = little.total_ns - MadeRun.alike(3, 4).total_ns
    assert first.steps == (FIRST_STEP + 2,)
    assert ALIKE * whole_ns <= first.gain_ns < whole_ns


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_nothing_is_wrong_with_ranks_that_are_alike(ranks: int) -> None:
    """Only levers are left, each with what it wins, and none is a fault."""
    run = MadeRun.alike(ranks, 4)
    assert not faults(run)
    found = {one.kind: one for one in levers(run)}
    exposed = found[FindingKind.EXPOSED_COMMUNICATION]
    assert exposed.gain_ns == 4 * run.transfer_ns
    assert exposed.cause is Cause.COMMUNICATION
    operator = found[FindingKind.SLOW_OPERATOR]
    assert operator.gain_ns == 4 * 200_000 // 10
    assert operator.name == "kernel0"
    assert list(found) == [
        one.kind for one in sorted(found.values(), key=lambda one: -one.further_ns)
    ]


def test_launching_in_time_is_an_upper_bound() -> None:
    """Where hosts are behind all the time, all of that is taken for what could be won at most."""
    healthy = MadeRun.alike(2, 4)
    run = replace(healthy, host_ns=healthy.host_ns * 400)
    hosts = next(one for one in levers(run) if one.kind is FindingKind.SLOW_HOSTS)
    assert hosts.basis is Basis.BOUND
    assert not hosts.fault
    assert hosts.gain_ns > 4 * 200_000


def test_streams_that_wait_at_a_time_are_not_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the time that hosts take, no more is said than the device idles."""
    healthy = MadeRun.alike(2, 4)
    run = replace(healthy, host_ns=healthy.host_ns * 400)
    (whole,) = (one for one in levers(run) if one.kind is FindingKind.SLOW_HOSTS)
    least_ns = whole.took_ns // 2
    monkeypatch.setattr(findings._Search, "_idle_ns", [least_ns] * 2)
    (hosts,) = (one for one in levers(run) if one.kind is FindingKind.SLOW_HOSTS)
    assert hosts.took_ns == hosts.less_ns == least_ns


def test_levers_come_after_faults_unless_they_win_far_more() -> None:
    """A small fault of a rank is told behind what hiding communication wins."""
    slow = MadeRun.alike(3, 4).computing(1.4, [0], EVERY)
    assert find_losses(slow.made()).found[0].fault
    bound = replace(slow, transfer_ns=FAR_MORE * 4 * 80_000 + 500_000)
    first, *others = find_losses(bound.made()).found
    assert first.kind is FindingKind.EXPOSED_COMMUNICATION
    assert [one.ranks for one in others if one.fault] == [(0,)]


def test_stalls_that_no_peer_tells_are_found() -> None:
    """Hosts that all stand still, now here and now there, are compared with their own places."""
    healthy = MadeRun.alike(2, 8)
    hosts_ns = healthy.host_ns.copy()
    for step in range(1, 8):
        hosts_ns[:, step, step % 4] = 2 * STALL_NS + step
    run = replace(healthy, host_ns=hosts_ns)
    first = faults(run)[0]
    assert (first.kind, first.ranks, first.cause) == (FindingKind.SLOW_HOSTS, None, Cause.HOST)
    assert first.gain_ns > 0.8 * (run.total_ns - healthy.total_ns)


def test_a_rank_that_is_not_recorded_is_named_by_its_number() -> None:
    """Those that wait for it tell how late it comes, and not why."""
    healthy = MadeRun.alike(4, 4)
    run = healthy.computing(2, [3], EVERY)
    losses = find_losses(run.made(recorded=3))
    first = losses.found[0]
    assert (first.kind, first.ranks, first.absent) == (FindingKind.SLOW_RANK, (), 3)
    assert first.cause is Cause.UNKNOWN
    assert first.gain_ns == run.total_ns - healthy.total_ns
    assert not losses.is_whole


def test_gains_are_withheld_where_the_replay_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "MOST_RESIDUAL", -1)
    losses = find_losses(MadeRun.alike(3, 4).made())
    assert losses.found == ()
    assert losses.reason == "the run cannot be replayed as it was recorded"


# -- what parts are compared with ------------------------------------------------------------------


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
