"""Proves that slices of several tracks become the same bytes whether they are joined or not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.support.made_tracks import track_of
from tests.support.random_tracks import flat_slices, nested_slices, resolutions, some_slices
from timeline.columns.strings import StringPool
from timeline.encoders.perfetto import encode_tracks
from timeline.encoders.sequences import JoinedSlices, join_slices
from timeline.fitting.coarsen import at_resolution
from timeline.tracks.model import Arg, ArgKind, Slices, Track

FIRST_NS = 0
ARGS = ("task_type", "not typed", "not typed either")


@st.composite
def rows(draw: st.DrawFn) -> list[Track]:
    """Tracks of one pool, each with its own choice of args on any slices; some are merged."""
    kinds = draw(st.sampled_from([flat_slices(), nested_slices(), some_slices()]))
    made: list[Track] = []
    for number, slices in enumerate(draw(st.lists(kinds, min_size=2, max_size=5))):
        present = [draw(st.integers(0, 3)) for _ in ARGS]
        args = tuple(
            Arg(
                name,
                ArgKind.INTEGER if at else ArgKind.NAME,
                slices.name[::-1] if not at else np.arange(len(slices)),
                np.arange(len(slices)) % 4 < present[at],
            )
            for at, name in enumerate(ARGS)
        )
        pool = made[0].content.strings if made else slices.strings  # type: ignore[union-attr]
        content = replace(slices, args=slices.args + args, strings=pool)
        track = Track(number, None, f"Stream {number}", number, content=content)
        made.append(at_resolution(track, draw(resolutions())))
    return made


def apart(track: Track) -> Track:
    """A track whose strings are no other track's, as where it comes from another process."""
    content = track.content
    assert isinstance(content, Slices)
    return replace(track, content=replace(content, strings=StringPool(list(content.strings))))


def encoded(tracks: list[Track]) -> bytes:
    return b"".join(encode_tracks(list(enumerate(tracks, 40)), FIRST_NS))


@given(rows())
def test_joined_slices_take_the_bytes_of_each_track_apart(tracks: list[Track]) -> None:
    assert encoded(tracks) == encoded(list(map(apart, tracks)))


def test_tracks_of_one_pool_are_joined_and_others_are_not() -> None:
    """So the test above compares two ways."""
    one = track_of(20, nested=False)
    other = replace(track_of(30, nested=False), id=1)
    assert isinstance(one.content, Slices)
    assert isinstance(other.content, Slices)
    same = replace(other, content=replace(other.content, strings=one.content.strings))
    (joined,) = join_slices([one, same])
    assert isinstance(joined, JoinedSlices)
    assert joined.first.tolist() == [0, 20]
    assert len(list(join_slices([one, other]))) == 2


def test_tracks_that_reach_too_far_to_be_moved_are_not_joined() -> None:
    tracks = [track_of(2, nested=False) for _ in range(3)]
    contents = [track.content for track in tracks if isinstance(track.content, Slices)]
    far = [
        replace(
            track,
            content=replace(
                content,
                start_ns=np.array([0, 1 << 61]),
                end_ns=np.array([1, (1 << 61) + 1]),
                strings=contents[0].strings,
            ),
        )
        for track, content in zip(tracks, contents, strict=True)
    ]
    assert len(list(join_slices(far))) == len(far)
    assert encoded(far) == encoded(list(map(apart, far)))
