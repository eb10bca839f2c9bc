"""Encoder of Perfetto protobuf traces (`.pftrace`): descriptors, then the packets of tracks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.columns.chunks import one_by_one
from timeline.columns.columns import Bool, Float64, Int64, Rows
from timeline.columns.nesting import Events, nested_events, split_at_gaps
from timeline.encoders.drawn_values import DrawnStrings, NumberOfCode, round_reals, said_row
from timeline.encoders.perfetto_messages import (
    ANNOTATIONS,
    BOOT_TIME,
    EXPLICIT,
    REALS,
    STATE_CLEARED,
    WALL_TIME,
    descriptor_bytes,
    messages,
)
from timeline.encoders.pieces import TrackBatch
from timeline.encoders.protobuf_rows import (
    Bytes,
    Fixed64,
    Message,
    Piece,
    Varint,
    encode_rows,
    varint,
)
from timeline.encoders.sequences import SequenceNames, SliceStrings
from timeline.language import ENGLISH, said, spoken_language
from timeline.layers import ArgsMessage
from timeline.ranges import check_order
from timeline.tracks.model import Arg, ArgKind, Samples, Slices, Timeline, Track

Places = Rows | slice
"""A selection of slices; a run of them is a slice object, which copies nothing."""
SHARED_ELEMENTS = 1 << 13
"""Maximum number of slices and samples of tracks that share a packet sequence."""


SEQUENCE_CLOCK = 64
"""The first clock id that is private to a sequence; only such a clock may count increments."""
BLOCK_BYTES = 1 << 22
"""Size in bytes of the rows that are encoded at a time."""
LEAST_BLOCK_ROWS = 256
"""Minimum number of rows encoded at a time, however wide they are."""

_PACKET = b"\x0a"
_TIMESTAMP = b"\x40"
_SEQUENCE = b"\x50"
_TRACK_EVENT = b"\x5a"
_TYPE_BEGIN = b"\x48\x01"
_TYPE_END = b"\x48\x02"
_TYPE_COUNTER = b"\x48\x04"
_CATEGORY_IID = b"\x18"
_NAME_IID = b"\x50"
_NAME = varint(23 << 3 | 2)
_TRACK_UUID = b"\x58"
_ANNOTATION_NAME_IID = b"\x08"
_ANNOTATION_INTEGER = b"\x20"
_ANNOTATION_DOUBLE = b"\x29"
_ANNOTATION_STRING = b"\x32"
_ANNOTATION_STRING_IID = b"\x88\x01"
_CORRELATION_IID = varint(54 << 3)
_FLOW_ID = varint(47 << 3 | 1)
_DOUBLE_COUNTER = varint(44 << 3 | 1)
_VARINT_TYPE, _FIXED64_TYPE, _BYTES_TYPE = 0, 1, 2
_ANNOTATION = varint(ANNOTATIONS << 3 | _BYTES_TYPE)


def track_uuid(track_id: int) -> int:
    """Return the uuid of a track: small, so that it takes few bytes, and not 0, Perfetto's root."""
    return track_id + 1


def encode_tracks(
    tracks: Sequence[tuple[int, Track]], first_ns: int, language: str = ENGLISH
) -> Iterator[bytes]:
    """Yield the packets of tracks, each given with a sequence number, framed as in a trace file.

    A sequence begins with its interned names and a clock on which each event has only the time
    since the previous one. All clocks start at the same time, so the UI's row of clock snapshots
    shows one mark. Consecutive short tracks share the sequence of the first, since every sequence
    costs a viewer some 40 KB.
    """
    for sequence, together in _sequences(tracks):
        packets = _encode_sequence(together, sequence, first_ns, language)
        if len(together) == 1:
            yield from packets
        else:  # as one block, so that compression blocks do not split a shared sequence
            yield b"".join(packets)


def _encode_sequence(
    tracks: Sequence[Track], sequence: int, first_ns: int, language: str
) -> Iterator[bytes]:
    contents = [
        SliceStrings.by(track.content, language)
        if isinstance(track.content, Slices)
        else track.content
        for track in tracks
    ]
    names = SequenceNames.of([one for one in contents if isinstance(one, SliceStrings)])
    own_track = tracks[0] if len(tracks) == 1 else None
    yield _opening_packet(sequence, names, own_track)
    clock = _clock_packet(sequence)
    for track, content in zip(tracks, contents, strict=True):
        yield clock
        uuid = b"" if own_track else _TRACK_UUID + varint(track_uuid(track.id))
        if isinstance(content, SliceStrings):
            yield from _encode_slices(content, names, sequence, first_ns, uuid)
        elif content is not None:
            yield from _encode_samples(content, sequence, first_ns, uuid)


