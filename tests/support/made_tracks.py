"""Tracks that hold everything an encoder has to write."""

from __future__ import annotations

import numpy as np

from timeline.columns.strings import StringPool
from timeline.layers import SliceKind
from timeline.tracks.model import Arg, ArgKind, Arrows, Slices, Track


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
