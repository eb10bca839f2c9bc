"""Perfetto protobuf traces (`.pftrace`): descriptors first, then batches of tracks, compressed."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice

from timeline.encoders.args_descriptor import descriptor_bytes
from timeline.encoders.batches import (
    CompressedPacket,
    PacketBlock,
    TrackBatch,
    batch_tracks,
    compress_in_workers,
)
from timeline.encoders.compression import BEST_LEVEL, TrackSizes
from timeline.encoders.encoding_workers import EncodingWorkers
from timeline.encoders.perfetto_tracks import clock_ns, track_uuid
from timeline.layers import SliceKind
from timeline.ranges import check_order
from timeline.tracks.model import Samples, Slices, Timeline, Track

__all__ = ["encode_perfetto"]

FILE_SEQUENCE = 1
"""The packet sequence of descriptors and file-wide facts; tracks have further ones."""
COMPRESSORS = min(4, os.cpu_count() or 1)
"""Threads that compress; the compressor lets others run meanwhile."""


def encode_perfetto(
    timeline: Timeline,
    *,
    level: int | None = BEST_LEVEL,
    sizes: TrackSizes | None = None,
    workers: EncodingWorkers | None = None,
) -> Iterator[bytes]:
    """The bytes of the file, in pieces.

    level: how hard packets are compressed inside the file, which every version of Perfetto since
    2018 reads; with None the file is meant to be compressed as a whole. sizes is told the bytes
    that each track took; of those compressed together each gets its part by its size before.
    workers: other processes that encode, if there is more than one batch; they change nothing.
    """
    head = (_file_facts(timeline), *_descriptors(timeline.tracks))
    batches = batch_tracks(head, _calls_first(timeline.tracks), timeline.first_ns)
    if level is None:
        yield from _uncompressed(batches, sizes)
        return
    first = list(islice(batches, 2))
    every = chain(first, batches)
    if workers is None or len(first) < 2:
        packets = _compress_in_threads(every, level)
    else:
        packets = compress_in_workers(workers, every, level)
    for compressed in packets:
        if sizes is not None:
            for track, size_bytes in compressed.track_bytes.items():
                sizes.add(track, size_bytes)
            sizes.count(compressed.slices)
        yield compressed.packet


def _calls_first(tracks: Sequence[Track]) -> list[Track]:
    """The tracks, those of host calls before all others.

    Perfetto draws an arrow from the earlier slice, and of two that begin at once from the one that
    comes first in the file: a call and its task do where host and device clocks were fitted.
    """
    return sorted(
        tracks,
        key=lambda track: (
            not isinstance(track.content, Slices) or track.content.kind is not SliceKind.HOST_CALL
        ),
    )


def _file_facts(timeline: Timeline) -> bytes:
    """The clock, the schema of args, and facts about the timeline.

    Any clock snapshot, of which each sequence of packets has one too, makes the UI (version 52)
    draw a row "System > Clock Snapshots". Without, events would need absolute times, of nine bytes
    instead of two, and nothing would tell wall time: what the row costs is one folded line.
    """
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

    trace = protos.Trace()
    clocks = trace.packet.add()
    clocks.trusted_packet_sequence_id = FILE_SEQUENCE
    clocks.clock_snapshot.clocks.add(
        clock_id=protos.BuiltinClock.BUILTIN_CLOCK_BOOTTIME, timestamp=clock_ns(timeline.first_ns)
    )
    if timeline.wall_offset_ns is not None:
        clocks.clock_snapshot.clocks.add(
            clock_id=protos.BuiltinClock.BUILTIN_CLOCK_REALTIME,
            timestamp=clock_ns(timeline.first_ns + timeline.wall_offset_ns),
        )
    schema = trace.packet.add()
    schema.trusted_packet_sequence_id = FILE_SEQUENCE
    schema.extension_descriptor.extension_set.ParseFromString(descriptor_bytes())
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
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

    parents = {track.parent for track in tracks}
    for track in tracks:
        trace = protos.Trace()
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
            descriptor.child_ordering = protos.TrackDescriptor.EXPLICIT
        if isinstance(track.content, Samples):
            descriptor.counter.unit_name = track.content.unit
        yield bytes(trace.SerializeToString())


def _uncompressed(batches: Iterable[TrackBatch], sizes: TrackSizes | None) -> Iterator[bytes]:
    for batch in batches:
        for track, packet in batch.packets():
            if sizes is not None:
                sizes.add(track, len(packet))
            yield packet
        if sizes is not None:
            sizes.count(batch.slices)


def _compress_in_threads(batches: Iterable[TrackBatch], level: int) -> Iterator[CompressedPacket]:
    """Compress packets while the next ones are encoded.

    One block alone is compressed here: small files, and what is measured, start no threads.
    """
    blocks = chain.from_iterable(batch.blocks() for batch in batches)
    first = list(islice(blocks, 2))
    if len(first) < 2:
        yield from (block.compress(level) for block in first)
        return
    in_work = deque[Future[CompressedPacket]]()
    with ThreadPoolExecutor(COMPRESSORS) as compressors:
        for block in chain(first, blocks):
            in_work.append(compressors.submit(PacketBlock.compress, block, level))
            if len(in_work) > COMPRESSORS:
                yield in_work.popleft().result()
        while in_work:
            yield in_work.popleft().result()
