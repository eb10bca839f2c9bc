"""A directory tree on another file system: listed once, its files fetched when opened."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import errno
import functools
import io
import os
import re
import shutil
import sys
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from timeline.sources.files.remote_path import RemotePath, not_found, without_credentials
from timeline.units import format_bytes

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from fsspec import AbstractFileSystem

REQUESTS_AT_ONCE = 16
BLOCK_BYTES = 1 << 16
"""Minimum size of a request for part of a file."""
MOST_AHEAD_BYTES = 8 << 20
"""Maximum size of a request for part of a file that is read sequentially."""
MOST_BLOCKS = 1024
"""Maximum number of blocks that are cached."""
SMALL_BYTES = 1 << 18
"""Maximum size of a small file, whose transfer takes no longer than the request for it."""
LEFT_FREE_BYTES = 64 << 20
"""Disk space to keep free when files are fetched."""
MOST_PARENT_ENTRIES = 2_000
"""Maximum size of a parent directory's listing that is pickled with a capture."""
_DIRECTORY, _SIZE_UNKNOWN = -1, -2
"""Special sizes: of a directory, and of a file whose size the listing does not state."""
_OF_LIBRARIES = {
    "aiohttp": ("ClientError",),
    "azure.core.exceptions": ("AzureError",),
    "botocore.exceptions": ("BotoCoreError", "ClientError"),
    "botocore.parsers": ("ResponseParserError",),
    "gcsfs.retry": ("HttpError",),
    "google.auth.exceptions": ("GoogleAuthError",),
    "paramiko": ("SSHException",),
}
"""Exceptions that libraries of file systems raise besides OSError, by module."""
_URL_END = re.compile(r"(://[^\s?'\"<>]*)\?[^\s'\"<>]*")
_USER = re.compile(r"(?<=://)[^/@\s]*@")
_GONE, _REFUSED = (404, 410), (401, 403)
"""HTTP status codes for files that do not exist, and for missing credentials."""
_LEAST_SECRET = 4
"""Minimum length of a secret: shorter strings also occur as parts of ordinary words."""

_Result = TypeVar("_Result")
Listing = Mapping[str, Mapping[str, int]]
"""The sizes in bytes of entries, by directory and name."""


@dataclass
class Fetching:
    """The files fetched while one rank is read: their target directory, paths and failures."""

    place: Path
    fetched: list[Path] = field(default_factory=list)
    failures: list[tuple[RemotePath, OSError]] = field(default_factory=list)


_FETCHING: contextvars.ContextVar[Fetching | None] = contextvars.ContextVar("fetching")


@contextlib.contextmanager
def fetching_into(place: Path) -> Iterator[Fetching]:
    """Run a `with` block in which files that are opened are fetched into a directory."""
    fetching = Fetching(place)
    token = _FETCHING.set(fetching)
    try:
        yield fetching
    finally:
        _FETCHING.reset(token)


