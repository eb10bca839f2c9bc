"""Opens files as streams of their content, compressed or not, and knows their names."""

from __future__ import annotations

import errno
import functools
import io
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

from zlib_ng import gzip_ng, zlib_ng

from timeline.errors import SourceError
from timeline.sources.files.remote_path import RemotePath
from timeline.units import format_bytes

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

    from _typeshed import WriteableBuffer

Count = Callable[[int], None]
_COUNT: ContextVar[Count | None] = ContextVar("count", default=None)


@contextmanager
def counting(count: Count) -> Iterator[None]:
    """Run a `with` block in which `count` takes all bytes read, repeated ones too."""
    token = _COUNT.set(count)
    try:
        yield
    finally:
        _COUNT.reset(token)


def are_counted() -> bool:
    """Return whether bytes are counted."""
    return _COUNT.get() is not None


def count_read(size_bytes: int) -> None:
    """Count so many more bytes."""
    count = _COUNT.get()
    if count is not None:
        count(size_bytes)


class CountedFile(FileIO):
    """A file whose reads are counted, as they are in the file: compressed, if it is."""

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        """Read into a buffer."""
        size_bytes = super().readinto(buffer)
        count_read(size_bytes or 0)
        return size_bytes

    def readall(self) -> bytes:
        """Read to the end."""
        data = super().readall()
        count_read(len(data))
        return data


BLOCK_BYTES = 256 * 1024
MAGIC_BYTES = 16
POINTER_MAGIC = b"version https://"
"""How a pointer of Git begins."""
UTF8_MARK = b"\xef\xbb\xbf"
"""What some programs write before text."""
_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/.*?^size (\d{1,18})\n", re.S | re.M
)
"""What Git leaves of a file that its extension for large files has not fetched."""
MOST_POINTER_BYTES = 1024
_Unpacker = tuple[io.BufferedIOBase, tuple[type[Exception], ...]]
"""A stream of the content, and what it raises where that is damaged, besides OSError."""
_open_gzip: Callable[[BinaryIO], io.BufferedIOBase] = gzip_ng.open


def _gzip(file: BinaryIO) -> _Unpacker:
    return _open_gzip(file), (cast("type[Exception]", zlib_ng.error),)


def _bzip2(file: BinaryIO) -> _Unpacker:
    # Here and below: not every Python was built with these libraries.
    from bz2 import BZ2File

    return BZ2File(file), ()


def _xz(file: BinaryIO) -> _Unpacker:
    from lzma import LZMAError, LZMAFile

    return LZMAFile(file), (LZMAError,)


