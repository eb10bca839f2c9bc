"""Excerpts of tracks, by which the size of whole layers is estimated."""

from __future__ import annotations

from dataclasses import replace

from timeline.columns.columns import Rows, sort_rows
from timeline.tracks.model import Samples, Slices, Track

__all__ = ["Excerpts"]


class Excerpts:
    """Cuts excerpts from tracks, which must not change meanwhile; remembers their order of time."""

    def __init__(self) -> None:
        self._orders: dict[int, Rows | None] = {}
        """By the id of a track, its slices in order of time; None where they are in that order."""

    def run(self, track: Track, first: int, stop: int) -> Track:
        """The slices or samples from `first` to before `stop` in order of time, as a track."""
        order = self._order(track) if stop > first else None
        return _excerpt(track, slice(first, stop) if order is None else order[first:stop])

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


def _excerpt(track: Track, rows: Rows | slice) -> Track:
    """The track with nothing but some of its slices or samples, in that order."""
    content = track.content
    if isinstance(content, Slices):
        if isinstance(rows, slice):
            first, stop, _ = rows.indices(len(content))
            return replace(track, content=content.between(first, stop))
        return replace(track, content=content.take(rows, content.arrows.of(rows)))
    if isinstance(content, Samples):
        samples = replace(content, time_ns=content.time_ns[rows], value=content.value[rows])
        return replace(track, content=samples)
    return track
