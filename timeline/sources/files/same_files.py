"""Whether two places hold the same files, as far as that is told without reading all of them."""

from __future__ import annotations

import os
from pathlib import Path

from timeline.sources.files.remote_path import RemotePath

__all__ = ["have_same_files"]

COMPARED_BYTES = 1 << 16
"""Of the beginning and of the end of each file."""


def have_same_files(one: Path, other: Path) -> bool:
    """Whether two files, or all files below two directories, are copies of each other.

    They are if their names, sizes, first and last bytes are equal. Files on other file systems,
    which would be fetched for that, and those that cannot be read are no copies.
    """
    if one == other or isinstance(one, RemotePath) or isinstance(other, RemotePath):
        return False
    try:
        ours, theirs = _sizes_bytes(one), _sizes_bytes(other)
        return (
            bool(ours)
            and ours == theirs
            and all(_ends(one / name) == _ends(other / name) for name in ours)
        )
    except OSError:
        return False


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