class RemoteTree:
    """The entries at, below and above a URL, listed when they are first needed and then cached.

    It is pickled without its listing; `known_around` and `learn` transfer the part of the listing
    that one capture needs.

    place: the directory for fetched files, unless `fetching_into` sets another one.
    """

    def __init__(self, system: AbstractFileSystem, url: str, real: str, place: Path) -> None:
        """Refer to a URL; `real` is its path as the fsspec file system names it."""
        self.place = place
        self._system, self._real_root = system, real.rstrip("/") or real
        self.root = RemotePath.within(self, without_credentials(url))
        self._secrets = secrets_in(url)
        self._root_text = str(self.root)
        levels = _levels_in_common(self._root_text, self._real_root)
        self._top_text, self._top_real = self._root_text, self._real_root
        self._above = list[str]()
        for _ in range(levels - 1):
            self._top_text = self._top_text.rpartition("/")[0]
            self._top_real = self._top_real.rpartition("/")[0]
            self._above.append(self._top_real)
        self._root_bytes: int | None = None
        self._start()

    def _start(self) -> None:
        self._listed: dict[str, Mapping[str, int]] = {}
        self._remembered: dict[tuple[object, str], Any] = {}
        self._lock = threading.Lock()
        self._block = functools.lru_cache(MOST_BLOCKS)(self._read_block)

    def __getstate__(self) -> dict[str, Any]:
        caches = {"_listed", "_remembered", "_lock", "_block", "root"}
        return {name: value for name, value in vars(self).items() if name not in caches}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.root = RemotePath.within(self, self._root_text)
        self._start()

    # -- entries of directories --------------------------------------------------------------------

    def look(self) -> None:
        """Find out whether the URL is a file or directory; list its tree if that is fast.

        Raises:
            OSError: the URL cannot be accessed.
        """
        with self._errors(self.root):
            self._system.invalidate_cache()
            info = self._system.info(self._real_root)
            # HTTP has no directories, only pages that list files.
            is_page = str(info.get("mimetype", "")).startswith("text/html")
            if info["type"] == "directory" or is_page:
                self._root_bytes = _DIRECTORY
                if _lists_trees_at_once(self._system):
                    self._learn_tree(self._system.find(self._real_root, detail=True))
                    self._system.invalidate_cache()  # to free memory: the listing is held here
            else:
                self._root_bytes = _size_in(info)

    def is_directory(self, path: RemotePath) -> bool:
        """Return whether a path is a directory."""
        return self._entry(path) == _DIRECTORY

    def is_file(self, path: RemotePath) -> bool:
        """Return whether a path is a file."""
        return self._entry(path) not in (None, _DIRECTORY)

    def names(self, path: RemotePath) -> list[str]:
        """Return the names of a directory's entries.

        Raises:
            OSError: it is not a directory, or cannot be listed.
        """
        real = self._real(path)
        entries = None if real is None else self._entries(real)
        if entries is None:
            raise not_found(path)
        return list(entries)

    def size_bytes(self, path: RemotePath) -> int:
        """Return the size of a file.

        Raises:
            OSError: the file does not exist or cannot be accessed.
        """
        size_bytes, real = self._entry(path), self._real(path)
        if size_bytes is None or real is None:
            raise not_found(path)
        if size_bytes == _SIZE_UNKNOWN:
            with self._errors(path):
                size_bytes = self._system.size(real) or 0
            self._note_size(real, size_bytes)
        return size_bytes

    def known_around(self, directory: RemotePath) -> Listing:
        """Return the cached listings of a directory, all below, and its parent if not too large."""
        real = self._real(directory)
        if real is None:
            return {}
        parent = real.rpartition("/")[0]
        listings = {
            name: entries
            for name, entries in self._listed.items()
            if name == real or name.startswith(f"{real}/")
        }
        if len(self._listed.get(parent, ())) in range(1, MOST_PARENT_ENTRIES + 1):
            listings[parent] = self._listed[parent]
        return listings

    def learn(self, listing: Listing) -> None:
        """Add listings that another process cached."""
        self._listed.update(listing)

    def remember(self, find: Callable[[Path], _Result], directory: RemotePath) -> _Result:
        """Return `find(directory)`, computed once: remote profiles are taken not to change."""
        key = (find, str(directory))
        if key not in self._remembered:
            self._remembered[key] = find(directory)
        result: _Result = self._remembered[key]
        return result

    def _real(self, path: RemotePath) -> str | None:
        """Return a path as the file system names it; None if it is outside of this tree."""
        text = str(path)
        if text == self._root_text:
            return self._real_root
        if text == self._top_text or text.startswith(f"{self._top_text}/"):
            return self._top_real + text[len(self._top_text) :]
        return None

    def _entry(self, path: RemotePath) -> int | None:
        """Return the size of an entry, None if it does not exist."""
        real = self._real(path)
        if real is None:
            return None
        if real == self._real_root:
            return self._root_bytes
        if real in self._listed or real in self._above:
            return _DIRECTORY
        parent, _, name = real.rpartition("/")
        try:
            return (self._entries(parent) or {}).get(name)
        except OSError:
            return None

    def _entries(self, real: str) -> Mapping[str, int] | None:
        """Return the sizes of a directory's entries by name; None if it is not a directory."""
        if real in self._listed:
            return self._listed[real]
        is_above = real in self._above
        if not is_above and real != self._real_root:
            parent, _, name = real.rpartition("/")
            if len(parent) < len(self._top_real):
                return None
            if (self._entries(parent) or {}).get(name) != _DIRECTORY:
                return None
        if real == self._real_root and self._root_bytes != _DIRECTORY:
            return None
        try:
            with self._errors(real):
                entries = self._list(real)
        except OSError:
            if not is_above:
                raise
            entries = {}  # the user may have access to the URL, but not to directories above it
        if is_above:
            lineage = (*self._above, self._real_root)
            below = min((one for one in lineage if one.startswith(f"{real}/")), key=len)
            size_bytes = self._root_bytes if below == self._real_root else _DIRECTORY
            if size_bytes is not None:
                entries.setdefault(below.rpartition("/")[2], size_bytes)
        self._listed[real] = entries
        return entries

    def _list(self, real: str) -> dict[str, int]:
        entries = dict[str, int]()
        for info in self._system.ls(real, detail=True):
            name = str(info["name"]).rstrip("/").removeprefix(real).strip("/")
            if _is_plain(name):
                entries[name] = _size_in(info)
        return entries

    def _learn_tree(self, files: Mapping[str, Mapping[str, Any]]) -> None:
        """Derive the listings of all directories below the root from fsspec's list of files."""
        listed: dict[str, dict[str, int]] = {self._real_root: {}}
        for full_name, info in files.items():
            names = full_name.removeprefix(self._real_root).strip("/").split("/")
            if not full_name.startswith(self._real_root) or not all(map(_is_plain, names)):
                continue
            directory = self._real_root
            for name in names[:-1]:
                listed[directory][name] = _DIRECTORY
                directory = f"{directory}/{name}"
                listed.setdefault(directory, {})
            listed[directory].setdefault(names[-1], _size_in(info))
            if _size_in(info) == _DIRECTORY:
                listed.setdefault(f"{directory}/{names[-1]}", {})
        self._listed.update(listed)

    def _note_size(self, real: str, size_bytes: int) -> None:
        if real == self._real_root:
            self._root_bytes = size_bytes
            return
        parent, _, name = real.rpartition("/")
        with self._lock:
            self._listed[parent] = {**self._listed.get(parent, {}), name: size_bytes}

    def _errors(self, path: object) -> contextlib.AbstractContextManager[None]:
        return system_errors(path, self._secrets)

    # -- content of files --------------------------------------------------------------------------

    def fetch(self, path: RemotePath) -> Path:
        """Return the path of a file's local copy; fetch the file if there is no copy yet.

        Raises:
            OSError: the file cannot be fetched.
        """
        fetching = _FETCHING.get(None)
        copy = (self.place if fetching is None else fetching.place).joinpath(*path.parts[1:])
        if copy.is_file():
            return copy
        try:
            self._fetch(path, copy)
        except OSError as error:
            if fetching is not None:
                fetching.failures.append((path, error))
            raise
        if fetching is not None:
            fetching.fetched.append(copy)
        return copy

    def _fetch(self, path: RemotePath, copy: Path) -> None:
        from fsspec.callbacks import Callback

        size_bytes, real = self.size_bytes(path), self._real(path)
        copy.parent.mkdir(parents=True, exist_ok=True)
        free_bytes = shutil.disk_usage(copy.parent).free - LEFT_FREE_BYTES
        if size_bytes > free_bytes:
            problem = (
                f"its {format_bytes(size_bytes)} do not fit into {self.place.parent}, where "
                f"{format_bytes(max(0, free_bytes))} may be written; name a larger one in TMPDIR"
            )
            raise OSError(errno.ENOSPC, problem, str(path))
        draft = copy.with_name(f"{uuid.uuid4().hex}.part")
        progress = Callback()
        try:
            with self._errors(path):
                self._system.get_file(real, str(draft), callback=progress)
            draft_bytes = draft.stat().st_size
            if draft_bytes != size_bytes:
                raise OSError(errno.EIO, _describe_end(draft_bytes, size_bytes), str(path))
            draft.replace(copy)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EACCES, errno.ENOSPC, errno.EDQUOT):
                raise
            problem = _describe_end(progress.value, size_bytes)
            if problem == error.strerror:
                raise
            raise OSError(errno.EIO, f"{problem} ({error.strerror or error})", str(path)) from None
        finally:
            draft.unlink(missing_ok=True)

    def fetch_small(self, paths: Iterable[Path]) -> None:
        """Fetch all small files among the given ones in parallel; record failures in the Fetching.

        One after the other would mostly wait for the file system's responses.
        """
        small = [
            path
            for path in paths
            if isinstance(path, RemotePath) and self._entry(path) in range(SMALL_BYTES + 1)
        ]
        with ThreadPoolExecutor(REQUESTS_AT_ONCE) as threads:
            for path in small:  # the context carries the target directory of `fetching_into`
                threads.submit(contextvars.copy_context().run, self.fetch, path)

    def open_in_part(self, path: RemotePath) -> io.RawIOBase:
        """Open a file from which only parts will be read."""
        return _PartlyRead(self, path, self.size_bytes(path))

    def read_at(self, path: RemotePath, start: int, count: int) -> bytes:
        """Return `count` bytes of a file from `start` on; their blocks are cached.

        Raises:
            OSError: the bytes cannot be read.
        """
        numbers = range(start // BLOCK_BYTES, -(-(start + count) // BLOCK_BYTES))
        blocks = b"".join(self._block(path, number) for number in numbers)
        skipped = start - numbers.start * BLOCK_BYTES
        return blocks[skipped : skipped + count]

    def _read_block(self, path: RemotePath, number: int) -> bytes:
        return self.read_once(path, number * BLOCK_BYTES, BLOCK_BYTES)

    def read_once(self, path: RemotePath, start: int, count: int) -> bytes:
        """Return up to `count` bytes of a file from `start` on, without caching them.

        Raises:
            OSError: the bytes cannot be read.
        """
        size_bytes = self.size_bytes(path)
        end = min(start + count, size_bytes)
        if start >= end:
            return b""
        with self._errors(path):
            data: bytes = self._system.cat_file(self._real(path), start=start, end=end)
        if len(data) == size_bytes > end - start:  # a server that ignores range requests
            data = data[start:end]
        if len(data) != end - start:
            raise OSError(errno.EIO, _describe_end(len(data), end - start), str(path))
        return data


class _PartlyRead(io.RawIOBase):
    """A remote file that requests only what is read, in growing parts if read sequentially."""

    def __init__(self, tree: RemoteTree, path: RemotePath, size_bytes: int) -> None:
        self._tree, self._path, self._size_bytes = tree, path, size_bytes
        self._at, self._ahead_bytes = 0, BLOCK_BYTES
        self._held, self._held_at = b"", 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        begin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size_bytes}[whence]
        self._at = max(0, begin + offset)
        return self._at

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        held_end = self._held_at + len(self._held)
        if not self._held_at <= self._at < held_end:
            is_sequential = self._at == held_end > 0
            self._ahead_bytes = min(2 * self._ahead_bytes, MOST_AHEAD_BYTES) if is_sequential else 0
            wanted = max(len(view), self._ahead_bytes, BLOCK_BYTES)
            is_block = wanted == BLOCK_BYTES and not self._at % BLOCK_BYTES
            read = self._tree.read_at if is_block else self._tree.read_once
            self._held = read(self._path, self._at, wanted)
            self._held_at = self._at
            self._ahead_bytes = max(self._ahead_bytes, BLOCK_BYTES)
        first = self._at - self._held_at
        data = self._held[first : first + len(view)]
        view[: len(data)] = data
        self._at += len(data)
        return len(data)


