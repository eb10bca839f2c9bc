"""Turns packets into chunks that are compressed, each of which is a packet again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from timeline.encoders import deflate
from timeline.encoders.pieces import varint

__all__ = ["Chunk", "Packed", "chunks_of"]

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
        body = deflate.compressed(self.packets, level)
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
