"""Profiles on other file systems: opened by URL, and fetched rank by rank while they are read."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from timeline.errors import SourceError, UsageError
from timeline.records.tables import Records
from timeline.sources.files.opened import temporary_directory
from timeline.sources.files.remote_path import RemotePath, without_credentials
from timeline.sources.files.remote_tree import (
    Fetching,
    Listing,
    RemoteTree,
    fetching_into,
    remote_failures,
)
from timeline.sources.finding.discovery import Discovered
from timeline.sources.source import ReadRequest, Source, SourceAround

_OF_THIS_MACHINE = frozenset({"file", "local"})
_KEPT_RANKS = 16
"""Copies are kept for the next reading while there is room for as many ranks more."""


@contextlib.contextmanager
def path_of_url(url: str) -> Iterator[Path]:
    """Return the path of a URL; copies of files there are gone after the block.

    Raises:
        UsageError: there is nothing that reads such a URL.
        SourceError: it cannot be looked at.
    """
    split = urlsplit(url)
    if split.scheme in _OF_THIS_MACHINE:
        yield Path(split.netloc + split.path)
        return
    with temporary_directory() as place:
        yield _tree_of(url, Path(place).resolve()).root


def _tree_of(url: str, place: Path) -> RemoteTree:
    shown = without_credentials(url)
    try:
        from fsspec.core import url_to_fs

        system, real = url_to_fs(url)
    except ImportError as error:
        raise UsageError(
            f"{shown} needs a package that is not installed: {error}.".replace("..", "."),
            do="For s3:// and http://: pip install 'tlexport[remote]'",
        ) from None
    except remote_failures() as error:
        known = str(error) if str(error).startswith("Protocol not known") else type(error).__name__
        raise UsageError(
            f"{shown} cannot be opened: {known}.", do="Check the URL, as in s3://bucket/run."
        ) from None
    tree = RemoteTree(system, url, real, place)
    try:
        tree.look()
    except FileNotFoundError:
        """Whoever looks for profiles there says so, and what lies beside it."""
    except OSError as error:
        raise SourceError.of_system(
            tree.root,
            "cannot be read",
            error,
            do="Check the URL, the connection, and the credentials that its file system is given.",
        ) from None
    return tree


def with_remote_files(found: Discovered, *, elsewhere: bool) -> Discovered:
    """Return the same sources, which fetch what they read.

    elsewhere: whether they are read on other machines, which see no copies that are made here.
    """
    return replace(
        found,
        sources=tuple(
            RemoteSource(source, place, place.tree, elsewhere)
            if isinstance(place := source.identity.directory, RemotePath) and place.tree is not None
            else source
            for source in found.sources
        ),
    )


@dataclass(frozen=True)
class RemoteSource(SourceAround):
    """A source whose files are fetched when they are read, those that no layer needs never.

    A file that cannot be fetched fails the rank, even one that damage could spare.
    """

    directory: RemotePath
    tree: RemoteTree
    elsewhere: bool = False

    def read(self, wanted: ReadRequest) -> Records:
        """Read at least what is wanted.

        Raises:
            SourceError: a file cannot be fetched or read.
        """
        with self._place() as place, fetching_into(place) as fetching:
            self.tree.fetch_small(self.source.files)
            records = self.source.read(wanted)
            for path, error in fetching.failures:
                raise SourceError.of_system(path, "cannot be read", error)
            _make_room(fetching)
        return records

    @contextlib.contextmanager
    def _place(self) -> Iterator[Path]:
        if not self.elsewhere:
            yield self.tree.place
            return
        with temporary_directory() as place:
            yield Path(place)

    def __reduce__(self) -> tuple[Any, ...]:
        known = self.tree.known_around(self.directory)
        return _received, (self.source, self.directory, self.tree, self.elsewhere, known)


def _received(
    source: Source, directory: RemotePath, tree: RemoteTree, elsewhere: bool, known: Listing
) -> RemoteSource:
    tree.learn(known)
    return RemoteSource(source, directory, tree, elsewhere)


def _make_room(fetching: Fetching) -> None:
    """Remove the copies of a rank where there is no room for those of many others."""
    with contextlib.suppress(OSError):  # another process was faster
        size_bytes = sum(path.stat().st_size for path in fetching.fetched)
        if shutil.disk_usage(fetching.place).free < _KEPT_RANKS * size_bytes:
            for path in fetching.fetched:
                path.unlink()
