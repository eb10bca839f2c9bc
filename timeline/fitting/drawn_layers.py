"""Layers as they were drawn: merged slices for reports and rows, and arrows with both ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from timeline.columns.columns import Bool, Int64, ascending
from timeline.columns.distinct import distinct
from timeline.errors import format_ids
from timeline.fitting.coarsen import Resolution
from timeline.layers import NOUNS, SizeLayer
from timeline.tracks.model import MERGED, Arrows, Samples, Slices, Track
from timeline.units import format_duration

WHOLE_NS = 1 << 44
"""A resolution of hours, which merges everything."""


@dataclass(frozen=True)
class Drawn:
    """Counts of exact slices, of slices that were merged, and of the slices they were merged into.

    For samples: the drawn ones, and those left out as merged.
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
    """Count the exact and the merged slices and samples of tracks."""
    total = Drawn()
    for track in tracks:
        content = track.content
        if isinstance(content, Samples):
            total += Drawn(len(content), content.left_out)
        elif isinstance(content, Slices):
            total += _count_slices(content)
    return total


def _count_slices(slices: Slices) -> Drawn:
    if slices.coarse is None:
        return Drawn(len(slices))
    several = slices.coarse.row == MERGED
    count = int(np.count_nonzero(several))
    return Drawn(len(slices) - count, int(slices.coarse.count[several].sum()), count)


@dataclass(frozen=True)
class DrawnLayer:
    """One layer as it was drawn: its level, the finer one up to some time, and its counts."""

    layer: SizeLayer
    level: int
    drawn: Drawn
    finer_level: int | None = None
    finer_until_ns: int | None = None

    @property
    def merged(self) -> int:
        """Return the number of records that are not drawn one by one."""
        return self.drawn.merged

    @property
    def width_ns(self) -> int:
        """Return the width of a bin; slices of at least that length are always exact."""
        return Resolution(self.level).width_ns

    @property
    def finer_width_ns(self) -> int | None:
        """Return the width of a bin before `finer_until_ns`, None if there is no such time."""
        return None if self.finer_level is None else Resolution(self.finer_level).width_ns


def describe_resolutions(
    tracks: Sequence[Track], layers: Sequence[DrawnLayer], exact: Mapping[int, Sequence[int]]
) -> list[Track]:
    """Add the meaning of merged slices to the descriptions of tracks.

    All rows of a layer that is not exact get it: lanes of one row must have the same description.

    Args:
        exact: by rank, the steps in which nothing is merged.
    """
    merged = {layer.layer: layer for layer in layers if layer.merged}
    described = []
    for track in tracks:
        layer = merged.get(track.size_layer or "")
        if layer is not None and track.content is not None:
            steps = exact.get(track.rank, ()) if track.rank is not None else ()
            also = _describe(track.content, layer, steps)
            track = replace(track, description=f"{track.description} {also}")  # noqa: PLW2901
        described.append(track)
    return described


def _describe(content: Slices | Samples, layer: DrawnLayer, steps: Sequence[int]) -> str:
    """Describe merged slices or samples of a row that is not exact."""
    width = "" if layer.width_ns >= WHOLE_NS else format_duration(layer.width_ns)
    also = "" if layer.finer_until_ns is None else " The first part is finer."
    if steps:
        also += f" Exact in {'step' if len(steps) == 1 else 'steps'} {format_ids(steps)}."
    if isinstance(content, Samples):
        of = f"each {width}" if width else "all"
        return f"To keep the size limit, the least and the greatest of {of}.{also}"
    shorter = f" shorter than {width}" if width else ""
    return (
        f"To keep the size limit, {NOUNS[content.kind]}{shorter} that follow each other are one "
        f"slice; its count and busy_ns are exact.{also}"
    )


class WholeArrows:
    """The arrows with both ends on some tracks.

    count: number of these arrows. halves: number of arrows with only one end.
    """

    def __init__(self, tracks: Iterable[Track]) -> None:
        ends = ascending(_arrows_of(tracks))
        self._whole = ends[1:][ends[1:] == ends[:-1]]
        self.count = len(self._whole)
        self.halves = len(ends) - 2 * self.count

    def of(self, track: Track) -> Track:
        """Return the track without ends of arrows whose other end is on none of the tracks."""
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
        whole: Bool = self._whole[at] == arrows
        return whole


def count_arrows(tracks: Iterable[Track]) -> int:
    """Count the arrows that have an end on any of the tracks."""
    return len(distinct(_arrows_of(tracks)))


def without_half_arrows(tracks: Sequence[Track]) -> tuple[list[Track], int]:
    """Drop the arrows with only one end drawn, and count them."""
    whole = WholeArrows(tracks)
    return [whole.of(track) for track in tracks], whole.halves


def _arrows_of(tracks: Iterable[Track]) -> Int64:
    ids = [track.content.arrows.arrow for track in tracks if isinstance(track.content, Slices)]
    return np.concatenate([np.empty(0, np.int64), *ids])
