"""The row of notes, with a row below it for each topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from timeline.columns.strings import StringPool
from timeline.layers import SliceKind
from timeline.records.not_given import NO_ID
from timeline.tracks import descriptions
from timeline.tracks.model import Track
from timeline.tracks.painter import ArgColumn, Painter, SliceTable, integers
from timeline.tracks.root_rows import NOTES


@dataclass(frozen=True)
class Note:
    """One note about a timeline: a sentence, and the numbers in it."""

    text: str
    numbers: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Notes:
    """All notes about a timeline by topic, with a headline that sums them up in one line."""

    headline: str
    topics: tuple[tuple[str, tuple[Note, ...]], ...]


def with_notes(
    tracks: Sequence[Track], notes: Notes | None, start_ns: int, end_ns: int
) -> tuple[Track, ...]:
    """Add the rows of the notes after the tracks, with higher ids.

    Each note is a slice as long as the timeline, so that its text can be read without zooming and
    no time is added. Topics are rows below.
    """
    if notes is None:
        return tuple(tracks)
    painter, strings = Painter(), StringPool()
    painter.tracks = list(tracks)
    headline = (Note(notes.headline),)
    root = painter.add_stacked_row(
        NOTES,
        None,
        0,
        _drawn(headline, start_ns, end_ns, strings),
        strings,
        descriptions.NOTES,
    )
    for order, (topic, topic_notes) in enumerate(notes.topics):
        drawn = _drawn(topic_notes, start_ns, end_ns, strings)
        painter.add_stacked_row(topic, root, order, drawn, strings, descriptions.TOPICS[topic])
    return tuple(painter.tracks)


def _drawn(notes: Sequence[Note], start_ns: int, end_ns: int, strings: StringPool) -> SliceTable:
    count = len(notes)
    return SliceTable(
        np.full(count, start_ns, np.int64),
        np.full(count, end_ns, np.int64),
        strings.codes(note.text for note in notes),
        SliceKind.NOTE,
        _args(notes),
    )


def _args(notes: Sequence[Note]) -> list[ArgColumn]:
    given = [dict(note.numbers) for note in notes]
    names = dict.fromkeys(name for numbers in given for name in numbers)
    return [
        integers(name, np.array([numbers.get(name, NO_ID) for numbers in given], np.int64), NO_ID)
        for name in names
    ]
