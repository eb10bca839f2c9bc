"""Tracks that hold everything an encoder has to write, and files of any tracks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from timeline.columns.strings import StringPool
from timeline.encoders.formats import Format
from timeline.encoders.piece_maker import EncodingWorkers, PieceMaker
from timeline.encoders.pieces import join_pieces
from timeline.layers import SliceKind
from timeline.tracks.model import Arg, ArgKind, Arrows, Slices, Timeline, Track


def track_of(count: int, *, nested: bool) -> Track:
    """A track of adjacent slices with args of every kind, each on some slices, and arrows."""
    strings = StringPool()
    names = strings.codes(f"op {number % 7}" for number in range(count))
    row = np.arange(count)
    start_ns = 1_000 + 10 * row
    args = (
        Arg("task_id", ArgKind.INTEGER, row - 5, row % 2 == 0),
        Arg("task_type", ArgKind.NAME, names, row % 3 == 0),
        Arg("not typed", ArgKind.INTEGER, -row, row % 5 == 0),
        Arg("share", ArgKind.NUMBER, row / 3, row % 4 == 0),
    )
    arrows = Arrows(np.repeat(row[::9], 2), np.arange(2 * len(row[::9])))
    slices = Slices(start_ns, start_ns + 7, names, strings, SliceKind.TASK, args, arrows, nested)
    return Track(0, None, "Stream 2", 0, content=slices)


def encode_timeline(
    form: Format, timeline: Timeline, workers: EncodingWorkers | None = None
) -> Iterator[bytes]:
    """Encode a timeline into the pieces of one file."""
    with PieceMaker(form, timeline.tracks, timeline.first_ns, workers) as maker:
        yield from join_pieces(maker.packing, maker.make_file(timeline, timeline.tracks))
