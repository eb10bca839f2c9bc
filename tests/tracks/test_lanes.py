"""Proves that lanes lose nothing, never hold slices that collide, and are as few as can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from hypothesis import given

from tests.support.random_intervals import (
    Interval,
    columns_of,
    crosses,
    intervals,
    is_laminar,
    laminar_intervals,
)
from timeline.columns.columns import Int64
from timeline.tracks.lanes import flat_lanes, nested_lanes, rows_by_lane


def lanes_of(
    pairs: Sequence[Interval], assign: Callable[[Int64, Int64], Int64]
) -> list[list[Interval]]:
    """The slices of each lane; every slice must be in exactly one."""
    rows = rows_by_lane(np.arange(len(pairs)), assign(*columns_of(pairs)))
    held = sorted(row for lane in rows for row in lane.tolist())
    assert held == list(range(len(pairs))), "every slice is in one lane"
    assert all((np.diff(lane) > 0).all() for lane in rows), "lanes keep the order of slices"
    assert all(len(lane) for lane in rows) or not pairs, "lanes are numbered without a gap"
    return [] if not pairs else [[pairs[row] for row in lane.tolist()] for lane in rows]


def most_open_at_once(pairs: Sequence[Interval]) -> int:
    """The largest number of slices that run at one moment.

    A slice without length runs at its own moment, beside those that run before and after it, but
    not beside those that start or end there: they follow each other.
    """
    most = 0
    for moment in {time for pair in pairs for time in pair}:
        running = sum(start <= moment < end for start, end in pairs)
        around = sum(start < moment < end for start, end in pairs)
        instant = any(start == moment == end for start, end in pairs)
        most = max(most, running, around + 1 if instant else 0)
    return most


@given(intervals(most=20).map(sorted))
def test_slices_of_a_flat_lane_follow_each_other(pairs: list[Interval]) -> None:
    for lane in lanes_of(pairs, flat_lanes):
        for earlier, later in pairwise(lane):
            assert earlier[1] <= later[0]


@given(intervals(most=20).map(sorted))
def test_there_are_as_many_flat_lanes_as_slices_that_run_at_once(pairs: list[Interval]) -> None:
    assert len(lanes_of(pairs, flat_lanes)) == most_open_at_once(pairs)


@given(intervals(most=20).map(sorted))
def test_each_slice_takes_the_lowest_lane_that_is_free(pairs: list[Interval]) -> None:
    reach: list[int] = []
    wanted = []
    for start, end in pairs:
        free = [lane for lane, until in enumerate(reach) if until <= start]
        lane = free[0] if free else len(reach)
        reach[lane : lane + 1] = [end]
        wanted.append(lane)
    assert flat_lanes(*columns_of(pairs)).tolist() == wanted


def test_an_instant_inside_a_task_gets_a_lane_and_one_at_its_edge_does_not() -> None:
    assert flat_lanes(*columns_of([(0, 10), (5, 5)])).tolist() == [0, 1]
    assert flat_lanes(*columns_of([(0, 0), (0, 10), (10, 10)])).tolist() == [0, 0, 0]


@given(intervals(most=20))
def test_slices_of_a_nested_lane_never_cross(pairs: list[Interval]) -> None:
    assert all(is_laminar(lane) for lane in lanes_of(pairs, nested_lanes))


@given(intervals(most=20))
def test_each_call_takes_the_lowest_lane_in_which_it_crosses_nothing(pairs: list[Interval]) -> None:
    lanes: list[list[Interval]] = []
    wanted = dict[int, int]()
    for row in sorted(range(len(pairs)), key=lambda row: (pairs[row][0], -pairs[row][1])):
        fits = [not any(crosses(one, pairs[row]) for one in lane) for lane in lanes]
        if not any(fits):
            lanes.append([])
        wanted[row] = fits.index(True) if any(fits) else len(fits)
        lanes[wanted[row]].append(pairs[row])
    assert nested_lanes(*columns_of(pairs)).tolist() == [wanted[row] for row in range(len(pairs))]


@given(laminar_intervals())
def test_slices_that_nest_share_one_lane(pairs: list[Interval]) -> None:
    assert len(lanes_of(pairs, nested_lanes)) == min(1, len(pairs))


def test_a_call_that_crosses_another_keeps_its_length_in_the_next_lane() -> None:
    assert nested_lanes(*columns_of([(0, 10), (5, 15), (6, 8)])).tolist() == [0, 1, 0]


def test_calls_all_of_which_cross_take_a_lane_each() -> None:
    """So many that passing over all of them for each lane would take minutes."""
    number = np.arange(50_000)
    lane = nested_lanes(number * 10, (number + len(number)) * 10 + 1)
    assert (lane == number).all()
    rows = rows_by_lane(number, lane)
    assert [len(one) for one in rows] == [1] * len(number)
