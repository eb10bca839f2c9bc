"""Proves that runs of a track are what follows each other in time, and tell what it takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.support.random_tracks import samples, some_slices
from timeline.columns.strings import StringPool
from timeline.encoders.formats import format_of
from timeline.fitting.excerpts import Excerpts
from timeline.fitting.size_model import SizeModel
from timeline.layers import SliceKind
from timeline.tracks.model import Samples, Slices, Timeline, Track


def track_of(content: Slices | Samples) -> Track:
    return Track(1, None, "Thread 1", 0, "", content, 0)


def drawn(track: Track) -> list[tuple[Any, ...]]:
    """What is drawn, in the order in which it is held: times, names, args and arrows."""
    content = track.content
    if isinstance(content, Samples):
        return list(zip(content.time_ns.tolist(), content.value.tolist(), strict=True))
    assert isinstance(content, Slices)
    rows = []
    for row, (start, end, name) in enumerate(
        zip(content.start_ns.tolist(), content.end_ns.tolist(), content.name.tolist(), strict=True)
    ):
        args = [(arg.name, arg.values[row].item()) for arg in content.args if arg.present[row]]
        arrows = content.arrows.arrow[content.arrows.slice == row].tolist()
        rows.append((start, end, name, tuple(args), tuple(sorted(arrows))))
    return rows


@given(content=some_slices() | samples(), data=st.data())
def test_runs_follow_each_other_in_time_and_hold_all_there_is(
    content: Slices | Samples, data: st.DataObject
) -> None:
    track, excerpts = track_of(content), Excerpts()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=3)))
    bounds = [0, *cuts, len(content)]
    runs = [excerpts.run(track, first, stop) for first, stop in pairwise(bounds)]
    assert [len(run.content or ()) for run in runs] == np.diff(bounds).tolist()
    every = [row for run in runs for row in drawn(run)]
    assert Counter(every) == Counter(drawn(track))
    starts = [row[0] for row in every]
    assert starts == sorted(starts)


def calls(order: np.ndarray) -> Track:
    """Calls of two kinds that take turns, at times which never repeat, stored in some order."""
    generator = np.random.default_rng(4)
    count = len(order)
    start_ns = np.arange(count) * 1000 + generator.integers(0, 400, count)
    end_ns = start_ns + generator.integers(1, 500, count)
    strings = StringPool()
    name = strings.codes(["aten::add", "aten::mul"])[np.arange(count) % 2]
    content = Slices(
        start_ns[order], end_ns[order], name[order], strings, SliceKind.HOST_CALL, nested=True
    )
    return track_of(content)


def test_calls_that_are_stored_by_kind_are_expected_to_take_what_they_do() -> None:
    """Next to each other they all have one name, and are twice as far apart as they are drawn."""
    form = format_of(Path("calls.pftrace"))
    rows = np.arange(100_000)
    in_time, by_kind = calls(rows), calls(np.argsort(rows % 2, kind="stable"))

    def measure(tracks: Sequence[Track]) -> int:
        return form.size_of(Timeline(tuple(tracks), 0, None))

    expected = [
        SizeModel([track], measure).finest_plan().expected_bytes for track in (in_time, by_kind)
    ]
    assert expected[0] == expected[1]
    assert 0.9 < expected[0] / measure([by_kind]) < 1.1
