"""Opens files as streams of decompressed content, and finds files by name, compressed or not."""

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
    """Run a `with` block that calls `count` with the size of each read, repeated reads too."""
    token = _COUNT.set(count)
    try:
        yield
    finally:
        _COUNT.reset(token)


def are_counted() -> bool:
    """Return whether this is run inside a `counting` block."""
    return _COUNT.get() is not None


def count_read(size_bytes: int) -> None:
    """Count bytes that were read; outside of a `counting` block this does nothing."""
    count = _COUNT.get()
    if count is not None:
        count(size_bytes)


class CountedFile(FileIO):
    """A file whose reads are counted in bytes of the file as stored, that is, still compressed."""

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
"""The first MAGIC_BYTES bytes of a Git LFS pointer file."""
UTF8_MARK = b"\xef\xbb\xbf"
"""The byte order mark that some programs write before UTF-8 text."""
_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/.*?^size (\d{1,18})\n", re.S | re.M
)
"""The text of a Git LFS pointer, which takes the place of a file that was not fetched."""
MOST_POINTER_BYTES = 1024
"""Maximum size of a Git LFS pointer."""
_Decompressed = tuple[io.BufferedIOBase, tuple[type[Exception], ...]]
"""A stream of decompressed content, and the exceptions besides OSError that damage raises."""
_open_gzip: Callable[[BinaryIO], io.BufferedIOBase] = gzip_ng.open


def _gzip(file: BinaryIO) -> _Decompressed:
    return _open_gzip(file), (cast("type[Exception]", zlib_ng.error),)


def _bzip2(file: BinaryIO) -> _Decompressed:
    # bz2 and lzma are imported late, as not every Python is built with them.
    from bz2 import BZ2File

    return BZ2File(file), ()


def _xz(file: BinaryIO) -> _Decompressed:
    from lzma import LZMAError, LZMAFile

    return LZMAFile(file), (LZMAError,)


