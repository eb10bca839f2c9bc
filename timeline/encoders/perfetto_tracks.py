"""Perfetto packets of one track: a sequence with names and a clock that no other track uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.columns.chunks import chunks, one_by_one
from timeline.columns.columns import Bool, Float64, Int64, Rows
from timeline.columns.nesting import order_edges, split_at_gaps
from timeline.encoders.args_descriptor import ANNOTATIONS, REALS
from timeline.encoders.protobuf_rows import (
    Bytes,
    Fixed64,
    Message,
    Piece,
    Varint,
    encode_rows,
    varint,
)
from timeline.encoders.spelled_args import SpelledArg, round_reals, spell_args
from timeline.layers import ARGS_MESSAGES, MERGED_ARGS, ArgsMessage
from timeline.tracks.colours import colour_of
from timeline.tracks.model import Arg, ArgKind, Arrows, Samples, Slices, Track

__all__ = ["PART_ELEMENTS", "clock_ns", "encode_track", "split_track", "track_uuid"]

PART_ELEMENTS = 1 << 16
"""Slices and samples of a part; more where they leave no moment to cut at."""


def split_track(track: Track) -> Iterator[Track]:
    """Cut a long track at moments at which nothing goes on, begins or ends.

    So events of one moment stay together: nothing tells which of two parts comes first.
    """
    content = track.content
    if content is None or len(content) <= PART_ELEMENTS:
        yield track
    elif isinstance(content, Samples):
        for run in _runs(content.time_ns, content.time_ns):
            part = replace(content, time_ns=content.time_ns[run], value=content.value[run])
            yield replace(track, content=part)
    else:
        for slices in _nested_parts(content) if content.nested else _flat_parts(content):
            yield replace(track, content=slices)


def _flat_parts(slices: Slices) -> Iterator[Slices]:
    for run in _runs(slices.start_ns, slices.end_ns):
        yield slices.take(run, slices.arrows.between(run.start, run.stop))


def _nested_parts(slices: Slices) -> Iterator[Slices]:
    pieces = list(split_at_gaps(slices.start_ns, slices.end_ns, PART_ELEMENTS))
    bounds = np.cumsum([0, *map(len, pieces)]).tolist()
    runs = [slice(first, stop) for first, stop in pairwise(bounds)]
    if all(_is_run(rows, run) for rows, run in zip(pieces, runs, strict=True)):
        for run in runs:
            yield slices.take(run, slices.arrows.between(run.start, run.stop))
        return
    position = np.empty(len(slices), np.intp)
    for rows, run in zip(pieces, runs, strict=True):
        position[rows] = np.arange(run.start, run.stop)
    at = position[slices.arrows.slice]
    order = np.argsort(at, kind="stable")
    arrows = Arrows(at[order], slices.arrows.arrow[order])
    for rows, run in zip(pieces, runs, strict=True):
        yield slices.take(rows, arrows.between(run.start, run.stop))


def _is_run(rows: Rows, run: slice) -> bool:
    """Whether rows are those of a run: blocks of rows may each be in order and not follow."""
    return bool((rows == np.arange(run.start, run.stop)).all())


def _runs(start_ns: Int64, end_ns: Int64) -> Iterator[slice]:
    """Runs of rows, each of which begins behind the end of the one before."""
    first, count = 0, len(start_ns)
    while first < count:
        stop = first + PART_ELEMENTS
        while stop < count:
            ahead = slice(stop, stop + PART_ELEMENTS)
            apart = np.flatnonzero(start_ns[ahead] > end_ns[stop - 1 : -1][:PART_ELEMENTS])
            if len(apart):
                stop += int(apart[0])
                break
            stop += PART_ELEMENTS
        yield slice(first, min(stop, count))
        first = stop


SEQUENCE_CLOCK = 64
"""The first clock id that is private to a sequence; only such a clock may count increments."""
BLOCK_BYTES = 1 << 20
"""Matrix bytes encoded at a time."""
LEAST_BLOCK_ROWS = 256
"""Rows encoded at a time at least, however wide they are."""

_PACKET = b"\x0a"
_TIMESTAMP = b"\x40"
_SEQUENCE = b"\x50"
_TRACK_EVENT = b"\x5a"
_TYPE_BEGIN = b"\x48\x01"
_TYPE_END = b"\x48\x02"
_TYPE_COUNTER = b"\x48\x04"
_CATEGORY_IID = b"\x18\x01"
"""Slices of a track have one category."""
_NAME_IID = b"\x50"
_ANNOTATION_NAME_IID = b"\x08"
_ANNOTATION_INTEGER = b"\x20"
_ANNOTATION_DOUBLE = b"\x29"
_ANNOTATION_STRING_IID = b"\x88\x01"
_CORRELATION_IID = varint(54 << 3)
_FLOW_ID = varint(47 << 3 | 1)
_DOUBLE_COUNTER = varint(44 << 3 | 1)
_VARINT_TYPE, _FIXED64_TYPE, _BYTES_TYPE = 0, 1, 2
_ANNOTATION = varint(ANNOTATIONS << 3 | _BYTES_TYPE)


def track_uuid(track_id: int) -> int:
    """Uuids are small so that they are short; 0 is Perfetto's own root."""
    return track_id + 1


