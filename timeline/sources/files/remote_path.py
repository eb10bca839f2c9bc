"""Paths on other file systems, with the interface of pathlib; they show no credentials."""

from __future__ import annotations

import errno
import io
import os
import re
import stat
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from typing_extensions import Self

    from timeline.sources.files.remote_tree import RemoteTree

if sys.platform == "win32":
    from pathlib import WindowsPath as _LocalPath
else:
    from pathlib import PosixPath as _LocalPath

_URL = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]+::)*[A-Za-z][A-Za-z0-9+.-]+://")
_ONE_SLASH = re.compile(r"(^|::)([A-Za-z][A-Za-z0-9+.-]+):/(?!/)")
"""A scheme with a single slash: pathlib merges the two slashes of a URL."""
_CREDENTIALS = re.compile(r"(?<!abfs)(?<!abfss)(?<=://)[^/@:]*(?::[^/@]*)?@")
"""User and password in front of the host; Azure URLs (abfs://) have a container name there."""
_QUERY = re.compile(r"\?.*", re.DOTALL)


def is_url(text: str) -> bool:
    """Return whether a PATH argument is a URL.

    >>> is_url("s3://bucket/run"), is_url("filecache::http://host/run"), is_url("runs/today")
    (True, True, False)
    """
    return _URL.match(text) is not None


def without_credentials(url: str) -> str:
    """Return a URL without user, password and query; queries may contain a signature.

    >>> without_credentials("https://me:secret@host/run.zip?X-Amz-Signature=1f")
    'https://host/run.zip'
    """
    return "::".join(_QUERY.sub("", _CREDENTIALS.sub("", part)) for part in url.split("::"))


def path_as_shown(text: str) -> Path:
    """Return the path of a string; a URL becomes a path that can be shown but not opened."""
    return RemotePath(text) if is_url(text) else Path(text)


class RemotePath(_LocalPath):
    """A path on another file system: its string is a URL, its entries come from a RemoteTree."""

    tree: RemoteTree | None = None

    @classmethod
    def within(cls, tree: RemoteTree, shown: str) -> RemotePath:
        """Return the path of a tree that has a URL, given without credentials."""
        path = cls(shown)
        path.tree = tree
        return path

    def __str__(self) -> str:
        return _ONE_SLASH.sub(r"\1\2://", super().__str__().replace("\\", "/"))

    def __reduce__(self) -> tuple[Any, ...]:
        if self.tree is None:
            return RemotePath, (str(self),)
        return RemotePath.within, (self.tree, str(self))

    def _of_tree(self, path: Path) -> Self:
        remote = type(self)(path)
        remote.tree = self.tree
        return remote

    # -- other paths -------------------------------------------------------------------------------

    def __truediv__(self, key: str | os.PathLike[str]) -> Self:
        return self._of_tree(super().__truediv__(key))

    def joinpath(self, *others: str | os.PathLike[str]) -> Self:
        """Return the path of an entry below this one."""
        return self._of_tree(super().joinpath(*others))

    def with_name(self, name: str) -> Self:
        """Return the path of another entry of the same directory."""
        return self._of_tree(super().with_name(name))

    @property
    def parent(self) -> Self:
        """The directory of this entry."""
        return self._of_tree(super().parent)

    @property
    def parents(self) -> tuple[Self, ...]:
        """All directories above this entry, the nearest first."""
        return tuple(map(self._of_tree, super().parents))

    def absolute(self) -> Self:
        """Return the path itself, as a URL is absolute."""
        return self

    def resolve(self, strict: bool = False) -> Self:
        """Return the path itself, as its file system resolves links."""
        return self

    # -- entries of directories --------------------------------------------------------------------

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether there is a file or directory with this path."""
        return self.is_dir() or self.is_file()

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether this is a directory, or its equivalent such as a key prefix in S3."""
        return self.tree is not None and self.tree.is_directory(self)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether this is a file."""
        return self.tree is not None and self.tree.is_file(self)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Return type and size of the entry; all other fields are 0.

        Raises:
            OSError: there is no such entry.
        """
        if self.is_dir():
            return os.stat_result((stat.S_IFDIR, 0, 0, 1, 0, 0, 0, 0, 0, 0))
        size_bytes = self._required_tree().size_bytes(self)
        return os.stat_result((stat.S_IFREG, 0, 0, 1, 0, 0, size_bytes, 0, 0, 0))

    def iterdir(self) -> Iterator[Self]:  # type: ignore[override]
        """Yield the entries of a directory.

        Raises:
            OSError: the directory cannot be listed.
        """
        yield from [self / name for name in self._required_tree().names(self)]

    def glob(self, pattern: str, **_: object) -> Iterator[Self]:  # type: ignore[override]
        """Yield matching paths below; directories that cannot be listed count as empty."""
        first, _slash, rest = pattern.partition("/")
        if first == "**":
            yield from self.glob(rest)
        try:
            entries = list(self.iterdir())
        except OSError:
            return
        for path in entries:
            if first == "**":
                if path.is_dir():
                    yield from path.glob(pattern)
            elif fnmatchcase(path.name, first):
                yield from path.glob(rest) if rest else [path]

    # -- content of files --------------------------------------------------------------------------

    def fetched(self) -> Path:
        """Fetch the file, and return the path of its copy on this machine.

        Raises:
            OSError: the file cannot be fetched.
        """
        return self._required_tree().fetch(self)

    def open_in_part(self) -> BinaryIO:
        """Open the file without fetching it; only the bytes that are read are requested.

        Raises:
            OSError: there is no such file.
        """
        return io.BufferedReader(self._required_tree().open_in_part(self))

    def _required_tree(self) -> RemoteTree:
        if self.tree is None:
            raise not_found(self)
        return self.tree


def not_found(path: object) -> FileNotFoundError:
    """Return the error for a path that does not exist."""
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
