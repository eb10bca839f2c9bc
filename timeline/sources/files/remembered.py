"""Remembers what was found in directories, which thousands of ranks may share."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from timeline.sources.files.opened import source_errors_for
from timeline.sources.files.remote_path import RemotePath

_Found = TypeVar("_Found")

FRESH_NS = 2 * 10**9
"""A directory that changed so lately may change again without a later time of change."""
MOST_DIRECTORIES = 64


def remember_by_directory(find: Callable[[Path], _Found]) -> Callable[[Path], _Found]:
    """The same function, which looks into a directory again only where that has changed.

    What it returns is shared, so nobody may change it.

    Raises:
        SourceError: the directory is not there.
    """

    @functools.lru_cache(maxsize=MOST_DIRECTORIES)
    def found(directory: Path, _changed_ns: int) -> _Found:
        return find(directory)

    @functools.wraps(find)
    def find_once(directory: Path) -> _Found:
        if isinstance(directory, RemotePath) and directory.tree is not None:
            return directory.tree.remember(find, directory)
        with source_errors_for(directory):
            changed_ns = directory.stat().st_mtime_ns
        if time.time_ns() - changed_ns < FRESH_NS:
            return find(directory)
        return found(directory, changed_ns)

    return find_once
