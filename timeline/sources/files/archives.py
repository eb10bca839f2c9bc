"""Reads zip and tar archives, and unpacks the files that a reader may need, within size limits."""

from __future__ import annotations

import errno
import io
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, BinaryIO

from timeline.errors import SourceError
from timeline.sources.files.opened import (
    decompress_stream,
    is_archive,
    is_wanted,
    member_parts,
    open_regular_file,
)
from timeline.units import format_bytes

BLOCK_BYTES = 1 << 20
TAR_BLOCK_BYTES = 512
READ_AHEAD_BYTES = 1 << 16
"""Block size for reading tar; kept small because tarfile copies the rest of a block per header."""
MOST_HEADER_BYTES = 1 << 20
"""Maximum size of a tar header (names and attributes), which is read into memory as a whole."""
MAKE_IT_AGAIN = "Copy the archive again from where it was made, or make it again."
_LONG_HEADERS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_ZIP_BEGINS = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
"""First bytes of a zip with members, of an empty one, and of a part of a split one."""
_ENCRYPTED = 1
"""The flag bit of an encrypted zip member."""
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2)
_DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    ValueError,
    OverflowError,
    RuntimeError,
)
"""Exceptions that zipfile and tarfile raise for damaged archives."""


@dataclass(frozen=True)
class Member:
    """A member of an archive; one of a tar must be read before the next member is requested.

    is_file, is_directory: both False for a link, device or pipe. size_bytes: size of the content
    as stated by the archive.
    """

    archive: Path
    name: str
    is_file: bool
    is_directory: bool
    size_bytes: int
    _file: BinaryIO
    _open: Callable[[], IO[bytes] | None]

    def blocks(self) -> Iterator[bytes]:
        """Yield the content in blocks.

        Raises:
            SourceError: the content is damaged, encrypted or compressed by an unknown method.
        """
        with (
            _damage_as_source_error(self.archive, self._file, f"member {self.name!r} "),
            self._open() as content,  # type: ignore[union-attr] # only files are opened
        ):
            while block := content.read(BLOCK_BYTES):
                yield block


def read_members(
    file: BinaryIO, archive: Path, count_read: Callable[[int], None]
) -> Iterator[Member]:
    """Return an iterator over the members of an open archive.

    count_read: called with the number of decompressed bytes of each read of a tar, including
    skipped members.

    Raises:
        SourceError: the archive is damaged or truncated.
    """
    magic = file.read(4)
    file.seek(0)
    if magic in _ZIP_BEGINS or archive.suffix.lower() == ".zip":
        return _read_zip(file, archive)
    return _read_tar(file, archive, count_read)


@contextmanager
def _damage_as_source_error(archive: Path, file: BinaryIO, what: str = "") -> Iterator[None]:
    """Run a `with` block in which damage of an archive becomes a SourceError with byte offset.

    what: the beginning of the message, such as the name of the member.
    """
    try:
        yield
    except _DAMAGE as error:
        raise _damage_error(archive, file, what, error) from error
    except OSError as error:
        if error.errno is not None:  # the file cannot be read; the archive may be intact
            raise
        raise _damage_error(archive, file, what, error) from error


def _damage_error(archive: Path, file: BinaryIO, what: str, error: Exception) -> SourceError:
    problem = f"{what}cannot be read to its end: {error}."
    return SourceError(archive, problem, offset=file.tell(), do=MAKE_IT_AGAIN)


# -- zip -------------------------------------------------------------------------------------------


def _read_zip(file: BinaryIO, archive: Path) -> Iterator[Member]:
    with _damage_as_source_error(archive, file):
        try:
            zipped = zipfile.ZipFile(file)
        except zipfile.BadZipFile as error:
            raise SourceError(
                archive,
                f"is not a complete zip archive: its list of members cannot be read ({error}).",
                offset=file.seek(0, 2),
                do=MAKE_IT_AGAIN,
            ) from error
        file.seek(0)  # progress is shown by file position; zipfile seeks by itself
        for info in zipped.infolist():
            if not info.filename:
                raise zipfile.BadZipFile("a member has no name")
            kind = stat.S_IFMT(info.external_attr >> 16)  # 0 if not made on Unix
            yield Member(
                archive,
                info.filename,
                not info.is_dir() and kind in (0, stat.S_IFREG),
                info.is_dir() or kind == stat.S_IFDIR,
                info.file_size,
                file,
                partial(_open_in_zip, zipped, info, archive),
            )


