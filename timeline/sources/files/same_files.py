"""Whether two places hold the same files, as far as that is told without reading all of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from timeline.errors import SourceError
from timeline.sources.files.opened import open_decompressed
from timeline.sources.files.remote_path import RemotePath

__all__ = ["have_same_files"]

COMPARED_BYTES = 1 << 16
"""Of the beginning and of the end of each file."""
GZIP_SIZES = 1 << 32
"""What gzip notes the size of its content modulo."""
_GZIP = b"\x1f\x8b"


def have_same_files(one: Path, other: Path) -> bool:
    """Whether two files, or all files below two directories, are copies of each other.

    They are if their names, sizes, first and last bytes are equal, or if one is the other packed.
    Files on other file systems, which would be fetched for that, and those that cannot be read are
    no copies.
    """
    if one == other or isinstance(one, RemotePath) or isinstance(other, RemotePath):
        return False
    try:
        if one.suffix != other.suffix and one.is_file() and other.is_file():
            return _hold_the_same(one, other)
        ours, theirs = _sizes_bytes(one), _sizes_bytes(other)
        return (
            bool(ours)
            and ours == theirs
            and all(_ends(one / name) == _ends(other / name) for name in ours)
        )
    except (OSError, SourceError):
        return False


def _hold_the_same(one: Path, other: Path) -> bool:
    """Whether two files hold the same content, unpacked: its first bytes, and its size."""
    with open_decompressed(one) as ours, open_decompressed(other) as theirs:
        first = ours.read(COMPARED_BYTES)
        if first != theirs.read(COMPARED_BYTES):
            return False
        our_bytes = _unpacked_bytes(ours, one, len(first))
        their_bytes = _unpacked_bytes(theirs, other, len(first))
    return our_bytes % GZIP_SIZES == their_bytes % GZIP_SIZES


def _unpacked_bytes(file: BinaryIO, path: Path, size_bytes: int) -> int:
    """How much a file holds, of which so much was read; gzip notes it at its end."""
    if file.seekable():
        return file.seek(0, os.SEEK_END)
    with path.open("rb") as packed:
        if packed.read(len(_GZIP)) == _GZIP:
            packed.seek(-4, os.SEEK_END)
            return int.from_bytes(packed.read(), "little")
    while more := file.read(COMPARED_BYTES):
        size_bytes += len(more)
    return size_bytes


def _sizes_bytes(place: Path) -> dict[str, int]:
    """The size of each file by its path below a place; that of a file has no path."""
    if place.is_file():
        return {"": place.stat().st_size}
    return {
        str(path.relative_to(place)): path.stat().st_size
        for path in place.rglob("*")
        if path.is_file()
    }


def _ends(path: Path) -> tuple[bytes, bytes]:
    """What a file begins and ends with."""
    with path.open("rb") as file:
        first = file.read(COMPARED_BYTES)
        file.seek(max(0, file.seek(0, os.SEEK_END) - COMPARED_BYTES))
        return first, file.read()
