"""Proves how rows are laid out: lanes, rows of ranks, rows above counters, and colours."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kineto_traces import CALL, KERNEL
from tests.support.perfetto_sql import TraceProcessor
from tests.support.profile_shelf import ProfileShelf
from tests.support.random_intervals import (
    Interval,
    columns_of,
    crosses,
    intervals,
    is_laminar,
    laminar_intervals,
)
from tests.support.ui_colours import GREEN, RED, hue, lightness, shown
from timeline.analysis.idle.idle_sums import CAUSES
from timeline.columns.columns import Int64
from timeline.commands.export import export
from timeline.layers import SLICES, SliceKind
from timeline.selection import Kind
from timeline.tracks import lanes
from timeline.tracks.assemble import RunOfRanks, StepDifferences, side_by_side, with_ranks
from timeline.tracks.colours import Colour, colours_of
from timeline.tracks.detail import MANY, counter_families, natural_order
from timeline.tracks.lanes import flat_lanes, nested_lanes, rows_by_lane
from timeline.tracks.model import Slices, Track
from timeline.tracks.overview import difference
from timeline.tracks.painter import Painter, SliceTable
from timeline.tracks.partition import COMPUTING, COPIES, EXPOSED, IDLE, TRANSFER
from timeline.tracks.rank_tracks import RankTracks
from timeline.tracks.root_rows import (
    MOST_UNFOLDED,
    SLOWS_OTHERS,
    Highlights,
    rank_folders,
    rank_rows,
)

# -- lanes -----------------------------------------------------------------------------------------


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


@given(laminar_intervals() | intervals(most=20), st.integers(1, 3))
def test_no_nested_lane_is_deeper_than_a_viewer_ends_slices(
    pairs: list[Interval], deepest: int
) -> None:
    """Each lane nests, in at most so many levels; without deep ones nothing changes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lanes, "DEEPEST", deepest)
        shallow = lanes_of(pairs, nested_lanes)
    assert all(is_laminar(lane) for lane in shallow)
    for lane in shallow:
        around = [sum(a < b < d for a, d in lane) for b, _ in lane]
        assert max(around) <= deepest
    if len(shallow) == 1:
        assert lanes_of(pairs, nested_lanes) == shallow


def test_the_viewer_ends_each_of_many_nested_calls(tmp_path: Path) -> None:
    """Of 600 in each other, the innermost 88 are on a row of their own."""
    calls = [CALL | {"name": f"f{at}", "ts": at, "dur": 2_000 - 2 * at} for at in range(600)]
    path, target = tmp_path / "rank0.pt.trace.json", tmp_path / "a.pftrace"
    path.write_text(json.dumps([KERNEL | {"ts": 700}, *calls]), encoding="utf-8")
    export(path, target, kind=Kind.DETAIL)
    trace = TraceProcessor.load(target.read_bytes())
    lengths = trace.rows("SELECT dur FROM slice WHERE name GLOB 'f[0-9]*'")
    assert sorted(lengths) == sorted((1000 * call["dur"],) for call in calls)
    of_rows = trace.rows("SELECT count(*) FROM slice WHERE name GLOB 'f[0-9]*' GROUP BY track_id")
    assert sorted(of_rows) == [(88,), (512,)]


def test_a_call_that_crosses_another_keeps_its_length_in_the_next_lane() -> None:
    assert nested_lanes(*columns_of([(0, 10), (5, 15), (6, 8)])).tolist() == [0, 1, 0]


def test_calls_all_of_which_cross_take_a_lane_each() -> None:
    """So many that passing over all of them for each lane would take minutes."""
    number = np.arange(50_000)
    lane = nested_lanes(number * 10, (number + len(number)) * 10 + 1)
    assert (lane == number).all()
    rows = rows_by_lane(number, lane)
    assert [len(one) for one in rows] == [1] * len(number)


# -- rows of ranks ---------------------------------------------------------------------------------