def _sequences(tracks: Sequence[tuple[int, Track]]) -> Iterator[tuple[int, list[Track]]]:
    """Yield non-empty tracks grouped by the sequence that they share."""
    together: list[Track] = []
    first = elements = 0
    for sequence, track in tracks:
        count = len(track.content or ())
        if together and elements + count > SHARED_ELEMENTS:
            yield first, together
            together, elements = [], 0
        if count:
            first = first if together else sequence
            together.append(track)
            elements += count
    if together:
        yield first, together


def _opening_packet(sequence: int, names: SequenceNames, track: Track | None) -> bytes:
    """Return the first packet of a sequence: its names, and its track if it has only one."""
    trace = messages().Trace()
    packet = trace.packet.add()
    packet.trusted_packet_sequence_id = sequence
    packet.sequence_flags = STATE_CLEARED
    packet.first_packet_on_sequence = True
    packet.trace_packet_defaults.timestamp_clock_id = SEQUENCE_CLOCK
    if track is not None:
        packet.trace_packet_defaults.track_event_defaults.track_uuid = track_uuid(track.id)
    if interned := names.interned():
        packet.interned_data = interned
    return bytes(trace.SerializeToString())


def _clock_packet(sequence: int) -> bytes:
    """Return the packet that restarts a sequence's clock at time 0 of the file."""
    trace = messages().Trace()
    clocks = trace.packet.add()
    clocks.trusted_packet_sequence_id = sequence
    clocks.clock_snapshot.clocks.add(clock_id=BOOT_TIME, timestamp=0)
    clocks.clock_snapshot.clocks.add(clock_id=SEQUENCE_CLOCK, timestamp=0, is_incremental=True)
    return bytes(trace.SerializeToString())


def _flat_events(slices: Slices, before_ns: int, at_once: int) -> Iterator[Events]:
    for first in range(0, len(slices), at_once):
        start_ns = slices.start_ns[first : first + at_once]
        end_ns = slices.end_ns[first : first + at_once]
        since_ns = start_ns - np.concatenate([[before_ns], end_ns[:-1]])
        yield Events(np.arange(first, first + len(start_ns)), since_ns, end_ns - start_ns)
        before_ns = int(end_ns[-1])


def _nested_events(slices: Slices, before_ns: int, at_once: int) -> Iterator[Events]:
    for rows in split_at_gaps(slices.start_ns, slices.end_ns):
        end_ns = slices.end_ns[rows]
        events = nested_events(slices.start_ns[rows], end_ns, before_ns)
        before_ns = int(end_ns.max())
        for first in range(0, len(events), at_once):
            some = events.between(first, first + at_once)
            yield replace(some, row=rows[some.row])


