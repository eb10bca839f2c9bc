"""Plan: a resolution for each layer; tracks drawn by it, and what that left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from timeline.columns.chunks import one_by_one
from timeline.columns.columns import Int64
from timeline.columns.distinct import distinct, distinct_values
from timeline.fitting.coarsen import EXACT, Resolution, as_coarse, coarsen, thin
from timeline.fitting.merged_slices import draw_coarse
from timeline.layers import NOUNS, SIZE_LAYERS, SizeLayer
from timeline.tracks.model import MERGED, Samples, Slices, Track
from timeline.units import spell_duration

__all__ = [
    "WHOLE_NS",
    "DrawnLayer",
    "Plan",
    "apply_plan",
    "describe_merged",
    "describe_resolutions",
    "without_half_arrows",
]

WHOLE_NS = 1 << 44
"""A resolution of hours merges all that there is."""


@dataclass(frozen=True)
class Plan:
    """A resolution per layer, and the size that is expected of it."""

    resolutions: Mapping[SizeLayer, Resolution]
    expected_bytes: float
    finest: bool = False
    """Whether nothing is merged that was not merged before."""


@dataclass(frozen=True)
class DrawnLayer:
    """How one layer was drawn: its resolution, and what became of its slices."""

    layer: SizeLayer
    resolution: Resolution
    exact: int
    merged: int
    merged_into: int


def apply_plan(tracks: Sequence[Track], plan: Plan) -> tuple[list[Track], list[DrawnLayer], int]:
    """Draw tracks at the resolutions of a plan.

    Returns:
        The tracks, what became of each layer, and the number of arrows that lost an end.
    """
    made: list[Track] = []
    totals: dict[SizeLayer, list[int]] = {}
    for track in one_by_one(tracks):
        layer, content = track.size_layer, track.content
        if layer is None:
            made.append(track)
            continue
        resolution = plan.resolutions[layer]
        if isinstance(content, Slices):
            content = _at_resolution(content, resolution)
            _count(totals, layer, *_exact_and_merged(content))
        elif isinstance(content, Samples):
            content = thin(content, resolution)
            _count(totals, layer, len(content), content.left_out, 0)
        made.append(track if content is track.content else replace(track, content=content))
    drawn_layers = [
        DrawnLayer(layer, plan.resolutions[layer], *totals[layer])
        for layer in SIZE_LAYERS
        if layer in totals
    ]
    whole, lost = without_half_arrows(made)
    if any(new is not old for new, old in zip(made, tracks, strict=True)):
        lost += _arrow_count(tracks) - _arrow_count(made)
    return whole, drawn_layers, lost


def describe_resolutions(
    tracks: Sequence[Track], drawn_layers: Sequence[DrawnLayer]
) -> list[Track]:
    """Add to the descriptions of tracks what their merged slices stand for.

    All rows of a layer that is not exact say so: lanes of one row must say the same.
    """
    merged = {layer.layer: layer.resolution for layer in drawn_layers if layer.merged}
    made = []
    for track in tracks:
        resolution = merged.get(track.size_layer or "")
        if resolution is not None and track.content is not None:
            also = describe_merged(track.content, resolution)
            track = replace(track, description=f"{track.description} {also}")  # noqa: PLW2901
        made.append(track)
    return made


def _at_resolution(slices: Slices, resolution: Resolution) -> Slices:
    if resolution.power == EXACT:
        return slices
    return draw_coarse(coarsen(as_coarse(slices), slices, resolution), slices)


def _exact_and_merged(slices: Slices) -> tuple[int, int, int]:
    """Exact slices, merged records, and the slices that they were merged into."""
    if slices.coarse is None:
        return len(slices), 0, 0
    several = slices.coarse.row == MERGED
    count = int(np.count_nonzero(several))
    return len(slices) - count, int(slices.coarse.count[several].sum()), count


def _count(totals: dict[SizeLayer, list[int]], layer: SizeLayer, *numbers: int) -> None:
    sums = totals.setdefault(layer, [0, 0, 0])
    for at, value in enumerate(numbers):
        sums[at] += value


def _arrow_count(tracks: Sequence[Track]) -> int:
    """Distinct arrows that have an end on any track."""
    return len(distinct(_arrows_of(tracks)))


def _arrows_of(tracks: Sequence[Track]) -> Int64:
    ids = [track.content.arrows.arrow for track in tracks if isinstance(track.content, Slices)]
    return np.concatenate([np.empty(0, np.int64), *ids])


def without_half_arrows(tracks: Sequence[Track]) -> tuple[list[Track], int]:
    """Drop the arrows of which only one end is drawn; how many they were."""
    ids, which = distinct_values(_arrows_of(tracks))
    is_whole = np.bincount(which, minlength=len(ids)) == 2
    if is_whole.all():
        return list(tracks), 0
    stays = is_whole[which]
    made = []
    first = 0
    for track in tracks:
        content = track.content
        if isinstance(content, Slices) and (count := len(content.arrows.arrow)):
            kept = stays[first : first + count]
            first += count
            arrows = replace(
                content.arrows, slice=content.arrows.slice[kept], arrow=content.arrows.arrow[kept]
            )
            track = replace(track, content=replace(content, arrows=arrows))  # noqa: PLW2901
        made.append(track)
    return made, int(np.count_nonzero(~is_whole))


def describe_merged(content: Slices | Samples, resolution: Resolution) -> str:
    """What slices or samples stand for in a row that is not exact."""
    width = "" if resolution.width_ns >= WHOLE_NS else spell_duration(resolution.width_ns)
    finer = "" if resolution.finer_until_ns is None else " The first part is finer."
    if isinstance(content, Samples):
        of = f"each {width}" if width else "all"
        return f"To keep the size limit, the least and the greatest of {of}.{finer}"
    shorter = f" shorter than {width}" if width else ""
    return (
        f"To keep the size limit, {NOUNS[content.kind]}{shorter} that follow each other are one "
        f"slice; its count and busy_ns are exact.{finer}"
    )
