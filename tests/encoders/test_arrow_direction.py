"""Proves that an arrow leaves the call, also where its task begins at the same moment."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.support.perfetto_sql import TraceProcessor
from timeline.columns.strings import StringPool
from timeline.encoders.formats import format_of
from timeline.encoders.piece_maker import encode_timeline
from timeline.layers import SliceKind
from timeline.tracks.model import Arrows, Slices, Timeline, Track

FLOWS = """
SELECT caller.name, task.name FROM flow
JOIN slice AS caller ON caller.id = slice_out JOIN slice AS task ON task.id = slice_in
"""


def row_of(number: int, name: str, kind: SliceKind, start_ns: int) -> Track:
    """A row of one slice that an arrow touches."""
    strings = StringPool()
    at = np.array([start_ns])
    arrows = Arrows(np.zeros(1, np.intp), np.ones(1, np.int64))
    slices = Slices(at, at + 100, strings.codes([name]), strings, kind, arrows=arrows)
    return Track(number, None, name, number, content=slices)


def test_an_arrow_runs_from_a_call_to_the_task_that_begins_with_it() -> None:
    for start_ns in (1_000, 1_001):
        tracks = (
            row_of(0, "MatMul", SliceKind.TASK, start_ns),
            row_of(1, "launch", SliceKind.HOST_CALL, 1_000),
        )
        written = b"".join(
            encode_timeline(format_of(Path("any.pftrace")), Timeline(tracks, 1_000, None))
        )
        assert TraceProcessor.load(written).rows(FLOWS) == [("launch", "MatMul")]