def encode_track(track: Track, sequence: int, first_ns: int) -> Iterator[bytes]:
    """The packets of a track's slices or samples, framed as in a trace file.

    The sequence, which nothing else has, begins with its names, its track as the default, and a
    clock on which each event tells only the time since the one before. All clocks start at the
    same moment, so the UI's row of clock snapshots shows one mark.
    """
    if isinstance(track.content, Slices) and len(track.content):
        yield from _encode_slices(track, track.content, sequence, first_ns)
    elif isinstance(track.content, Samples) and len(track.content):
        yield _opening_packets(track, sequence, first_ns, _Names())
        yield from _encode_samples(track.content, sequence, first_ns)


@dataclass(frozen=True)
class _Names:
    """Strings of one sequence, numbered from 1, the most frequent first."""

    category: str = ""
    events: Sequence[str] = ()
    args: Sequence[str] = ()
    values: Sequence[str] = ()
    colours: Sequence[str] = ()


def clock_ns(first_ns: int) -> int:
    """What the file says of its first moment; none of its clocks can be before zero.

    All else counts from that moment, so a timeline that begins before zero is moved as a whole.
    """
    return max(first_ns, 0)


def _opening_packets(track: Track, sequence: int, first_ns: int, names: _Names) -> bytes:
    """The first packets of a sequence: its names, its track as the default, and its clock."""
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

    trace = protos.Trace()
    packet = trace.packet.add()
    packet.trusted_packet_sequence_id = sequence
    packet.sequence_flags = protos.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
    packet.first_packet_on_sequence = True
    packet.trace_packet_defaults.timestamp_clock_id = SEQUENCE_CLOCK
    packet.trace_packet_defaults.track_event_defaults.track_uuid = track_uuid(track.id)
    if names.category:
        packet.interned_data.event_categories.add(iid=1, name=names.category)
    for number, name in enumerate(names.events, 1):
        packet.interned_data.event_names.add(iid=number, name=name)
    for number, name in enumerate(names.args, 1):
        packet.interned_data.debug_annotation_names.add(iid=number, name=name)
    for number, name in enumerate(names.values, 1):
        packet.interned_data.debug_annotation_string_values.add(
            iid=number, str=name.encode("utf-8", "replace")
        )
    for number, name in enumerate(names.colours, 1):
        packet.interned_data.correlation_id_str.add(iid=number, str=name.encode("utf-8"))
    clocks = trace.packet.add()
    clocks.trusted_packet_sequence_id = sequence
    clocks.clock_snapshot.clocks.add(
        clock_id=protos.BuiltinClock.BUILTIN_CLOCK_BOOTTIME, timestamp=clock_ns(first_ns)
    )
    clocks.clock_snapshot.clocks.add(clock_id=SEQUENCE_CLOCK, timestamp=0, is_incremental=True)
    return bytes(trace.SerializeToString())