def _open_in_zip(zipped: zipfile.ZipFile, info: zipfile.ZipInfo, archive: Path) -> IO[bytes]:
    if info.flag_bits & _ENCRYPTED:
        raise SourceError(
            archive,
            f"member {info.filename!r} is encrypted.",
            do="Unpack it with its password and pass the directory.",
        )
    if info.compress_type not in _METHODS:
        raise SourceError(
            archive,
            f"member {info.filename!r} is packed by method {info.compress_type} of zip, which "
            "is not supported.",
            do="Unpack it yourself and pass the directory.",
        )
    return zipped.open(info)


# -- tar -------------------------------------------------------------------------------------------


def _read_tar(file: BinaryIO, archive: Path, count_read: Callable[[int], None]) -> Iterator[Member]:
    content = _CountingReader(decompress_stream(file, archive), count_read)
    with (
        _damage_as_source_error(archive, file),
        tarfile.open(fileobj=content, mode="r|", bufsize=READ_AHEAD_BYTES, tarinfo=_Header) as tar,
    ):
        while (header := tar.next()) is not None:
            vars(tar)["members"].clear()  # tarfile would keep all headers in memory
            yield Member(
                archive,
                header.name,
                header.isreg(),
                header.isdir(),
                header.size,
                file,
                partial(tar.extractfile, header),
            )
        while content.read(BLOCK_BYTES):
            """Read to the end, as truncated compressed content is an error only there."""


