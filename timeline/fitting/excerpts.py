"""Excerpts of tracks, by which the size of whole layers is estimated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from timeline.columns.columns import Rows, sort_rows
from timeline.tracks.model import Samples, Slices, Track, element_count

__all__ = ["Excerpts", "excerpt"]

COUNTED_TRACKS = 128
"""Longest tracks of a layer that are counted each; as many of the rest stand for all of it."""
COUNTED_RUNS = 8
"""Runs of a very long track that are counted."""
RUN_SLICES = 1 << 13
"""Slices of each of those runs."""


class Excerpts:
    """Cuts excerpts from tracks, which must not change meanwhile; remembers their order of time."""

    def __init__(self) -> None:
        self._orders: dict[int, Rows | None] = {}
        """By the id of a track, its slices in order of time; None where they are in that order."""

    def run(self, track: Track, first: int, stop: int) -> Track:
        """The slices or samples from `first` to before `stop` in order of time, as a track."""
        order = self._order(track) if stop > first else None
        return excerpt(track, slice(first, stop) if order is None else order[first:stop])

    def middle(self, track: Track, count: int) -> Track:
        """So many slices or samples from the middle of a track."""
        first = max(0, (len(track.content or ()) - count) // 2)
        return self.run(track, first, first + count)

    def of_all(self, tracks: Sequence[Track]) -> list[tuple[Track, float]]:
        """Excerpts to count elements of, each with the number of times that it counts.

        The longest stand for themselves; of very many shorter ones, some spread evenly stand for
        all. Of a very long one, some runs of slices do.
        """
        ordered = sorted(tracks, key=lambda track: -len(track.content or ()))
        longest, rest = ordered[:COUNTED_TRACKS], ordered[COUNTED_TRACKS:]
        some = rest[:: max(1, len(rest) // COUNTED_TRACKS)]
        stand_for = element_count(rest) / max(1, element_count(some))
        chosen = [*((track, 1.0) for track in longest), *((track, stand_for) for track in some)]
        return [part for track, weight in chosen for part in self._runs(track, weight)]

    def _runs(self, track: Track, weight: float) -> Iterator[tuple[Track, float]]:
        count = len(track.content or ())
        merged = isinstance(track.content, Slices) and track.content.coarse is not None
        if merged or count <= COUNTED_RUNS * RUN_SLICES:
            yield track, weight
            return
        share = weight * count / (COUNTED_RUNS * RUN_SLICES)
        for first in np.linspace(0, count - RUN_SLICES, COUNTED_RUNS).astype(int).tolist():
            yield self.run(track, first, first + RUN_SLICES), share

    def _order(self, track: Track) -> Rows | None:
        """Calls of one thread may be stored by kind: those next to each other are no run."""
        content = track.content
        if not isinstance(content, Slices) or not content.nested:
            return None
        if id(track) not in self._orders:
            start_ns = content.start_ns
            in_order = bool((start_ns[1:] >= start_ns[:-1]).all())
            self._orders[id(track)] = None if in_order else sort_rows(start_ns)
        return self._orders[id(track)]


def excerpt(track: Track, rows: Rows | slice) -> Track:
    """The track with nothing but some of its slices or samples, in that order."""
    content = track.content
    if isinstance(content, Slices):
        arrows = content.arrows
        if isinstance(rows, slice):
            first, stop, _ = rows.indices(len(content))
            return replace(track, content=content.take(rows, arrows.between(first, stop)))
        return replace(track, content=content.take(rows, arrows.of(rows)))
    if isinstance(content, Samples):
        samples = replace(content, time_ns=content.time_ns[rows], value=content.value[rows])
        return replace(track, content=samples)
    return track
