"""Paths on other file systems, which answer as local ones do, and show no credentials."""

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

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_ONE_SLASH = re.compile(r"(^|::)([A-Za-z][A-Za-z0-9+.-]+):/(?!/)")
"""What a path makes of the two slashes of a URL."""
_CREDENTIALS = re.compile(r"(?<!abfs)(?<!abfss)(?<=://)[^/@:]*(?::[^/@]*)?@")
"""Who asks, in front of the host; in front of the one of Azure stands a container."""
_QUERY = re.compile(r"\?.*", re.DOTALL)


def is_url(text: str) -> bool:
    """Return whether a path as typed is on another file system.

    >>> is_url("s3://bucket/run"), is_url("runs/today")
    (True, False)
    """
    return _URL.match(text) is not None


def without_credentials(url: str) -> str:
    """Return a URL without user, password and query, which may hold a signature.

    >>> without_credentials("https://me:secret@host/run.zip?X-Amz-Signature=1f")
    'https://host/run.zip'
    """
    return "::".join(_QUERY.sub("", _CREDENTIALS.sub("", part)) for part in url.split("::"))


def path_as_shown(text: str) -> Path:
    """Return the path of a string; of a URL, one that is only for showing."""
    return RemotePath(text) if is_url(text) else Path(text)


class RemotePath(_LocalPath):
    """A path on another file system: reads as its URL, and is looked up in a RemoteTree."""

    tree: RemoteTree | None = None

    @classmethod
    def within(cls, tree: RemoteTree, shown: str) -> RemotePath:
        """Return a path of a tree, by its URL without credentials."""
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
        made = type(self)(path)
        made.tree = self.tree
        return made

    # -- other paths -------------------------------------------------------------------------------

    def __truediv__(self, key: str | os.PathLike[str]) -> Self:
        return self._of_tree(super().__truediv__(key))

    def joinpath(self, *others: str | os.PathLike[str]) -> Self:
        """Return the path of something below."""
        return self._of_tree(super().joinpath(*others))

    def with_name(self, name: str) -> Self:
        """Return the path of something beside it."""
        return self._of_tree(super().with_name(name))

    @property
    def parent(self) -> Self:
        """The directory that it lies in."""
        return self._of_tree(super().parent)

    @property
    def parents(self) -> tuple[Self, ...]:
        """The directories that it lies in, the nearest first."""
        return tuple(map(self._of_tree, super().parents))

    def absolute(self) -> Self:
        """Return itself: a URL says where it is."""
        return self

    def resolve(self, strict: bool = False) -> Self:
        """Return itself: links are the business of its file system."""
        return self

    # -- what lies there ---------------------------------------------------------------------------

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether anything lies there."""
        return self.is_dir() or self.is_file()

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether it is a directory, or what its file system has for one."""
        return self.tree is not None and self.tree.is_directory(self)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether it is a file."""
        return self.tree is not None and self.tree.is_file(self)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Return its kind and size; nothing else is known.

        Raises:
            OSError: it is not there.
        """
        if self.is_dir():
            return os.stat_result((stat.S_IFDIR, 0, 0, 1, 0, 0, 0, 0, 0, 0))
        size_bytes = self._held().size_bytes(self)
        return os.stat_result((stat.S_IFREG, 0, 0, 1, 0, 0, size_bytes, 0, 0, 0))

    def iterdir(self) -> Iterator[Self]:  # type: ignore[override]
        """Return the entries of a directory.

        Raises:
            OSError: it cannot be listed.
        """
        yield from [self / name for name in self._held().names(self)]

    def glob(self, pattern: str, **_: object) -> Iterator[Self]:  # type: ignore[override]
        """Return the paths below that match; what cannot be listed holds nothing."""
        first, _slash, rest = pattern.partition("/")
        if first == "**":
            yield from self.glob(rest)
        try:
            inside = list(self.iterdir())
        except OSError:
            return
        for path in inside:
            if first == "**":
                if path.is_dir():
                    yield from path.glob(pattern)
            elif fnmatchcase(path.name, first):
                yield from path.glob(rest) if rest else [path]

    # -- what it holds -----------------------------------------------------------------------------

    def fetched(self) -> Path:
        """Fetch the file, and return the path of its copy on this machine.

        Raises:
            OSError: it cannot be fetched.
        """
        return self._held().fetch(self)

    def open_in_part(self) -> BinaryIO:
        """Open the file for reading some bytes of it, which alone are asked for.

        Raises:
            OSError: it is not there.
        """
        return io.BufferedReader(self._held().open_in_part(self))

    def _held(self) -> RemoteTree:
        if self.tree is None:
            raise not_there(self)
        return self.tree


def not_there(path: object) -> FileNotFoundError:
    """Return the error of a path at which nothing lies."""
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
