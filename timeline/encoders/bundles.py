"""Turns tracks into bundles, each of which any process can turn into a part of the file."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Future
from dataclasses import dataclass, replace

import numpy as np

from timeline.columns.strings import StringPool
from timeline.encoders import packing
from timeline.encoders.packing import Workers
from timeline.encoders.perfetto_tracks import encode_track, parts_of_track
from timeline.encoders.protobuf_rows import varint
from timeline.tracks.model import ArgKind, Slices, Track

__all__ = ["Bundle", "Chunk", "Packed", "bundles_of", "chunks_of", "packed_by"]

CHUNK_BYTES = 512 * 1024
"""Bytes of packets that are compressed together."""
_PACKET = b"\x0a"
_COMPRESSED_PACKETS = varint(50 << 3 | 2)


@dataclass(frozen=True)
class Packed:
    """A packet that holds compressed ones, and the bytes of each track in it.

    Those that are compressed together share its bytes as they did before.
    """

    packet: bytes
    shares: Mapping[int | None, float]


@dataclass(frozen=True)
class Chunk:
    """Packets that are compressed together, and the bytes of each track among them."""

    packets: bytes
    shares: Mapping[int | None, int]

    def packed(self, level: int) -> Packed:
        """The packet that holds them."""
        body = packing.compressed(self.packets, level)
        inner = _COMPRESSED_PACKETS + varint(len(body)) + body
        made = _PACKET + varint(len(inner)) + inner
        part = len(made) / len(self.packets)
        return Packed(made, {track: share * part for track, share in self.shares.items()})


def chunks_of(packets: Iterable[tuple[int | None, bytes]]) -> Iterator[Chunk]:
    """Packets, given with the track they are of, as chunks of not much more than CHUNK_BYTES."""
    held = bytearray()
    shares: dict[int | None, int] = {}
    for track, packet in packets:
        held += packet
        shares[track] = shares.get(track, 0) + len(packet)
        if len(held) >= CHUNK_BYTES:
            yield Chunk(bytes(held), shares)
            held.clear()
            shares = {}
    if held:
        yield Chunk(bytes(held), shares)


FIRST_SEQUENCE = 2
"""That of the first track; sequence 1 holds descriptors and file-wide facts."""
BUNDLE_ELEMENTS = 1 << 16
"""Slices and samples of a bundle, before the track that fills it: some 4 MB on their way."""
AHEAD = 4
"""Bundles for each process that are encoded or wait for it."""
MOST_AHEAD = 32


@dataclass(frozen=True)
class Bundle:
    """Tracks that follow each other, with their sequences, behind packets that come before them.

    What it becomes depends on nothing else, so all processes together write the file that one
    alone would.
    """

    head: Sequence[bytes]
    tracks: Sequence[tuple[int, Track]]
    first_ns: int

    def __len__(self) -> int:
        return sum(len(track.content or ()) for _, track in self.tracks)

    def packets(self) -> Iterator[tuple[int | None, bytes]]:
        """All packets, and the track they are of."""
        for packet in self.head:
            yield None, packet
        for sequence, track in self.tracks:
            for packet in encode_track(track, sequence, self.first_ns):
                yield track.id, packet

    def chunks(self) -> Iterator[Chunk]:
        """The same, as they are compressed."""
        return chunks_of(self.packets())

    def for_the_way(self) -> Bundle:
        """The same without what is not needed to encode it."""
        tracks = [(sequence, _with_own_strings(track)) for sequence, track in self.tracks]
        return replace(self, tracks=tracks)


def bundles_of(head: Sequence[bytes], tracks: Iterable[Track], first_ns: int) -> Iterator[Bundle]:
    """All tracks, in order, the long ones in parts; the head is that of the first bundle."""
    held: list[tuple[int, Track]] = []
    elements = 0
    parts = (part for track in tracks for part in parts_of_track(track))
    for sequence, part in enumerate(parts, FIRST_SEQUENCE):
        held.append((sequence, part))
        elements += len(part.content or ())
        if elements >= BUNDLE_ELEMENTS:
            yield Bundle(head, held, first_ns)
            head, held, elements = (), [], 0
    if held or head:
        yield Bundle(head, held, first_ns)


class _OwnStrings(StringPool):
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


def _with_own_strings(track: Track) -> Track:
    """The track, with no strings but those it shows."""
    if not isinstance(track.content, Slices):
        return track
    content = replace(track.content, strings=_OwnStrings(track.content), coarse=None)
    return replace(track, content=content, description="")


def packed_by(workers: Workers, bundles: Iterable[Bundle], level: int) -> Iterator[Packed]:
    """What bundles become, in their order; only some are on their way at any time.

    Those of a process that died are encoded here.
    """
    in_work = deque[tuple[Bundle, Future[list[Packed]] | None]]()
    for bundle in bundles:
        in_work.append((bundle, _submitted(workers, bundle, level)))
        if len(in_work) > min(AHEAD * workers.jobs, MOST_AHEAD):
            yield from _result(*in_work.popleft(), level)
    while in_work:
        yield from _result(*in_work.popleft(), level)


def _submitted(workers: Workers, bundle: Bundle, level: int) -> Future[list[Packed]] | None:
    """Send a bundle on its way; None where nobody is left who could encode it."""
    try:
        return workers.executor.submit(_packed, bundle.for_the_way(), level)
    except BrokenExecutor:
        return None


def _result(bundle: Bundle, future: Future[list[Packed]] | None, level: int) -> Iterable[Packed]:
    if future is not None:
        try:
            return future.result()
        except (BrokenExecutor, MemoryError):
            pass
    return (chunk.packed(level) for chunk in bundle.chunks())


def _packed(bundle: Bundle, level: int) -> list[Packed]:
    return [chunk.packed(level) for chunk in bundle.chunks()]