def _describe_end(arrived_bytes: int, size_bytes: int) -> str:
    return (
        f"the connection ended after {format_bytes(arrived_bytes)} of {format_bytes(size_bytes)}, "
        "also when it was tried again; run it once more"
    )


def _is_plain(name: str) -> bool:
    """Return whether a name from the file system is a single, safe path component."""
    return name not in ("", ".", "..") and not set("/\\\0") & {*name}


def _size_in(info: Mapping[str, Any]) -> int:
    if info["type"] == "directory":
        return _DIRECTORY
    size_bytes = info.get("size")
    return _SIZE_UNKNOWN if size_bytes is None else int(size_bytes)


def _levels_in_common(text: str, real: str) -> int:
    """Return how many trailing path components a URL and its file system path have in common."""
    count = 0
    for one, other in zip(reversed(text.split("/")), reversed(real.split("/")), strict=False):
        if one != other or not one or one.endswith(":"):
            break
        count += 1
    return count


def _lists_trees_at_once(system: AbstractFileSystem) -> bool:
    """Return whether a file system overrides fsspec's recursive listing with a faster one."""
    from fsspec.asyn import AsyncFileSystem

    own = getattr(type(system), "_find", None)
    return own is not None and own is not vars(AsyncFileSystem)["_find"]


# -- errors of other file systems -----------------------------------------------------------------


