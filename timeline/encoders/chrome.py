"""Encoder of Chrome trace JSON (`.json`): a process is a layer or a rank, a thread is a row."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import orjson

from timeline.encoders.drawn_values import (
    FormattedArg,
    format_args,
    round_reals,
    said_name,
    said_row,
)
from timeline.encoders.pieces import TrackBatch
from timeline.language import said, spoken_language
from timeline.tracks.model import Arg, ArgKind, Samples, Slices, Timeline, Track
from timeline.tracks.partition import is_partition
from timeline.tracks.root_rows import WHAT_CHANGED, WHAT_IS_SLOW, seen_name

HEAD, EVENTS = b'{"displayTimeUnit":"ns",', b',"traceEvents":['
"""Beginning of a file, and the separator between its attributes and its events."""
SEPARATOR, ENDING = b",\n", b"\n]}\n"
FIRST_PID = 1
EVENTS_AT_ONCE = 16384
"""Number of events encoded at a time."""
MOST_MEANINGS = 64
"""Maximum number of kinds of rows that the file describes."""
OVERVIEW = "Overview"
"""Name of the process with the rows that are displayed first."""
ROWS = "io.tlexport.rows"
"""Attribute with descriptions of rows: the format has no other place for them."""
_NUMBER = re.compile(r"\b\d+\b")


@dataclass(frozen=True)
class _ChromeRow:
    """The process and thread that represent a track."""

    process: str
    pid: int
    tid: int
    name: str


class ChromeEncoder:
    """Encodes a timeline as events of JSON.

    Times are microseconds since the first event with exactly three decimals: Perfetto reads them
    into a double, and epoch times would lose 0.25 us. The first process holds the rows of all ranks
    and the partition of each rank's time; then follows one process per rank, or per layer if rows
    are grouped by layer. Each row is a thread; lanes of a row are threads of the same name.
    """

    def __init__(self, tracks: Sequence[Track], first_ns: int) -> None:
        """tracks: all rows of ranks; the opening may add rows that belong to no rank."""
        self._language = spoken_language()
        self._tracks = {track.id: self._spoken(track) for track in tracks}
        self._known = _number_rows(self._tracks)
        self._rows = dict(self._known)
        self._first_ns = first_ns

    def opening(self, timeline: Timeline) -> Iterator[bytes]:
        """Yield the attributes of the timeline, and the names of processes and threads."""
        tracks = {track.id: self._spoken(track) for track in timeline.tracks}
        self._number_rest(tracks)
        yield _head(timeline, tracks)
        metadata = list(_metadata(tracks, self._rows))
        if metadata:
            yield b"\n" + SEPARATOR.join(metadata)

    def _spoken(self, track: Track) -> Track:
        """Return a track whose name and description are in the language of the file."""
        description = said(track.description, "", self._language)
        return replace(track, name=said_row(track, self._language), description=description)

    def _number_rest(self, tracks: Mapping[int, Track]) -> None:
        """Assign threads to rows added by an opening; rows of ranks keep theirs.

        The verdict has the lowest thread, since version 52 of the UI sorts them by number.
        """
        self._tracks, self._rows = dict(tracks), dict(self._known)
        tids = [row.tid for row in self._known.values()] or [FIRST_PID + 2]
        next_tid = max(tids) + 1
        verdicts = [said(one, "row", self._language) for one in (WHAT_IS_SLOW, WHAT_CHANGED)]
        for track in tracks.values():
            if track.content is not None and track.id not in self._known:
                process, name = _names(track, tracks)
                is_verdict = track.name in verdicts
                tid = min(tids) - 1 if is_verdict else next_tid
                self._rows[track.id] = _ChromeRow(process, FIRST_PID, tid, name)
                next_tid += not is_verdict

    def encode(self, batch: TrackBatch, *, arrows: bool = False) -> Iterator[bytes]:
        """Yield the events of a batch, each after a separator: thread names always precede it.

        arrows: yield the events of arrows too, which a file has at its end.
        """
        for _, track in batch.tracks:
            row, content = self._rows.get(track.id), track.content
            if row is None or content is None:
                continue
            if isinstance(content, Slices):
                blocks = _slices(content, row, self._first_ns, self._language)
            else:
                name = _counter_name(track, self._tracks)
                blocks = _samples(name, content, row, self._first_ns)
            for block in blocks:
                yield SEPARATOR + SEPARATOR.join(block)
        if arrows:
            yield from self._arrows([track for _, track in batch.tracks], least_ends=1)

    def closing(self, tracks: Sequence[Track]) -> Iterator[bytes]:
        """Yield the events of arrows, and the end of the file."""
        yield from self._arrows(tracks, least_ends=2)
        yield ENDING

    def _arrows(self, tracks: Sequence[Track], least_ends: int) -> Iterator[bytes]:
        """Yield the events of arrows with at least `least_ends` ends on the tracks."""
        events = list(_arrow_events(tracks, self._first_ns, self._rows, least_ends))
        if events:
            yield SEPARATOR + SEPARATOR.join(events)


def _head(timeline: Timeline, tracks: Mapping[int, Track]) -> bytes:
    facts = orjson.dumps({**dict(timeline.attributes), ROWS: _row_meanings(tracks)})
    wall_ns = timeline.first_ns + (timeline.wall_offset_ns or 0)
    return HEAD + b'"baseTimeNanoseconds":%d,"otherData":%s' % (wall_ns, facts) + EVENTS


def _row_meanings(tracks: Mapping[int, Track]) -> dict[str, str]:
    """Return the descriptions of rows by path from the root, with numbers replaced by N.

    Counters are left out, since their names and units suffice.
    """
    meanings: dict[str, str] = {}
    for track in tracks.values():
        is_folder_of_ranks = track.content is None and track.rank is None
        if not is_folder_of_ranks and not isinstance(track.content, Samples):
            row = _NUMBER.sub("N", " / ".join(_path(track, tracks)))
            if len(meanings) < MOST_MEANINGS:
                meanings.setdefault(row, track.description)
    return meanings


def _number_rows(tracks: Mapping[int, Track]) -> dict[int, _ChromeRow]:
    """Return the process and thread of each track that has content, by its id.

    No thread has the number of a process: viewers would call it the main thread.
    """
    drawn = _drawn(tracks)
    names = [_names(track, tracks) for track in drawn]
    processes = dict.fromkeys([OVERVIEW, *(process for process, _ in names)])
    pids = {process: pid for pid, process in enumerate(processes, FIRST_PID)}
    first_tid = FIRST_PID + len(pids) + 1  # that before is the verdict's
    return {
        track.id: _ChromeRow(process, pids[process], tid, row)
        for tid, (track, (process, row)) in enumerate(zip(drawn, names, strict=True), first_tid)
    }


def _drawn(tracks: Mapping[int, Track]) -> list[Track]:
    """Return the tracks with content, in the order in which they are shown from top to bottom."""
    drawn = [track for track in _in_order(tracks) if track.content is not None]
    drawn.sort(key=lambda track: (not _is_overview(track, tracks), _is_below(track)))
    return drawn


def _is_overview(track: Track, tracks: Mapping[int, Track]) -> bool:
    """Return whether a row is about all ranks, or the partition of the time of one."""
    return is_partition(track) or all(one.rank is None for one in _from_root(track, tracks))


def _is_below(track: Track) -> bool:
    """Return whether a row of the overview is shown below the others."""
    return track.parent is not None and track.rank is None


def _in_order(tracks: Mapping[int, Track]) -> list[Track]:
    """Return the tracks from top to bottom, so that pids and tids ascend in that order."""
    paths: dict[int | None, tuple[tuple[int, int], ...]] = {None: ()}
    for track in tracks.values():
        paths[track.id] = (*paths.get(track.parent, ()), (track.order, track.id))
    return sorted(tracks.values(), key=lambda track: paths[track.id])


def _from_root(track: Track, tracks: Mapping[int, Track]) -> list[Track]:
    upwards = [track]
    while upwards[-1].parent is not None and upwards[-1].parent in tracks:
        upwards.append(tracks[upwards[-1].parent])
    return upwards[::-1]


def _path(track: Track, tracks: Mapping[int, Track]) -> list[str]:
    return [seen_name(one.name) for one in _from_root(track, tracks)]


def _names(track: Track, tracks: Mapping[int, Track]) -> tuple[str, str]:
    """Return the process of a track, and the name of its thread."""
    if is_partition(track):
        return OVERVIEW, seen_name(track.name)
    names = _path(track, tracks)
    if _is_overview(track, tracks):
        process = OVERVIEW
    else:
        # Each rank below a layer has its own process, since counters belong to processes.
        depth = 1 if _from_root(track, tracks)[0].rank is not None else 2
        process, names = ": ".join(names[:depth]), names[depth:] or names[-1:]
    outer, *below = names
    if len(below) > 1 and below[-1].startswith(below[-2]):
        below = below[:-2] + below[-1:]
    return process, ": ".join(filter(None, (outer, " ".join(below))))


def _metadata(tracks: Mapping[int, Track], rows: dict[int, _ChromeRow]) -> Iterator[bytes]:
    named: set[int] = set()
    places = {track.id: place for place, track in enumerate(_drawn(tracks), FIRST_PID)}
    for track in tracks.values():
        chrome_row = rows.get(track.id)
        if chrome_row is None:
            continue
        pid, tid = chrome_row.pid, chrome_row.tid
        if pid not in named:
            named.add(pid)
            label = orjson.dumps(chrome_row.process)
            yield _meta(b"process_name", pid, 0, b"name", label)
            yield _meta(b"process_sort_index", pid, 0, b"sort_index", b"%d" % pid)
        if isinstance(track.content, Slices):
            yield _meta(b"thread_name", pid, tid, b"name", orjson.dumps(chrome_row.name))
            place = b"%d" % places[track.id]
            yield _meta(b"thread_sort_index", pid, tid, b"sort_index", place)


def _meta(kind: bytes, pid: int, tid: int, key: bytes, value: bytes) -> bytes:
    return b'{"ph":"M","name":"%s","pid":%d,"tid":%d,"args":{"%s":%s}}' % (
        kind,
        pid,
        tid,
        key,
        value,
    )


def _slices(
    slices: Slices, chrome_row: _ChromeRow, first_ns: int, language: str
) -> Iterator[list[bytes]]:
    strings: dict[int, bytes] = {}

    def named(code: int) -> bytes:
        name = slices.strings[code]
        said = said_name(name, slices.kind, language)
        return encoded(code) if said == name else orjson.dumps(said)

    def encoded(code: int) -> bytes:
        string = strings.get(code)
        if string is None:
            string = strings[code] = orjson.dumps(slices.strings[code])
        return string

    tail = b'"cat":%s,"pid":%d,"tid":%d' % (
        orjson.dumps(slices.category.value),
        chrome_row.pid,
        chrome_row.tid,
    )
    formatted = {one.of.name: one for one in format_args(slices)}
    for first in range(0, len(slices), EVENTS_AT_ONCE):
        stop = min(first + EVENTS_AT_ONCE, len(slices))
        start = (slices.start_ns[first:stop] - first_ns).tolist()
        length = (slices.end_ns[first:stop] - slices.start_ns[first:stop]).tolist()
        args = _args(slices.args, formatted, first, stop, encoded)
        yield [
            b'{"ph":"X","name":%s,"ts":%d.%03d,"dur":%d.%03d,%s%s}'
            % (named(name), *divmod(begin, 1000), *divmod(span, 1000), tail, own_args)
            for name, begin, span, own_args in zip(
                slices.name[first:stop].tolist(), start, length, args, strict=True
            )
        ]


def _args(
    args: Sequence[Arg],
    formatted: Mapping[str, FormattedArg],
    first: int,
    stop: int,
    encoded: Callable[[int], bytes],
) -> list[bytes]:
    """Return the args object of each slice after a comma, or empty bytes if it has no args.

    formatted: the readable strings of numeric args, by arg.
    """
    pairs: list[list[bytes]] = [[] for _ in range(stop - first)]
    for arg in args:
        key = orjson.dumps(arg.name)
        present = arg.present[first:stop]
        values = arg.values[first:stop]
        if arg.kind is ArgKind.NUMBER:
            values = round_reals(values.astype(np.float64))
        readable = formatted.get(arg.name)
        if readable is not None:
            name = orjson.dumps(readable.name)
            texts = [name + b":" + orjson.dumps(text) for text in readable.texts]
            for row in present.nonzero()[0].tolist():
                pairs[row].append(texts[readable.text[first + row]])
        for row in present.nonzero()[0].tolist():
            value = values[row]
            if arg.kind is ArgKind.NAME:
                text = encoded(int(value))
            elif arg.kind is ArgKind.INTEGER:
                text = b"%d" % int(value)
            else:
                text = orjson.dumps(float(value))
            pairs[row].append(key + b":" + text)
    return [b',"args":{' + b",".join(own) + b"}" if own else b"" for own in pairs]


def _counter_name(track: Track, tracks: Mapping[int, Track]) -> str:
    """Return the name of a counter after that of its group, unless it begins with that already."""
    above = None if track.parent is None else tracks.get(track.parent)
    group = above.name if above is not None else ""
    return track.name if track.name.startswith(group) else f"{group} {track.name}"


def _samples(label: str, samples: Samples, row: _ChromeRow, first_ns: int) -> Iterator[list[bytes]]:
    name, unit = orjson.dumps(label), orjson.dumps(samples.unit or "value")
    for first in range(0, len(samples), EVENTS_AT_ONCE):
        stop = first + EVENTS_AT_ONCE
        yield [
            b'{"ph":"C","name":%s,"ts":%d.%03d,"pid":%d,"args":{%s:%s}}'
            % (name, *divmod(time, 1000), row.pid, unit, orjson.dumps(value))
            for time, value in zip(
                (samples.time_ns[first:stop] - first_ns).tolist(),
                samples.value[first:stop].tolist(),
                strict=True,
            )
        ]


def _arrow_events(
    tracks: Sequence[Track], first_ns: int, rows: Mapping[int, _ChromeRow], least_ends: int
) -> Iterator[bytes]:
    """Yield a start and an end event per arrow, bound to the slices that begin at their times."""
    ends: dict[int, list[tuple[int, _ChromeRow]]] = {}
    for track in tracks:
        if isinstance(track.content, Slices):
            slices = track.content
            starts = (slices.start_ns[slices.arrows.slice] - first_ns).tolist()
            for arrow, start in zip(slices.arrows.arrow.tolist(), starts, strict=True):
                ends.setdefault(arrow, []).append((start, rows[track.id]))
    for arrow, own_ends in sorted(ends.items()):
        if len(own_ends) < least_ends:
            continue
        own_ends.sort(key=lambda end: end[0])
        for phase, (time, row) in zip((b'"s"', b'"f","bp":"e"'), own_ends, strict=False):
            yield (
                b'{"ph":%s,"cat":"arrow","name":"arrow","id":%d,"ts":%d.%03d,"pid":%d,"tid":%d}'
                % (phase, arrow, *divmod(time, 1000), row.pid, row.tid)
            )
