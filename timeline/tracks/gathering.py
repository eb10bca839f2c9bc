"""Turns the rows of ranks into rows that together take no more than a limit, with equal sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from timeline.records.tables import Omission
from timeline.tracks.budget import Budget, Measure
from timeline.tracks.layers import LayerKey
from timeline.tracks.picture import RankTracks
from timeline.tracks.resolve import resolve

__all__ = ["ARROW_REASON", "element_count", "floors_of", "gathered_within"]

ARROW_REASON = "arrows with an end that is gathered with others"


def element_count(ranks: Sequence[RankTracks]) -> int:
    """All slices and samples."""
    return sum(len(track.content or ()) for own in ranks for track in own.tracks)


def floors_of(ranks: Sequence[RankTracks]) -> dict[LayerKey, int]:
    """The coarsest power, by layer, at which any rank was gathered already."""
    floors: dict[LayerKey, int] = {}
    for own in ranks:
        for layer, power in own.floors.items():
            floors[layer] = max(power, floors.get(layer, 0))
    return floors


def gathered_within(
    ranks: Sequence[RankTracks], limit_bytes: float, measure: Measure
) -> tuple[RankTracks, ...]:
    """Gather what is short in all rows, as far as the limit asks.

    Gathering composes: what is gathered here, and again for the file at a coarser resolution, is
    what the file's own resolution would have made of it. So ranks can be gathered apart, and in
    any number of stages.
    """
    tracks = [track for own in ranks for track in own.tracks]
    budget = Budget(tracks, measure, floors_of(ranks))
    if budget.finest_plan().expected_bytes <= limit_bytes:
        return tuple(ranks)
    plan = budget.plan(limit_bytes)
    floors = {layer: resolution.power for layer, resolution in plan.resolutions.items()}
    made = []
    for own in ranks:
        resolved, _, lost = resolve(own.tracks, plan)
        omissions = own.omissions
        if lost:
            omissions += (Omission(ARROW_REASON, lost, own.rank),)
        made.append(
            replace(
                own,
                tracks=tuple(resolved),
                omissions=omissions,
                floors={layer: power for layer, power in floors.items() if power},
            )
        )
    return tuple(made)
