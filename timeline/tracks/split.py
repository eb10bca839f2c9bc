"""Turns tracks into the part of them that lies between two moments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from timeline.columns.columns import Bool, Int64
from timeline.columns.distinct import distinct
from timeline.columns.nesting import edges_of
from timeline.tracks.model import Arg, ArgKind, Arrows, Samples, Slices, Track

__all__ = ["between", "cut_moments"]


def between(tracks: Sequence[Track], start_ns: int, end_ns: int) -> list[Track]:
    """All tracks with what lies in [start_ns, end_ns).

    A slice that crosses a cut is closed there and opened again in the next part, where it has the
    arg `continued`; its pieces together are as long as it was. A slice without length lies in the
    part that its moment lies in. An arrow touches the piece in which its slice begins; one whose
    other end is in another part is dropped by the caller.
    """
    return [_between(track, start_ns, end_ns) for track in tracks]


def _between(track: Track, start_ns: int, end_ns: int) -> Track:
    content = track.content
    if isinstance(content, Samples):
        kept = (content.time_ns >= start_ns) & (content.time_ns < end_ns)
        return replace(
            track,
            content=replace(content, time_ns=content.time_ns[kept], value=content.value[kept]),
        )
    if not isinstance(content, Slices):
        return track
    kept = _inside(content.start_ns, content.end_ns, start_ns, end_ns)
    rows = np.flatnonzero(kept)
    if content.nested:
        # A cut may make a call as long as the one around it; then the order tells them apart.
        edges = edges_of(content.start_ns, content.end_ns)
        order = edges.row[~edges.is_end]
        rows = order[kept[order]]
    begins = content.start_ns[rows] >= start_ns
    place = np.full(len(content), -1, np.int64)
    place[rows[begins]] = np.flatnonzero(begins)
    moved = place[content.arrows.slice]
    touched = np.argsort(moved, kind="stable")
    touched = touched[moved[touched] >= 0]
    part = content.taken(rows, Arrows(moved[touched], content.arrows.arrow[touched]))
    args = part.args
    if not begins.all():
        args += (Arg("continued", ArgKind.INTEGER, np.ones(len(rows), np.int64), ~begins),)
    return replace(
        track,
        content=replace(
            part,
            start_ns=np.maximum(part.start_ns, start_ns),
            end_ns=np.minimum(part.end_ns, end_ns),
            args=args,
        ),
    )


def _inside(start_ns: Int64, end_ns: Int64, first_ns: int, last_ns: int) -> Bool:
    empty = start_ns == end_ns
    crosses = (start_ns < last_ns) & (end_ns > first_ns)
    made: Bool = np.where(empty, (start_ns >= first_ns) & (start_ns < last_ns), crosses)
    return made


def cut_moments(tracks: Sequence[Track], parts: int, start_ns: int, end_ns: int) -> list[int]:
    """Moments that part [start_ns, end_ns) into `parts` with about as many slices each.

    Returns:
        Ascending moments with both ends; fewer parts where slices are too few to part them.
    """
    times = [
        track.content.start_ns if isinstance(track.content, Slices) else track.content.time_ns
        for track in tracks
        if track.content is not None
    ]
    every = np.concatenate([np.empty(0, np.int64), *times])
    every = every[(every > start_ns) & (every < end_ns)]
    if not len(every) or parts == 1:
        return [start_ns, end_ns]
    shares = np.arange(1, parts) / parts
    inner = np.quantile(every, shares, method="nearest").astype(np.int64)
    return [start_ns, *distinct(inner).tolist(), end_ns]
