"""Turns a long track into parts, each of which can be encoded without the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np

from timeline.columns.columns import Int64, Rows
from timeline.columns.nesting import pieces_of
from timeline.tracks.model import Arrows, Samples, Slices, Track

__all__ = ["PART_ELEMENTS", "parts_of_track"]

PART_ELEMENTS = 1 << 16
"""Slices and samples of a part; more where they leave no moment to cut at."""


def parts_of_track(track: Track) -> Iterator[Track]:
    """The track, cut at moments at which nothing goes on, begins or ends.

    So events of one moment stay together: nothing tells which of two parts comes first.
    """
    content = track.content
    if content is None or len(content) <= PART_ELEMENTS:
        yield track
    elif isinstance(content, Samples):
        for own in _runs(content.time_ns, content.time_ns):
            part = replace(content, time_ns=content.time_ns[own], value=content.value[own])
            yield replace(track, content=part)
    else:
        for slices in _nested_parts(content) if content.nested else _flat_parts(content):
            yield replace(track, content=slices)


def _flat_parts(slices: Slices) -> Iterator[Slices]:
    for own in _runs(slices.start_ns, slices.end_ns):
        yield slices.taken(own, slices.arrows.between(own.start, own.stop))


def _nested_parts(slices: Slices) -> Iterator[Slices]:
    pieces = list(pieces_of(slices.start_ns, slices.end_ns, PART_ELEMENTS))
    bounds = np.cumsum([0, *map(len, pieces)]).tolist()
    runs = [slice(first, stop) for first, stop in pairwise(bounds)]
    if all(_is_run(rows, own) for rows, own in zip(pieces, runs, strict=True)):
        for own in runs:
            yield slices.taken(own, slices.arrows.between(own.start, own.stop))
        return
    place = np.empty(len(slices), np.intp)
    for rows, own in zip(pieces, runs, strict=True):
        place[rows] = np.arange(own.start, own.stop)
    at = place[slices.arrows.slice]
    order = np.argsort(at, kind="stable")
    arrows = Arrows(at[order], slices.arrows.arrow[order])
    for rows, own in zip(pieces, runs, strict=True):
        yield slices.taken(rows, arrows.between(own.start, own.stop))


def _is_run(rows: Rows, own: slice) -> bool:
    """Whether rows are those of a run: blocks of rows may each be in order and not follow."""
    return bool((rows == np.arange(own.start, own.stop)).all())


def _runs(start_ns: Int64, end_ns: Int64) -> Iterator[slice]:
    """Runs of rows, each of which begins behind the end of the one before."""
    first, count = 0, len(start_ns)
    while first < count:
        stop = first + PART_ELEMENTS
        while stop < count:
            ahead = slice(stop, stop + PART_ELEMENTS)
            apart = np.flatnonzero(start_ns[ahead] > end_ns[stop - 1 : -1][:PART_ELEMENTS])
            if len(apart):
                stop += int(apart[0])
                break
            stop += PART_ELEMENTS
        yield slice(first, min(stop, count))
        first = stop