_COMPRESSIONS: tuple[tuple[re.Pattern[bytes], Callable[[BinaryIO], _Decompressed]], ...] = (
    (re.compile(rb"\x1f\x8b\x08"), _gzip),
    (re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"), _bzip2),
    (re.compile(rb"\xfd7zXZ\0"), _xz),
)
"""The first bytes of each compressed format; bzip2 has a second form for empty content."""


def open_regular_file(path: Path, *, in_part: bool = False) -> BinaryIO:
    """Open a file for reading without decompressing it; a remote file is fetched first.

    Pipes and devices are refused, as reading them could block forever.

    in_part: whether only some bytes will be read; a remote file is then not fetched.

    Raises:
        OSError: the file cannot be opened.
    """
    if isinstance(path, RemotePath):
        if in_part:
            return path.open_in_part()
        try:
            return open_regular_file(path.fetched())
        except FileNotFoundError:  # the copy was removed meanwhile, so it is fetched again
            return open_regular_file(path.fetched())
    if are_counted():
        return io.BufferedReader(CountedFile(path, opener=_regular))
    return open(path, "rb", opener=_regular)


def _regular(name: str, flags: int) -> int:
    handle = os.open(name, flags | getattr(os, "O_NONBLOCK", 0))
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # open() itself refuses directories
        return handle
    os.close(handle)
    raise OSError(errno.EINVAL, "it is not a regular file", name)


def open_decompressed(path: Path, *, in_part: bool = False) -> BinaryIO:
    """Open a file for reading, and decompress it if its first bytes show a compressed format.

    The file name is ignored. Only one block of content is held in memory.

    Raises:
        OSError: the file cannot be opened.
        SourceError: while reading: compressed content is damaged or ends early.
    """
    return decompress_stream(open_regular_file(path, in_part=in_part), path)


@contextmanager
def source_errors_for(path: Path, what: str = "cannot be read") -> Iterator[None]:
    """Run a `with` block in which an OSError about a file becomes a SourceError.

    Raises:
        SourceError: the block raised an OSError.
    """
    try:
        yield
    except OSError as error:
        raise SourceError.of_system(path, what, error) from error


def temporary_directory() -> TemporaryDirectory[str]:
    """Return a directory for copies, which is removed at the end of its `with` block.

    Errors of removal are ignored, as a process that is being stopped may have files in it open.
    """
    from tempfile import TemporaryDirectory  # imported late: rarely needed

    return TemporaryDirectory(prefix="tlexport-", ignore_cleanup_errors=True)


@contextmanager
def open_profile_file(path: Path, *, in_part: bool = False) -> Iterator[BinaryIO]:
    """Open a file in a `with` block as a stream of its decompressed content.

    in_part: whether only some bytes will be read; a remote file is then not fetched.

    Raises:
        SourceError: now or in the block: the file cannot be read, or its compressed content is
            damaged.
    """
    with source_errors_for(path), open_decompressed(path, in_part=in_part) as file:
        yield file


def read_behind(file: BinaryIO, held: bytes, count: int) -> bytes:
    """Return `held`, the bytes last read from a file, and up to `count` bytes after them.

    If the file is seekable, all of them are read in one go instead of copying the held ones.
    """
    if not held or not file.seekable():
        return held + file.read(count)
    file.seek(-len(held), io.SEEK_CUR)
    return file.read(len(held) + count)


def last_bytes(path: Path, count: int) -> bytes:
    """Return the last `count` bytes of a file's content, or all of it if it is shorter.

    Compressed content is decompressed from its beginning for this, block by block.

    Raises:
        SourceError: the file cannot be read, or its compressed content is damaged.
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
    """Return the decompressed content of a small file, without its byte order mark.

    Raises:
        SourceError: the file cannot be read, or its compressed content is damaged.
    """
    with open_profile_file(path) as file:
        return file.read().removeprefix(UTF8_MARK)


def refuse_pointer(file: BinaryIO, path: Path) -> None:
    """Raise an error if an open file is a Git LFS pointer; otherwise rewind it.

    Raises:
        SourceError: the file is a Git LFS pointer.
    """
    pointer = _POINTER.match(file.read(MOST_POINTER_BYTES))
    file.seek(0)
    if pointer:
        size = format_bytes(int(pointer[1]))
        raise SourceError(
            path,
            f"is a pointer of Git LFS: its content, {size}, is not here.",
            do="Run git lfs pull to fetch it, or leave its rank out with --keep-going.",
        )


def decompress_stream(file: BinaryIO, path: Path) -> BinaryIO:
    """Return the decompressed content of an open file as a stream; closing it closes the file.

    If the file is not compressed, it is returned itself.

    Raises:
        SourceError: now: this Python lacks the library for the format, or the file is a Git LFS
            pointer; while reading: compressed content is damaged or ends early.
    """
    first = file.read(MAGIC_BYTES)
    file.seek(0)
    if first == POINTER_MAGIC:
        try:
            refuse_pointer(file, path)
        except SourceError:
            file.close()
            raise
    for magic, decompress in _COMPRESSIONS:
        if magic.match(first):
            try:
                return _WholeBlocks(_Content(path, file, *decompress(file)), BLOCK_BYTES)
            except ImportError as error:
                file.close()
                raise SourceError(path, f"cannot be unpacked by this Python: {error}.") from error
    return file


class _WholeBlocks(io.BufferedReader):
    """A stream that returns all bytes before damaged content, and raises the error only then."""

    _error: SourceError | None = None

    def read(self, size: int | None = -1, /) -> bytes:
        if self._error is not None:
            raise self._error
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
            self._error = error
        return b"".join(parts)


class _Content(io.RawIOBase):
    """Decompressed content; errors of damaged content state the byte offset in the file."""

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

    def _error(self, problem: str) -> SourceError:
        return SourceError(
            self._path,
            problem,
            offset=self._file.tell(),
            do="Copy it again from where it was made.",
        )

    def close(self) -> None:
        if not self.closed:
            self._content.close()
            self._file.close()
        super().close()


_GZ = ".gz"
_COMPRESSED_DATABASE = re.compile(r"(.+\.db)\.(?:gz|bz2|xz)")


def without_gz(name: str) -> str:
    """Return a file name without the suffix .gz."""
    return name.removesuffix(_GZ)


def uncompressed_database_name(name: str) -> str:
    """Return the name of a compressed database without the suffix; other names unchanged."""
    match = _COMPRESSED_DATABASE.fullmatch(name)
    return match[1] if match else name


def files_by_name(directory: Path) -> dict[str, Path]:
    """Return the entries of a directory by name without .gz, in order of names.

    An uncompressed file is preferred to a compressed one of the same name.

    Raises:
        SourceError: the directory cannot be read.
    """
    entries: dict[str, Path] = {}
    with source_errors_for(directory):
        paths = {path.name: path for path in directory.iterdir()}
    for name in sorted(paths):
        plain = without_gz(name)
        if name == plain or not paths[name].is_dir():
            entries.setdefault(plain, paths[name])
    return dict(sorted(entries.items()))


def find_file(directory: Path, name: str) -> Path | None:
    """Return the file of a name, or of that name with .gz, in a directory; None if absent.

    If only directories or broken links have these names, one of them is returned, so that opening
    it reports the problem.
    """
    paths = [path for path in (directory / name, directory / (name + _GZ)) if entry_exists(path)]
    return next((path for path in paths if path.is_file()), paths[0] if paths else None)


def entry_exists(path: Path) -> bool:
    """Return whether a directory entry has this path, which may be a broken link."""
    return path.exists() if isinstance(path, RemotePath) else os.path.lexists(path)


def walk(
    root: Path, refuse: Callable[[OSError], None]
) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Yield (directory, names of its directories, names of its files) for a tree, as os.walk does.

    Directories whose names the caller removes from the first list are not visited. refuse: called
    with the error of each directory that cannot be listed.
    """
    if not isinstance(root, RemotePath):
        for name, directories, files in os.walk(root, onerror=refuse):
            yield Path(name), directories, files
        return
    try:
        entries = {path.name: path.is_dir() for path in root.iterdir()}
    except OSError as error:
        refuse(error)
        return
    directories = [name for name, is_directory in entries.items() if is_directory]
    yield root, directories, [name for name, is_directory in entries.items() if not is_directory]
    for name in directories:
        yield from walk(root / name, refuse)


# -- caching by directory --------------------------------------------------------------------------


_Result = TypeVar("_Result")

FRESH_NS = 2 * 10**9
"""Results for a directory that changed less than this ago are not cached: it may change again
without a new modification time, whose resolution is coarse on some file systems."""
MOST_DIRECTORIES = 64
"""Maximum number of directories whose results are cached."""


def remember_by_directory(find: Callable[[Path], _Result]) -> Callable[[Path], _Result]:
    """Cache a function of a directory until the directory is modified.

    All callers get the same object, so they must not change it.

    Raises:
        SourceError: the directory does not exist.
    """

    @functools.lru_cache(maxsize=MOST_DIRECTORIES)
    def cached(directory: Path, _changed_ns: int) -> _Result:
        return find(directory)

    @functools.wraps(find)
    def find_once(directory: Path) -> _Result:
        if isinstance(directory, RemotePath) and directory.tree is not None:
            return directory.tree.remember(find, directory)
        with source_errors_for(directory):
            changed_ns = directory.stat().st_mtime_ns
        if time.time_ns() - changed_ns < FRESH_NS:
            return find(directory)
        return cached(directory, changed_ns)

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
"""Maximum number of path components of a member; profiles are never nested as deeply."""
_WANTED = re.compile(
    r".+\.(?:json|csv|txt|log|db|db-wal|sqlite3?)(?:\.\d+)?"
    r"|.+\.db\.(?:bz2|xz)"
    r"|(?:start|end)_info(?:\..+)?"
    r"|memory_usage_\d+\.pb"
    r"|.+\.slice_\d+"
)
_MACOS = "__MACOSX"
"""A directory that macOS adds to archives, with a file of metadata for each file."""
_DRIVE = re.compile(r"[A-Za-z]:")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
DO_IT_YOURSELF = "Look at the archive; if you trust it, unpack it yourself and pass the directory."


def is_archive(name: str) -> bool:
    """Return whether a file name has the suffix of an archive (zip or tar)."""
    return name.lower().endswith(ARCHIVE_SUFFIXES)


def archive_around(path: Path) -> Path | None:
    """Return the archive that a path leads into, None if it leads into none."""
    return next((one for one in path.parents if is_archive(one.name) and one.is_file()), None)


def archive_stem(name: str) -> str:
    """Return the name of an archive without its suffix, which often is that of the directory."""
    suffixes = [suffix for suffix in ARCHIVE_SUFFIXES if name.lower().endswith(suffix)]
    return name[: len(name) - max(map(len, suffixes), default=0)] or "archive"


def is_wanted(name: str) -> bool:
    """Return whether a reader may need a file of this name; others are not unpacked."""
    return _WANTED.fullmatch(name.removesuffix(".gz")) is not None


def member_parts(name: str, archive: Path) -> tuple[str, ...]:
    """Return the path components of an archive member; none for metadata of macOS.

    Raises:
        SourceError: the path leads out of the directory, is too long or has control characters.
    """
    # Bytes that are not valid UTF-8 become replacement characters.
    path = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace").replace("\\", "/")
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    problem = ""
    if path.startswith("/") or ".." in parts or (parts and _DRIVE.match(parts[0])):
        problem = "would be written outside of the directory for it."
    elif _CONTROL.search(path):
        problem = "has control characters in its name."
    elif len(parts) > MOST_PARTS:
        problem = f"is nested more than {MOST_PARTS} directories deep."
    if problem:
        raise SourceError(archive, f"member {name!r} {problem}", do=DO_IT_YOURSELF)
    is_of_macos = parts and (parts[0] == _MACOS or parts[-1].startswith("._"))
    return () if is_of_macos else parts
