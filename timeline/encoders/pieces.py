"""Batches of tracks, and the separately compressed pieces of a file into which they are encoded."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise
from typing import Protocol

import numpy as np
from zlib_ng import zlib_ng

from timeline.columns.columns import Codes, Int64, Rows
from timeline.columns.nesting import split_at_gaps
from timeline.columns.strings import StringPool
from timeline.encoders.drawn_values import count_codes
from timeline.encoders.perfetto_messages import last_packet
from timeline.encoders.protobuf_rows import varint
from timeline.layers import SIZE_LAYERS, SizeLayer, SliceKind
from timeline.tracks.model import ArgKind, Arrows, Samples, Slices, Track

_BEST_LEVEL = 9
"""Level of zlib-ng; on a million tasks it takes as long as zlib's level 6, for 10 % fewer bytes."""
_FAST_LEVEL = 2
"""Level of ISA-L; it takes a fifth of the time of zlib-ng's level 5, for 0 to 20 % more bytes. Its
level 3 takes 6 to 20 times as long, for 5 to 17 % fewer bytes."""


class _Stream(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...

    def flush(self, mode: int, /) -> bytes: ...


class Compression(Enum):
    """Strength of compression."""

    BEST = "best"
    """Smallest size, for files near a limit and small files."""
    FAST = "fast"
    """40 % larger in a twentieth of the time, for large files far below the limit."""

    def compress(self, data: bytes) -> bytes:
        """Return the data as a complete zlib stream."""
        if self is Compression.FAST:
            from isal import isal_zlib

            return isal_zlib.compress(data, _FAST_LEVEL)
        return bytes(zlib_ng.compress(data, _BEST_LEVEL))

    def open(self) -> _Stream:
        """Return a compressor of consecutive parts into one raw deflate stream."""
        if self is Compression.FAST:
            from isal import isal_zlib

            return isal_zlib.compressobj(_FAST_LEVEL, isal_zlib.DEFLATED, -isal_zlib.MAX_WBITS)
        return zlib_ng.compressobj(_BEST_LEVEL, zlib_ng.DEFLATED, -zlib_ng.MAX_WBITS)


PART_ELEMENTS = 1 << 16
"""Number of slices and samples in a part of a track; more if there is no timestamp to cut at."""


def split_track(track: Track, most: int | None = None) -> Iterator[Track]:
    """Cut a long track into parts, in order of time, at timestamps that no slice spans.

    Slices may touch at a cut, since rows of steps and partitions of time have no gaps; viewers take
    events with one timestamp in file order (Perfetto, trace_sorter.h). Samples with one timestamp
    stay together.

    most: slices and samples in a part; None for PART_ELEMENTS.
    """
    content, most = track.content, most or PART_ELEMENTS
    if content is None or len(content) <= most:
        yield track
    elif isinstance(content, Samples):
        for run in _sample_runs(content.time_ns, most):
            part = replace(content, time_ns=content.time_ns[run], value=content.value[run])
            yield replace(track, content=part)
    else:
        parts = _nested_parts if content.nested else _flat_parts
        for slices in parts(content, most):
            yield replace(track, content=slices)


def _flat_parts(slices: Slices, most: int) -> Iterator[Slices]:
    for first in range(0, len(slices), most):
        yield slices.between(first, min(first + most, len(slices)))


def _nested_parts(slices: Slices, most: int) -> Iterator[Slices]:
    pieces = list(split_at_gaps(slices.start_ns, slices.end_ns, most, touching=True))
    bounds = np.cumsum([0, *map(len, pieces)]).tolist()
    runs = [slice(first, stop) for first, stop in pairwise(bounds)]
    if all(_is_run(rows, run) for rows, run in zip(pieces, runs, strict=True)):
        for run in runs:
            yield slices.between(run.start, run.stop)
        return
    if slices.coarse is not None:  # merged slices are in order of time, so this is not reached
        yield slices
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
    return bool((rows == np.arange(run.start, run.stop)).all())


def _sample_runs(time_ns: Int64, most: int) -> Iterator[slice]:
    """Yield runs of about `most` samples; samples with one timestamp are in one run."""
    first, count = 0, len(time_ns)
    while first < count:
        stop = first + most
        if stop < count:
            stop = int(np.searchsorted(time_ns, time_ns[stop - 1], side="right"))
        yield slice(first, min(stop, count))
        first = stop


TEXT_SEQUENCE = 2
"""Packet sequence of the first track of sentences; sequence 1 has descriptors and attributes."""
FIRST_SEQUENCE = 32
"""Packet sequence of the first track of records."""
BATCH_ELEMENTS = 1 << 16
"""Number of slices and samples from which a batch is full: some 4 MB to send."""

_CALLS = SliceKind.HOST_CALL.value


@dataclass(frozen=True)
class TrackBatch:
    """Consecutive tracks with their packet sequences.

    Their encoding depends on nothing else, so several processes write the same bytes as one.
    first_ns: the first timestamp of the file.
    """

    tracks: Sequence[tuple[int, Track]]
    first_ns: int

    def __len__(self) -> int:
        return sum(len(track.content or ()) for _, track in self.tracks)

    @property
    def slices(self) -> int:
        """Return the number of slices in the batch."""
        contents = (track.content for _, track in self.tracks)
        return sum(len(content) for content in contents if isinstance(content, Slices))

    def for_sending(self) -> TrackBatch:
        """Return the batch without strings and details that are not needed to encode it."""
        every = [track.content for _, track in self.tracks if isinstance(track.content, Slices)]
        by_pool: dict[int, list[Slices]] = {}
        for slices in every:
            by_pool.setdefault(id(slices.strings), []).append(slices)
        shown = {pool: _ShownStrings.of(slices) for pool, slices in by_pool.items()}
        tracks = [(sequence, _with_shown_strings(track, shown)) for sequence, track in self.tracks]
        return replace(self, tracks=tracks)


def in_file_order(tracks: Iterable[Track]) -> list[Track]:
    """Return the tracks sorted by layer, with host calls first.

    Perfetto draws an arrow from the earlier slice, or from the one first in the file if both begin
    at the same time, as a call and its task may after clocks are fitted. Similar tracks next to
    each other compress best.
    """
    return sorted(tracks, key=lambda track: layer_place(track.size_layer))


def layer_place(layer: SizeLayer | None) -> tuple[bool, int]:
    """Return the sort key of a layer's tracks in the file."""
    return layer != _CALLS, -1 if layer is None else SIZE_LAYERS.index(layer)


def batch_tracks(
    tracks: Iterable[Track],
    first_ns: int,
    first_sequence: int = FIRST_SEQUENCE,
    least: int | None = None,
) -> Iterator[TrackBatch]:
    """Group consecutive tracks into batches, cutting long ones into parts.

    least: number of slices and samples from which a batch is full; None for BATCH_ELEMENTS.
    """
    batch: list[tuple[int, Track]] = []
    elements = 0
    parts = (part for track in tracks for part in split_track(track, least))
    for sequence, part in enumerate(parts, first_sequence):
        batch.append((sequence, part))
        elements += len(part.content or ())
        if elements >= (least or BATCH_ELEMENTS):
            yield TrackBatch(batch, first_ns)
            batch, elements = [], 0
    if batch:
        yield TrackBatch(batch, first_ns)


class _ShownStrings(StringPool):
    """The strings that tracks use, with the codes that they have among all strings of the rank."""

    def __init__(self, size: int, shown: Mapping[int, str]) -> None:
        """size: number of all strings of the rank. shown: strings of the tracks by code."""
        super().__init__()
        self._size, self._shown = size, shown

    @classmethod
    def of(cls, every: Sequence[Slices]) -> _ShownStrings:
        """Return the strings that some slices use, all of one pool."""
        columns = [slices.name for slices in every] + [
            arg.values for slices in every for arg in slices.args if arg.kind is ArgKind.NAME
        ]
        shown = count_codes((values, None) for values in columns)[0]
        strings = every[0].strings
        return cls(len(strings), dict(zip(shown.tolist(), strings.texts(shown), strict=True)))

    def __reduce__(self) -> tuple[type[_ShownStrings], tuple[int, Mapping[int, str]]]:
        return _ShownStrings, (self._size, self._shown)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, code: int) -> str:
        return self._shown[code]

    def texts(self, codes: Codes | Int64 | Rows) -> list[str]:
        return list(map(self._shown.__getitem__, codes.tolist()))


