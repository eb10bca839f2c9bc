"""Pieces of a file, each compressed apart, so that any can be made by another thread or again."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from zlib_ng import zlib_ng

from timeline.encoders.batches import TrackBatch
from timeline.encoders.compression import Compression
from timeline.encoders.protobuf_rows import varint
from timeline.tracks.model import Timeline, Track

COMPRESSED_TOGETHER_BYTES = 512 * 1024
"""Bytes of packets that are compressed together."""
_PACKET = b"\x0a"
_COMPRESSED_PACKETS = varint(50 << 3 | 2)
_GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff"
"""Of a file without name and time, so that equal input gives equal files."""
_LAST_BLOCK = b"\x03\x00"


@dataclass(frozen=True)
class Piece:
    """A piece as it stands in the file, and the size and checksum of what was compressed."""

    body: bytes
    raw_bytes: int = 0
    checksum: int = 0

    def __len__(self) -> int:
        return len(self.body)


class TraceEncoder(Protocol):
    """Encodes a timeline in parts; those of batches may stand in any order.

    It knows the rows of the timeline and nothing of their slices.
    """

    def opening(self, timeline: Timeline) -> Iterator[bytes]:
        """What comes first: facts about the timeline, and its rows."""
        ...

    def encode(self, batch: TrackBatch, *, arrows: bool = False) -> Iterator[bytes]:
        """The slices and samples of a batch; with what their arrows take elsewhere, if `arrows`."""
        ...

    def closing(self, tracks: Sequence[Track]) -> Iterator[bytes]:
        """What comes last, given all tracks as they were encoded."""
        ...


class Packing(Protocol):
    """How pieces are compressed, and what makes a file of them."""

    before: bytes
    """What a file begins with."""

    def pack(self, parts: Iterable[bytes], compression: Compression) -> Piece:
        """Compress parts of a file, each whole in itself, into one piece."""
        ...

    def after(self, pieces: Iterable[Piece]) -> bytes:
        """What a file of these pieces ends with; as long for any."""
        ...


class _Packets:
    """Packets that hold compressed ones, as every version of Perfetto since 2018 reads them."""

    before = b""

    def pack(self, parts: Iterable[bytes], compression: Compression) -> Piece:
        return Piece(b"".join(_compressed_packet(block, compression) for block in _blocks(parts)))

    def after(self, _pieces: Iterable[Piece]) -> bytes:
        return b""


class _Plain:
    """Nothing is compressed."""

    before = b""

    def pack(self, parts: Iterable[bytes], _compression: Compression) -> Piece:
        return Piece(b"".join(parts))

    def after(self, _pieces: Iterable[Piece]) -> bytes:
        return b""


class _Gzipped:
    """One gzip stream, of which each piece ends at a whole byte and refers to no other."""

    before = _GZIP_HEAD

    def pack(self, parts: Iterable[bytes], compression: Compression) -> Piece:
        packer = compression.open()
        made, size, checksum = [], 0, 0
        for part in parts:
            made.append(packer.compress(part))
            size += len(part)
            checksum = zlib_ng.crc32(part, checksum)
        made.append(packer.flush(zlib_ng.Z_FULL_FLUSH))
        return Piece(b"".join(made), size, checksum)

    def after(self, pieces: Iterable[Piece]) -> bytes:
        size = checksum = 0
        for piece in pieces:
            checksum = zlib_ng.crc32_combine(checksum, piece.checksum, piece.raw_bytes)
            size += piece.raw_bytes
        return _LAST_BLOCK + struct.pack("<II", checksum, size % (1 << 32))


PACKETS: Packing = _Packets()
PLAIN: Packing = _Plain()
GZIPPED: Packing = _Gzipped()


def join_pieces(packing: Packing, pieces: Iterable[Piece]) -> Iterator[bytes]:
    """The bytes of a file, from its pieces in order."""
    light: list[Piece] = []
    yield packing.before
    for piece in pieces:
        light.append(replace(piece, body=b""))
        yield piece.body
    yield packing.after(light)


def _blocks(packets: Iterable[bytes]) -> Iterator[bytes]:
    """Packets that are compressed together."""
    waiting: list[bytes] = []
    size = 0
    for packet in packets:
        waiting.append(packet)
        size += len(packet)
        if size >= COMPRESSED_TOGETHER_BYTES:
            yield b"".join(waiting)
            waiting.clear()
            size = 0
    if waiting:
        yield b"".join(waiting)


def _compressed_packet(packets: bytes, compression: Compression) -> bytes:
    body = compression.compress(packets)
    inner = _COMPRESSED_PACKETS + varint(len(body)) + body
    return _PACKET + varint(len(inner)) + inner
