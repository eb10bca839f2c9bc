"""Proves that tracks encoded in batches, by any process, are the file that one process writes."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.made_tracks import encode_timeline, track_of
from tests.support.perfetto_sql import Row, TraceProcessor
from tests.support.trace_packets import packets_of
from timeline.columns.strings import StringPool
from timeline.encoders import perfetto, piece_maker, pieces
from timeline.encoders.formats import format_of
from timeline.encoders.perfetto import encode_tracks
from timeline.encoders.piece_maker import EncodingWorkers
from timeline.encoders.pieces import FIRST_SEQUENCE, TrackBatch, batch_tracks, split_track
from timeline.layers import SliceKind
from timeline.ranks.executors import Processes
from timeline.tracks.model import Arg, ArgKind, Arrows, Samples, Slices, Timeline, Track, no_arrows

FIRST_NS = 1_000
SIZES = (300, 0, 40, 700, 20, 5, 900, 60)


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "BATCH_ELEMENTS", 256)
    monkeypatch.setattr(pieces, "COMPRESSED_TOGETHER_BYTES", 4096)
    monkeypatch.setattr(piece_maker, "ALONE_SECONDS", 0)


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


PFTRACE = format_of(Path("any.pftrace"))


def written(timeline: Timeline, workers: EncodingWorkers | None = None) -> bytes:
    return b"".join(encode_timeline(PFTRACE, timeline, workers=workers))


def encoded(workers: EncodingWorkers | None) -> bytes:
    return written(picture(), workers)


@pytest.mark.usefixtures("small_batches")
def test_other_processes_change_no_byte(workers: EncodingWorkers) -> None:
    assert len(list(batch_tracks(picture().tracks, FIRST_NS))) > 3
    assert encoded(workers) == encoded(None)


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_what_a_process_that_died_had_to_do_is_done_here(
    workers: EncodingWorkers, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert workers.executor.submit(sum, (1, 2)).result() == 3
    if when == "meanwhile":
        monkeypatch.setattr(piece_maker, "BATCHES_PER_WORKER", 1)
        parts = encode_timeline(PFTRACE, picture(), workers=workers)
        made = next(parts) + next(parts) + next(parts)
        kill_processes()
        made += b"".join(parts)
    else:
        kill_processes()
        made = encoded(workers)
    assert made == encoded(None)


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
    """A batch is closed by the track that fills it."""
    tracks = [
        Track(number, None, "", 0, content=Samples(np.arange(size), np.zeros(size), ""))
        for number, size in enumerate(sizes)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "BATCH_ELEMENTS", least)
        made = list(batch_tracks(tracks, 0))
    assert [track.id for batch in made for _, track in batch.tracks] == list(range(len(sizes)))
    sequences = [sequence for batch in made for sequence, _ in batch.tracks]
    assert sequences == list(range(FIRST_SEQUENCE, len(sizes) + FIRST_SEQUENCE))
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
    ((sequence, sent),) = TrackBatch(((7, track),), 0).for_sending().tracks
    assert sequence == 7
    assert list(encode_tracks([(7, sent)], 0)) == list(encode_tracks([(7, track)], 0))
    assert isinstance(sent.content, Slices)
    others = set(range(len(strings))) - {*slices.name.tolist(), *kinds.tolist()}
    assert len(sent.content.strings) == len(strings)
    for code in others:
        with pytest.raises(KeyError):
            sent.content.strings[code]


# -- long tracks -------------------------------------------------------------------------------

EVENTS = """
    SELECT track.name, slice.ts, slice.dur, slice.name, slice.category, slice.depth,
        group_concat(args.key || '=' || args.display_value, ' ')
    FROM slice JOIN track ON slice.track_id = track.id LEFT JOIN args USING (arg_set_id)
    GROUP BY slice.id ORDER BY track.name, slice.ts, slice.depth, slice.name, slice.dur
"""
COUNTS = """
    SELECT name, unit, ts, value FROM counter JOIN counter_track AS t ON t.id = track_id
    ORDER BY 1, 3
"""
ARROWS = """
    SELECT a.name, a.ts, t.name, b.name, b.ts, u.name FROM flow
    JOIN slice AS a ON a.id = slice_out JOIN slice AS b ON b.id = slice_in
    JOIN track AS t ON t.id = a.track_id JOIN track AS u ON u.id = b.track_id
    ORDER BY 1, 2, 3, 4, 5, 6
"""


def answers(data: bytes) -> list[list[Row]]:
    """Slices with their args, samples and arrows, by their tracks' names."""
    processor = TraceProcessor.load(data)
    assert processor.import_errors() == []
    return [processor.rows(question) for question in (EVENTS, COUNTS, ARROWS)]


def reordered(slices: Slices, order: np.ndarray) -> Slices:
    """The same slices in another order, which nested ones may have."""
    place = np.argsort(order)[slices.arrows.slice]
    by_place = np.argsort(place, kind="stable")
    return slices.take(order, Arrows(place[by_place], slices.arrows.arrow[by_place]))


TOUCHING = ("adjacent", "moments")
"""Flat slices each of which begins where one ends; some of them, of no length, do both at once."""


@pytest.mark.parametrize("least", [1, 7, 100])
@pytest.mark.parametrize("kind", [*TOUCHING, "flat", "nested", "shuffled", "blocks", "stacks"])
def test_a_track_in_parts_is_the_same_track(
    kind: str, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked of the trace processor: slices with depths, args and arrows, and samples."""
    track = track_of(400, nested=kind not in {"flat", *TOUCHING})
    assert isinstance(track.content, Slices)
    slices = track.content
    if kind in TOUCHING:
        length_ns = np.where((np.arange(len(slices)) % 3 == 1) & (kind == "moments"), 0, 10)
        end_ns = FIRST_NS + np.cumsum(length_ns)
        slices = replace(slices, start_ns=end_ns - length_ns, end_ns=end_ns)
    if kind == "stacks":
        slices = replace(slices, end_ns=np.append(slices.start_ns[1:], slices.end_ns[-1:]))
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
    whole = answers(written(picture))
    monkeypatch.setattr(pieces, "PART_ELEMENTS", least)
    parts = list(split_track(tracks[0]))
    assert len(parts) > 1
    assert sum(len(part.content or ()) for part in parts) == len(slices)
    bounds = [(one.start_ns.min(), one.end_ns.max()) for one in map(content_of, parts)]
    touches = kind in {"stacks", *TOUCHING}
    assert all(end <= start - (not touches) for (_, end), (start, _) in pairwise(bounds))
    assert answers(written(picture)) == whole


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


def test_short_tracks_that_share_a_sequence_show_what_they_show_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    together = encoded(None)
    monkeypatch.setattr(perfetto, "SHARED_ELEMENTS", 0)
    alone = encoded(None)
    shown = {data: answers(data) for data in (together, alone)}
    assert shown[together] == shown[alone]
    sequences = {data: sequences_of(data) for data in (together, alone)}
    # One is of descriptors; the empty track needs none.
    assert len(sequences[together]) == 1 + 1
    assert len(sequences[alone]) == 1 + len(SIZES) - SIZES.count(0)


def sequences_of(data: bytes) -> set[int]:
    return {packet.trusted_packet_sequence_id for packet in packets_of(data)} - {0}


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
        data = written(Timeline(tracks, 1_000, None))
        assert TraceProcessor.load(data).rows(FLOWS) == [("launch", "MatMul")]
