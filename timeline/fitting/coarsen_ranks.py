"""Tracks of ranks, coarsened before they are put into one file, so that memory holds them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import compress
from operator import not_

from timeline.fitting.coarsen import EXACT
from timeline.fitting.plan import Plan, apply_plan
from timeline.fitting.size_model import Measure, SizeModel
from timeline.layers import SizeLayer
from timeline.records.tables import Omission, OmissionCode
from timeline.tracks.model import ARROW_REASON, Track, element_count
from timeline.tracks.partition import is_partition
from timeline.tracks.rank_tracks import RankTracks

__all__ = ["coarsen_ranks", "lowest_floors"]

MOST_PIECES = 1 << 13
"""Pieces of the time of a rank that are kept as they are: 8 MB for 32 ranks, 0.25 GB for 1 000."""

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
    any number of stages. Rows that are still to be parted, when it is known who waited for whom,
    stay as they are unless they are long.

    Args:
        limit_bytes: what the rows may take in a file, as far as estimates go.
        most: slices and samples that may be left; what repeats packs well and still is many.
    """
    tracks = _to_merge(ranks)
    count = element_count(tracks)
    model = SizeModel(tracks, measure, lowest_floors(ranks))
    finest = model.finest_plan()
    if not count or (finest.expected_bytes <= limit_bytes and count <= most):
        return tuple(ranks)
    plan = model.plan(min(limit_bytes, finest.expected_bytes * most / count))
    while True:
        made = _apply_plan_to_ranks(ranks, plan)
        count = element_count(_to_merge(made))
        coarser = model.plan(plan.expected_bytes * COUNT_SHRINK * most / max(count, 1))
        if count <= most or coarser.resolutions == plan.resolutions:
            return made
        plan = coarser


def _to_merge(ranks: Sequence[RankTracks]) -> list[Track]:
    return [track for rank in ranks for track in rank.tracks if not _is_to_be_parted(track)]


def _is_to_be_parted(track: Track) -> bool:
    """Whether waits are to be drawn in a row, which is small enough to be kept until then."""
    return is_partition(track) and len(track.content or ()) <= MOST_PIECES


def _apply_plan_to_ranks(ranks: Sequence[RankTracks], plan: Plan) -> tuple[RankTracks, ...]:
    floors = {
        layer: resolution.power
        for layer, resolution in plan.resolutions.items()
        if resolution.power != EXACT
    }
    made = []
    for rank in ranks:
        stays = [_is_to_be_parted(track) for track in rank.tracks]
        merged, _, lost = apply_plan(list(compress(rank.tracks, map(not_, stays))), plan)
        rest = iter(merged)
        drawn = (
            track if stay else next(rest) for track, stay in zip(rank.tracks, stays, strict=True)
        )
        omissions = rank.omissions
        if lost:
            omissions += (Omission(ARROW_REASON, lost, rank.rank, code=OmissionCode.ARROW_CUT),)
        made.append(replace(rank, tracks=tuple(drawn), omissions=omissions, floors=floors))
    return tuple(made)
