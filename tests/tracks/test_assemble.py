"""Proves how rows of ranks are put together, which are seen at once, and which are folded."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.ui_colours import GREEN, RED, hue
from timeline.tracks.assemble import RunOfRanks, StepDifferences, side_by_side, with_ranks
from timeline.tracks.model import Slices, Track
from timeline.tracks.painter import Painter
from timeline.tracks.rank_tracks import RankTracks
from timeline.tracks.root_rows import MOST_UNFOLDED, SLOWS_OTHERS, rank_folders, rank_rows


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
        with_ranks((), {"": ranks}, remarks, by_layer=False, folds_ranks=True, telling=(7, 130))
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
        (), {"": [drawn(rank) for rank in shuffled]}, {}, by_layer=False, folds_ranks=True
    )
    folder = next(track for track in tracks if track.name == "Ranks 100-199")
    inside = sorted(
        (track for track in tracks if track.parent == folder.id), key=lambda one: one.order
    )
    assert [track.rank for track in inside] == [*range(100, 200)]


def test_formats_without_folders_have_all_ranks_beside_each_other() -> None:
    made = ways(with_ranks((), {"": [drawn(rank) for rank in range(200)]}, {}, by_layer=False))
    assert {way[0] for way in made} == {f"Rank {rank:03}" for rank in range(200)}


def test_both_runs_of_a_comparison_are_folded_together() -> None:
    runs = {run: [drawn(rank) for rank in range(100)] for run in ("base", "new")}
    made = ways(with_ranks((), runs, {}, by_layer=False, folds_ranks=True))
    assert {way[:2] for way in made if len(way) == 2} == {
        ("Ranks 00-99", f"Rank {rank:02} {run}") for rank in range(100) for run in runs
    }
