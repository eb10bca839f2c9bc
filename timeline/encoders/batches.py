"""Batches of tracks, each of which any process can encode into compressed packets of the file."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Future
from dataclasses import dataclass, replace

import numpy as np

from timeline.columns.strings import StringPool
from timeline.encoders.compression import compress
from timeline.encoders.encoding_workers import EncodingWorkers
from timeline.encoders.perfetto_tracks import encode_track, split_track
from timeline.encoders.protobuf_rows import varint
from timeline.tracks.model import ArgKind, Slices, Track

__all__ = [
    "CompressedPacket",
    "PacketBlock",
    "TrackBatch",
    "batch_tracks",
    "compress_in_workers",
    "group_packets",
]

COMPRESSED_TOGETHER_BYTES = 512 * 1024
"""Bytes of packets that are compressed together."""
_PACKET = b"\x0a"
_COMPRESSED_PACKETS = varint(50 << 3 | 2)


@dataclass(frozen=True)
class CompressedPacket:
    """A packet that holds compressed ones, and the bytes of each track in it.

    Its bytes are attributed to tracks in proportion to their bytes before compression. slices: how
    many are encoded with it that were not before.
    """

    packet: bytes
    track_bytes: Mapping[int | None, float]
    slices: int = 0


@dataclass(frozen=True)
class PacketBlock:
    """Packets that are compressed together, and the bytes of each track among them.

    slices: those of the whole batch, on its last block.
    """

    packets: bytes
    track_bytes: Mapping[int | None, int]
    slices: int = 0

    def compress(self, level: int) -> CompressedPacket:
        """Compress them into one packet."""
        body = compress(self.packets, level)
        inner = _COMPRESSED_PACKETS + varint(len(body)) + body
        made = _PACKET + varint(len(inner)) + inner
        part = len(made) / len(self.packets)
        return CompressedPacket(
            made, {track: size * part for track, size in self.track_bytes.items()}, self.slices
        )


def group_packets(packets: Iterable[tuple[int | None, bytes]]) -> Iterator[PacketBlock]:
    """Group packets, given with the track they are of, to be compressed together."""
    waiting = bytearray()
    track_bytes: dict[int | None, int] = {}
    for track, packet in packets:
        waiting += packet
        track_bytes[track] = track_bytes.get(track, 0) + len(packet)
        if len(waiting) >= COMPRESSED_TOGETHER_BYTES:
            yield PacketBlock(bytes(waiting), track_bytes)
            waiting.clear()
            track_bytes = {}
    if waiting:
        yield PacketBlock(bytes(waiting), track_bytes)


FIRST_SEQUENCE = 2
"""The packet sequence of the first track; 1 holds descriptors and file-wide facts."""
BATCH_ELEMENTS = 1 << 16
"""Slices and samples of a batch, before the track that fills it: some 4 MB to send."""
BATCHES_PER_WORKER = 4
"""Batches for each process that are encoded or wait for it."""
MOST_BATCHES_SENT = 32
"""Batches that are encoded or wait for it, however many processes there are."""


@dataclass(frozen=True)
class TrackBatch:
    """Tracks that follow each other, with their sequences, behind packets that come before them.

    What it becomes depends on nothing else, so all processes together write the file that one
    alone would.
    """

    head: Sequence[bytes]
    tracks: Sequence[tuple[int, Track]]
    first_ns: int

    def __len__(self) -> int:
        return sum(len(track.content or ()) for _, track in self.tracks)

    @property
    def slices(self) -> int:
        """How many slices it holds."""
        contents = (track.content for _, track in self.tracks)
        return sum(len(content) for content in contents if isinstance(content, Slices))

    def packets(self) -> Iterator[tuple[int | None, bytes]]:
        """All packets, and the track they are of."""
        for packet in self.head:
            yield None, packet
        for sequence, track in self.tracks:
            for packet in encode_track(track, sequence, self.first_ns):
                yield track.id, packet

    def blocks(self) -> Iterator[PacketBlock]:
        """All packets, grouped as they are compressed."""
        blocks = group_packets(self.packets())
        block = next(blocks, None)
        for following in blocks:
            if block is not None:
                yield block
            block = following
        if block is not None:
            yield replace(block, slices=self.slices)

    def for_sending(self) -> TrackBatch:
        """Leave out what is not needed to encode the batch in another process."""
        tracks = [(sequence, _with_shown_strings(track)) for sequence, track in self.tracks]
        return replace(self, tracks=tracks)


def batch_tracks(
    head: Sequence[bytes], tracks: Iterable[Track], first_ns: int
) -> Iterator[TrackBatch]:
    """Group tracks, in order and the long ones in parts; the head goes to the first batch."""
    batch: list[tuple[int, Track]] = []
    elements = 0
    parts = (part for track in tracks for part in split_track(track))
    for sequence, part in enumerate(parts, FIRST_SEQUENCE):
        batch.append((sequence, part))
        elements += len(part.content or ())
        if elements >= BATCH_ELEMENTS:
            yield TrackBatch(head, batch, first_ns)
            head, batch, elements = (), [], 0
    if batch or head:
        yield TrackBatch(head, batch, first_ns)


class _ShownStrings(StringPool):
    """The strings that a track shows, by the codes that they have among all of their rank."""

    def __init__(self, slices: Slices) -> None:
        super().__init__()
        shown = np.zeros(len(slices.strings), np.bool_)
        shown[slices.name] = True
        for arg in slices.args:
            if arg.kind is ArgKind.NAME:
                shown[arg.values] = True
        self._size = len(slices.strings)
        self._shown = {code: slices.strings[code] for code in np.flatnonzero(shown).tolist()}

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, code: int) -> str:
        return self._shown[code]


def _with_shown_strings(track: Track) -> Track:
    """Leave out the strings that a track does not show."""
    if not isinstance(track.content, Slices):
        return track
    content = replace(track.content, strings=_ShownStrings(track.content), coarse=None)
    return replace(track, content=content, description="")


def compress_in_workers(
    workers: EncodingWorkers, batches: Iterable[TrackBatch], level: int
) -> Iterator[CompressedPacket]:
    """Encode and compress batches in other processes; packets come in the order of the batches.

    Only some batches are sent at a time. Those of a process that died are encoded here.
    """
    in_work = deque[tuple[TrackBatch, Future[list[CompressedPacket]] | None]]()
    for batch in batches:
        in_work.append((batch, _submit(workers, batch, level)))
        if len(in_work) > min(BATCHES_PER_WORKER * workers.jobs, MOST_BATCHES_SENT):
            yield from _result(*in_work.popleft(), level)
    while in_work:
        yield from _result(*in_work.popleft(), level)


def _submit(
    workers: EncodingWorkers, batch: TrackBatch, level: int
) -> Future[list[CompressedPacket]] | None:
    """Send a batch to a process; None where none is left that could encode it."""
    try:
        return workers.executor.submit(_compress_batch, batch.for_sending(), level)
    except BrokenExecutor:
        return None


def _result(
    batch: TrackBatch, future: Future[list[CompressedPacket]] | None, level: int
) -> Iterable[CompressedPacket]:
    if future is not None:
        try:
            return future.result()
        except (BrokenExecutor, MemoryError):
            pass
    return (block.compress(level) for block in batch.blocks())


def _compress_batch(batch: TrackBatch, level: int) -> list[CompressedPacket]:
    return [block.compress(level) for block in batch.blocks()]