def named(base_ns: int, new_ns: int, new_step: int = 7) -> str:
    """What the slice of a step says."""
    one = [np.array([value], np.int64) for value in (7, new_step, 1000, base_ns, new_ns)]
    none = RunOfRanks((), ())
    root, *_ = side_by_side(none, none, StepDifferences(*one), {}, by_layer=False)
    assert isinstance(root.content, Slices)
    (name,) = [root.content.strings[code] for code in root.content.name.tolist()]
    return name


@pytest.mark.parametrize("delta_ns", [1_000, 317_123, 12_345_678, 3_000_000_000])
def test_slower_is_red_and_faster_is_green(delta_ns: int) -> None:
    """Whatever the time; of steps of other numbers slower is at least never green."""
    base_ns = 4_000_000_000
    assert hue(named(base_ns, base_ns + delta_ns)) in RED
    assert hue(named(base_ns, base_ns - delta_ns)) in GREEN
    assert hue(named(base_ns, base_ns + delta_ns, 8)) not in GREEN
    assert hue(named(base_ns, base_ns - delta_ns, 8)) not in RED


def test_it_says_how_much_longer_a_step_takes() -> None:
    assert named(4_000_000, 4_500_000) == "Step 7 slower by 0.500 ms (+12.5%)"
    assert named(4_000_000, 3_000_000, 8) == "Step 7 and 8 faster by 1.000 ms (-25.0%)"
    assert named(4_000_000, 4_000_000) == "Step 7 as before"


def drawn(rank: int) -> RankTracks:
    """A rank with one row below a layer."""
    painter = Painter(rank=rank)
    layer = painter.add_group("Layer", None, 1, "")
    painter.add_group("Row", layer, 0, "")
    return RankTracks(rank, tuple(painter.tracks), 0)


def ways(tracks: tuple[Track, ...]) -> set[tuple[str, ...]]:
    """The names on the way to each row."""
    by_id = {track.id: track for track in tracks}
    assert [track.id for track in tracks] == [*range(len(tracks))]

    def way(track: Track) -> tuple[str, ...]:
        above = () if track.parent is None else way(by_id[track.parent])
        return (*above, track.name)

    return {way(track) for track in tracks}


@pytest.mark.parametrize("count", [1, 64, MOST_UNFOLDED])
def test_ranks_stand_beside_each_other_where_they_are_not_many(count: int) -> None:
    assert rank_folders(rank_rows({"": range(count)}, {})) == {}


def test_of_many_ranks_those_of_which_something_is_said_are_not_folded() -> None:
    ranks = [drawn(rank) for rank in range(250)]
    remarks = {("", 7): SLOWS_OTHERS}
    made = ways(
        with_ranks(
            (),
            {"": ranks},
            Highlights(remarks, telling=(7, 130)),
            by_layer=False,
            folds_ranks=True,
        )
    )
    roots = {way[0] for way in made}
    assert roots == {
        " Rank 007: slows the others",
        "Rank 130",
        "Ranks 000-099",
        "Ranks 100-199",
        "Ranks 200-299",
    }
    assert ("Ranks 100-199", "Rank 142", "Layer", "Row") in made
    assert ("Rank 130", "Layer", "Row") in made
    assert len({way for way in made if way[-1] == "Row"}) == 250


def test_folded_ranks_are_in_order() -> None:
    shuffled = np.random.default_rng(3).permutation(300).tolist()
    tracks = with_ranks(
        (), {"": [drawn(rank) for rank in shuffled]}, by_layer=False, folds_ranks=True
    )
    folder = next(track for track in tracks if track.name == "Ranks 100-199")
    inside = sorted(
        (track for track in tracks if track.parent == folder.id), key=lambda one: one.order
    )
    assert [track.rank for track in inside] == [*range(100, 200)]


