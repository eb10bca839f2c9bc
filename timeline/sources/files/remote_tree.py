"""The directories of another file system: listed once, files fetched when they are opened."""

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

from timeline.sources.files.remote_path import RemotePath, not_there, without_credentials
from timeline.units import format_bytes

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from fsspec import AbstractFileSystem

REQUESTS_AT_ONCE = 16
BLOCK_BYTES = 1 << 16
"""What is asked for at once of a file that is read in part."""
MOST_AHEAD_BYTES = 8 << 20
MOST_BLOCKS = 1024
"""Blocks that are remembered."""
SMALL_BYTES = 1 << 18
"""A file of this size takes no longer than being asked for."""
LEFT_FREE_BYTES = 64 << 20
MOST_PARENT_ENTRIES = 2_000
"""A directory of more entries around a capture does not travel with it."""
_DIRECTORY, _NOT_TOLD = -1, -2
"""In place of the size of an entry."""
_OF_LIBRARIES = {
    "aiohttp": ("ClientError",),
    "azure.core.exceptions": ("AzureError",),
    "botocore.exceptions": ("BotoCoreError", "ClientError"),
    "botocore.parsers": ("ResponseParserError",),
    "gcsfs.retry": ("HttpError",),
    "google.auth.exceptions": ("GoogleAuthError",),
    "paramiko": ("SSHException",),
}
"""What libraries raise that is no error of the system, where they are loaded."""
_URL_END = re.compile(r"(://[^\s?'\"<>]*)\?[^\s'\"<>]*")
_USER = re.compile(r"(?<=://)[^/@\s]*@")
_GONE, _REFUSED = (404, 410), (401, 403)
"""What web servers say of what is not there, and to whom they do not know."""
_LEAST_SECRET = 4
"""Characters: shorter parts of a URL are no secrets, and parts of words."""

_Found = TypeVar("_Found")
Listing = Mapping[str, Mapping[str, int]]
"""By directory, its entries: the size of each."""


@dataclass
class Fetching:
    """The place for files that are fetched while a rank is read, those files, and failures."""

    place: Path
    fetched: list[Path] = field(default_factory=list)
    failures: list[tuple[RemotePath, OSError]] = field(default_factory=list)


_FETCHING: contextvars.ContextVar[Fetching | None] = contextvars.ContextVar("fetching")


@contextlib.contextmanager
def fetching_into(place: Path) -> Iterator[Fetching]:
    """Run a `with` block in which files that are opened are fetched to a directory."""
    fetching = Fetching(place)
    token = _FETCHING.set(fetching)
    try:
        yield fetching
    finally:
        _FETCHING.reset(token)


