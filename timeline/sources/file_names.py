"""Turns the names of files into those that they have when they are not packed by gzip."""

from __future__ import annotations

import os
import re
from pathlib import Path

from timeline.sources.opened import readable

__all__ = ["held_file", "named_files", "plain_database", "plain_name"]

_PACKED = ".gz"
_PACKED_DATABASE = re.compile(r"(.+\.db)\.(?:gz|bz2|xz)")


def plain_name(name: str) -> str:
    """The name without the suffix of gzip."""
    return name.removesuffix(_PACKED)


def plain_database(name: str) -> str:
    """The name of a compressed database without the suffix of its compression; others as is."""
    match = _PACKED_DATABASE.fullmatch(name)
    return match[1] if match else name


def named_files(directory: Path) -> dict[str, Path]:
    """What lies in a directory by plain name, in order of names.

    A plain file wins over a packed one of the same name.

    Raises:
        SourceError: the directory cannot be read.
    """
    found: dict[str, Path] = {}
    with readable(directory):
        paths = {path.name: path for path in directory.iterdir()}
    for name in sorted(paths):
        plain = plain_name(name)
        if name == plain or not paths[name].is_dir():
            found.setdefault(plain, paths[name])
    return dict(sorted(found.items()))


def held_file(directory: Path, name: str) -> Path | None:
    """What has a plain name in a directory, packed or not; None where nothing has.

    Of what is no file the plain name wins, so that whoever opens it learns that it is none.
    """
    # Asked for some twenty names of every rank, most of which are not there: no paths for those.
    plain = os.path.join(directory, name)  # noqa: PTH118
    there = [Path(own) for own in (plain, plain + _PACKED) if os.path.lexists(own)]
    return next((path for path in there if path.is_file()), there[0] if there else None)
