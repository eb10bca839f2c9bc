"""Reads the attributes of a trace file back.

Encoders write them at the beginning of a file, so only the beginning is read.
"""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

import orjson

from timeline.encoders.perfetto_messages import last_packet, messages
from timeline.encoders.protobuf_rows import varint
from timeline.errors import SourceError

MARK = "io.tlexport.version"
"""Attribute of every file that tlexport wrote."""
ZERO = "io.tlexport.zero_ns"
"""Attribute with the recorded time, in nanoseconds, at time 0 of the file."""
DRAWN = "io.tlexport.drawn_ns"
"""Attribute with the recorded times of the beginning and end of what is drawn."""
LANGUAGE = "io.tlexport.lang"
"""Attribute with the language of names of rows and slices."""
RANKS = "io.tlexport.ranks"
"""Attribute with the ranks that are drawn, as they are typed."""
FORMAT = "io.tlexport.format"
"""Attribute with the name of the format."""

MOST_BYTES = 4 << 20
"""Maximum size of the beginning of a file, unpacked; attributes take far less."""
MOST_PACKETS = 16
"""Maximum number of packets read: the clock and the schema come before the attributes."""
_PIECE_BYTES = 1 << 14
_GZIP = b"\x1f\x8b"
_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_PACKET_TAG = 1 << 3 | 2
_COMPRESSED = varint(50 << 3 | 2)
"""The tag of compressed packets, the only field of the packet that holds them."""
_MOST_VARINT_BYTES = 10
_ADVICE = "Name a file that tlexport wrote, or export the profile again."
_OTHER_PROGRAM = "is not a trace that tlexport wrote."
_CUT = "is incomplete: it ends before its attributes."


def read_attributes(path: Path) -> Mapping[str, str]:
    """Return the string attributes of a file in any of the formats, whatever its name.

    A trace of another program has none.

    Raises:
        SourceError: the file cannot be read, is damaged, ends before its attributes, or is not a
            trace.
    """
    try:
        with path.open("rb", buffering=0) as file:
            return _read(_FileBytes(file), path)
    except IsADirectoryError as error:
        raise SourceError(path, "is a directory.", do="Name a file that tlexport wrote.") from error
    except OSError as error:
        raise SourceError.of_system(path, "cannot be read", error, _ADVICE) from error
    except zlib.error as error:
        raise SourceError(path, "is damaged: it cannot be unpacked.", do=_ADVICE) from error


def is_ours(path: Path) -> bool:
    """Return whether a path is a regular file, not a symbolic link, as tlexport wrote it.

    A file to which anything was appended holds somebody's own words.
    """
    return not path.is_symlink() and is_timeline_file(path) and ends_as_written(path)


def is_timeline_file(path: Path) -> bool:
    """Return whether a path is a regular file that begins as a timeline of tlexport does."""
    try:
        return path.is_file() and MARK in read_attributes(path)
    except (SourceError, OSError):
        return False


def ends_as_written(path: Path) -> bool:
    """Return whether a file that tlexport wrote ends where its format does."""
    try:
        return _ends_as_written(path)
    except (OSError, zlib.error):
        return False


def _ends_as_written(path: Path) -> bool:
    with path.open("rb") as file:
        beginning = file.read(len(_GZIP))
        if beginning == _GZIP:
            file.seek(0)
            unpacker = zlib.decompressobj(_GZIP_WINDOW)
            while not unpacker.eof and (packed := file.read(_PIECE_BYTES)):
                unpacker.decompress(packed)
            return unpacker.eof and not unpacker.unused_data and not file.read(1)
        size_bytes = file.seek(0, os.SEEK_END)
        if beginning[:1] == b"{":
            from timeline.encoders.chrome import ENDING  # only for files in that format

            file.seek(max(0, size_bytes - len(ENDING)))
            return file.read() == ENDING
        before_bytes = max(0, size_bytes - len(last_packet(0)))
        file.seek(before_bytes)
        return file.read() == last_packet(before_bytes)


def _read(stream: _Buffered, path: Path) -> Mapping[str, str]:
    beginning = stream.peek(2)
    if beginning == _GZIP:
        stream = _Inflated(stream, _GZIP_WINDOW)
        beginning = stream.peek(2)
    if not beginning:
        is_cut = isinstance(stream, _Inflated) and not stream.at_end
        raise SourceError(path, _CUT if is_cut else "is empty.", do=_ADVICE)
    if beginning[0] == _PACKET_TAG:
        return _perfetto_attributes(stream, path)
    if beginning[:1] == b"{":
        return _chrome_attributes(stream, path)
    raise SourceError(path, _OTHER_PROGRAM, do=_ADVICE)


