"""Parts of long tracks, cut at moments at which nothing goes on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np

from timeline.columns.columns import Int64, Rows
from timeline.columns.nesting import split_at_gaps
from timeline.tracks.model import Arrows, Samples, Slices, Track

PART_ELEMENTS = 1 << 16
"""Slices and samples of a part; more where they leave no moment to cut at."""


def split_track(track: Track, most: int | None = None) -> Iterator[Track]:
    """Cut a long track at moments at which nothing goes on; parts are in order of time.

    Slices may touch there: rows of steps and of how a rank spends its time have no gaps, and
    viewers take events of one moment in the order in which they are in a file (Perfetto,
    trace_sorter.h). Samples of one moment stay together.

    most: slices and samples of a part; PART_ELEMENTS if not given.
    """
    content, most = track.content, most or PART_ELEMENTS
    if content is None or len(content) <= most:
        yield track
    elif isinstance(content, Samples):
        for run in _sample_runs(content.time_ns, most):
            part = replace(content, time_ns=content.time_ns[run], value=content.value[run])
            yield replace(track, content=part)
    else:
        parts = _nested_parts if content.nested else _flat_parts
        for slices in parts(content, most):
            yield replace(track, content=slices)


def _flat_parts(slices: Slices, most: int) -> Iterator[Slices]:
    for first in range(0, len(slices), most):
        yield slices.between(first, min(first + most, len(slices)))


def _nested_parts(slices: Slices, most: int) -> Iterator[Slices]:
    pieces = list(split_at_gaps(slices.start_ns, slices.end_ns, most, touching=True))
    bounds = np.cumsum([0, *map(len, pieces)]).tolist()
    runs = [slice(first, stop) for first, stop in pairwise(bounds)]
    if all(_is_run(rows, run) for rows, run in zip(pieces, runs, strict=True)):
        for run in runs:
            yield slices.between(run.start, run.stop)
        return
    if slices.coarse is not None:  # never so: merged slices are in order of time
        yield slices
        return
    position = np.empty(len(slices), np.intp)
    for rows, run in zip(pieces, runs, strict=True):
        position[rows] = np.arange(run.start, run.stop)
    at = position[slices.arrows.slice]
    order = np.argsort(at, kind="stable")
    arrows = Arrows(at[order], slices.arrows.arrow[order])
    for rows, run in zip(pieces, runs, strict=True):
        yield slices.take(rows, arrows.between(run.start, run.stop))


def _is_run(rows: Rows, run: slice) -> bool:
    """Whether rows are those of a run: blocks of rows may each be in order and not follow."""
    return bool((rows == np.arange(run.start, run.stop)).all())


def _sample_runs(time_ns: Int64, most: int) -> Iterator[slice]:
    """Runs of samples, each of which begins at a later moment than the one before ends."""
    first, count = 0, len(time_ns)
    while first < count:
        stop = first + most
        if stop < count:
            stop = int(np.searchsorted(time_ns, time_ns[stop - 1], side="right"))
        yield slice(first, min(stop, count))
        first = stop