class _Header(tarfile.TarInfo):
    """The header of a member; a broken one is an error, and not the end of the archive."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Header:
        is_end = len(buf) == TAR_BLOCK_BYTES and not any(buf)
        try:
            header = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if is_end:
                raise
            raise tarfile.ReadError(str(error)) from error
        if header.type in _LONG_HEADERS and header.size > MOST_HEADER_BYTES:
            raise tarfile.ReadError(f"a header says that it is {header.size} bytes long")
        return header


class _CountingReader(io.BufferedIOBase):
    """A stream that calls `count_read` with the size of each block read."""

    def __init__(self, content: BinaryIO, count_read: Callable[[int], None]) -> None:
        self._content, self._count_read = content, count_read

    def read(self, size: int | None = -1, /) -> bytes:
        block = self._content.read(-1 if size is None else size)
        self._count_read(len(block))
        return block


# -- unpacking -------------------------------------------------------------------------------------


Report = Callable[[str, int, int], None]
"""A function that shows progress: (description, bytes done, bytes in total)."""
MOST_TIMES_LARGER = 200
"""Maximum ratio of unpacked to packed size; profiles, which are text, reach 10 to 50."""
ALWAYS_ALLOWED_BYTES = 1 << 30
"""Unpacked size that is allowed whatever the ratio."""
LEFT_FREE_BYTES = 256 << 20
"""Disk space to keep free, or an eighth of the free space if that is less."""
MOST_MEMBERS = 1 << 20
DIRECTORY_BYTES = 4096
"""Size of an empty directory on most file systems."""


@dataclass
class UnpackLimit:
    """The limits on the size of one unpacked archive, and the bytes counted so far.

    most_bytes: limit on the content that is read or written. free_bytes: limit on the content
    written to `directory`, by its free space. member: the member that is being unpacked.
    """

    archive: Path
    most_bytes: int
    free_bytes: int
    directory: Path
    read_bytes: int = field(default=0, init=False)
    written_bytes: int = field(default=0, init=False)
    member: str = field(default="", init=False)

    def begin(self, member: Member) -> None:
        """Check the stated size of a member before it is written.

        Raises:
            SourceError: the member would exceed a limit.
        """
        self._check(self.written_bytes + member.size_bytes, member.size_bytes)

    def read(self, count: int) -> None:
        """Count bytes that were read; up to READ_AHEAD_BYTES may belong to the next member.

        Raises:
            SourceError: a limit is exceeded.
        """
        self.read_bytes += count
        self._check(self.read_bytes - READ_AHEAD_BYTES, 0)

    def write(self, count: int) -> None:
        """Count bytes that are about to be written.

        Raises:
            SourceError: they would exceed a limit.
        """
        self._check(self.written_bytes + count, count)
        self.written_bytes += count

    def _check(self, content_bytes: int, more_bytes: int) -> None:
        if content_bytes > self.most_bytes:
            raise SourceError(
                self.archive,
                f"expands to more than {format_bytes(self.most_bytes)} at member {self.member!r}; "
                "no profile is packed that tightly.",
                do="If you trust it, unpack it yourself and pass the directory.",
            )
        if self.written_bytes + more_bytes > self.free_bytes:
            raise self.too_large()

    def too_large(self) -> SourceError:
        """Return the error for an archive that does not fit into the directory."""
        return SourceError(
            self.archive,
            f"does not fit into {self.directory} at member {self.member!r}: "
            f"{format_bytes(max(0, self.free_bytes))} may be written there.",
            do="Name a larger directory in TMPDIR, or unpack it yourself and pass the directory.",
        )


def limit_for(archive: Path, directory: Path) -> UnpackLimit:
    """Return the limits for an archive: a multiple of its size, and the free disk space."""
    free_bytes = shutil.disk_usage(directory).free
    return UnpackLimit(
        archive,
        max(ALWAYS_ALLOWED_BYTES, MOST_TIMES_LARGER * archive.stat().st_size),
        free_bytes - min(LEFT_FREE_BYTES, free_bytes // 8),
        directory,
    )


def unpack(archive: Path, directory: Path, limit: UnpackLimit, report: Report) -> tuple[str, ...]:
    """Unpack all directories and the files that a reader may need; return notes on the rest.

    The notes name links, special files and archives inside the archive, which are not unpacked.
    Other files that no reader needs are skipped silently.

    directory: the target, which is created.

    Raises:
        SourceError: the archive is damaged, dangerous or too large.
    """
    unpacker = _Unpacker(archive, directory, limit)
    with _unpacking(archive, limit, report) as (file, progressed):
        directory.mkdir(parents=True)
        for count, member in enumerate(read_members(file, archive, limit.read)):
            if count == MOST_MEMBERS:
                raise SourceError(
                    archive,
                    f"holds more than {MOST_MEMBERS} members.",
                    do="Unpack it yourself and pass the directory.",
                )
            unpacker.add(member, progressed)
    return unpacker.notes()


def unpack_file(packed: Path, target: Path, limit: UnpackLimit, report: Report) -> None:
    """Decompress a single file.

    target: the path to write to; it and its directory are created.

    Raises:
        SourceError: the file is damaged or too large.
    """
    limit.member = target.name
    with _unpacking(packed, limit, report) as (file, progressed):
        target.parent.mkdir(parents=True)
        content = decompress_stream(file, packed)
        with target.open("xb") as output:
            while block := content.read(BLOCK_BYTES):
                limit.write(len(block))
                output.write(block)
                progressed()


@contextmanager
def _unpacking(
    packed: Path, limit: UnpackLimit, report: Report
) -> Iterator[tuple[BinaryIO, Callable[[], None]]]:
    """Open a packed file; yield it and a function that reports the position reached in it."""
    try:
        whole_bytes = packed.stat().st_size
        with open_regular_file(packed) as file:
            yield file, lambda: report(f"Unpacking {packed.name}", file.tell(), whole_bytes)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise limit.too_large() from error
        at = f" at member {limit.member!r}" if limit.member else ""
        raise SourceError.of_system(
            packed,
            f"cannot be unpacked{at}",
            error,
            do="Unpack it yourself and pass the directory.",
        ) from error


class _Unpacker:
    """Unpacks the members of one archive, and collects the names of members that it leaves."""

    def __init__(self, archive: Path, directory: Path, limit: UnpackLimit) -> None:
        self._archive, self._directory, self._limit = archive, directory, limit
        self._directories: set[Path] = set()
        self._links = list[str]()
        self._archives = list[str]()

    def add(self, member: Member, progressed: Callable[[], None]) -> None:
        """Unpack a member if a reader may need it; its directory is created in any case."""
        progressed()
        self._limit.member = member.name
        parts = member_parts(member.name, self._archive)
        if not parts:
            return
        if not (member.is_file or member.is_directory):
            self._links.append(member.name)
            return
        is_file = member.is_file
        self._make_directories(parts[:-1] if is_file else parts)
        if is_file and is_wanted(parts[-1]):
            self._write(member, self._directory.joinpath(*parts), progressed)
        elif is_file and is_archive(parts[-1]):
            self._archives.append(member.name)

    def _make_directories(self, parts: tuple[str, ...]) -> None:
        for count in range(1, len(parts) + 1):
            if (path := self._directory.joinpath(*parts[:count])) not in self._directories:
                self._limit.write(DIRECTORY_BYTES)
                path.mkdir()
                self._directories.add(path)

    def _write(self, member: Member, path: Path, progressed: Callable[[], None]) -> None:
        self._limit.begin(member)
        with path.open("xb") as file:
            for block in member.blocks():
                self._limit.write(len(block))
                file.write(block)
                progressed()

    def notes(self) -> tuple[str, ...]:
        """Return notes on links, special files and archives that were not unpacked."""
        name = self._archive.name
        notes = []
        if links := _name_first(self._links):
            notes.append(f"{name}: links and special files are not unpacked: {links}.")
        if archives := _name_first(self._archives):
            notes.append(
                f"{name}: archives inside it are not opened, unless it is unpacked: {archives}."
            )
        return tuple(notes)


def _name_first(names: Sequence[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more