@dataclass(frozen=True)
class _Events:
    """Beginnings and ends of some slices in drawing order, one or both in each row.

    row: the slice; begin_ns, end_ns: the time since the event before; begins, ends: whether the
    row has that event, None where all have both.
    """

    row: Rows
    begin_ns: Int64
    end_ns: Int64
    begins: Bool | None = None
    ends: Bool | None = None


def _events(slices: Slices, first_ns: int, at_once: int) -> Iterator[_Events]:
    """All events in order, some at a time."""
    return (
        _nested_events(slices, first_ns, at_once)
        if slices.nested
        else _flat_events(slices, first_ns, at_once)
    )


def _flat_events(slices: Slices, before_ns: int, at_once: int) -> Iterator[_Events]:
    for first in range(0, len(slices), at_once):
        start_ns = slices.start_ns[first : first + at_once]
        end_ns = slices.end_ns[first : first + at_once]
        since_ns = start_ns - np.concatenate([[before_ns], end_ns[:-1]])
        yield _Events(np.arange(first, first + len(start_ns)), since_ns, end_ns - start_ns)
        before_ns = int(end_ns[-1])


def _nested_events(slices: Slices, before_ns: int, at_once: int) -> Iterator[_Events]:
    for rows in split_at_gaps(slices.start_ns, slices.end_ns):
        edges = order_edges(slices.start_ns[rows], slices.end_ns[rows])
        for first in range(0, len(edges.row), at_once):
            part = slice(first, first + at_once)
            since_ns = np.diff(edges.time_ns[part], prepend=before_ns)
            before_ns = int(edges.time_ns[part][-1])
            yield _paired(rows[edges.row[part]], since_ns, edges.is_end[part])


def _paired(row: Rows, since_ns: Int64, is_end: Bool) -> _Events:
    """Events one by one as rows, but an end that follows its beginning in the row of that."""
    follows = np.append(False, is_end[1:] & ~is_end[:-1])
    at = np.flatnonzero(~follows)
    begins = ~is_end[at]
    ended = np.append(follows[1:], False)[at]
    return _Events(row[at], since_ns[at], since_ns[at + ended], begins, ~begins | ended)


