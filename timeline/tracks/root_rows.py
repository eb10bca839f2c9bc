"""The rows without a parent: their names and order, and the rows of verdict and notes.

Version 52 of the Perfetto UI sorts them by name alone, whatever order a file gives; leading spaces
sort first and are invisible. If one of them has rows below it, the UI hides those without in a
folded group, so each gets a row below it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from timeline.columns.strings import NO_NAME, StringPool
from timeline.language import said
from timeline.layers import SliceKind
from timeline.printable import filled
from timeline.records.not_given import NO_ID
from timeline.tracks import descriptions
from timeline.tracks.model import Track
from timeline.tracks.painter import ArgColumn, Painter, SliceTable, integers, names

WHAT_IS_SLOW = "   What is slow"
WHAT_CHANGED = "   What changed"
STEPS = "  Steps"
CRITICAL_PATH = " Critical path"
NOTES = " Notes"
COLLECTIVES = " Collectives"

MOST_UNFOLDED = 128
"""Maximum number of ranks whose rows are not folded.

Version 52 of the UI keeps all unfolded rows in its document, and takes about 3 ms per rank for each
redraw, such as while scrolling.
"""
RANKS_OF_FOLDER = 100
MOST_OF_PARTS = 32
"""Maximum number of ranks whose rows are not folded if each is known to have a part of the run."""

SLOWS_OTHERS = "slows the others"
IDLES_FOR_DATA = "waits for data"

RunRank: TypeAlias = tuple[str, int]
"""The name of a run, empty if it is the only one, and the number of a rank in it."""


@dataclass(frozen=True)
class SlowStep:
    """The slowest step; graph: None if the step number alone identifies it."""

    graph: int | None
    step: int


@dataclass(frozen=True)
class Highlights:
    """Remarks for the names of ranks' rows, and the slowest step, which its slice's name marks.

    telling: ranks worth a look, with or without a remark. parts: the part of the run that each rank
    has, such as "stage 2", or empty. own_ns: own time of ranks in a mean step.
    """

    ranks: Mapping[RunRank, str] = field(default_factory=dict)
    step: SlowStep | None = None
    telling: Collection[int] = ()
    parts: Mapping[int, str] = field(default_factory=dict)
    own_ns: Mapping[int, int] = field(default_factory=dict)


NO_HIGHLIGHTS = Highlights()


def rank_rows(
    runs: Mapping[str, Iterable[int]], remarks: Mapping[RunRank, str]
) -> dict[RunRank, str]:
    """Return the names of the rows of ranks; ranks with a remark sort before all others.

    If a rank has a remark in any run, its rows of all runs sort first.

    Args:
        runs: the ranks of each run by the name of the run, which is empty for a single run.

    >>> rank_rows({"": (5, 10)}, {("", 5): SLOWS_OTHERS})
    {('', 5): ' Rank 05: slows the others', ('', 10): 'Rank 10'}
    """
    every = [(run, rank) for run, ranks in runs.items() for rank in ranks]
    width = max((len(str(rank)) for _, rank in every), default=1)
    remarked = {rank for _, rank in remarks}
    names = dict[RunRank, str]()
    for run, rank in every:
        first = " " if rank in remarked else ""
        name = " ".join(filter(None, (f"{first}Rank {rank:0{width}}", run)))
        remark = remarks.get((run, rank))
        names[run, rank] = f"{name}: {remark}" if remark else name
    return names


def rank_folders(
    names: Mapping[RunRank, str], highlights: Highlights = NO_HIGHLIGHTS
) -> dict[RunRank, str]:
    """Return the folded rows above ranks: by part of the run, else by hundreds.

    Ranks that have a remark, are worth a look, or have a part of their own are not folded.

    names: the names of the rows of ranks.

    >>> [*rank_folders({("", rank): f"Rank {rank:03}" for rank in range(130)}).values()][99:101]
    ['Ranks 000-099', 'Ranks 100-199']
    """
    parts = highlights.parts
    if len(names) <= (MOST_OF_PARTS if parts else MOST_UNFOLDED):
        return {}
    width = max(len(str(rank)) for _, rank in names)
    ranks_of: dict[str, list[int]] = {}
    for rank, part in sorted(parts.items()):
        ranks_of.setdefault(part, []).append(rank)
    folders = dict[RunRank, str]()
    for (run, rank), name in names.items():
        if seen_name(name) == name and rank not in highlights.telling:
            first = rank // RANKS_OF_FOLDER * RANKS_OF_FOLDER
            last, part = first + RANKS_OF_FOLDER - 1, ""
            if parts:
                first, last = ranks_of[parts[rank]][0], ranks_of[parts[rank]][-1]
                part = f": {parts[rank]}"
            if first < last:
                folders[run, rank] = f"Ranks {first:0{width}}-{last:0{width}}{part}"
    return folders


def layer_row(place: int, name: str) -> str:
    """Return the name of the row of a layer of all ranks, numbered by its place."""
    return f"{place} {name}"


def seen_name(name: str) -> str:
    """Return a name without the leading spaces that determine its order."""
    return name.strip()


def in_order(tracks: Sequence[Track]) -> tuple[Track, ...]:
    """Set the order of rows without a parent to the order in which the viewer shows them."""
    names = sorted({track.name for track in tracks if track.parent is None})
    place = {name: order for order, name in enumerate(names)}
    return tuple(
        replace(track, order=place[track.name]) if track.parent is None else track
        for track in tracks
    )


LINE_CHARACTERS = 100
"""Maximum width in cells of a line that fits a slice in a window of 1366 pixels."""
FIRST_LINES = 3
"""Number of lines in the row of the verdict; others are in a row below it, which may be folded."""
_MORE = "More"
_NEXT = "See why"
_PRINT_AGAIN = "tlexport show prints this with its tables"


@dataclass(frozen=True)
class VerdictRow:
    """Content of the verdict's row: title, sentences, and the command that shows why."""

    title: str
    sentences: tuple[str, ...]
    see_why: str = ""


