"""Turns a timeline into a Perfetto protobuf trace."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice

from timeline.encoders import deflate
from timeline.encoders.perfetto_tracks import clock_ns, encode_track, track_uuid
from timeline.encoders.pieces import varint
from timeline.encoders.schema import descriptor_bytes
from timeline.encoders.tally import Tally
from timeline.tracks.model import Samples, Timeline, Track

__all__ = ["encode_perfetto"]

FILE_SEQUENCE = 1
CHUNK_BYTES = 512 * 1024
"""Bytes of packets that are compressed together."""
COMPRESSORS = min(4, os.cpu_count() or 1)
"""Threads that compress; the compressor lets others run meanwhile."""
_PACKET = b"\x0a"
_COMPRESSED_PACKETS = varint(50 << 3 | 2)


def encode_perfetto(
    timeline: Timeline, *, level: int | None = deflate.SMALL, tally: Tally | None = None
) -> Iterator[bytes]:
    """The bytes of the file, in pieces.

    level: how hard packets are compressed inside the file, which every version of Perfetto since
    2018 reads; with None the file is meant to be compressed as a whole. tally is told the bytes
    that each track took; those compressed together are shared out by their size before.
    """
    packets = _packets(timeline)
    yield from _counted(packets, tally) if level is None else _compressed(packets, level, tally)


def _packets(timeline: Timeline) -> Iterator[tuple[int | None, bytes]]:
    """Packets, and the track they are of."""
    yield None, _file_facts(timeline)
    for packet in _descriptors(timeline.tracks):
        yield None, packet
    for track in timeline.tracks:
        for packet in encode_track(track, timeline.first_ns):
            yield track.id, packet


def _file_facts(timeline: Timeline) -> bytes:
    """The clock, the schema of typed args, and facts about the picture."""
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
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

    parents = {track.parent for track in tracks}
    for track in tracks:
        trace = protos.Trace()
        packet = trace.packet.add()
        packet.trusted_packet_sequence_id = FILE_SEQUENCE
        descriptor = packet.track_descriptor
        descriptor.uuid = track_uuid(track.id)
        descriptor.name = track.name
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


def _counted(packets: Iterable[tuple[int | None, bytes]], tally: Tally | None) -> Iterator[bytes]:
    for track, packet in packets:
        if tally is not None:
            tally.add(track, len(packet))
        yield packet


def _compressed(
    packets: Iterable[tuple[int | None, bytes]], level: int, tally: Tally | None
) -> Iterator[bytes]:
    """Wrap packets into packets that hold them compressed, while the next ones are encoded.

    One chunk alone is compressed here: small files, and what is measured, start no threads.
    """
    chunks = _chunks(packets)
    first = list(islice(chunks, 2))
    if len(first) < 2:
        yield from (_wrapped(deflate.compressed(own.packets, level), own, tally) for own in first)
        return
    in_work = deque[tuple[Future[bytes], _Chunk]]()
    with ThreadPoolExecutor(COMPRESSORS) as compressors:
        for chunk in chain(first, chunks):
            in_work.append((compressors.submit(deflate.compressed, chunk.packets, level), chunk))
            if len(in_work) > COMPRESSORS:
                done, own = in_work.popleft()
                yield _wrapped(done.result(), own, tally)
        while in_work:
            done, own = in_work.popleft()
            yield _wrapped(done.result(), own, tally)


@dataclass(frozen=True)
class _Chunk:
    """Packets that are compressed together, and the bytes of each track among them."""

    packets: bytes
    shares: dict[int | None, int]


def _chunks(packets: Iterable[tuple[int | None, bytes]]) -> Iterator[_Chunk]:
    held = bytearray()
    shares: dict[int | None, int] = {}
    for track, packet in packets:
        held += packet
        shares[track] = shares.get(track, 0) + len(packet)
        if len(held) >= CHUNK_BYTES:
            yield _Chunk(bytes(held), shares)
            held.clear()
            shares = {}
    if held:
        yield _Chunk(bytes(held), shares)


def _wrapped(packed: bytes, chunk: _Chunk, tally: Tally | None) -> bytes:
    inner = _COMPRESSED_PACKETS + varint(len(packed)) + packed
    made = _PACKET + varint(len(inner)) + inner
    if tally is not None:
        for track, share in chunk.shares.items():
            tally.add(track, len(made) * share / len(chunk.packets))
    return made
