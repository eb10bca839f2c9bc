"""Tracks of ranks, coarsened before they are put into one file, so that memory holds them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from timeline.fitting.coarsen import EXACT
from timeline.fitting.plan import Plan, apply_plan
from timeline.fitting.size_model import Measure, SizeModel
from timeline.layers import SizeLayer
from timeline.records.tables import Omission, OmissionCode
from timeline.tracks.model import ARROW_REASON, element_count
from timeline.tracks.rank_tracks import RankTracks

__all__ = ["coarsen_ranks", "lowest_floors"]

COUNT_SHRINK = 0.8
"""What is aimed at, of the elements that are allowed, when there are still too many."""


def lowest_floors(ranks: Sequence[RankTracks]) -> dict[SizeLayer, int]:
    """The coarsest power, by layer, at which any rank was merged already."""
    floors: dict[SizeLayer, int] = {}
    for rank in ranks:
        for layer, power in rank.floors.items():
            floors[layer] = max(power, floors.get(layer, 0))
    return floors


def coarsen_ranks(
    ranks: Sequence[RankTracks], limit_bytes: float, most: int, measure: Measure
) -> tuple[RankTracks, ...]:
    """Merge what is short in all rows until they take some bytes of a file, and some memory.

    Merging composes: what is merged here, and again for the file at a coarser resolution, is
    what the file's own resolution would have made of it. So ranks can be merged apart, and in
    any number of stages.

    Args:
        limit_bytes: what the rows may take in a file, as far as estimates go.
        most: slices and samples that may be left; what repeats packs well and still is many.
    """
    tracks = [track for rank in ranks for track in rank.tracks]
    model = SizeModel(tracks, measure, lowest_floors(ranks))
    finest = model.finest_plan()
    if finest.expected_bytes <= limit_bytes and element_count(tracks) <= most:
        return tuple(ranks)
    plan = model.plan(min(limit_bytes, finest.expected_bytes * most / element_count(tracks)))
    while True:
        made = _apply_plan_to_ranks(ranks, plan)
        count = sum(element_count(rank.tracks) for rank in made)
        coarser = model.plan(plan.expected_bytes * COUNT_SHRINK * most / max(count, 1))
        if count <= most or coarser.resolutions == plan.resolutions:
            return made
        plan = coarser


def _apply_plan_to_ranks(ranks: Sequence[RankTracks], plan: Plan) -> tuple[RankTracks, ...]:
    floors = {
        layer: resolution.power
        for layer, resolution in plan.resolutions.items()
        if resolution.power != EXACT
    }
    made = []
    for rank in ranks:
        drawn_layers, _, lost = apply_plan(rank.tracks, plan)
        omissions = rank.omissions
        if lost:
            omissions += (Omission(ARROW_REASON, lost, rank.rank, code=OmissionCode.ARROW_CUT),)
        made.append(replace(rank, tracks=tuple(drawn_layers), omissions=omissions, floors=floors))
    return tuple(made)