def with_verdict(
    tracks: Sequence[Track], verdict: VerdictRow | None, start_ns: int, end_ns: int
) -> tuple[Track, ...]:
    """Add the row of the verdict after the tracks, with a higher id.

    Each line of a sentence is a slice as long as the timeline, so that it can be read without
    zooming and does not extend the timeline. The whole sentence is an arg of its lines if there are
    several. The next command is an arg of each line, and also a row below, since Perfetto shows a
    row without a parent at the top only if it has rows below it.
    """
    if verdict is None or not verdict.sentences:
        return tuple(tracks)
    painter = Painter(list(tracks))
    strings = painter.strings
    code = strings.code(verdict.see_why) if verdict.see_why else NO_NAME

    def drawn(lines: Sequence[tuple[str, str]]) -> SliceTable:
        count = len(lines)
        whole = strings.codes(sentence for _, sentence in lines)
        is_cut = np.array([line != sentence for line, sentence in lines])
        return SliceTable(
            np.full(count, start_ns, np.int64),
            np.full(count, end_ns, np.int64),
            strings.codes(line for line, _ in lines),
            SliceKind.NOTE,
            [
                names("sentence", np.where(is_cut, whole, NO_NAME)),
                names("see_why", np.full(count, code, np.int32)),
            ],
        )

    lines = [
        (line, sentence)
        for sentence in map(said, verdict.sentences)
        for line in filled(sentence, LINE_CHARACTERS)
    ]
    root = painter.add_stacked_row(
        verdict.title, None, 0, drawn(lines[:FIRST_LINES]), descriptions.VERDICT
    )
    if more := lines[FIRST_LINES:]:
        painter.add_stacked_row(_MORE, root, 0, drawn(more), descriptions.VERDICT)
    commands = [text for text in (verdict.see_why, _PRINT_AGAIN) if text]
    below = drawn([(command, command) for command in commands])
    painter.add_stacked_row(_NEXT, root, 1, below, descriptions.SEE_WHY)
    return tuple(painter.tracks)


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

    Each note is a slice as long as the timeline, so that it can be read without zooming and does
    not extend the timeline. Topics are rows below.
    """
    if notes is None:
        return tuple(tracks)
    painter = Painter(list(tracks))
    strings = painter.strings
    headline = (Note(notes.headline),)
    root = painter.add_stacked_row(
        NOTES, None, 0, _drawn(headline, start_ns, end_ns, strings), descriptions.NOTES
    )
    for order, (topic, topic_notes) in enumerate(notes.topics):
        drawn = _drawn(topic_notes, start_ns, end_ns, strings)
        painter.add_stacked_row(topic, root, order, drawn, descriptions.TOPICS[topic])
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
    by_note = [dict(note.numbers) for note in notes]
    names = dict.fromkeys(name for numbers in by_note for name in numbers)
    return [
        integers(name, np.array([numbers.get(name, NO_ID) for numbers in by_note], np.int64), NO_ID)
        for name in names
    ]