class _Buffered:
    """Buffer of bytes that arrive in pieces; `more` returns the next piece, empty at the end."""

    def __init__(self) -> None:
        self._waiting = bytearray()
        self._left = MOST_BYTES

    def more(self) -> bytes:
        raise NotImplementedError

    def peek(self, count: int) -> bytes:
        while len(self._waiting) < count and self._left > 0:
            piece = self.more()[: self._left]
            if not piece:
                break
            self._left -= len(piece)
            self._waiting += piece
        return bytes(self._waiting[:count])

    def take(self, count: int) -> bytes:
        taken = self.peek(count)
        del self._waiting[: len(taken)]
        return taken


class _FileBytes(_Buffered):
    """The bytes of a file."""

    def __init__(self, file: io.FileIO) -> None:
        super().__init__()
        self._file = file

    def more(self) -> bytes:
        return self._file.read(_PIECE_BYTES)


class _Inflated(_Buffered):
    """The unpacked bytes of a compressed buffer, in pieces of bounded size."""

    def __init__(self, packed: _Buffered, window: int, size_bytes: int = MOST_BYTES) -> None:
        super().__init__()
        self._packed, self._packed_left = packed, size_bytes
        self._unpacker = zlib.decompressobj(window)
        self._rest = b""

    @property
    def at_end(self) -> bool:
        """Return whether the packed stream is complete."""
        return self._unpacker.eof

    def more(self) -> bytes:
        while not self._unpacker.eof:
            if not self._rest:
                self._rest = self._packed.take(min(_PIECE_BYTES, self._packed_left))
                self._packed_left -= len(self._rest)
                if not self._rest:
                    return b""
            piece = self._unpacker.decompress(self._rest, _PIECE_BYTES)
            self._rest = self._unpacker.unconsumed_tail
            if piece:
                return piece
        return b""


# -- Perfetto --------------------------------------------------------------------------------------


def _perfetto_attributes(stream: _Buffered, path: Path) -> Mapping[str, str]:
    from google.protobuf.message import DecodeError

    for packet in islice(_packets(stream, path), MOST_PACKETS):
        try:
            facts = messages().TracePacket.FromString(packet).trace_attributes.attribute
        except DecodeError as error:
            raise SourceError(path, _OTHER_PROGRAM, do=_ADVICE) from error
        if len(facts):
            return {_text(fact.key): _text(fact.string_value) for fact in facts}
    return {}


def _text(value: str | bytes) -> str:
    """Return a string field, which protobuf returns as bytes if it is not UTF-8."""
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def _packets(stream: _Buffered, path: Path) -> Iterator[bytes]:
    """Yield the packets of a trace up to the end of the first compressed block.

    Raises:
        SourceError: bytes are not a packet, or a packet is cut off.
    """
    while stream.peek(1):
        if _varint(stream, path) != _PACKET_TAG:
            raise SourceError(path, _OTHER_PROGRAM, do=_ADVICE)
        size_bytes = _varint(stream, path)
        if stream.peek(len(_COMPRESSED)) == _COMPRESSED:
            stream.take(len(_COMPRESSED))
            inside = _Inflated(stream, zlib.MAX_WBITS, _varint(stream, path))
            yield from _packets(inside, path)
            if not inside.at_end:
                raise SourceError(path, _CUT, do=_ADVICE)
            return
        if size_bytes > MOST_BYTES:
            raise SourceError(path, _OTHER_PROGRAM, do=_ADVICE)
        packet = stream.take(size_bytes)
        if len(packet) < size_bytes:
            raise SourceError(path, _CUT, do=_ADVICE)
        yield packet


def _varint(stream: _Buffered, path: Path) -> int:
    value = 0
    for shift in range(0, 7 * _MOST_VARINT_BYTES, 7):
        byte = stream.take(1)
        if not byte:
            raise SourceError(path, _CUT, do=_ADVICE)
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    raise SourceError(path, _OTHER_PROGRAM, do=_ADVICE)


# -- Chrome JSON -----------------------------------------------------------------------------------


def _chrome_attributes(stream: _Buffered, path: Path) -> Mapping[str, str]:
    """Return the attributes of a JSON trace, which precede its events.

    Quotes inside strings are escaped, so the first EVENTS ends the attributes.

    Raises:
        SourceError: the file is cut off, or another program wrote it.
    """
    from timeline.encoders.chrome import EVENTS, HEAD  # only for files in that format

    if not HEAD.startswith(stream.peek(len(HEAD))):
        raise SourceError(path, _OTHER_PROGRAM, do=_ADVICE)
    head = b""
    while EVENTS not in head[-2 * _PIECE_BYTES :]:
        piece = stream.take(_PIECE_BYTES)
        if not piece:
            whole = len(head) < MOST_BYTES
            raise SourceError(path, _CUT if whole else _OTHER_PROGRAM, do=_ADVICE)
        head += piece
    try:
        document = orjson.loads(head[: head.index(EVENTS)] + b"}")
    except orjson.JSONDecodeError as error:
        raise SourceError(path, _OTHER_PROGRAM, do=_ADVICE) from error
    facts = document.get("otherData")
    if not isinstance(facts, dict):
        return {}
    return {key: fact for key, fact in facts.items() if isinstance(fact, str)}
