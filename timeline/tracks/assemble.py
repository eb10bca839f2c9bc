"""Assembles the rows of all ranks, of one run or two, into one tree with unique ids and arrows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from timeline.analysis.path.critical_path import CriticalPath
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.waits.waiting import Waits
from timeline.columns.columns import Int64
from timeline.layers import SliceKind
from timeline.tracks import descriptions
from timeline.tracks.model import Samples, Slices, Track, no_arrows
from timeline.tracks.overview import (
    difference,
    paint_collectives,
    paint_overview,
    paint_steps_of_run,
    with_critical_path,
)
from timeline.tracks.painter import Painter, SliceTable, integers
from timeline.tracks.partition import is_partition, with_sums
from timeline.tracks.rank_tracks import RankTracks
from timeline.tracks.root_rows import (
    NO_HIGHLIGHTS,
    STEPS,
    Highlights,
    RunRank,
    layer_row,
    rank_folders,
    rank_rows,
    seen_name,
)


def assemble(
    facts: Sequence[RankFacts],
    ranks: Sequence[RankTracks],
    *,
    by_layer: bool,
    folds_ranks: bool = False,
    path: CriticalPath | None = None,
    waits: Waits | None = None,
    highlights: Highlights = NO_HIGHLIGHTS,
) -> tuple[Track, ...]:
    """Combine the rows of all ranks with the overview, grouped by layer or by rank.

    folds_ranks: whether many ranks are folded below rows of several ranks each. path: the critical
    path, which is not drawn if None. waits: of the ranks, whose collectives are not drawn if None.
    """
    painter = Painter()
    paint_overview(painter, facts, highlights.step)
    if waits is not None:
        paint_collectives(painter, facts, waits)
    drawn = with_ranks(
        painter.tracks,
        {"": ranks},
        highlights,
        by_layer=by_layer,
        folds_ranks=folds_ranks,
    )
    return drawn if path is None else with_critical_path(drawn, path)


def with_ranks(
    tracks: Sequence[Track],
    runs: Mapping[str, Sequence[RankTracks]],
    highlights: Highlights = NO_HIGHLIGHTS,
    *,
    by_layer: bool,
    folds_ranks: bool = False,
) -> tuple[Track, ...]:
    """Add the rows of all ranks of each run (keyed by the run's name) to tracks without arrows.

    folds_ranks: whether many ranks are folded below rows of a part of the run, or of a hundred
    ranks each, except ranks with a remark and those worth a look.
    """
    numbers = {run: [rank.rank for rank in ranks] for run, ranks in runs.items()}
    names = rank_rows(numbers, highlights.ranks)
    placed = list(tracks)
    folders = _layer_folders(placed, runs) if by_layer else {}
    folder_of = rank_folders(names, highlights) if folds_ranks and not by_layer else {}
    folders |= _rank_folders(placed, folder_of, runs, highlights)
    order_of = {name: order for order, name in enumerate(sorted(names.values()))}
    last_arrow = 0
    for run, ranks in runs.items():
        first_arrow, last_arrow = last_arrow, last_arrow + sum(rank.arrows for rank in ranks)
        between = last_arrow
        for rank in ranks:
            name = names[run, rank.rank]
            if not by_layer:
                rank = _with_root(rank, name)  # noqa: PLW2901
            first_id = len(placed)
            for track in rank.tracks:
                content = _with_arrows_after(track.content, first_arrow, between)
                place: dict[str, Any] = {}
                if track.parent is not None:
                    place = {"parent": track.parent + first_id}
                elif by_layer:
                    place = {
                        "name": seen_name(name),
                        "order": order_of[name],
                        "parent": folders[track.name],
                    }
                elif folder := folder_of.get((run, rank.rank)):
                    place = {"order": order_of[name], "parent": folders[folder]}
                placed.append(replace(track, id=track.id + first_id, content=content, **place))
                last_arrow = max(last_arrow, placed[-1].last_arrow)
            first_arrow += rank.arrows
    return tuple(placed)


def _layer_folders(tracks: list[Track], runs: Mapping[str, Sequence[RankTracks]]) -> dict[str, int]:
    """Add a row without a parent for each layer that any rank has; return their ids by layer."""
    layers = {
        track.name: track
        for ranks in runs.values()
        for rank in ranks
        for track in rank.tracks
        if track.parent is None
    }
    painter = Painter(tracks)
    return {
        track.name: painter.add_group(layer_row(place, track.name), None, 0, track.description)
        for place, track in enumerate(sorted(layers.values(), key=lambda track: track.order), 1)
    }


def _rank_folders(
    tracks: list[Track],
    folder_of: Mapping[RunRank, str],
    runs: Mapping[str, Sequence[RankTracks]],
    highlights: Highlights,
) -> dict[str, int]:
    """Add a row without a parent for each folder of ranks; return their ids by name.

    The row of a part of the run shows the time of the rank in it with the longest own time.
    """
    own_ns = highlights.own_ns
    painter = Painter(tracks)
    ranks_of: dict[str, list[RankTracks]] = {}
    for run, ranks in runs.items():
        for rank in ranks:
            if folder := folder_of.get((run, rank.rank)):
                ranks_of.setdefault(folder, []).append(rank)
    folders = {}
    for name, ranks in ranks_of.items():
        folders[name] = painter.add_group(name, None, 0, descriptions.MANY_RANKS)
        if highlights.parts:
            longest = max(ranks, key=lambda rank: (own_ns.get(rank.rank, 0), -rank.rank))
            shown = next((track.content for track in longest.tracks if is_partition(track)), None)
            tracks[-1] = replace(
                tracks[-1],
                name=f"{name} (rank {longest.rank})",
                content=replace(shown, arrows=no_arrows()) if isinstance(shown, Slices) else None,
                description=descriptions.PART_OF_RUN,
                rank=longest.rank,
            )
    return folders


def _with_root(rank: RankTracks, name: str) -> RankTracks:
    """Put the rows of a rank below one row: its partition of time, or a group without one."""
    if not rank.tracks:
        return rank
    first, *rest = rank.tracks
    if not is_partition(first):
        painter = Painter(rank=rank.rank)
        painter.add_group(name, None, 0, descriptions.ALL_OF_RANK)
        root, shift, rest = painter.tracks[0], 1, list(rank.tracks)
    else:
        root, shift = replace(first, name=name), 0
    moved = [
        replace(
            track, id=track.id + shift, parent=0 if track.parent is None else track.parent + shift
        )
        for track in rest
    ]
    return replace(rank, tracks=(root, *moved) if moved else with_sums(root))


def _with_arrows_after(
    content: Slices | Samples | None, first: int, last: int
) -> Slices | Samples | None:
    """Renumber arrows: a rank's after those of earlier ranks, those between ranks last."""
    if not isinstance(content, Slices) or not len(content.arrows.arrow):
        return content
    arrow = content.arrows.arrow
    arrows = replace(content.arrows, arrow=np.where(arrow > 0, arrow + first, last - arrow))
    return replace(content, arrows=arrows)


BASE, NEW = "base", "new"
"""Names of the runs in the names of rows; the base sorts first."""


@dataclass(frozen=True)
class StepDifferences:
    """Steps of both runs, ascending by start_ns of the base; all columns are (n,) int64."""

    base_step: Int64
    new_step: Int64
    start_ns: Int64
    base_ns: Int64
    new_ns: Int64


@dataclass(frozen=True)
class RunOfRanks:
    """The facts of the ranks of one run, and their rows."""

    facts: Sequence[RankFacts]
    ranks: Sequence[RankTracks]


def side_by_side(
    base: RunOfRanks,
    new: RunOfRanks,
    differences: StepDifferences,
    remarks: Mapping[RunRank, str],
    *,
    by_layer: bool,
    folds_ranks: bool = False,
) -> tuple[Track, ...]:
    """Return the rows of both runs on one time axis: by rank, the base above the new run.

    remarks: remarks for the names of some ranks' rows. folds_ranks: whether many other ranks are
    folded.
    """
    painter = Painter()
    _paint_steps(painter, base, new, differences)
    return with_ranks(
        painter.tracks,
        {BASE: base.ranks, NEW: new.ranks},
        Highlights(remarks),
        by_layer=by_layer,
        folds_ranks=folds_ranks,
    )


def _paint_steps(
    painter: Painter, base: RunOfRanks, new: RunOfRanks, steps: StepDifferences
) -> None:
    """Draw the differences of steps, and below them each run's steps; nothing without pairs."""
    if not len(steps.start_ns):
        return
    columns = (steps.base_step, steps.new_step, steps.base_ns, steps.new_ns)
    labels = (_label(*row) for row in zip(*(column.tolist() for column in columns), strict=True))
    end_ns = steps.start_ns + steps.base_ns
    end_ns[:-1] = np.minimum(end_ns[:-1], steps.start_ns[1:])
    drawn = SliceTable(
        steps.start_ns,
        end_ns,
        painter.strings.codes(labels),
        SliceKind.STEP,
        [
            integers("base_step", steps.base_step),
            integers("new_step", steps.new_step),
            integers("base_ns", steps.base_ns),
            integers("new_ns", steps.new_ns),
            integers("delta_ns", steps.new_ns - steps.base_ns),
        ],
    )
    root = painter.add_stacked_row(STEPS, None, 0, drawn, descriptions.BASE_AND_NEW)
    for order, (name, run) in enumerate(((BASE, base), (NEW, new))):
        paint_steps_of_run(painter, root, order, run.facts, name.capitalize())


def _label(base_step: int, new_step: int, base_ns: int, new_ns: int) -> str:
    which = f"Step {base_step}" if base_step == new_step else f"Step {base_step} and {new_step}"
    return difference(which, base_ns, new_ns, "as before")
