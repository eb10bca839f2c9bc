"""Proves that tracks encoded by other processes are the file that one process writes."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.made_tracks import track_of
from tests.support.perfetto_sql import Row, TraceProcessor
from timeline.columns.strings import StringPool
from timeline.encoders import batches, perfetto_tracks
from timeline.encoders.batches import TrackBatch, batch_tracks
from timeline.encoders.compression import TrackSizes
from timeline.encoders.encoding_workers import EncodingWorkers
from timeline.encoders.perfetto import encode_perfetto
from timeline.encoders.perfetto_tracks import encode_track, split_track
from timeline.layers import SliceKind
from timeline.ranks.processes import Processes
from timeline.tracks.model import Arg, ArgKind, Arrows, Samples, Slices, Timeline, Track, no_arrows

FIRST_NS = 1_000
SIZES = (300, 0, 40, 700, 20, 5, 900, 60)


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "BATCH_ELEMENTS", 256)
    monkeypatch.setattr(batches, "COMPRESSED_TOGETHER_BYTES", 4096)


@pytest.fixture
def workers(executor: Processes) -> EncodingWorkers:
    """Two real processes."""
    return EncodingWorkers(executor, 2)


def picture() -> Timeline:
    """Tracks of slices, flat and nested, and of samples; some have nothing."""
    tracks = []
    for number, count in enumerate(SIZES):
        content: Slices | Samples | None = track_of(count, nested=number % 2 == 0).content
        if number % 3 == 2:
            content = Samples(np.arange(count) + FIRST_NS, np.sqrt(np.arange(count)), "MHz")
        tracks.append(Track(number, None, f"Row {number}", number, "A row.", content))
    return Timeline(tuple(tracks), FIRST_NS, None, (("tool", "test"),))


def encoded(workers: EncodingWorkers | None) -> tuple[bytes, dict[int | None, float]]:
    sizes = TrackSizes()
    made = b"".join(encode_perfetto(picture(), sizes=sizes, workers=workers))
    return made, sizes.by_track


@pytest.mark.usefixtures("small_batches")
def test_other_processes_change_no_byte_and_no_count(workers: EncodingWorkers) -> None:
    assert len(list(batch_tracks((), picture().tracks, FIRST_NS))) > 3
    assert encoded(workers) == encoded(None)


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_what_a_process_that_died_had_to_do_is_done_here(
    workers: EncodingWorkers, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert workers.executor.submit(sum, (1, 2)).result() == 3
    if when == "meanwhile":
        monkeypatch.setattr(batches, "BATCHES_PER_WORKER", 1)
        pieces = encode_perfetto(picture(), workers=workers)
        made = next(pieces)
        kill_processes()
        made += b"".join(pieces)
    else:
        kill_processes()
        made, _ = encoded(workers)
    assert made == encoded(None)[0]


def kill_processes() -> None:
    for child in multiprocessing.active_children():
        child.kill()
        child.join()


def test_one_batch_is_encoded_here() -> None:
    with ThreadPoolExecutor(1) as closed:
        pass
    assert encoded(EncodingWorkers(closed, 2)) == encoded(None)


@given(st.lists(st.integers(0, 900), max_size=9), st.integers(1, 1000))
def test_batches_hold_all_tracks_in_order(sizes: list[int], least: int) -> None:
    """A batch is closed by the track that fills it, and the head comes once, even alone."""
    tracks = [
        Track(number, None, "", 0, content=Samples(np.arange(size), np.zeros(size), ""))
        for number, size in enumerate(sizes)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "BATCH_ELEMENTS", least)
        made = list(batch_tracks((b"head",), tracks, 0))
    assert [track.id for batch in made for _, track in batch.tracks] == list(range(len(sizes)))
    sequences = [sequence for batch in made for sequence, _ in batch.tracks]
    assert sequences == list(range(2, len(sizes) + 2))
    assert [packet for batch in made for packet in batch.head] == [b"head"]
    assert made[0].head
    assert all(len(batch) >= least for batch in made[:-1])
    assert all(len(batch) - len(batch.tracks[-1][1].content or ()) < least for batch in made[:-1])


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans()), min_size=1),
    st.lists(st.text(max_size=4), min_size=9, max_size=9, unique=True),
)
def test_a_track_takes_along_only_the_strings_it_shows(
    rows: list[tuple[int, int, bool]], names: list[str]
) -> None:
    """Interned strings are numbered by use and then by code, so equal bytes need equal order."""
    strings = StringPool()
    codes = np.resize(strings.codes(names), 10)
    start_ns = np.arange(len(rows)) * 10
    present = np.array([held for _, _, held in rows])
    kinds = codes[[kind for _, kind, _ in rows]]
    arg = Arg("kind", ArgKind.NAME, kinds, present)
    slices = Slices(
        start_ns,
        start_ns + 5,
        codes[[name for name, _, _ in rows]],
        strings,
        SliceKind.TASK,
        (arg,),
    )
    track = Track(3, None, "Stream 2", 0, content=slices)
    ((sequence, sent),) = TrackBatch((), ((7, track),), 0).for_sending().tracks
    assert sequence == 7
    assert list(encode_track(sent, 7, 0)) == list(encode_track(track, 7, 0))
    assert isinstance(sent.content, Slices)
    others = set(range(len(strings))) - {*slices.name.tolist(), *kinds.tolist()}
    assert len(sent.content.strings) == len(strings)
    for code in others:
        with pytest.raises(KeyError):
            sent.content.strings[code]


# -- long tracks -------------------------------------------------------------------------------

EVENTS = """
    SELECT track.name, slice.ts, slice.dur, slice.name, slice.depth,
        group_concat(args.key || '=' || args.display_value, ' ')
    FROM slice JOIN track ON slice.track_id = track.id LEFT JOIN args USING (arg_set_id)
    GROUP BY slice.id ORDER BY track.name, slice.ts, slice.depth, slice.name, slice.dur