class RemoteTree:
    """The entries at, below and above a URL, as far as they were asked for.

    It travels without its listing, which `known_around` and `learn` take along.

    place: the directory for what is fetched, unless `fetching_into` names another one.
    """

    def __init__(self, system: AbstractFileSystem, url: str, real: str, place: Path) -> None:
        """Refer to a URL; real: the path as the file system calls it."""
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
        left = {"_listed", "_remembered", "_lock", "_block", "root"}
        return {name: value for name, value in vars(self).items() if name not in left}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.root = RemotePath.within(self, self._root_text)
        self._start()

    # -- what lies where ---------------------------------------------------------------------------

    def look(self) -> None:
        """Find out what the URL is, and list it in few requests where its file system can.

        Raises:
            OSError: it cannot be looked at.
        """
        with self._errors(self.root):
            self._system.invalidate_cache()
            info = self._system.info(self._real_root)
            # A server of web pages has no directories, only pages that list files.
            is_page = str(info.get("mimetype", "")).startswith("text/html")
            if info["type"] == "directory" or is_page:
                self._root_bytes = _DIRECTORY
                if _lists_trees_at_once(self._system):
                    self._learn_tree(self._system.find(self._real_root, detail=True))
                    self._system.invalidate_cache()  # which remembers more than is needed
            else:
                self._root_bytes = _size_in(info)

    def is_directory(self, path: RemotePath) -> bool:
        """Return whether a path is a directory."""
        return self._entry(path) == _DIRECTORY

    def is_file(self, path: RemotePath) -> bool:
        """Return whether a path is a file."""
        return self._entry(path) not in (None, _DIRECTORY)

    def names(self, path: RemotePath) -> list[str]:
        """Return the entries of a directory.

        Raises:
            OSError: it is none, or cannot be listed.
        """
        real = self._real(path)
        entries = None if real is None else self._entries(real)
        if entries is None:
            raise not_there(path)
        return list(entries)

    def size_bytes(self, path: RemotePath) -> int:
        """Return the size of a file.

        Raises:
            OSError: it is not there, or cannot be looked at.
        """
        size_bytes, real = self._entry(path), self._real(path)
        if size_bytes is None or real is None:
            raise not_there(path)
        if size_bytes == _NOT_TOLD:
            with self._errors(path):
                size_bytes = self._system.size(real) or 0
            self._note_size(real, size_bytes)
        return size_bytes

    def known_around(self, directory: RemotePath) -> Listing:
        """Return the listings of a directory, those in it, and that around it if not too large."""
        real = self._real(directory)
        if real is None:
            return {}
        around = real.rpartition("/")[0]
        known = {
            name: entries
            for name, entries in self._listed.items()
            if name == real or name.startswith(f"{real}/")
        }
        if len(self._listed.get(around, ())) in range(1, MOST_PARENT_ENTRIES + 1):
            known[around] = self._listed[around]
        return known

    def learn(self, known: Listing) -> None:
        """Know what another one knew."""
        self._listed.update(known)

    def remember(self, find: Callable[[Path], _Found], directory: RemotePath) -> _Found:
        """Return a function's result for a directory, which is asked once: nothing changes."""
        key = (find, str(directory))
        if key not in self._remembered:
            self._remembered[key] = find(directory)
        found: _Found = self._remembered[key]
        return found

    def _real(self, path: RemotePath) -> str | None:
        """Return the file system's name of a path; None if it cannot be asked for that."""
        text = str(path)
        if text == self._root_text:
            return self._real_root
        if text == self._top_text or text.startswith(f"{self._top_text}/"):
            return self._top_real + text[len(self._top_text) :]
        return None

    def _entry(self, path: RemotePath) -> int | None:
        """Return the size of an entry, None if there is none."""
        real = self._real(path)
        if real is None:
            return None
        if real == self._real_root:
            return self._root_bytes
        if real in self._listed or real in self._above:
            return _DIRECTORY
        around, _, name = real.rpartition("/")
        try:
            return (self._entries(around) or {}).get(name)
        except OSError:
            return None

    def _entries(self, real: str) -> Mapping[str, int] | None:
        if real in self._listed:
            return self._listed[real]
        is_above = real in self._above
        if not is_above and real != self._real_root:
            around, _, name = real.rpartition("/")
            if len(around) < len(self._top_real):
                return None
            if (self._entries(around) or {}).get(name) != _DIRECTORY:
                return None
        if real == self._real_root and self._root_bytes != _DIRECTORY:
            return None
        try:
            with self._errors(real):
                entries = self._list(real)
        except OSError:
            if not is_above:
                raise
            entries = {}  # it may be seen, and not what lies around it
        if is_above:
            inside = (*self._above, self._real_root)
            below = min((one for one in inside if one.startswith(f"{real}/")), key=len)
            size_bytes = self._root_bytes if below == self._real_root else _DIRECTORY
            if size_bytes is not None:
                entries.setdefault(below.rpartition("/")[2], size_bytes)
        self._listed[real] = entries
        return entries

    def _list(self, real: str) -> dict[str, int]:
        found = dict[str, int]()
        for info in self._system.ls(real, detail=True):
            name = str(info["name"]).rstrip("/").removeprefix(real).strip("/")
            if _is_plain(name):
                found[name] = _size_in(info)
        return found

    def _learn_tree(self, found: Mapping[str, Mapping[str, Any]]) -> None:
        """Know all directories below the root by the files in them."""
        listed: dict[str, dict[str, int]] = {self._real_root: {}}
        for full_name, info in found.items():
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
        around, _, name = real.rpartition("/")
        with self._lock:
            self._listed[around] = {**self._listed.get(around, {}), name: size_bytes}

    def _errors(self, path: object) -> contextlib.AbstractContextManager[None]:
        return system_errors(path, self._secrets)

    # -- what files hold ---------------------------------------------------------------------------

    def fetch(self, path: RemotePath) -> Path:
        """Return the path of a file's copy, which is fetched unless it is there.

        Raises:
            OSError: it cannot be fetched.
        """
        fetching = _FETCHING.get(None)
        there = (self.place if fetching is None else fetching.place).joinpath(*path.parts[1:])
        if there.is_file():
            return there
        try:
            self._fetch(path, there)
        except OSError as error:
            if fetching is not None:
                fetching.failures.append((path, error))
            raise
        if fetching is not None:
            fetching.fetched.append(there)
        return there

    def _fetch(self, path: RemotePath, there: Path) -> None:
        from fsspec.callbacks import Callback

        size_bytes, real = self.size_bytes(path), self._real(path)
        there.parent.mkdir(parents=True, exist_ok=True)
        free_bytes = shutil.disk_usage(there.parent).free - LEFT_FREE_BYTES
        if size_bytes > free_bytes:
            said = (
                f"its {format_bytes(size_bytes)} do not fit into {self.place.parent}, where "
                f"{format_bytes(max(0, free_bytes))} may be written; name a larger one in TMPDIR"
            )
            raise OSError(errno.ENOSPC, said, str(path))
        draft = there.with_name(f"{uuid.uuid4().hex}.part")
        arrived = Callback()
        try:
            with self._errors(path):
                self._system.get_file(real, str(draft), callback=arrived)
            arrived_bytes = draft.stat().st_size
            if arrived_bytes != size_bytes:
                raise OSError(errno.EIO, _ended(arrived_bytes, size_bytes), str(path))
            draft.replace(there)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EACCES, errno.ENOSPC, errno.EDQUOT):
                raise
            said = _ended(arrived.value, size_bytes)
            if said == error.strerror:
                raise
            raise OSError(errno.EIO, f"{said} ({error.strerror or error})", str(path)) from None
        finally:
            draft.unlink(missing_ok=True)

    def fetch_small(self, paths: Iterable[Path]) -> None:
        """Fetch those of some files together that are small; failures are reported to the caller.

        One after the other they would mostly wait for answers.
        """
        small = [
            path
            for path in paths
            if isinstance(path, RemotePath) and self._entry(path) in range(SMALL_BYTES + 1)
        ]
        with ThreadPoolExecutor(REQUESTS_AT_ONCE) as threads:
            for path in small:  # each thread knows where to fetch to
                threads.submit(contextvars.copy_context().run, self._try_to_fetch, path)

    def _try_to_fetch(self, path: RemotePath) -> None:
        with contextlib.suppress(OSError):
            self.fetch(path)

    def open_in_part(self, path: RemotePath) -> io.RawIOBase:
        """Open a file some bytes of which will be asked for."""
        return _PartlyRead(self, path, self.size_bytes(path))

    def read_at(self, path: RemotePath, start: int, count: int) -> bytes:
        """Return some bytes of a file, which are remembered for a while.

        Raises:
            OSError: they cannot be read.
        """
        numbers = range(start // BLOCK_BYTES, -(-(start + count) // BLOCK_BYTES))
        held = b"".join(self._block(path, number) for number in numbers)
        skipped = start - numbers.start * BLOCK_BYTES
        return held[skipped : skipped + count]

    def _read_block(self, path: RemotePath, number: int) -> bytes:
        return self.read_once(path, number * BLOCK_BYTES, BLOCK_BYTES)

    def read_once(self, path: RemotePath, start: int, count: int) -> bytes:
        """Return some bytes of a file, as many as there are.

        Raises:
            OSError: they cannot be read.
        """
        size_bytes = self.size_bytes(path)
        end = min(start + count, size_bytes)
        if start >= end:
            return b""
        with self._errors(path):
            data: bytes = self._system.cat_file(self._real(path), start=start, end=end)
        if len(data) == size_bytes > end - start:  # a server that knows no ranges
            data = data[start:end]
        if len(data) != end - start:
            raise OSError(errno.EIO, _ended(len(data), end - start), str(path))
        return data


class _PartlyRead(io.RawIOBase):
    """A file of which only the bytes that are read are asked for; ever more, if all are."""

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
            goes_on = self._at == held_end > 0
            self._ahead_bytes = min(2 * self._ahead_bytes, MOST_AHEAD_BYTES) if goes_on else 0
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


def _ended(arrived_bytes: int, size_bytes: int) -> str:
    return (
        f"the connection ended after {format_bytes(arrived_bytes)} of {format_bytes(size_bytes)}, "
        "also when it was tried again; run it once more"
    )


def _is_plain(name: str) -> bool:
    """Return whether a name is that of an entry: others would lead out of the directory."""
    return name not in ("", ".", "..") and not set("/\\\0") & {*name}


def _size_in(info: Mapping[str, Any]) -> int:
    if info["type"] == "directory":
        return _DIRECTORY
    size_bytes = info.get("size")
    return _NOT_TOLD if size_bytes is None else int(size_bytes)


def _levels_in_common(text: str, real: str) -> int:
    """Return how many names at the end of a URL its file system knows."""
    count = 0
    for one, other in zip(reversed(text.split("/")), reversed(real.split("/")), strict=False):
        if one != other or not one or one.endswith(":"):
            break
        count += 1
    return count


def _lists_trees_at_once(system: AbstractFileSystem) -> bool:
    """Return whether a file system has its own way to list all below a directory."""
    from fsspec.asyn import AsyncFileSystem

    own = getattr(type(system), "_find", None)
    return own is not None and own is not vars(AsyncFileSystem)["_find"]


# -- what other file systems raise ----------------------------------------------------------------


def remote_failures() -> tuple[type[BaseException], ...]:
    """Return all that a file system may raise for what it is, not for an error in it."""
    found = [
        vars(sys.modules[module])[name]
        for module, names in _OF_LIBRARIES.items()
        if module in sys.modules
        for name in names
        if name in vars(sys.modules[module])
    ]
    return (OSError, EOFError, ValueError, asyncio.TimeoutError, *found)


def secrets_in(url: str) -> frozenset[str]:
    """Return the secrets in a URL: user, password and the values of its query."""
    found = set[str]()
    for part in url.split("::"):
        split = urlsplit(part)
        user = split.netloc.rpartition("@")[0]
        found |= {
            user,
            *user.split(":"),
            split.query,
            *(text for _, text in parse_qsl(split.query)),
        }
        found |= {text.partition("=")[2] for text in split.query.split("&")}
    found |= {unquote(text) for text in found}
    return frozenset(text for text in found if len(text) >= _LEAST_SECRET)


@contextlib.contextmanager
def system_errors(path: object, secrets: Collection[str]) -> Iterator[None]:
    """Run a `with` block in which whatever a file system raises is an error of the system.

    Its text names the cause, and no credentials; the error that it was is not chained to it.

    Raises:
        OSError: something failed.
    """
    try:
        yield
    except remote_failures() as error:
        raise _as_system_error(error, str(path), secrets) from None


def _as_system_error(error: BaseException, path: str, secrets: Collection[str]) -> OSError:
    status = getattr(error, "status", None)
    if isinstance(error, FileNotFoundError) or status in _GONE:
        cause = error.__cause__  # whatever fails on the web is not found
        if isinstance(cause, remote_failures()) and getattr(cause, "status", None) not in _GONE:
            return _as_system_error(cause, path, secrets)
        return not_there(path)
    if isinstance(error, PermissionError) or status in _REFUSED:
        said = "permission denied; check the credentials that its file system is given"
        return PermissionError(errno.EACCES, said, path)
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