def test_ranks_of_a_split_run_are_folded_by_their_part() -> None:
    """Each folder shows the time of the rank that took longest for itself, which its name tells."""

    def spent(rank: int) -> RankTracks:
        painter = Painter(rank=rank)
        own_ns = 900 if rank in (11, 38) else 500
        start_ns, end_ns = np.array([0, own_ns]), np.array([own_ns, 1000])
        label = painter.strings.codes(["Computing", "Waiting for rank 11"])
        times = SliceTable(start_ns, end_ns, label, SliceKind.PARTITION)
        painter.add_stacked_row("Where time goes", None, 0, times, "")
        return RankTracks(rank, tuple(painter.tracks), 0)

    parts = {rank: f"stage {rank // 20}" for rank in range(40)} | {40: "stage 2"}
    tracks = with_ranks(
        (),
        {"": [spent(rank) for rank in range(41)]},
        Highlights({("", 3): SLOWS_OTHERS}, parts=parts, own_ns={11: 900, 38: 900}),
        by_layer=False,
        folds_ranks=True,
    )
    roots = {track.name: track for track in tracks if track.parent is None}
    folders = ["Ranks 00-19: stage 0 (rank 11)", "Ranks 20-39: stage 1 (rank 38)"]
    assert sorted(roots) == sorted([*folders, " Rank 03: slows the others", "Rank 40"])
    for folder in folders:
        content = roots[folder].content
        assert isinstance(content, Slices)
        assert content.end_ns.tolist() == [900, 1000]
    few = rank_rows({"": range(32)}, {})
    assert rank_folders(few, Highlights(parts=dict.fromkeys(range(32), "stage 0"))) == {}


def test_formats_without_folders_have_all_ranks_beside_each_other() -> None:
    made = ways(with_ranks((), {"": [drawn(rank) for rank in range(200)]}, by_layer=False))
    assert {way[0] for way in made} == {f"Rank {rank:03}" for rank in range(200)}


def test_both_runs_of_a_comparison_are_folded_together() -> None:
    runs = {run: [drawn(rank) for rank in range(100)] for run in ("base", "new")}
    made = ways(with_ranks((), runs, by_layer=False, folds_ranks=True))
    assert {way[:2] for way in made if len(way) == 2} == {
        ("Ranks 00-99", f"Rank {rank:02} {run}") for rank in range(100) for run in runs
    }


# -- counters --------------------------------------------------------------------------------------


def test_few_counters_have_no_row_above_them() -> None:
    named = {number: f"HBM {number}" for number in range(MANY - 1)}
    assert counter_families(named) == [("", [number]) for number in range(MANY - 1)]


def test_many_that_count_the_same_are_below_one_row_in_order_of_their_numbers() -> None:
    units = [10, 2, *range(20, 40)]
    named = dict(enumerate(f"Read Level, acc {unit}" for unit in units))
    named |= {100 + at: f"HBM {at}/Write" for at in range(3)}
    named[200] = "Frequency"
    found = counter_families(named)
    assert [(family, len(rows)) for family, rows in found] == [
        ("", 1),
        ("HBM/Write", 3),
        ("Read Level, acc", len(units)),
    ]
    assert [named[row] for row in found[2][1][:3]] == [
        "Read Level, acc 2",
        "Read Level, acc 10",
        "Read Level, acc 20",
    ]


def test_no_counter_is_lost() -> None:
    named = {number: f"{'ab'[number % 2]} {number}" for number in range(3 * MANY)}
    assert sorted(row for _, rows in counter_families(named) for row in rows) == sorted(named)


def test_names_sort_by_numbers_of_any_length() -> None:
    """Numbers may have more digits than Python reads, and other signs that count as digits."""
    long = "9" * 5_000
    names = [f"Read {long}", "Read 10", "Read 2", "Read \u00b2", "Read 010", "Read 0"]
    assert sorted(names, key=natural_order) == [
        "Read 0",
        "Read 2",
        "Read 10",
        "Read 010",
        f"Read {long}",
        "Read \u00b2",
    ]


# -- colours ---------------------------------------------------------------------------------------