_COMPRESSIONS: tuple[tuple[re.Pattern[bytes], Callable[[BinaryIO], _Unpacker]], ...] = (
    (re.compile(rb"\x1f\x8b\x08"), _gzip),
    (re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"), _bzip2),
    (re.compile(rb"\xfd7zXZ\0"), _xz),
)
"""How each compressed format begins; the second of bzip2 is that of empty content."""


def open_regular_file(path: Path, *, in_part: bool = False) -> BinaryIO:
    """Open a file for reading as it is; one on another file system is fetched first.

    A pipe or device of that name is refused: reading it could wait forever.

    Args:
        in_part: whether only some bytes are wanted, for which nothing is fetched.

    Raises:
        OSError: the file cannot be opened.
    """
    if isinstance(path, RemotePath):
        if in_part:
            return path.open_in_part()
        try:
            return open_regular_file(path.fetched())
        except FileNotFoundError:  # the copy gave way to another one meanwhile, or there is none
            return open_regular_file(path.fetched())
    if are_counted():
        return io.BufferedReader(CountedFile(path, opener=_regular))
    return open(path, "rb", opener=_regular)


def _regular(name: str, flags: int) -> int:
    handle = os.open(name, flags | getattr(os, "O_NONBLOCK", 0))
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # Python refuses directories by itself
        return handle
    os.close(handle)
    raise OSError(errno.EINVAL, "it is no regular file", name)


def open_decompressed(path: Path, *, in_part: bool = False) -> BinaryIO:
    """Open a file for reading; what is compressed is read as what was compressed.

    The first bytes tell, never the name. Nothing is held but a block at a time, and a file may be
    opened again.

    Raises:
        OSError: the file cannot be opened.
        SourceError: while reading, where compressed content is damaged or ends early.
    """
    return decompress_stream(open_regular_file(path, in_part=in_part), path)


@contextmanager
def source_errors_for(path: Path, what: str = "cannot be read") -> Iterator[None]:
    """Run a `with` block in which the system's errors about a file are SourceErrors.

    Raises:
        SourceError: it cannot be read.
    """
    try:
        yield
    except OSError as error:
        raise SourceError.of_system(path, what, error) from error


def temporary_directory() -> TemporaryDirectory[str]:
    """Return a directory for copies, which is gone after its `with` block.

    Processes that are being stopped may hold files in it open, which some systems mind.
    """
    from tempfile import TemporaryDirectory  # most profiles need no copies

    return TemporaryDirectory(prefix="tlexport-", ignore_cleanup_errors=True)


@contextmanager
def open_profile_file(path: Path, *, in_part: bool = False) -> Iterator[BinaryIO]:
    """Open a file in a `with` block, as what it was before it was compressed.

    Args:
        in_part: whether only some bytes are wanted, for which nothing is fetched.

    Raises:
        SourceError: now or while it is read: it cannot be, or its compressed content is damaged.
    """
    with source_errors_for(path), open_decompressed(path, in_part=in_part) as file:
        yield file


def read_behind(file: BinaryIO, held: bytes, count: int) -> bytes:
    """Return the last bytes that were read of a file, and up to so many behind them.

    Where the file can go back they are read again, instead of copying all into a third place.
    """
    if not held or not file.seekable():
        return held + file.read(count)
    file.seek(-len(held), io.SEEK_CUR)
    return file.read(len(held) + count)


def last_bytes(path: Path, count: int) -> bytes:
    """Return the last bytes of a file's content, all of it if it holds no more.

    Compressed content is unpacked from its beginning for them, in little memory.

    Raises:
        SourceError: it cannot be read, or its compressed content is damaged.
    """
    with open_profile_file(path, in_part=True) as file:
        if file.seekable():
            file.seek(max(0, file.seek(0, io.SEEK_END) - count))
            return file.read()
        tail = b""
        while more := file.read(max(count, BLOCK_BYTES)):
            tail = (tail + more)[-count:]
        return tail


def read_whole_file(path: Path) -> bytes:
    """Return all of what a small file holds, without its byte order mark.

    Raises:
        SourceError: it cannot be read, or its compressed content is damaged.
    """
    with open_profile_file(path) as file:
        return file.read().removeprefix(UTF8_MARK)


def refuse_pointer(file: BinaryIO, path: Path) -> None:
    """Refuse a file that Git holds elsewhere; another one is at its beginning again.

    Raises:
        SourceError: it is the pointer that Git leaves in its place.
    """
    found = _POINTER.match(file.read(MOST_POINTER_BYTES))
    file.seek(0)
    if found:
        size = format_bytes(int(found[1]))
        raise SourceError(
            path,
            f"is a pointer of Git LFS: its content, {size}, is not here.",
            do="Run git lfs pull to fetch it, or leave its rank out with --keep-going.",
        )


def decompress_stream(file: BinaryIO, path: Path) -> BinaryIO:
    """Return the content of an open file as a stream; closing it closes the file.

    Of what is not compressed that is the file itself.

    Raises:
        SourceError: now, this Python cannot unpack it, or it was never fetched; while reading,
            compressed content is damaged or ends early.
    """
    first = file.read(MAGIC_BYTES)
    file.seek(0)
    if first == POINTER_MAGIC:
        try:
            refuse_pointer(file, path)
        except SourceError:
            file.close()
            raise
    for begin, unpacker in _COMPRESSIONS:
        if begin.match(first):
            try:
                return _WholeBlocks(_Content(path, file, *unpacker(file)), BLOCK_BYTES)
            except ImportError as error:
                file.close()
                raise SourceError(path, f"cannot be unpacked by this Python: {error}.") from error
    return file


class _WholeBlocks(io.BufferedReader):
    """Gives a reader of blocks all that comes before damage, and then raises it."""

    _damage_found: SourceError | None = None

    def read(self, size: int | None = -1, /) -> bytes:
        if self._damage_found is not None:
            raise self._damage_found
        if size is None or size < 0:
            return super().read(size)
        parts, left = list[bytes](), size
        try:
            while left and (part := self.read1(left)):
                parts.append(part)
                left -= len(part)
        except SourceError as error:
            if not parts:
                raise
            self._damage_found = error
        return b"".join(parts)


class _Content(io.RawIOBase):
    """Compressed content, whose damage is reported with the byte of the file."""

    def __init__(
        self,
        path: Path,
        file: BinaryIO,
        content: io.BufferedIOBase,
        damage: tuple[type[Exception], ...],
    ) -> None:
        self._path, self._file, self._content, self._damage = path, file, content, damage

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            return self._content.readinto(buffer)
        except EOFError as error:
            raise self._error("ends before its compressed content does.") from error
        except self._damage as error:
            raise self._error(f"holds damaged compressed content: {error}.") from error
        except OSError as error:
            if error.errno is not None:
                raise
            raise self._error(f"holds damaged compressed content: {error}.") from error

    def _error(self, found: str) -> SourceError:
        return SourceError(
            self._path, found, offset=self._file.tell(), do="Copy it again from where it was made."
        )

    def close(self) -> None:
        if not self.closed:
            self._content.close()
            self._file.close()
        super().close()


_PACKED = ".gz"
_PACKED_DATABASE = re.compile(r"(.+\.db)\.(?:gz|bz2|xz)")


def without_gz(name: str) -> str:
    """Return the name without the suffix of gzip."""
    return name.removesuffix(_PACKED)


def uncompressed_database_name(name: str) -> str:
    """Return the name of a compressed database without that suffix; others as is."""
    match = _PACKED_DATABASE.fullmatch(name)
    return match[1] if match else name


def files_by_name(directory: Path) -> dict[str, Path]:
    """Return the entries of a directory by plain name, in order of names.

    A plain file wins over a packed one of the same name.

    Raises:
        SourceError: the directory cannot be read.
    """
    found: dict[str, Path] = {}
    with source_errors_for(directory):
        paths = {path.name: path for path in directory.iterdir()}
    for name in sorted(paths):
        plain = without_gz(name)
        if name == plain or not paths[name].is_dir():
            found.setdefault(plain, paths[name])
    return dict(sorted(found.items()))


def find_file(directory: Path, name: str) -> Path | None:
    """Find an entry by plain name in a directory, packed or not; None without any.

    If neither is a file, the plain name wins: opening it says so.
    """
    there = [path for path in (directory / name, directory / (name + _PACKED)) if lies_there(path)]
    return next((path for path in there if path.is_file()), there[0] if there else None)


def lies_there(path: Path) -> bool:
    """Return whether anything has this path, even a link that leads nowhere."""
    return path.exists() if isinstance(path, RemotePath) else os.path.lexists(path)


def walk(
    root: Path, refuse: Callable[[OSError], None]
) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Return each directory at and below one, with the names of directories and of files in it.

    Names that are taken out of the former are not walked into. refuse: told what cannot be listed.
    """
    if not isinstance(root, RemotePath):
        for name, directories, files in os.walk(root, onerror=refuse):
            yield Path(name), directories, files
        return
    try:
        inside = {path.name: path.is_dir() for path in root.iterdir()}
    except OSError as error:
        refuse(error)
        return
    directories = [name for name, is_directory in inside.items() if is_directory]
    yield root, directories, [name for name, is_directory in inside.items() if not is_directory]
    for name in directories:
        yield from walk(root / name, refuse)


# -- directories that are remembered ---------------------------------------------------------------


_Found = TypeVar("_Found")

FRESH_NS = 2 * 10**9
"""A directory that changed so lately may change again without a later time of change."""
MOST_DIRECTORIES = 64


def remember_by_directory(find: Callable[[Path], _Found]) -> Callable[[Path], _Found]:
    """Make a function look into a directory again only if that has changed.

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


# -- names of archives and their members -----------------------------------------------------------


ARCHIVE_SUFFIXES = (
    ".zip",
    ".tar",
    ".tar.gz",
    ".tgz",
    ".tar.bz2",
    ".tbz2",
    ".tbz",
    ".tar.xz",
    ".txz",
)
MOST_PARTS = 64
"""Directories are never nested deeper in profiles."""
_WANTED = re.compile(
    r".+\.(?:json|csv|txt|log|db|db-wal|sqlite3?)(?:\.\d+)?"
    r"|.+\.db\.(?:bz2|xz)"
    r"|(?:start|end)_info(?:\..+)?"
    r"|memory_usage_\d+\.pb"
    r"|.+\.slice_\d+"
)
_MACOS = "__MACOSX"
"""What macOS adds to archives: a second tree with a shadow of each file."""
_DRIVE = re.compile(r"[A-Za-z]:")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
DO_IT_YOURSELF = "Look at the archive; if you trust it, unpack it yourself and pass the directory."


def is_archive(name: str) -> bool:
    """Return whether a name is that of an archive of files."""
    return name.lower().endswith(ARCHIVE_SUFFIXES)


def archive_stem(name: str) -> str:
    """Return the name of an archive without its suffix, as the packed directory is called."""
    found = [suffix for suffix in ARCHIVE_SUFFIXES if name.lower().endswith(suffix)]
    return name[: len(name) - max(map(len, found), default=0)] or "archive"


def is_wanted(name: str) -> bool:
    """Return whether a reader may want a file of this name."""
    return _WANTED.fullmatch(name.removesuffix(".gz")) is not None


def member_parts(name: str, archive: Path) -> tuple[str, ...]:
    """Return a member's name as directories and a file; empty for what is of no use.

    Raises:
        SourceError: it leads out of the directory, or is not a name of a file.
    """
    # Bytes of a name that are no text are shown as such.
    spelled = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace").replace("\\", "/")
    parts = tuple(part for part in spelled.split("/") if part not in ("", "."))
    refused = ""
    if spelled.startswith("/") or ".." in parts or (parts and _DRIVE.match(parts[0])):
        refused = "would be written outside of the directory for it."
    elif _CONTROL.search(spelled):
        refused = "has control characters in its name."
    elif len(parts) > MOST_PARTS:
        refused = f"lies more than {MOST_PARTS} directories deep."
    if refused:
        raise SourceError(archive, f"member {name!r} {refused}", do=DO_IT_YOURSELF)
    is_of_macos = parts and (parts[0] == _MACOS or parts[-1].startswith("._"))
    return () if is_of_macos else parts
