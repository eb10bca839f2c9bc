"""Proves sums of host calls by name against every nanosecond, on random calls of threads."""

from __future__ import annotations

import statistics
from collections import defaultdict
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.support.made_launches import Call, made_records
from tests.support.random_intervals import intervals, laminar_intervals
from timeline.analysis.idle.call_sums import (
    HostCallSums,
    find_one_off,
    own_times,
    sum_calls,
)
from timeline.analysis.idle.charges import ChargedCalls
from timeline.analysis.idle.idle_sums import CAUSES, IdleCause
from timeline.records.tables import Records

NAMES = ("Node@launch", "launch", "aten::add")
MANY = 1 << 20


@st.composite
def hosts(draw: st.DrawFn, spans: st.SearchStrategy[list[tuple[int, int]]]) -> Records:
    """Calls of two threads, in random order."""
    calls = [
        Call(start_ns, end_ns, draw(st.sampled_from(NAMES)), draw(st.sampled_from("AB")), thread)
        for thread in (1, 2)
        for start_ns, end_ns in draw(spans)
    ]
    return made_records(calls=draw(st.permutations(calls)))


def sums_of(made: Records, *, most: int, charged: ChargedCalls | None) -> HostCallSums:
    charged = ChargedCalls.empty() if charged is None else charged
    own_ns = own_times(made.host, np.arange(len(made.host)))
    calls = (charged, made.host, made.strings)
    strings, times = sum_calls(made.host, own_ns, *calls, most=most)
    return HostCallSums(strings, times, 100, find_one_off(made.host, *calls, 100))


@given(made=hosts(laminar_intervals()))
def test_own_time_is_that_without_children(made: Records) -> None:
    """Of nested calls: the length less that of the calls directly inside, found one by one."""
    host = made.host
    rows = list(
        zip(host.start_ns.tolist(), host.end_ns.tolist(), host.thread.tolist(), strict=True)
    )

    def is_inside(inner: int, outer: int) -> bool:
        """Of equal calls the later row is inside; one without length takes nothing away."""
        (start, end, thread), (begin, stop, other) = rows[inner], rows[outer]
        if inner == outer or thread != other or start == end:
            return False
        return begin <= start and end <= stop and ((begin, stop) != (start, end) or inner > outer)

    for outer, own_ns in enumerate(own_times(host, np.arange(len(host))).tolist()):
        inside = [row for row in range(len(rows)) if is_inside(row, outer)]
        direct = [row for row in inside if not any(is_inside(row, between) for between in inside)]
        begin, stop, _ = rows[outer]
        assert own_ns == stop - begin - sum(rows[row][1] - rows[row][0] for row in direct)


@given(made=hosts(intervals()))
def test_own_times_are_those_of_every_nanosecond(made: Records) -> None:
    """Of calls that may cross: each moment of a thread belongs to the call that began last."""
    host = made.host
    rows = list(
        zip(host.start_ns.tolist(), host.end_ns.tolist(), host.thread.tolist(), strict=True)
    )
    wanted = [0] * len(rows)
    for thread in (1, 2):
        moments = {ns for start, end, of in rows if of == thread for ns in range(start, end)}
        for ns in moments:
            is_open = [
                (start, -end, row)
                for row, (start, end, of) in enumerate(rows)
                if of == thread and start <= ns < end
            ]
            wanted[max(is_open)[2]] += 1
    assert own_times(host, np.arange(len(host))).tolist() == wanted


@given(made=hosts(intervals()), chance=st.randoms(use_true_random=False))
def test_own_times_of_some_calls_need_only_those_around(made: Records, chance: Random) -> None:
    """They are what they are among the own times of all."""
    host, every = made.host, np.arange(len(made.host))
    some = np.array([row for row in every.tolist() if chance.random() < 0.2], np.intp)
    assert own_times(host, some)[some].tolist() == own_times(host, every)[some].tolist()


@given(made=hosts(intervals()), most=st.sampled_from((1, MANY)))
def test_sums_are_those_of_each_name(made: Records, most: int) -> None:
    """Levels before names are left away, and names beyond the limit share a row of their layer."""
    host, lengths = made.host, defaultdict[tuple[str, str], list[int]](list)
    own_ns: dict[tuple[str, str], int] = defaultdict(int)
    for row, own in enumerate(own_times(host, np.arange(len(host))).tolist()):
        key = made.strings[host.layer[row]], made.strings[host.name[row]].removeprefix("Node@")
        lengths[key].append(int(host.end_ns[row] - host.start_ns[row]))
        own_ns[key] += own
    sums = sums_of(made, most=most, charged=None)
    named = [
        ((sums.strings[layer], sums.strings[name]), row)
        for row, (layer, name) in enumerate(
            zip(sums.times.layer.tolist(), sums.times.name.tolist(), strict=True)
        )
    ]
    if most == MANY:
        assert {key for key, _ in named} == lengths.keys()
    assert sum(key[1] != "" for key, _ in named) <= most
    assert int(sums.times.count.sum()) == len(host)
    assert int(sums.times.total_ns.sum()) == int((host.end_ns - host.start_ns).sum())
    assert int(sums.times.self_ns.sum()) == sum(own_ns.values())
    for key, row in named:
        if key[1]:
            its = lengths[key]
            assert sums.times.count[row] == len(its)
            assert sums.times.total_ns[row] == sum(its)
            assert sums.times.self_ns[row] == own_ns[key]
            assert sums.times.longest_ns[row] == max(its)
            assert abs(float(sums.times.median_ns[row]) - statistics.median(its)) <= 0.5
    assert (np.diff(sums.times.self_ns) <= 0).all()


def charged_to(row: int, *idle_ns: int) -> ChargedCalls:
    causes = (CAUSES.index(IdleCause.HOST_NOT_ASKED), CAUSES.index(IdleCause.LAUNCH_CALL))
    count = len(idle_ns)
    return ChargedCalls(np.full(count, row), np.array(causes[:count]), np.array(idle_ns))


def test_a_call_unlike_its_name_that_causes_most_idle_time_is_a_one_off() -> None:
    """It takes at least half of the idle time, and more than 20 times the median of its name."""
    lengths = [205, 10, 10, 10]
    starts = np.cumsum([0, *lengths]).tolist()
    calls = [
        Call(start, start + length, "Node@build")
        for start, length in zip(starts, lengths, strict=False)
    ]
    made = made_records(calls=calls)
    sums = sums_of(made, most=MANY, charged=charged_to(0, 40, 10))
    assert sums.times.idle_ns.tolist() == [50]
    one_off = sums.one_off
    assert one_off is not None
    assert (one_off.name, one_off.length_ns, one_off.median_ns) == ("Node@build", 205, 10)
    assert one_off.causes == ((IdleCause.HOST_NOT_ASKED, 40), (IdleCause.LAUNCH_CALL, 10))
    for charged in (charged_to(0, 40, 9), charged_to(1, 40, 10)):
        assert sums_of(made, most=MANY, charged=charged).one_off is None
    shorter = made_records(calls=[Call(0, 200, "Node@build"), *calls[1:]])
    assert sums_of(shorter, most=MANY, charged=charged_to(0, 50)).one_off is None