def _encode_slices(track: Track, slices: Slices, sequence: int, first_ns: int) -> Iterator[bytes]:
    event_iids, event_codes = _numbered(_uses(slices.name, None, len(slices.strings)))
    args = _Args(slices)
    names = [slices.strings[code] for code in event_codes.tolist()]
    colours, colour_iids = _colours(slices, event_codes, names)
    yield _opening_packets(
        track,
        sequence,
        first_ns,
        _Names(slices.category.value, names, args.names, args.values, colours),
    )
    most_arrows = _most_arrows(slices.arrows)
    rows_at_once = max(LEAST_BLOCK_ROWS, BLOCK_BYTES // (64 + 10 * most_arrows))
    for events in one_by_one(_events(slices, first_ns, rows_at_once)):
        row = events.row
        begin: list[Piece] = [
            Bytes(_TYPE_BEGIN + _CATEGORY_IID + _NAME_IID),
            Varint(event_iids[slices.name[row]]),
            *args.encoded(row),
            *_coloured(colour_iids, slices, row),
            *_flow_ids(slices.arrows, most_arrows, row),
        ]
        yield encode_rows(
            [
                _event(events.begin_ns, sequence, begin, events.begins),
                _event(events.end_ns, sequence, [Bytes(_TYPE_END)], events.ends),
            ],
            len(row),
        )


def _colours(slices: Slices, codes: Rows, names: Sequence[str]) -> tuple[list[str], Int64]:
    """The colours of a track, and for each code of a name the number of its own, 0 for none."""
    numbers: dict[str, int] = {}
    iids = np.zeros(len(slices.strings), np.int64)
    for code, name in zip(codes.tolist(), names, strict=True):
        colour = colour_of(slices.kind, slices.category, name)
        if colour is not None:
            iids[code] = numbers.setdefault(colour.value, len(numbers) + 1)
    return list(numbers), iids


def _coloured(iids: Int64, slices: Slices, row: Rows) -> list[Piece]:
    """The colours of some slices, where their names have one."""
    its = iids[slices.name[row]]
    has = its > 0
    return [Bytes(_CORRELATION_IID, has), Varint(its, has)] if has.any() else []


def _event(
    since_ns: Int64, sequence: int, event: list[Piece], present: Bool | None = None
) -> Message:
    """The packets of one event in each row, or in the rows that have it."""
    return Message(
        _PACKET,
        [
            Bytes(_TIMESTAMP),
            Varint(since_ns),
            Bytes(_SEQUENCE + varint(sequence)),
            Message(_TRACK_EVENT, event),
        ],
        present,
    )


def _uses(codes: npt.NDArray[Any], present: Bool | None, pool_size: int) -> Int64:
    """How often each code occurs where it is present."""
    uses = np.zeros(pool_size, np.intp)
    for chunk in chunks(len(codes)):
        used = codes[chunk] if present is None else codes[chunk][present[chunk]]
        uses += np.bincount(used, minlength=pool_size)
    return uses


def _numbered(uses: Int64) -> tuple[Int64, Rows]:
    """Interning ids by code, and the codes by id: the most frequent have the shortest."""
    used = np.flatnonzero(uses)
    ordered = used[np.argsort(-uses[used], kind="stable")]
    iids = np.zeros(len(uses), np.int64)
    iids[ordered] = np.arange(1, len(ordered) + 1)
    return iids, ordered


@dataclass(frozen=True)
class _Texts:
    """The strings that args of a track have: names of its pool, and numbers that are spelled.

    iids: of each code of the pool. spelled: what stands beside numeric args, by their names, each
    with the interning ids of its texts. values: all strings in order of their ids.
    """

    iids: Int64
    spelled: Mapping[str, tuple[SpelledArg, Int64]]
    values: Sequence[str]

    @classmethod
    def of(cls, slices: Slices) -> _Texts:
        """Intern the names by how often they occur, then what is spelled."""
        uses = np.zeros(len(slices.strings), np.intp)
        for arg in slices.args:
            if arg.kind is ArgKind.NAME:
                uses += _uses(arg.values, arg.present, len(slices.strings))
        iids, codes = _numbered(uses)
        further: dict[str, int] = {}
        spelled = {}
        for one in spell_args(slices):
            ids = [further.setdefault(text, len(codes) + 1 + len(further)) for text in one.texts]
            spelled[one.of.name] = (one, np.array(ids, np.int64))
        return cls(iids, spelled, [*(slices.strings[code] for code in codes.tolist()), *further])


class _Args:
    """The args of the slices of a track, those of a message together, and the names of all."""

    def __init__(self, slices: Slices) -> None:
        self._texts = _Texts.of(slices)
        given = [arg for arg in slices.args if arg.present.any()]
        self._of_message = [
            (ARGS_MESSAGES[slices.kind], [arg for arg in given if not arg.of_several]),
            (MERGED_ARGS, [arg for arg in given if arg.of_several]),
        ]
        self._iid_of_name: dict[str, int] = {}
        for message, args in self._of_message:
            for arg in args:
                if arg.name in self._texts.spelled:
                    self._number(self._texts.spelled[arg.name][0].name)
                if arg.name not in message.fields:
                    self._number(arg.name)

    def _number(self, name: str) -> None:
        self._iid_of_name.setdefault(name, len(self._iid_of_name) + 1)

    @property
    def names(self) -> list[str]:
        """Those of annotations, in order of their interning ids."""
        return list(self._iid_of_name)

    @property
    def values(self) -> Sequence[str]:
        """The strings of annotations, in order of their interning ids."""
        return self._texts.values

    def encoded(self, row: Rows) -> list[Piece]:
        """The messages of some slices; those that have no arg of one do not have it."""
        made: list[Piece] = []
        for message, args in self._of_message:
            inner: list[Piece] = []
            some = np.zeros(len(row), np.bool_)
            for arg in args:
                some |= arg.present[row]
                inner += self._spelled(arg, row)
                inner += self._exact(message, arg, row)
            if inner:
                made.append(Message(varint(message.number << 3 | _BYTES_TYPE), inner, some))
        return made

    def _spelled(self, arg: Arg, row: Rows) -> list[Piece]:
        """How an arg reads, where it is spelled."""
        found = self._texts.spelled.get(arg.name)
        if found is None:
            return []
        spelled, iids = found
        return [self._annotation(spelled.name, _text(iids[spelled.text[row]]), arg, row)]

    def _exact(self, message: ArgsMessage, arg: Arg, row: Rows) -> list[Piece]:
        """An arg itself: a field of the message, or an annotation where that has no such field."""
        values, present = arg.values[row], arg.present[row]
        if arg.kind is ArgKind.NAME:
            return [self._annotation(arg.name, _text(self._texts.iids[values]), arg, row)]
        if arg.name not in message.fields:
            number: list[Piece] = (
                [Bytes(_ANNOTATION_INTEGER), Varint(values.astype(np.int64))]
                if arg.kind is ArgKind.INTEGER
                else [Bytes(_ANNOTATION_DOUBLE), Fixed64(_real(values))]
            )
            return [self._annotation(arg.name, number, arg, row)]
        field = message.fields.index(arg.name) + 1
        if arg.name in REALS:
            return [
                Bytes(varint(field << 3 | _FIXED64_TYPE), present),
                Fixed64(_real(values), present),
            ]
        return [
            Bytes(varint(field << 3 | _VARINT_TYPE), present),
            Varint(values.astype(np.int64), present),
        ]

    def _annotation(self, name: str, value: list[Piece], arg: Arg, row: Rows) -> Message:
        named = Bytes(_ANNOTATION_NAME_IID + varint(self._iid_of_name[name]))
        return Message(_ANNOTATION, [named, *value], arg.present[row])


def _real(values: npt.NDArray[Any]) -> Float64:
    """Real numbers as they are drawn."""
    return round_reals(values.astype(np.float64))


def _text(iids: Int64) -> list[Piece]:
    """A string as the value of an annotation."""
    return [Bytes(_ANNOTATION_STRING_IID), Varint(iids)]


def _most_arrows(arrows: Arrows) -> int:
    return int(np.bincount(arrows.slice).max()) if len(arrows.slice) else 0


def _flow_ids(arrows: Arrows, most: int, row: Rows) -> list[Piece]:
    """Up to `most` flow ids per slice."""
    if not most:
        return []
    first = np.searchsorted(arrows.slice, row, side="left")
    made: list[Piece] = []
    for number in range(most):
        at = np.minimum(first + number, len(arrows.slice) - 1)
        present = (arrows.slice[at] == row) & (at == first + number)
        if not present.any():
            break
        made += [Bytes(_FLOW_ID, present), Fixed64(arrows.arrow[at], present)]
    return made


def _encode_samples(samples: Samples, sequence: int, first_ns: int) -> Iterator[bytes]:
    since_ns = np.diff(samples.time_ns, prepend=first_ns)
    rows_at_once = BLOCK_BYTES // 64
    for first in range(0, len(samples), rows_at_once):
        stop = min(first + rows_at_once, len(samples))
        event: list[Piece] = [
            Bytes(_TYPE_COUNTER + _DOUBLE_COUNTER),
            Fixed64(samples.value[first:stop]),
        ]
        yield encode_rows([_event(since_ns[first:stop], sequence, event)], stop - first)
