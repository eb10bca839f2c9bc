"""Proves with random captures that runs are told apart by time, card and rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from timeline.sources.capture import NO_EXTENT, Capture, Claim, Evidence, Extent, Part
from timeline.sources.finding.runs import (
    SAME_RUN_NS,
    Session,
    are_certain,
    group_into_runs,
    group_sessions,
)
from timeline.sources.kineto.format import KINETO

SECOND_NS = 10**9
START_NS = 1_700_000_000 * SECOND_NS


def session(
    at_s: float,
    rank: int | None = None,
    *,
    lasts_s: float | None = None,
    device: int | None = None,
    worker: str = "",
) -> Session:
    start_ns = START_NS + int(at_s * SECOND_NS)
    end_ns = None if lasts_s is None else start_ns + int(lasts_s * SECOND_NS)
    return Session(f"{at_s:09.3f}", rank, "host", device, worker, start_ns, end_ns)


sessions = st.builds(
    session,
    st.integers(0, 300),
    st.none() | st.integers(0, 3),
    lasts_s=st.none() | st.integers(1, 90),
    device=st.none() | st.integers(0, 3),
    worker=st.sampled_from(["", "a", "b"]),
)


def overlap(one: Session, other: Session) -> bool:
    assert one.start_ns is not None
    assert other.start_ns is not None
    if one.start_ns == other.start_ns:
        return True
    first, last = (one, other) if one.start_ns < other.start_ns else (other, one)
    assert last.start_ns is not None
    return first.end_ns is not None and last.start_ns < first.end_ns


def together(found: Sequence[Sequence[int]]) -> set[frozenset[int]]:
    return {frozenset(one) for one in found}


# -- whatever was captured -------------------------------------------------------------------------


@given(st.lists(sessions, max_size=12))
def test_each_capture_is_of_one_run(held: list[Session]) -> None:
    """None is lost and none is in two runs."""
    found = group_sessions(held)
    assert sorted(at for run in found for at in run) == list(range(len(held)))
    assert all(found)


@given(st.lists(sessions, max_size=12), st.randoms())
def test_the_order_in_which_captures_are_found_does_not_matter(
    held: list[Session], chance: object
) -> None:
    """Directories may be named in any way."""
    held = [replace(one, path=f"{one.path} {at}") for at, one in enumerate(held)]
    other = list(held)
    chance.shuffle(other)  # type: ignore[attr-defined]
    assert {frozenset(held[at].path for at in run) for run in group_sessions(held)} == {
        frozenset(other[at].path for at in run) for run in group_sessions(other)
    }


@given(st.lists(sessions, max_size=12))
def test_no_run_holds_two_captures_of_a_card_that_follow_each_other(held: list[Session]) -> None:
    """However close: what was taken one after another is no run of ranks."""
    for run in group_sessions(held):
        for one, other in combinations([held[at] for at in run], 2):
            if one.device is not None and one.device == other.device:
                assert overlap(one, other)


@given(st.lists(st.tuples(st.integers(0, 900), st.integers(1, 90)), max_size=12))
def test_different_ranks_are_together_where_times_connect_them(
    times: list[tuple[int, int]],
) -> None:
    """By overlaps and by starts within a minute, as a search of all pairs finds them."""
    held = [session(at, rank, lasts_s=lasts) for rank, (at, lasts) in enumerate(times)]
    group = list(range(len(held)))
    for one, other in combinations(range(len(held)), 2):
        apart_ns = abs((held[one].start_ns or 0) - (held[other].start_ns or 0))
        if overlap(held[one], held[other]) or apart_ns < SAME_RUN_NS:
            group = [
                group[one] if other_group == group[other] else other_group for other_group in group
            ]
    expected = {
        frozenset(at for at, one in enumerate(group) if one == number) for number in set(group)
    }
    assert together(group_sessions(held)) == expected


# -- cases by name ---------------------------------------------------------------------------------


def test_benchmarks_one_after_another_are_runs() -> None:
    """Two captures of one card 11 s apart; the newest comes last."""
    held = [session(11, device=0, lasts_s=1), session(0, device=0, lasts_s=2)]
    assert group_sessions(held) == [[1], [0]]
    assert are_certain(held, group_sessions(held))


def test_two_processes_on_a_card_are_one_run() -> None:
    """Their captures overlap."""
    held = [session(0, device=0, lasts_s=20), session(11, device=0, lasts_s=20)]
    assert group_sessions(held) == [[0, 1]]


def test_turns_of_a_schedule_are_runs_even_without_ends() -> None:
    """Four ranks that each wrote two traces, seconds apart."""
    held = [
        session(4 * turn + rank / 10, rank, worker=f"w{rank}")
        for turn in (0, 1)
        for rank in range(4)
    ]
    found = group_sessions(held)
    assert found == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert are_certain(held, found)


def test_turns_that_are_not_whole_are_not_certain() -> None:
    """A slow rank wrote its first trace when others wrote their second."""
    held = [session(at, rank, worker=f"w{rank}") for at, rank in ((0, 0), (4, 0), (5, 1), (9, 1))]
    assert group_sessions(held) == [[0], [1, 2], [3]]
    assert not are_certain(held, group_sessions(held))


def test_two_group_sessions_the_same_ranks_minutes_apart() -> None:
    """Of other processes: names alone tell them apart."""
    held = [
        session(240 * run + rank / 10, rank, worker=f"{run}{rank}")
        for run in (0, 1)
        for rank in range(4)
    ]
    assert group_sessions(held) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert are_certain(held, group_sessions(held))


def test_one_moment_and_one_rank_is_one_run() -> None:
    """Two processes that claim a rank within a minute, and nobody knows when they ended."""
    held = [session(0, 0, worker="a"), session(5, 0, worker="b")]
    assert group_sessions(held) == [[0, 1]]
    assert not are_certain(held, group_sessions(held))
    apart = [replace(one, end_ns=(one.start_ns or 0) + SECOND_NS) for one in held]
    assert group_sessions(apart) == [[0], [1]]


def test_unknown_cards_are_not_taken_for_different_ones() -> None:
    """Nothing tells whether two captures 11 s apart are ranks; their records have to be read."""
    held = [session(0), session(11)]
    assert group_sessions(held) == [[0], [1]]
    assert not are_certain(held, group_sessions(held))


def test_hours_apart_is_certain_whatever_else_is_known() -> None:
    """Benchmarks of many days need not be read to tell that they are no ranks."""
    held = [session(5_000 * number) for number in range(3)]
    assert group_sessions(held) == [[0], [1], [2]]
    assert are_certain(held, group_sessions(held))


def test_captures_without_a_time_are_of_the_newest_run() -> None:
    """Nothing says that they are not, unless it has their rank or is of another hardware."""
    held = [session(0, 0, lasts_s=1), session(500, 0, lasts_s=1), Session("x", 1)]
    assert group_sessions(held) == [[0], [1, 2]]
    assert group_sessions([Session("x", 1), Session("y", 2)]) == [[0, 1]]
    assert group_sessions([*held, Session("y", 0)]) == [[2, 3], [0], [1]]
    assert group_sessions([*held[:2], Session("y", 1, hardware="GPU")]) == [[2], [0], [1]]


def test_ten_thousand_ranks_are_one_run_at_once() -> None:
    """What grows with the square of the ranks would take minutes."""
    held = [session(rank / 1000, rank, lasts_s=30, device=rank) for rank in range(10_000)]
    assert len(group_sessions(held)) == 1
    later = [session(rank / 1000 + 40, rank, lasts_s=30, device=rank) for rank in range(10_000)]
    assert len(group_sessions(held + later)) == 2


def test_a_file_of_many_ranks_is_asked_once() -> None:
    """The ranks that were merged into one file were taken at one time."""
    asked: list[Capture] = []

    def recorded_time(capture: Capture) -> Extent:
        asked.append(capture)
        return NO_EXTENT[0], 10**18

    one = replace(KINETO, recorded_time=recorded_time)
    capture = Capture(one, Path("/merged.json"), Path("/merged.json"))
    claims = [
        Claim(
            capture, (Evidence(rank, "its label"),), part=Part(f"TP{rank}", processes=((rank, 1),))
        )
        for rank in range(9)
    ]
    (run,) = group_into_runs(claims)
    assert run.ranks == tuple(range(9))
    assert len(asked) == 1