NAMED = {
    COMPUTING: Colour.COMPUTING,
    "37 pieces: Computing": Colour.COMPUTING,
    EXPOSED: Colour.EXPOSED,
    TRANSFER: Colour.TRANSFER,
    "Waiting for rank 5": Colour.WAITING,
    "Waiting for rank 5 (not profiled)": Colour.WAITING,
    "Waiting for another rank": Colour.WAITING,
    COPIES: Colour.COPIES,
    IDLE: Colour.IDLE,
    "4 pieces: Idle: between tasks": Colour.IDLE,
    **{f"{IDLE}: {cause.words}": Colour.IDLE for cause in CAUSES},
}
ON_THE_PATH = {
    "rank 5: computing, MatMul": Colour.COMPUTING,
    "rank 0: transfer, hcom_allReduce__586_0_1": Colour.TRANSFER,
    "rank 5: copy, MEMCPY_ASYNC": Colour.COPIES,
    "rank 5: host, 1.12 ms in enumerate(DataLoader)": Colour.IDLE,
    "rank 5: between tasks": Colour.IDLE,
    "rank 6, not profiled": Colour.WAITING,
    "rank 6, not selected": Colour.WAITING,
    "a rank that is not known": Colour.WAITING,
    "computing 2.29 ms, host 1.05 ms": Colour.COMPUTING,
    "not profiled 1.2 ms": Colour.WAITING,
}


def test_computing_is_green_waiting_red_and_nothing_that_is_lost_is_green() -> None:
    assert hue(Colour.COMPUTING.value) in GREEN
    assert hue(Colour.WAITING.value) in RED
    lost = set(Colour) - {Colour.COMPUTING}
    assert all(hue(colour.value) not in GREEN for colour in lost)


def test_uses_of_time_are_told_apart() -> None:
    """By 30 degrees, but for the two that say the same of communication."""
    apart = set(Colour) - {Colour.EXPOSED}
    for one, other in combinations(sorted(apart, key=lambda colour: colour.value), 2):
        distance = abs(hue(one.value) - hue(other.value))
        assert min(distance, 360 - distance) >= 30, (one, other)
    assert all(40 <= lightness(colour.value) < 80 for colour in Colour)


@pytest.mark.parametrize("colour", Colour)
def test_pages_and_terminals_show_what_the_viewer_shows(colour: Colour) -> None:
    assert colour.shown == shown(colour.value)


@pytest.mark.parametrize(("name", "colour"), NAMED.items())
def test_pieces_of_time_have_the_colour_of_their_use(name: str, colour: Colour) -> None:
    for kind in (SliceKind.PARTITION, SliceKind.OVERLAP):
        assert colours_of(kind, SLICES[kind].category, [name]) == [colour]


@pytest.mark.parametrize(("name", "colour"), ON_THE_PATH.items())
def test_the_critical_path_has_the_same_colours(name: str, colour: Colour) -> None:
    kind = SliceKind.CRITICAL_PATH
    assert colours_of(kind, SLICES[kind].category, [name]) == [colour]


def test_slower_steps_are_red_and_faster_ones_green() -> None:
    names = [
        difference("Step 3", 4_000_000, now_ns, "as before")
        for now_ns in (5_000_000, 3_000_000, 4_000_000)
    ]
    colours = [Colour.WAITING, Colour.COMPUTING, None]
    assert colours_of(SliceKind.STEP, SLICES[SliceKind.STEP].category, names) == colours


def test_tasks_have_the_colour_of_their_name() -> None:
    assert colours_of(SliceKind.TASK, SLICES[SliceKind.TASK].category, ["Computing"]) == [None]


def test_the_file_tells_the_viewer(shelf: ProfileShelf, tmp_path: Path) -> None:
    """The UI reads the arg correlation_id; nothing that has it is without a colour of its own."""
    target = tmp_path / "summary.pftrace"
    export(shelf.get("torch-db").path, target, kind=Kind.SUMMARY)
    found: dict[str, str] = dict(
        TraceProcessor.load(target.read_bytes()).rows(
            "SELECT DISTINCT name, extract_arg(arg_set_id, 'correlation_id') FROM slice"
            " WHERE category = 'partition'"
        )
    )
    assert found[COMPUTING] == Colour.COMPUTING.value
    assert found[TRANSFER] == Colour.TRANSFER.value
    assert set(found.values()) <= {colour.value for colour in Colour}
