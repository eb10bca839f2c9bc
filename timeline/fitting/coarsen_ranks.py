"""Coarsening of the tracks of ranks before they are put into one file, to limit memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from timeline.fitting.coarsen import EXACT, Resolution, at_resolution
from timeline.fitting.drawn_layers import WholeArrows, count_arrows
from timeline.fitting.limits import Cost, Limits
from timeline.fitting.plan import Planner, screen_level
from timeline.fitting.sizes import Measure, measure_layers
from timeline.layers import SizeLayer
from timeline.records.tables import Omission, OmissionCode
from timeline.tracks.model import MERGED_END_REASON, Track, element_count
from timeline.tracks.partition import is_partition
from timeline.tracks.rank_tracks import RankTracks

MOST_PIECES = 1 << 13
"""Maximum length of a partition row that is not merged: 8 MB for 32 ranks, 0.25 GB for 1 000."""

COUNT_SHRINK = 0.8
"""The share of the allowed elements to aim at when there are still too many."""


def lowest_floors(ranks: Sequence[RankTracks]) -> dict[SizeLayer, int]:
    """Return the coarsest level, by layer, at which any rank was merged already."""
    floors: dict[SizeLayer, int] = {}
    for rank in ranks:
        for layer, level in rank.floors.items():
            floors[layer] = max(level, floors.get(layer, 0))
    return floors


def coarsen_ranks(
    ranks: Sequence[RankTracks], limit_bytes: float, most: int, measure: Measure
) -> tuple[RankTracks, ...]:
    """Merge short slices in all rows until the rows keep a limit of bytes and of elements.

    Merging composes: merging here and again for the file at a coarser resolution gives the same as
    merging at the file's resolution alone. So ranks can be merged separately, and in any number of
    stages. Rows that are split later, once the waits between ranks are known, stay as they are
    unless they are long.

    Args:
        limit_bytes: estimated bytes that the rows may take in a file.
        most: slices and samples that may be left; regular ones compress well but are still many.
    """
    tracks = _to_merge(ranks)
    count = element_count(tracks)
    if not count:
        return tuple(ranks)
    rows = [track for track in tracks if is_partition(track)]
    sizes = measure_layers(tracks, measure, lowest_floors(ranks))
    planner = Planner(sizes, Cost(), screen_level(rows))
    limits = Limits(limit_bytes, most)
    if count <= most and limits.hold(Cost(planner.whole.size_bytes)):
        return tuple(ranks)
    while True:
        levels = planner.plan(limits).levels
        floors = {layer: level for layer, level in levels.items() if level != EXACT}
        merged = tuple(coarsen_rank(rank, floors) for rank in ranks)
        count = element_count(_to_merge(merged))
        limits = replace(limits, elements=limits.elements * COUNT_SHRINK * most / max(count, 1))
        if count <= most or planner.plan(limits).levels == levels:
            return merged


def coarsen_rank(
    rank: RankTracks,
    floors: Mapping[SizeLayer, int],
    exact_ns: tuple[tuple[int, int], ...] = (),
) -> RankTracks:
    """Merge short slices in the rows of a rank.

    Args:
        floors: the level of each layer.
        exact_ns: windows in which nothing is merged.
    """
    resolutions = {layer: Resolution(level, exact_ns) for layer, level in floors.items()}
    drawn = [
        track
        if _is_split_later(track) or (layer := track.size_layer) not in resolutions
        else at_resolution(track, resolutions[layer])
        for track in rank.tracks
    ]
    arrows = WholeArrows(drawn)
    lost = count_arrows(rank.tracks) - arrows.count
    omissions = rank.omissions
    if lost:
        omissions += (Omission(MERGED_END_REASON, lost, rank.rank, code=OmissionCode.ARROW_CUT),)
    tracks = tuple(map(arrows.of, drawn))
    return replace(rank, tracks=tracks, omissions=omissions, floors=floors)


def _to_merge(ranks: Sequence[RankTracks]) -> list[Track]:
    return [track for rank in ranks for track in rank.tracks if not _is_split_later(track)]


def _is_split_later(track: Track) -> bool:
    """Return True for a small row in which waits are drawn later."""
    return is_partition(track) and len(track.content or ()) <= MOST_PIECES