def _encode_slices(
    used: SliceStrings, names: SequenceNames, sequence: int, first_ns: int, track: bytes
) -> Iterator[bytes]:
    """Yield blocks of packets of slices.

    track: the encoded field with the track's uuid; empty if the sequence has one track.
    """
    slices = used.slices
    event_names = used.events.drawn(names.events)
    colour_iids = used.colour_numbers(names.colours)
    args = _Args(used, names)
    category = _CATEGORY_IID + varint(names.categories[slices.category.value])
    arrows = _Arrows(slices)
    widest = 64 + 10 * arrows.most + event_names.longest + args.longest
    rows_at_once = max(LEAST_BLOCK_ROWS, BLOCK_BYTES // widest)
    make = _nested_events if slices.nested else _flat_events
    row_bytes = _row_bytes(slices)
    every = one_by_one(make(slices, first_ns, rows_at_once), lambda some: len(some) * row_bytes)
    for events in every:
        row = _places(events)
        begin: list[Piece] = [
            Bytes(_TYPE_BEGIN + track + category),
            *event_names.pieces(_NAME_IID, _NAME, slices.name[row]),
            *args.encoded(row),
            *_coloured(colour_iids, slices, row),
            *arrows.encoded(row),
        ]
        packets = [
            _event(events.begin_ns, sequence, begin, events.begins),
            _event(events.end_ns, sequence, [Bytes(_TYPE_END + track)], events.ends),
        ]
        yield encode_rows(packets, len(events))


def _row_bytes(slices: Slices) -> int:
    own_bytes = slices.start_ns.itemsize + slices.end_ns.itemsize + slices.name.itemsize
    return own_bytes + sum(arg.values.itemsize + arg.present.itemsize for arg in slices.args)


def _places(events: Events) -> Places:
    """Return the slices of events, as a run if every event is a whole slice."""
    if events.begins is None:
        return slice(int(events.row[0]), int(events.row[-1]) + 1)
    return events.row


def _coloured(iids: NumberOfCode, slices: Slices, row: Places) -> list[Piece]:
    """Return the field with the colour of each slice whose name has one."""
    colour = iids.of(slices.name[row])
    has = colour > 0
    return [Bytes(_CORRELATION_IID, has), Varint(colour, has)] if has.any() else []


def _event(
    since_ns: Int64, sequence: int, event: list[Piece], present: Bool | None = None
) -> Message:
    """Return a packet with an event in each row, or in the rows where `present` is true."""
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


class _Args:
    """Encoder of the args of a track's slices, grouped by protobuf message."""

    def __init__(self, used: SliceStrings, names: SequenceNames) -> None:
        self._of_message = used.messages()
        self._iid_of_name = names.args
        self._values = used.values.drawn(names.values)
        self._format_texts = {
            of: (one, DrawnStrings.of(one.texts, names.formatted))
            for of, one in used.formatted.items()
        }
        formatted = (texts.longest for _, texts in self._format_texts.values())
        self.longest = self._values.longest + sum(formatted)
        """Maximum size in bytes of the inline strings of one slice."""

    def encoded(self, row: Places) -> list[Piece]:
        """Return the messages of some slices; a slice without args of a message lacks it."""
        encoded: list[Piece] = []
        for message, args in self._of_message:
            inner: list[Piece] = []
            presents = [arg.present[row] for arg in args]
            for arg, present in zip(args, presents, strict=True):
                inner += self._formatted(arg, row, present)
                inner += self._exact(message, arg, row, present)
            if inner:
                tag = varint(message.number << 3 | _BYTES_TYPE)
                encoded.append(Message(tag, inner, np.logical_or.reduce(presents)))
        return encoded

    def _formatted(self, arg: Arg, row: Places, present: Bool) -> list[Piece]:
        """Return the formatted form of an arg, if it has one."""
        if arg.name not in self._format_texts:
            return []
        formatted, texts = self._format_texts[arg.name]
        return [self._annotation(formatted.name, _text(texts, formatted.text[row]), present)]

    def _exact(self, message: ArgsMessage, arg: Arg, row: Places, present: Bool) -> list[Piece]:
        """Return the exact arg: a field of the message, or an annotation if it has no field."""
        values = arg.values[row]
        if arg.kind is ArgKind.NAME:
            return [self._annotation(arg.name, _text(self._values, values), present)]
        if arg.name not in message.fields:
            number: list[Piece] = (
                [Bytes(_ANNOTATION_INTEGER), Varint(values.astype(np.int64, copy=False))]
                if arg.kind is ArgKind.INTEGER
                else [Bytes(_ANNOTATION_DOUBLE), Fixed64(_real(values))]
            )
            return [self._annotation(arg.name, number, present)]
        field = message.fields.index(arg.name) + 1
        if arg.name in REALS:
            return [
                Bytes(varint(field << 3 | _FIXED64_TYPE), present),
                Fixed64(_real(values), present),
            ]
        return [
            Bytes(varint(field << 3 | _VARINT_TYPE), present),
            Varint(values.astype(np.int64, copy=False), present),
        ]

    def _annotation(self, name: str, value: list[Piece], present: Bool) -> Message:
        named = Bytes(_ANNOTATION_NAME_IID + varint(self._iid_of_name[name]))
        return Message(_ANNOTATION, [named, *value], present)


def _real(values: npt.NDArray[Any]) -> Float64:
    return round_reals(values.astype(np.float64))


def _text(texts: DrawnStrings, codes: npt.NDArray[Any]) -> list[Piece]:
    return texts.pieces(_ANNOTATION_STRING_IID, _ANNOTATION_STRING, codes)


class _Arrows:
    """Encoder of the arrow ends of a track's slices."""

    def __init__(self, slices: Slices) -> None:
        self.most = 0
        """Maximum number of arrow ends of a slice."""
        self._ids = slices.arrows.arrow
        if not len(self._ids):
            return
        self._count = np.bincount(slices.arrows.slice, minlength=len(slices))
        self._first = np.cumsum(self._count) - self._count
        self.most = int(self._count.max())

    def encoded(self, row: Places) -> list[Piece]:
        """Return the flow ids of some slices, one field per arrow end."""
        if not self.most:
            return []
        count, first = self._count[row], self._first[row]
        fields: list[Piece] = []
        for number in range(int(count.max(initial=0))):
            present = count > number
            at = np.where(present, first + number, 0)
            fields += [Bytes(_FLOW_ID, present), Fixed64(self._ids[at], present)]
        return fields


def _encode_samples(
    samples: Samples, sequence: int, first_ns: int, track: bytes
) -> Iterator[bytes]:
    since_ns = np.diff(samples.time_ns, prepend=first_ns)
    rows_at_once = BLOCK_BYTES // 64
    for first in range(0, len(samples), rows_at_once):
        stop = min(first + rows_at_once, len(samples))
        event: list[Piece] = [
            Bytes(_TYPE_COUNTER + track + _DOUBLE_COUNTER),
            Fixed64(samples.value[first:stop]),
        ]
        yield encode_rows([_event(since_ns[first:stop], sequence, event)], stop - first)


FILE_SEQUENCE = 1
"""The packet sequence of descriptors and file-wide facts; tracks use higher numbers."""


@dataclass(frozen=True)
class PerfettoEncoder:
    """Encodes a timeline as packets, with a packet sequence for each track or few short ones.

    language: of the names of rows and slices; processes that help do not know the spoken one.
    """

    language: str = field(default_factory=spoken_language)

    def opening(self, timeline: Timeline) -> Iterator[bytes]:
        """Yield the attributes of the timeline, and the descriptors of its rows."""
        yield _file_facts(timeline)
        yield from _descriptors(timeline.tracks, self.language)

    def encode(self, batch: TrackBatch, *, arrows: bool = False) -> Iterator[bytes]:
        """Yield the packets of a batch; slices always carry their arrows, so `arrows` is unused."""
        return encode_tracks(batch.tracks, batch.first_ns, self.language)

    def closing(self, _tracks: Sequence[Track]) -> Iterator[bytes]:
        """Yield nothing: no packet has to come last."""
        yield from ()


def _file_facts(timeline: Timeline) -> bytes:
    """Return the clock, the schema of args, and the attributes of the timeline.

    Times in the file begin at 0: the UI (version 52) prints a date at the left end of its axis over
    itself. The recorded time then is the attribute ZERO, and wall time a clock of its own.

    Clock snapshots, which every packet sequence has too, make the UI (version 52) draw a row
    "System > Clock Snapshots", one folded line. Without them, events would need absolute times of
    nine bytes instead of two, and wall time would be unknown.
    """
    trace = messages().Trace()
    clocks = trace.packet.add()
    clocks.trusted_packet_sequence_id = FILE_SEQUENCE
    clocks.clock_snapshot.clocks.add(clock_id=BOOT_TIME, timestamp=0)
    if timeline.wall_offset_ns is not None:
        wall_ns = max(timeline.first_ns + timeline.wall_offset_ns, 0)
        clocks.clock_snapshot.clocks.add(clock_id=WALL_TIME, timestamp=wall_ns)
    schema = trace.packet.add()
    schema.trusted_packet_sequence_id = FILE_SEQUENCE
    schema.extension_descriptor.extension_set = descriptor_bytes()
    facts = trace.packet.add()
    facts.trusted_packet_sequence_id = FILE_SEQUENCE
    for key, value in timeline.attributes:
        facts.trace_attributes.attribute.add(key=key, string_value=value)
    return bytes(trace.SerializeToString())


def _descriptors(tracks: Sequence[Track], language: str) -> Iterator[bytes]:
    """Yield the descriptors of rows, none of which is declared a process or a thread.

    With processes and threads the UI (version 52) would fill its minimap and name threads in tables
    of arrows. But it would also move every such row below a "Process 1002", in an order of its own,
    and rows of ranks would no longer draw slices themselves.
    """
    parents = {track.parent for track in tracks}
    for track in tracks:
        trace = messages().Trace()
        packet = trace.packet.add()
        packet.trusted_packet_sequence_id = FILE_SEQUENCE
        descriptor = packet.track_descriptor
        descriptor.uuid = track_uuid(track.id)
        descriptor.name = said_row(track, language)
        check_order(track.name, track.order)
        descriptor.sibling_order_rank = track.order
        if track.parent is not None:
            descriptor.parent_uuid = track_uuid(track.parent)
        if track.description:
            descriptor.description = said(track.description, "", language)
        if track.id in parents:
            descriptor.child_ordering = EXPLICIT
        if isinstance(track.content, Samples):
            descriptor.counter.unit_name = track.content.unit
        yield bytes(trace.SerializeToString())