def _with_shown_strings(track: Track, shown: Mapping[int, StringPool]) -> Track:
    """Replace a track's pool by its used strings; shown: these, by id of the pool."""
    if not isinstance(track.content, Slices):
        return track
    strings = shown[id(track.content.strings)]
    return replace(
        track, content=replace(track.content, strings=strings, coarse=None), description=""
    )


COMPRESSED_TOGETHER_BYTES = 512 * 1024
"""Size in bytes of a block of packets that are compressed together."""
_PACKET = b"\x0a"
_COMPRESSED_PACKETS = varint(50 << 3 | 2)
_GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff"
"""Gzip header without name and time, so that equal input gives equal files."""
_LAST_BLOCK = b"\x03\x00"


@dataclass(frozen=True)
class Piece:
    """The bytes of a piece in the file, and the size and checksum of its uncompressed content."""

    body: bytes
    raw_bytes: int = 0
    checksum: int = 0

    def __len__(self) -> int:
        return len(self.body)


class Packing:
    """A way to compress pieces and to complete a file of them; this one does not compress."""

    before = b""
    """The beginning of a file."""

    def pack(self, parts: Iterable[bytes], compression: Compression) -> Piece:
        """Compress parts of a file, which are complete packets or text, into one piece."""
        del compression
        return Piece(b"".join(parts))

    def after(self, pieces: Iterable[Piece]) -> bytes:
        """Return the end of a file of these pieces, whose length does not depend on them."""
        del pieces
        return b""


