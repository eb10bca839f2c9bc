"""What a trace of packets holds, decoded by Perfetto's own messages, without a trace processor.

It is far stricter than a viewer: whatever is used has to be there before it, every slice ends on
its own track, and no time goes back. So a file that passes needs no luck to be loaded.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

from tests.support.row_totals import CounterTotals, Row, RowTotals, TraceTotals, is_text
from tests.support.trace_packets import packets_of
from timeline.encoders.perfetto_messages import descriptor_bytes

LAST_NS = (1 << 63) - 1
_CLOCK = 64
_BEGIN = protos.TrackEvent.TYPE_SLICE_BEGIN
_END = protos.TrackEvent.TYPE_SLICE_END
_COUNTER = protos.TrackEvent.TYPE_COUNTER


class DamagedTraceError(Exception):
    """A trace does not hold together."""


def decode_totals(data: bytes) -> TraceTotals:
    """Decode all packets of a trace, and count what they hold.

    Raises:
        DamagedTraceError: something is used before it is there, goes back, or does not end.
    """
    _register_args()
    decoder = _Decoder()
    for packet in packets_of(data):
        decoder.take(packet)
    return decoder.totals()


@functools.cache
def _register_args() -> None:
    """Have Perfetto's messages show the args of slices, which are extensions of theirs."""
    pool = descriptor_pool.Default()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptor_bytes()).file:
        file.dependency[:] = [protos.DESCRIPTOR.name]
        pool.AddSerializedFile(file.SerializeToString())
        for extension in file.extension:
            pool.FindExtensionByName(f"{file.package}.{extension.name}")


def _hold(kept: bool, broken: str, *about: object) -> None:
    if not kept:
        raise DamagedTraceError(broken.format(*about))


@dataclass
class _Sequence:
    """What packets of a sequence refer to: strings by kind and number, its track, its clock."""

    track: int = 0
    now_ns: int | None = None
    interned: dict[str, dict[int, str]] = field(default_factory=dict)

    def string(self, kind: str, iid: int) -> str:
        """The string of a number.

        Raises:
            DamagedTraceError: there is none.
        """
        found = self.interned.get(kind, {}).get(iid)
        if found is None:
            raise DamagedTraceError(f"{kind} {iid} is used and not interned")
        return found


@dataclass
class _DecodedTrack:
    """A row: its name, parent, the slices that are open on it, and the last moment of it."""

    name: str
    parent: int
    counts: bool
    open: list[tuple[int, str, int | None, int | None, bool]] = field(default_factory=list)
    last_ns: int = -LAST_NS


