"""Tracks at a resolution, what became of their slices, and the arrows that are still whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from timeline.columns.columns import Bool, Int64, ascending
from timeline.columns.constant import constant
from timeline.columns.distinct import distinct
from timeline.fitting.coarsen import EXACT, Resolution, as_coarse, coarsen, thin
from timeline.fitting.merged_slices import draw_coarse
from timeline.frozen import dataclass
from timeline.layers import SIZE_LAYERS, SizeLayer
from timeline.tracks.model import MERGED, Arrows, Samples, Slices, Track

__all__ = [
    "Drawn",
    "WholeArrows",
    "at_resolution",
    "count_arrows",
    "count_arrows_between",
    "count_drawn",
    "without_half_arrows",
]


def at_resolution(track: Track, resolution: Resolution) -> Track:
    """A track with what is shorter than the resolution merged, or its samples thinned."""
    content = track.content
    made: Slices | Samples | None = content
    if resolution.power != EXACT and len(content or ()) > 1:
        if isinstance(content, Slices):
            made = draw_coarse(coarsen(as_coarse(content), content, resolution), content)
        elif isinstance(content, Samples):
            made = thin(content, resolution)
    return track if made is content else replace(track, content=made)


@dataclass(frozen=True)
class Drawn:
    """What became of slices: how many are exact, and how many were merged into how many.

    Of samples: how many are drawn, and how many are left out.
    """

    exact: int = 0
    merged: int = 0
    merged_into: int = 0

    def __add__(self, other: Drawn) -> Drawn:
        return Drawn(
            self.exact + other.exact,
            self.merged + other.merged,
            self.merged_into + other.merged_into,
        )


def count_drawn(tracks: Iterable[Track]) -> Drawn:
    """What became of the slices and samples of tracks."""
    total = Drawn()
    for track in tracks:
        content = track.content
        if isinstance(content, Samples):
            total += Drawn(len(content), content.left_out)
        elif isinstance(content, Slices):
            total += _of_slices(content)
    return total


def _of_slices(slices: Slices) -> Drawn:
    if slices.coarse is None:
        return Drawn(len(slices))
    several = slices.coarse.row == MERGED
    count = int(np.count_nonzero(several))
    return Drawn(len(slices) - count, int(slices.coarse.count[several].sum()), count)


class WholeArrows:
    """The arrows of which both ends are drawn, and how many have an end at all."""

    def __init__(self, tracks: Iterable[Track]) -> None:
        ends = ascending(_arrows_of(tracks))
        follows = ends[1:] == ends[:-1]
        self._whole = ends[1:][follows]
        self.count = len(self._whole)
        self.halves = len(ends) - 2 * self.count

    def of(self, track: Track) -> Track:
        """The track without those ends of arrows whose other end is not drawn."""
        content = track.content
        if not self.halves or not isinstance(content, Slices) or not len(content.arrows.arrow):
            return track
        kept = self._is_whole(content.arrows.arrow)
        if kept.all():
            return track
        arrows = Arrows(content.arrows.slice[kept], content.arrows.arrow[kept])
        return replace(track, content=replace(content, arrows=arrows))

    def _is_whole(self, arrows: Int64) -> Bool:
        if not self.count:
            return np.zeros(len(arrows), np.bool_)
        at = np.minimum(np.searchsorted(self._whole, arrows), self.count - 1)
        found: Bool = self._whole[at] == arrows
        return found


def _arrows_of(tracks: Iterable[Track]) -> Int64:
    ids = [track.content.arrows.arrow for track in tracks if isinstance(track.content, Slices)]
    return np.concatenate([np.empty(0, np.int64), *ids])


def count_arrows_between(tracks: Iterable[Track]) -> dict[tuple[SizeLayer, SizeLayer], int]:
    """How many arrows have one end on a slice of one layer and one on a slice of another."""
    ids, layers = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for track in tracks:
        if isinstance(track.content, Slices) and len(track.content.arrows.arrow):
            found, layer = track.content.arrows.arrow, SIZE_LAYERS.index(track.content.kind.value)
            ids.append(found)
            layers.append(constant(layer, len(found), np.int64))
    every, place = np.concatenate(ids), np.concatenate(layers)
    order = np.argsort(every, kind="stable")
    every, place = every[order], place[order]
    pairs = np.flatnonzero(every[1:] == every[:-1])
    one, other = place[pairs], place[pairs + 1]
    every_layer = len(SIZE_LAYERS)
    counts = np.bincount(np.minimum(one, other) * every_layer + np.maximum(one, other))
    return {
        (SIZE_LAYERS[key // every_layer], SIZE_LAYERS[key % every_layer]): int(counts[key])
        for key in np.flatnonzero(counts).tolist()
    }


def count_arrows(tracks: Iterable[Track]) -> int:
    """How many arrows have an end on any of the tracks."""
    return len(distinct(_arrows_of(tracks)))


def without_half_arrows(tracks: Sequence[Track]) -> tuple[list[Track], int]:
    """Drop the arrows of which only one end is drawn; how many they were."""
    whole = WholeArrows(tracks)
    return [whole.of(track) for track in tracks], whole.halves
