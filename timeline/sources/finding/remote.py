"""Remote profiles: opened by URL; the files of a rank are fetched when the rank is read."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from timeline.errors import SourceError, UsageError, install_command
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
"""A rank's local copies are kept for later reads if free disk space holds this many such ranks."""


@contextlib.contextmanager
def path_of_url(url: str) -> Iterator[Path]:
    """Yield the path of a URL; local copies of its files are removed after the `with` block.

    Raises:
        UsageError: no installed package reads such URLs.
        SourceError: the URL cannot be accessed.
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
            do=f"Run, for s3:// and http://: {install_command('fsspec', 's3fs')}",
        ) from None
    except TypeError:
        raise UsageError(
            f"{shown} cannot be opened: its file system needs more than a URL.",
            do="Copy the profile, or use a URL as in s3://bucket/run.",
        ) from None
    except remote_failures() as error:
        cause = str(error) if str(error).startswith("Protocol not known") else type(error).__name__
        raise UsageError(
            f"{shown} cannot be opened: {cause}.", do="Check the URL, as in s3://bucket/run."
        ) from None
    tree = RemoteTree(system, url, real, place)
    try:
        tree.look()
    except FileNotFoundError:
        """The search for captures reports it, and suggests entries with similar names."""
    except OSError as error:
        raise SourceError.of_system(
            tree.root,
            "cannot be read",
            error,
            do="Check the URL, the connection, and the credentials that its file system is given.",
        ) from None
    return tree


def with_remote_files(found: Discovered, *, elsewhere: bool) -> Discovered:
    """Return the same sources, made to fetch the files that they read.

    elsewhere: whether they are read on other machines, which cannot see copies on this one.
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
    """A source whose files are fetched when they are read; files that no layer needs are not.

    A file that cannot be fetched is an error of the rank, even where the reader would tolerate
    a damaged file.
    """

    directory: RemotePath
    tree: RemoteTree
    elsewhere: bool = False

    def read(self, wanted: ReadRequest) -> Records:
        """Read at least the requested parts of the capture.

        Raises:
            SourceError: a file cannot be fetched or read.
        """
        place = nullcontext(self.tree.place) if not self.elsewhere else temporary_directory()
        with place as directory, fetching_into(Path(directory)) as fetching:
            self.tree.fetch_small(self.source.files)
            records = self.source.read(wanted)
            for path, error in fetching.failures:
                raise SourceError.of_system(path, "cannot be read", error)
            _make_room(fetching)
        return records

    def __reduce__(self) -> tuple[Any, ...]:
        listing = self.tree.known_around(self.directory)
        return _unpickle, (self.source, self.directory, self.tree, self.elsewhere, listing)


def _unpickle(
    source: Source, directory: RemotePath, tree: RemoteTree, elsewhere: bool, listing: Listing
) -> RemoteSource:
    tree.learn(listing)
    return RemoteSource(source, directory, tree, elsewhere)


def _make_room(fetching: Fetching) -> None:
    """Remove the fetched files of a rank if the disk has no room for _KEPT_RANKS such ranks."""
    with contextlib.suppress(OSError):  # another process was faster
        size_bytes = sum(path.stat().st_size for path in fetching.fetched)
        if shutil.disk_usage(fetching.place).free < _KEPT_RANKS * size_bytes:
            for path in fetching.fetched:
                path.unlink()
