"""JoinedSlices: those of short tracks that follow each other, which are encoded at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from timeline.columns.columns import Bool, Int64, Rows
from timeline.columns.nesting import Events, nested_events
from timeline.columns.strings import JoinedPool
from timeline.layers import SLICES
from timeline.tracks.colours import is_coloured_by_name
from timeline.tracks.model import Arg, ArgKind, Arrows, Slices, Track

FAR_NS = float(1 << 62)
"""Tracks that are moved behind each other may reach so far."""


@dataclass(frozen=True)
class JoinedSlices:
    """The slices of tracks one after the other; of most it is one track, as it is.

    first: (t,) the row at which each track begins. moved_ns: (t,) what is added to the times of
    each so that none begins before the one before has ended; None where there is one track.
    """

    tracks: Sequence[Track]
    slices: Slices
    first: Rows
    moved_ns: Int64 | None = None

    @cached_property
    def track(self) -> Rows:
        """(n,) which of the tracks each slice is of."""
        counts = np.diff(self.first, append=len(self.slices))
        return np.repeat(np.arange(len(self.first)), counts)

    def first_track_with(self, arg: Arg) -> int:
        """The first track of which a slice has an arg that some have."""
        return int(self.track[int(arg.present.argmax())])

    def events(self, first_ns: int) -> tuple[Events, Bool]:
        """The events of several tracks, and which are the first ones of their track.

        Those tell time since first_ns.
        """
        slices = self.slices
        by_ns = np.asarray(self.moved_ns)[self.track]
        start_ns, end_ns = slices.start_ns + by_ns, slices.end_ns + by_ns
        if slices.nested:
            events = nested_events(start_ns, end_ns, 0)
        else:
            since_ns = np.diff(start_ns, prepend=0)
            since_ns[1:] = start_ns[1:] - end_ns[:-1]
            events = Events(np.arange(len(slices)), since_ns, end_ns - start_ns)
        begins = np.diff(self.track[events.row], prepend=-1) > 0
        since_ns = events.begin_ns.copy()
        since_ns[begins] = np.minimum.reduceat(slices.start_ns, self.first) - first_ns
        return replace(events, begin_ns=since_ns), begins


def join_slices(tracks: Iterable[Track]) -> Iterator[JoinedSlices | Track]:
    """Join the slices of tracks that follow each other and are alike; others come as they are."""
    together: list[Track] = []
    for track in tracks:
        if not isinstance(track.content, Slices):
            yield from _join(together)
            yield track
            together = []
        elif together and not _are_alike(together, track):
            yield from _join(together)
            together = [track]
        else:
            together.append(track)
    yield from _join(together)


def _are_alike(tracks: Sequence[Track], other: Track) -> bool:
    """Whether slices have the same kind and names, and args that the others have too."""
    one, last, it = tracks[0].content, tracks[-1].content, other.content
    assert isinstance(one, Slices)
    assert isinstance(last, Slices)
    assert isinstance(it, Slices)
    return (
        one.kind is it.kind
        and one.category is it.category
        and one.nested == it.nested
        and one.strings.extended()[0] is it.strings.extended()[0]
        and not SLICES[it.kind].spelled
        and not is_coloured_by_name(it.kind)
        and _args_of(last) == _args_of(it)
    )


def _args_of(slices: Slices) -> list[tuple[str, ArgKind, bool, str]]:
    return [(arg.name, arg.kind, arg.of_several, arg.values.dtype.str) for arg in slices.args]


def _join(tracks: Sequence[Track]) -> Iterator[JoinedSlices]:
    every = [track.content for track in tracks if isinstance(track.content, Slices)]
    if len(every) > 1:
        counts = np.array([len(slices) for slices in every])
        first = np.cumsum(counts) - counts
        joined = _concat(every, counts, first)
        begin_ns = np.minimum.reduceat(joined.start_ns, first)
        span_ns = np.maximum.reduceat(joined.end_ns, first) - begin_ns + 1
        if span_ns.min() > 0 and span_ns.sum(dtype=np.float64) < FAR_NS:
            moved_ns = np.cumsum(span_ns) - span_ns - begin_ns
            yield JoinedSlices(tracks, joined, first, moved_ns)
            return
    for track, slices in zip(tracks, every, strict=True):
        yield JoinedSlices([track], slices, np.zeros(1, np.intp))


def _concat(every: Sequence[Slices], counts: Int64, first: Rows) -> Slices:
    pool = JoinedPool([slices.strings for slices in every])

    def args(number: int) -> Arg:
        its = [slices.args[number] for slices in every]
        values = np.concatenate([arg.values for arg in its])
        if its[0].kind is ArgKind.NAME:
            values = pool.joined(values, counts)
        return replace(its[0], values=values, present=np.concatenate([arg.present for arg in its]))

    ends = [slices.arrows for slices in every]
    at = np.repeat(first, [len(arrows.slice) for arrows in ends])
    return replace(
        every[0],
        start_ns=np.concatenate([slices.start_ns for slices in every]),
        end_ns=np.concatenate([slices.end_ns for slices in every]),
        name=pool.joined(np.concatenate([slices.name for slices in every]), counts),
        strings=pool,
        args=tuple(map(args, range(len(every[0].args)))),
        arrows=Arrows(
            np.concatenate([arrows.slice for arrows in ends]) + at,
            np.concatenate([arrows.arrow for arrows in ends]),
        ),
        coarse=None,
    )