def remote_failures() -> tuple[type[BaseException], ...]:
    """Return the exceptions that a file system raises if access fails, for loaded libraries."""
    of_libraries = [
        vars(sys.modules[module])[name]
        for module, names in _OF_LIBRARIES.items()
        if module in sys.modules
        for name in names
        if name in vars(sys.modules[module])
    ]
    return (OSError, EOFError, ValueError, asyncio.TimeoutError, *of_libraries)


def secrets_in(url: str) -> frozenset[str]:
    """Return the secrets in a URL: user, password and the values of its query."""
    secrets = set[str]()
    for part in url.split("::"):
        split = urlsplit(part)
        user = split.netloc.rpartition("@")[0]
        values = [value for _, value in parse_qsl(split.query)]
        secrets |= {user, *user.split(":"), split.query, *values}
        secrets |= {text.partition("=")[2] for text in split.query.split("&")}
    secrets |= {unquote(text) for text in secrets}
    return frozenset(text for text in secrets if len(text) >= _LEAST_SECRET)


@contextlib.contextmanager
def system_errors(path: object, secrets: Collection[str]) -> Iterator[None]:
    """Run a `with` block in which exceptions of a remote file system become OSErrors.

    Their message names the cause without credentials; the original exception, whose message may
    contain some, is not chained.

    Raises:
        OSError: the block raised such an exception.
    """
    try:
        yield
    except remote_failures() as error:
        raise _as_system_error(error, str(path), secrets) from None


def _as_system_error(error: BaseException, path: str, secrets: Collection[str]) -> OSError:
    status = getattr(error, "status", None)
    if isinstance(error, FileNotFoundError) or status in _GONE:
        cause = error.__cause__  # fsspec raises FileNotFoundError for any failure of HTTP
        if isinstance(cause, remote_failures()) and getattr(cause, "status", None) not in _GONE:
            return _as_system_error(cause, path, secrets)
        return not_found(path)
    if isinstance(error, PermissionError) or status in _REFUSED:
        problem = "permission denied; check the credentials that its file system is given"
        return PermissionError(errno.EACCES, problem, path)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OSError(error.errno, os.strerror(error.errno), path)
    kind = type(error).__name__
    text = _without_secrets(str(error), secrets)
    number = error.errno if isinstance(error, OSError) and error.errno else errno.EIO
    return OSError(number, f"{kind}: {text}" if text else kind, path)


def _without_secrets(text: str, secrets: Collection[str]) -> str:
    text = _USER.sub("", _URL_END.sub(r"\1", text))
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text.rstrip(".")