class _Packets(Packing):
    """Packets with compressed packets inside, which Perfetto reads since 2018."""

    def pack(self, parts: Iterable[bytes], compression: Compression) -> Piece:
        body = b"".join(_compressed_packet(block, compression) for block in _blocks(parts))
        return Piece(body, len(body))

    def after(self, pieces: Iterable[Piece]) -> bytes:
        return last_packet(sum(piece.raw_bytes for piece in pieces))


class _Gzipped(Packing):
    """One gzip stream, in which each piece ends on a byte and is independent of the others."""

    before = _GZIP_HEAD

    def pack(self, parts: Iterable[bytes], compression: Compression) -> Piece:
        packer = compression.open()
        packed, size, checksum = [], 0, 0
        for part in parts:
            packed.append(packer.compress(part))
            size += len(part)
            checksum = zlib_ng.crc32(part, checksum)
        packed.append(packer.flush(zlib_ng.Z_FULL_FLUSH))
        return Piece(b"".join(packed), size, checksum)

    def after(self, pieces: Iterable[Piece]) -> bytes:
        size = checksum = 0
        for piece in pieces:
            checksum = zlib_ng.crc32_combine(checksum, piece.checksum, piece.raw_bytes)
            size += piece.raw_bytes
        return _LAST_BLOCK + struct.pack("<II", checksum, size % (1 << 32))


PACKETS, PLAIN, GZIPPED = _Packets(), Packing(), _Gzipped()


def join_pieces(packing: Packing, pieces: Iterable[Piece]) -> Iterator[bytes]:
    """Yield the bytes of a file from its pieces in order."""
    light: list[Piece] = []
    yield packing.before
    for piece in pieces:
        light.append(replace(piece, body=b""))
        yield piece.body
    yield packing.after(light)


def _blocks(packets: Iterable[bytes]) -> Iterator[bytes]:
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
