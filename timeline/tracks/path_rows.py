"""The critical path as a row, with a row below it for each rank on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from timeline.analysis.path.critical_path import CriticalPath, Segments
from timeline.analysis.path.rank_path import PathKind
from timeline.columns.columns import Codes, Rows
from timeline.columns.distinct import rows_by_value
from timeline.columns.group_by import group_numbers
from timeline.columns.strings import NO_NAME, StringPool
from timeline.layers import SliceKind
from timeline.records.not_given import NO_ID
from timeline.selection import why_unread
from timeline.tracks import descriptions
from timeline.tracks.model import Arrows, Slices, Track
from timeline.tracks.painter import Painter, SliceTable, integers, names
from timeline.tracks.root_rows import CRITICAL_PATH
from timeline.units import spell_short

MOST_PATH_ARROWS = 2000
"""Most arrows between ranks, at the longest stays: more would hide what they show."""


def with_critical_path(tracks: Sequence[Track], path: CriticalPath) -> tuple[Track, ...]:
    """Add the rows of the critical path after the tracks, with higher ids.

    The row holds every segment. Rows below it hold, by rank, how long the path stayed there each
    time, and arrows run from rank to rank.
    """
    if not len(path.segments):
        return tuple(tracks)
    painter = Painter(list(tracks))
    strings = painter.strings
    arrow = 1 + max((track.last_arrow for track in tracks), default=0)
    root = painter.add_stacked_row(
        CRITICAL_PATH, None, 0, _drawn(path, strings), descriptions.CRITICAL_PATH
    )
    stays = _Stays.of(path.segments)
    table = _drawn_stays(path, stays, strings)
    first = len(painter.tracks)
    by_rank = list(rows_by_value(stays.rank))
    lanes = [rows for _, rows in by_rank]
    for order, (rank, rows) in enumerate(by_rank):
        # No row of the path is named exactly like that of a rank: old viewers look rows up by name
        # alone.
        painter.add_stacked_row(
            f"On {_named_rank(path, rank, is_read=bool(stays.profiled[rows[0]]))}",
            root,
            order,
            replace(table, rows=rows),
            descriptions.PATH_OF_RANK,
        )
    _connect(painter.tracks, first, lanes, stays, arrow)
    return tuple(painter.tracks)


def _named_rank(path: CriticalPath, rank: int, *, is_read: bool) -> str:
    if rank == NO_ID:
        return "a rank that is not known"
    return f"rank {rank}" if is_read else f"rank {rank}, {why_unread(rank, path.on_disk)}"


def _drawn(path: CriticalPath, strings: StringPool) -> SliceTable:
    """Return every segment as a slice."""
    segments = path.segments
    what = strings.codes(path.strings)[segments.name]
    kinds = strings.codes(kind.label for kind in PathKind)
    return SliceTable(
        segments.start_ns,
        segments.end_ns,
        _labels(path, strings),
        SliceKind.CRITICAL_PATH,
        [
            integers("iteration", path.steps.step[segments.path], NO_ID),
            integers("rank", segments.rank, NO_ID),
            names("kind", kinds[segments.kind]),
            names("name", what),
        ],
    )


def _labels(path: CriticalPath, strings: StringPool) -> Codes:
    """Return the label of each segment; equal ones are formatted once."""
    segments = path.segments
    named = np.isin(segments.kind, [PathKind.BETWEEN_TASKS, PathKind.NOT_PROFILED], invert=True)
    name = np.where(named, segments.name, NO_NAME)
    group = group_numbers(
        len(segments), [segments.rank, segments.kind, name, segments.call_ns, segments.profiled * 1]
    )
    _, first = np.unique(group, return_index=True)
    one_of_each = zip(
        segments.rank[first].tolist(),
        segments.kind[first].tolist(),
        name[first].tolist(),
        segments.call_ns[first].tolist(),
        segments.profiled[first].tolist(),
        strict=True,
    )
    codes = strings.codes(
        _label(
            _named_rank(path, rank, is_read=is_read), PathKind(kind), path.strings[code], call_ns
        )
        for rank, kind, code, call_ns, is_read in one_of_each
    )
    return codes[group]


def _label(rank: str, kind: PathKind, what: str, call_ns: int) -> str:
    if kind is PathKind.NOT_PROFILED:
        return rank
    doing = kind.label.replace("_", " ")
    if kind is PathKind.HOST and what:
        return f"{rank}: {doing}, {spell_short(call_ns)} in {what}"
    return f"{rank}: {doing}, {what}" if what else f"{rank}: {doing}"


class _Stays:
    """Stays of a path: consecutive segments of one path on one rank, in order of time.

    start_ns, end_ns, rank, profiled, path: (k,). kinds_ns: (k, kinds) time by kind of segment.
    """

    def __init__(self, segments: Segments, first: Rows, stay: Rows) -> None:
        self.start_ns = segments.start_ns[first]
        self.end_ns = segments.end_ns[np.append(first[1:], len(segments)) - 1]
        self.rank = segments.rank[first]
        self.profiled = segments.profiled[first]
        self.path = segments.path[first]
        self.kinds_ns = np.zeros((len(first), len(PathKind)), np.int64)
        np.add.at(self.kinds_ns, (stay, segments.kind), segments.end_ns - segments.start_ns)

    @classmethod
    def of(cls, segments: Segments) -> _Stays:
        """Find the stays of all segments, of which there is at least one."""
        begins = np.ones(len(segments), np.bool_)
        begins[1:] = (segments.rank[1:] != segments.rank[:-1]) | (
            segments.path[1:] != segments.path[:-1]
        )
        return cls(segments, np.flatnonzero(begins), np.cumsum(begins) - 1)


def _drawn_stays(path: CriticalPath, stays: _Stays, strings: StringPool) -> SliceTable:
    """Return the stays on ranks as slices that name the two largest kinds of each."""
    most = np.argsort(-stays.kinds_ns, axis=1, kind="stable")[:, :2]
    largest = np.take_along_axis(stays.kinds_ns, most, axis=1)
    labels = strings.codes(
        ", ".join(
            f"{PathKind(kind).label.replace('_', ' ')} {spell_short(time_ns)}"
            for kind, time_ns in zip(kinds, times_ns, strict=True)
            if time_ns
        )
        for kinds, times_ns in zip(most.tolist(), largest.tolist(), strict=True)
    )
    return SliceTable(
        stays.start_ns,
        stays.end_ns,
        labels,
        SliceKind.CRITICAL_PATH,
        [
            integers("iteration", path.steps.step[stays.path], NO_ID),
            *(
                integers(f"{kind.label}_ns", np.where(time_ns > 0, time_ns, NO_ID), NO_ID)
                for kind, time_ns in zip(PathKind, stays.kinds_ns.T, strict=True)
            ),
        ],
    )


def _connect(
    tracks: list[Track], first: int, lanes: Sequence[Rows], stays: _Stays, arrow: int
) -> None:
    """Draw arrows from stays to those that follow on other ranks, the longest first."""
    moves = np.flatnonzero(
        (stays.rank[1:] != stays.rank[:-1]) & (stays.path[1:] == stays.path[:-1])
    )
    length_ns = stays.end_ns[moves + 1] - stays.start_ns[moves + 1]
    moves = np.sort(moves[np.argsort(-length_ns, kind="stable")[:MOST_PATH_ARROWS]])
    number = np.arange(len(moves)) + arrow
    stay = np.concatenate([moves, moves + 1])
    ends = np.concatenate([number, number])
    for row, lane in enumerate(lanes):
        at = np.searchsorted(lane, stay)
        here = np.flatnonzero((at < len(lane)) & (lane[np.minimum(at, len(lane) - 1)] == stay))
        order = here[np.lexsort((ends[here], at[here]))]
        content = tracks[first + row].content
        assert isinstance(content, Slices)
        arrows = Arrows(at[order], ends[order])
        tracks[first + row] = replace(tracks[first + row], content=replace(content, arrows=arrows))
