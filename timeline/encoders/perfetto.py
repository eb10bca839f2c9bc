"""Perfetto protobuf traces (`.pftrace`): descriptors first, then the packets of tracks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from timeline.encoders.args_descriptor import descriptor_bytes
from timeline.encoders.batches import TrackBatch
from timeline.encoders.perfetto_messages import BOOT_TIME, EXPLICIT, WALL_TIME, messages
from timeline.encoders.perfetto_tracks import clock_ns, encode_tracks, track_uuid
from timeline.ranges import check_order
from timeline.tracks.model import Samples, Timeline, Track

FILE_SEQUENCE = 1
"""The packet sequence of descriptors and file-wide facts; tracks have further ones."""


@dataclass(frozen=True)
class PerfettoEncoder:
    """Encodes a timeline as packets, of which a sequence of its own holds those of each track."""

    def opening(self, timeline: Timeline) -> Iterator[bytes]:
        """Facts about the timeline, and its rows."""
        yield _file_facts(timeline)
        yield from _descriptors(timeline.tracks)

    def encode(self, batch: TrackBatch, *, arrows: bool = False) -> Iterator[bytes]:
        """The packets of a batch, which hold all there is of arrows too."""
        return encode_tracks(batch.tracks, batch.first_ns)

    def closing(self, _tracks: Sequence[Track]) -> Iterator[bytes]:
        """Nothing comes last."""
        yield from ()


def _file_facts(timeline: Timeline) -> bytes:
    """The clock, the schema of args, and facts about the timeline.

    Any clock snapshot, of which each sequence of packets has one too, makes the UI (version 52)
    draw a row "System > Clock Snapshots". Without, events would need absolute times, of nine bytes
    instead of two, and nothing would tell wall time: what the row costs is one folded line.
    """
    trace = messages().Trace()
    clocks = trace.packet.add()
    clocks.trusted_packet_sequence_id = FILE_SEQUENCE
    clocks.clock_snapshot.clocks.add(clock_id=BOOT_TIME, timestamp=clock_ns(timeline.first_ns))
    if timeline.wall_offset_ns is not None:
        clocks.clock_snapshot.clocks.add(
            clock_id=WALL_TIME,
            timestamp=clock_ns(timeline.first_ns + timeline.wall_offset_ns),
        )
    schema = trace.packet.add()
    schema.trusted_packet_sequence_id = FILE_SEQUENCE
    schema.extension_descriptor.extension_set = descriptor_bytes()
    facts = trace.packet.add()
    facts.trusted_packet_sequence_id = FILE_SEQUENCE
    for key, value in timeline.attributes:
        facts.trace_attributes.attribute.add(key=key, string_value=value)
    return bytes(trace.SerializeToString())


def _descriptors(tracks: Sequence[Track]) -> Iterator[bytes]:
    """The rows, none of which is a process or a thread of the trace.

    With those the UI (version 52) would fill its minimap and name threads in tables of arrows. It
    would also take every such row out of its place, below a "Process 1002" in an order of its own:
    the rows of ranks would lose what they draw themselves, and the first ones theirs.
    """
    parents = {track.parent for track in tracks}
    for track in tracks:
        trace = messages().Trace()
        packet = trace.packet.add()
        packet.trusted_packet_sequence_id = FILE_SEQUENCE
        descriptor = packet.track_descriptor
        descriptor.uuid = track_uuid(track.id)
        descriptor.name = track.name
        check_order(track.name, track.order)
        descriptor.sibling_order_rank = track.order
        if track.parent is not None:
            descriptor.parent_uuid = track_uuid(track.parent)
        if track.description:
            descriptor.description = track.description
        if track.id in parents:
            descriptor.child_ordering = EXPLICIT
        if isinstance(track.content, Samples):
            descriptor.counter.unit_name = track.content.unit
        yield bytes(trace.SerializeToString())
