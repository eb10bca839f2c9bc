"""Batches of tracks, and the separately compressed pieces of a file that they are encoded to."""

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
from timeline.encoders.protobuf_rows import varint
from timeline.layers import SIZE_LAYERS, SizeLayer, SliceKind
from timeline.tracks.model import ArgKind, Arrows, Samples, Slices, Track

_BEST_LEVEL = 9
"""On a million tasks zlib-ng takes as long at its level 9 as zlib at 6, for a tenth less."""
_FAST_LEVEL = 2
"""ISA-L takes a fifth of the time of zlib-ng's level 5 at it, for as much or a fifth more; its
level 3 takes six to twenty times as long, for 5 to 17% less."""


class _Stream(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...

    def flush(self, mode: int, /) -> bytes: ...


class Compression(Enum):
    """Strength of compression."""

    BEST = "best"
    """Smallest: for files near a limit, and small ones."""
    FAST = "fast"
    """Two fifths larger in a twentieth of the time: for large files with room."""

    def compress(self, data: bytes) -> bytes:
        """Return a whole zlib stream of the data."""
        if self is Compression.FAST:
            from isal import isal_zlib

            return isal_zlib.compress(data, _FAST_LEVEL)
        return bytes(zlib_ng.compress(data, _BEST_LEVEL))

    def open(self) -> _Stream:
        """Return a compressor of parts to one raw deflate stream."""
        if self is Compression.FAST:
            from isal import isal_zlib

            return isal_zlib.compressobj(_FAST_LEVEL, isal_zlib.DEFLATED, -isal_zlib.MAX_WBITS)
        return zlib_ng.compressobj(_BEST_LEVEL, zlib_ng.DEFLATED, -zlib_ng.MAX_WBITS)


PART_ELEMENTS = 1 << 16
"""Number of slices and samples of a part; more if there is no timestamp to cut at."""


def split_track(track: Track, most: int | None = None) -> Iterator[Track]:
    """Cut a long track at timestamps at which nothing goes on; parts are in order of time.

    Slices may touch there: rows of steps and of how a rank spends its time have no gaps, and
    viewers take events of one timestamp in the order in which they are in a file (Perfetto,
    trace_sorter.h). Samples of one timestamp stay together.

    most: slices and samples of a part; PART_ELEMENTS if not given.
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
    if slices.coarse is not None:  # never so: merged slices are in order of time
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
    """Return runs of samples, each beginning later than the one before ends."""
    first, count = 0, len(time_ns)
    while first < count:
        stop = first + most
        if stop < count:
            stop = int(np.searchsorted(time_ns, time_ns[stop - 1], side="right"))
        yield slice(first, min(stop, count))
        first = stop


TEXT_SEQUENCE = 2
"""Packet sequence of the first row of sentences about a file; 1 has descriptors and attributes."""
FIRST_SEQUENCE = 32
"""Packet sequence of the first other track."""
BATCH_ELEMENTS = 1 << 16
"""Slices and samples of a batch, before the track that fills it: some 4 MB to send."""

_CALLS = SliceKind.HOST_CALL.value


@dataclass(frozen=True)
class TrackBatch:
    """Tracks that follow each other, with their sequences.

    The bytes depend on nothing else, so several processes write the same file as one. first_ns: the
    first timestamp of the file.
    """

    tracks: Sequence[tuple[int, Track]]
    first_ns: int

    def __len__(self) -> int:
        return sum(len(track.content or ()) for _, track in self.tracks)

    @property
    def slices(self) -> int:
        """Return the number of its slices."""
        contents = (track.content for _, track in self.tracks)
        return sum(len(content) for content in contents if isinstance(content, Slices))

    def for_sending(self) -> TrackBatch:
        """Leave out what is not needed to encode the batch in another process."""
        every = [track.content for _, track in self.tracks if isinstance(track.content, Slices)]
        by_pool: dict[int, list[Slices]] = {}
        for slices in every:
            by_pool.setdefault(id(slices.strings), []).append(slices)
        shown = {pool: _ShownStrings.of(slices) for pool, slices in by_pool.items()}
        tracks = [(sequence, _with_shown_strings(track, shown)) for sequence, track in self.tracks]
        return replace(self, tracks=tracks)


def in_file_order(tracks: Iterable[Track]) -> list[Track]:
    """Return the tracks, those of host calls first, then the others by kind of slice.

    Perfetto draws an arrow from the earlier slice, and of two that begin at once from the one that
    comes first in the file: a call and its task do where host and device clocks were fitted.
    Similar tracks compress best side by side.
    """
    return sorted(tracks, key=lambda track: layer_place(track.size_layer))


def layer_place(layer: SizeLayer | None) -> tuple[bool, int]:
    """Return where the tracks of a layer stand in the file."""
    return layer != _CALLS, -1 if layer is None else SIZE_LAYERS.index(layer)


def batch_tracks(
    tracks: Iterable[Track],
    first_ns: int,
    first_sequence: int = FIRST_SEQUENCE,
    least: int | None = None,
) -> Iterator[TrackBatch]:
    """Group tracks, in order and the long ones in parts.

    least: slices and samples that fill a batch; BATCH_ELEMENTS if not given.
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
    """The strings that tracks use, under their codes among all strings of the rank."""

    def __init__(self, size: int, shown: Mapping[int, str]) -> None:
        """size: number of strings of the rank. shown: those of the tracks, by code."""
        super().__init__()
        self._size, self._shown = size, shown

    @classmethod
    def of(cls, every: Sequence[Slices]) -> _ShownStrings:
        """Return the strings that slices of one pool use."""
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
    """Drop the strings that are not used; shown: those that are, by pool."""
    if not isinstance(track.content, Slices):
        return track
    strings = shown[id(track.content.strings)]
    return replace(
        track, content=replace(track.content, strings=strings, coarse=None), description=""
    )


COMPRESSED_TOGETHER_BYTES = 512 * 1024
"""Bytes of packets that are compressed together."""
_PACKET = b"\x0a"
_COMPRESSED_PACKETS = varint(50 << 3 | 2)
_GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff"
"""Gzip header without name and time, so that equal input gives equal files."""
_LAST_BLOCK = b"\x03\x00"


@dataclass(frozen=True)
class Piece:
    """A piece as it stands in the file, and the size and checksum of what was compressed."""

    body: bytes
    raw_bytes: int = 0
    checksum: int = 0

    def __len__(self) -> int:
        return len(self.body)


class Packing:
    """Compresses pieces, and completes a file of them; this one compresses nothing."""

    before = b""
    """What a file begins with."""

    def pack(self, parts: Iterable[bytes], compression: Compression) -> Piece:
        """Compress parts of a file, each whole in itself, into one piece."""
        del compression
        return Piece(b"".join(parts))

    def after(self, pieces: Iterable[Piece]) -> bytes:
        """Return what a file of these pieces ends with; as long for any."""
        del pieces
        return b""


class _Packets(Packing):
    """Packets that hold compressed ones, as every version of Perfetto since 2018 reads them."""

    def pack(self, parts: Iterable[bytes], compression: Compression) -> Piece:
        return Piece(b"".join(_compressed_packet(block, compression) for block in _blocks(parts)))


class _Gzipped(Packing):
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


PACKETS, PLAIN, GZIPPED = _Packets(), Packing(), _Gzipped()


def join_pieces(packing: Packing, pieces: Iterable[Piece]) -> Iterator[bytes]:
    """Return the bytes of a file, from its pieces in order."""
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