"""
COUNTS = (
    "SELECT name, ts, value FROM counter JOIN counter_track AS t ON t.id = track_id ORDER BY 1, 2"
)
ARROWS = """
    SELECT a.name, a.ts, b.name, b.ts FROM flow
    JOIN slice AS a ON a.id = slice_out JOIN slice AS b ON b.id = slice_in ORDER BY 1, 2, 3, 4
"""


def answers(picture: Timeline) -> list[list[Row]]:
    processor = TraceProcessor.load(b"".join(encode_perfetto(picture)))
    assert processor.import_errors() == []
    return [processor.rows(question) for question in (EVENTS, COUNTS, ARROWS)]


def reordered(slices: Slices, order: np.ndarray) -> Slices:
    """The same slices in another order, which nested ones may have."""
    place = np.argsort(order)[slices.arrows.slice]
    by_place = np.argsort(place, kind="stable")
    return slices.take(order, Arrows(place[by_place], slices.arrows.arrow[by_place]))


@pytest.mark.parametrize("least", [1, 7, 100])
@pytest.mark.parametrize("kind", ["flat", "adjacent", "nested", "shuffled", "blocks"])
def test_a_track_in_parts_is_the_same_track(
    kind: str, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked of the trace processor: slices with depths, args and arrows, and samples."""
    track = track_of(400, nested=kind not in {"flat", "adjacent"})
    assert isinstance(track.content, Slices)
    slices = replace(track.content, end_ns=track.content.end_ns + 3 * (kind == "adjacent"))
    if slices.nested:
        inner = replace(slices, start_ns=slices.start_ns + 2, end_ns=slices.end_ns - 2)
        slices = joined(slices, replace(inner, arrows=no_arrows()))
    if kind == "shuffled":
        slices = reordered(slices, np.random.default_rng(3).permutation(len(slices)))
    if kind == "blocks":
        by_time = np.lexsort((-slices.end_ns, slices.start_ns))
        slices = reordered(slices, np.roll(by_time, 6))
    samples = Samples(np.arange(500) // 2 + FIRST_NS, np.sqrt(np.arange(500)), "MHz")
    tracks = (
        Track(0, None, "Row", 0, content=slices),
        Track(1, None, "Clock", 1, content=samples),
        Track(2, None, "Other", 2, content=track.content),
    )
    picture = Timeline(tracks, FIRST_NS, None)
    whole = answers(picture)
    monkeypatch.setattr(perfetto_tracks, "PART_ELEMENTS", least)
    parts = list(split_track(tracks[0]))
    assert (len(parts) > 1) == (kind != "adjacent")
    assert sum(len(part.content or ()) for part in parts) == len(slices)
    bounds = [(one.start_ns.min(), one.end_ns.max()) for one in map(content_of, parts)]
    assert all(end < start for (_, end), (start, _) in pairwise(bounds))
    assert answers(picture) == whole


def content_of(track: Track) -> Slices:
    assert isinstance(track.content, Slices)
    return track.content


def joined(one: Slices, other: Slices) -> Slices:
    """The slices of both."""
    args = tuple(
        replace(
            mine,
            values=np.concatenate([mine.values, its.values]),
            present=np.concatenate([mine.present, its.present]),
        )
        for mine, its in zip(one.args, other.args, strict=True)
    )
    return replace(
        one,
        start_ns=np.concatenate([one.start_ns, other.start_ns]),
        end_ns=np.concatenate([one.end_ns, other.end_ns]),
        name=np.concatenate([one.name, other.name]),
        args=args,
    )