class _Decoder:
    def __init__(self) -> None:
        self._sequences: dict[int, _Sequence] = {}
        self._tracks: dict[int, _DecodedTrack] = {}
        self._found: dict[tuple[int, str], RowTotals] = {}
        self._samples: dict[int, CounterTotals] = {}
        self._arrows = Counter[int]()

    def take(self, packet: Any) -> None:
        """Decode one packet."""
        number = packet.trusted_packet_sequence_id
        _hold(number > 0, "a packet is on no sequence")
        if packet.first_packet_on_sequence:
            _hold(number not in self._sequences, "sequence {} begins twice", number)
            defaults = packet.trace_packet_defaults
            _hold(defaults.timestamp_clock_id == _CLOCK, "sequence {} has no clock", number)
            track = defaults.track_event_defaults.track_uuid
            self._sequences[number] = _Sequence(track)
            if packet.HasField("interned_data"):
                self._intern(packet.interned_data, self._sequences[number])
        kind = packet.WhichOneof("data")
        if kind == "track_event":
            self._event(packet.track_event, packet.timestamp, self._sequences[number])
        elif kind == "track_descriptor":
            self._describe(packet.track_descriptor)
        elif kind == "clock_snapshot" and number in self._sequences:
            times = {clock.clock_id: clock.timestamp for clock in packet.clock_snapshot.clocks}
            start_ns = times[protos.BuiltinClock.BUILTIN_CLOCK_BOOTTIME]
            _hold(0 <= start_ns <= LAST_NS and times[_CLOCK] == 0, "a clock starts at {}", times)
            self._sequences[number].now_ns = start_ns

    def _describe(self, track: Any) -> None:
        parent = track.parent_uuid
        _hold(track.uuid > 0 and track.uuid not in self._tracks, "track {} is twice", track.uuid)
        _hold(not parent or parent in self._tracks, "track {} has no parent", track.uuid)
        _hold(abs(track.sibling_order_rank) < 1 << 31, "track {} has no order", track.uuid)
        self._tracks[track.uuid] = _DecodedTrack(track.name, parent, track.HasField("counter"))

    def _intern(self, interned: Any, sequence: _Sequence) -> None:
        for kind, strings in interned.ListFields():
            known = sequence.interned.setdefault(kind.name, {})
            for one in strings:
                _hold(one.iid > 0 and one.iid not in known, "{} {} is twice", kind.name, one.iid)
                text = one.str if hasattr(one, "str") else one.name
                known[one.iid] = text if isinstance(text, str) else text.decode()

    def _event(self, event: Any, since_ns: int, sequence: _Sequence) -> None:
        if sequence.now_ns is None:
            raise DamagedTraceError("an event comes before the clock of its sequence")
        now_ns = sequence.now_ns + since_ns
        _hold(since_ns <= LAST_NS and now_ns <= LAST_NS, "a time is {} after {}", since_ns, now_ns)
        sequence.now_ns = now_ns
        number = event.track_uuid or sequence.track
        track = self._tracks.get(number)
        if track is None:
            raise DamagedTraceError(f"an event is on track {number}, which is not described")
        _hold(now_ns >= track.last_ns, "track {} goes back to {}", number, now_ns)
        track.last_ns = now_ns
        _hold(track.counts == (event.type == _COUNTER), "track {} is of the other kind", number)
        if event.type == _BEGIN:
            self._begin(event, track, sequence, now_ns)
        elif event.type == _END:
            _hold(bool(track.open), "a slice ends on track {} and none is open", number)
            self._end(number, track, now_ns)
        else:
            _hold(event.HasField("double_counter_value"), "a sample has no value")
            value = event.double_counter_value
            found = CounterTotals(1, value, value, now_ns, now_ns)
            before = self._samples.get(number)
            self._samples[number] = found if before is None else before + found

    def _begin(self, event: Any, track: _DecodedTrack, sequence: _Sequence, now_ns: int) -> None:
        (category,) = event.category_iids
        _hold(event.WhichOneof("name_field") is not None, "a slice has no name")
        if event.HasField("name_iid"):
            sequence.string("event_names", event.name_iid)
        self._arrows.update(event.flow_ids)
        busy_ns, count, continued = None, None, False
        for described, value in event.ListFields():
            if described.is_extension:
                for one in value.annotations:
                    sequence.string("debug_annotation_names", one.name_iid)
                    if one.HasField("string_value_iid"):
                        sequence.string("debug_annotation_string_values", one.string_value_iid)
                if described.name == "merged":
                    busy_ns, count = value.busy_ns, value.count
                    _hold(busy_ns >= 0 and count > 1, "{} merged slices of {} ns", count, busy_ns)
                names = {field.name for field, _ in value.ListFields()}
                continued = continued or "continued" in names
            elif described.name == "correlation_id_str_iid":
                sequence.string("correlation_id_str", value)
        its = sequence.string("event_categories", category)
        track.open.append((now_ns, its, busy_ns, count, continued))

    def _end(self, number: int, track: _DecodedTrack, now_ns: int) -> None:
        start_ns, category, busy_ns, count, continued = track.open.pop()
        stands = count if count is not None else int(not continued)
        length_ns = now_ns - start_ns if busy_ns is None else busy_ns
        merged = int(busy_ns is not None)
        found = RowTotals(stands, length_ns, 1, merged, int(continued), start_ns, now_ns)
        before = self._found.get((number, category))
        self._found[number, category] = found if before is None else before + found

    def totals(self) -> TraceTotals:
        """All that was counted.

        Raises:
            DamagedTraceError: a slice does not end, or an arrow has one end or three.
        """
        for number, track in self._tracks.items():
            _hold(not track.open, "{} slices of track {} do not end", len(track.open), number)
        ends = set(self._arrows.values())
        _hold(ends <= {1, 2}, "arrows have {} ends", ends)
        rows = {number: tuple(self._row(number)) for number in self._tracks}
        counters: dict[Row, CounterTotals] = {}
        for number, samples in self._samples.items():
            row = rows[number]
            counters[row] = counters[row] + samples if row in counters else samples
        return TraceTotals(
            (),
            sum(found.drawn for found in self._found.values()),
            0,
            sum(found.count for found in self._samples.values()),
            sum(count == 2 for count in self._arrows.values()),
            tuple(
                (rows[number], category, found)
                for (number, category), found in self._found.items()
                if not is_text(rows[number])
            ),
            counters,
        )

    def _row(self, number: int) -> Iterator[str]:
        track = self._tracks[number]
        if track.parent:
            yield from self._row(track.parent)
            yield track.name
        else:
            yield re.sub(r"^\d+ |(?<=^Rank )0+(?=\d)|(?<=\d): .*$", "", track.name.strip())
