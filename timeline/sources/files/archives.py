"""Unpacks archives and compressed files, as far as a reader may want what they hold."""

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
"""A tar is read in blocks of this size; tarfile copies the rest of one with each header."""
MOST_HEADER_BYTES = 1 << 20
"""Names and attributes of one tar member, which are read into memory, are never longer."""
MAKE_IT_AGAIN = "Copy the archive again from where it was made, or make it again."
_LONG_HEADERS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_ZIP_BEGINS = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
"""With a member, with none, or as one part of several. A tar begins with any name."""
_ENCRYPTED = 1
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
"""What the readers of archives raise of archives that are not as they should be."""


@dataclass(frozen=True)
class Member:
    """A member of an archive; those of a tar can be read only until the next one is asked for.

    is_file, is_directory: neither of a link, a device or a pipe. size_bytes: what the archive says
    of its content.
    """

    archive: Path
    name: str
    is_file: bool
    is_directory: bool
    size_bytes: int
    _file: BinaryIO
    _open: Callable[[], IO[bytes] | None]

    def blocks(self) -> Iterator[bytes]:
        """Return the content, a block at a time.

        Raises:
            SourceError: it is damaged, encrypted, or packed in a way that is not known.
        """
        with (
            _name_damage(self.archive, self._file, f"member {self.name!r} "),
            self._open() as content,  # type: ignore[union-attr] # only files are opened
        ):
            while block := content.read(BLOCK_BYTES):
                yield block


def read_members(
    file: BinaryIO, archive: Path, count_read: Callable[[int], None]
) -> Iterator[Member]:
    """Return the members of an open archive.

    count_read: called with how many bytes of a tar are read, those of skipped members too.

    Raises:
        SourceError: the archive is damaged, or ends before its end.
    """
    magic = file.read(4)
    file.seek(0)
    if magic in _ZIP_BEGINS or archive.suffix.lower() == ".zip":
        return _read_zip(file, archive)
    return _read_tar(file, archive, count_read)


@contextmanager
def _name_damage(archive: Path, file: BinaryIO, what: str = "") -> Iterator[None]:
    """Run a `with` block in which damage of an archive is a SourceError with its byte."""
    try:
        yield
    except _DAMAGE as error:
        raise _damage_error(archive, file, what, error) from error
    except OSError as error:
        if error.errno is not None:  # the file itself
            raise
        raise _damage_error(archive, file, what, error) from error


def _damage_error(archive: Path, file: BinaryIO, what: str, error: Exception) -> SourceError:
    found = f"{what}cannot be read to its end: {error}."
    return SourceError(archive, found, offset=file.tell(), do=MAKE_IT_AGAIN)


# -- zip -------------------------------------------------------------------------------------------


def _read_zip(file: BinaryIO, archive: Path) -> Iterator[Member]:
    with _name_damage(archive, file):
        try:
            zipped = zipfile.ZipFile(file)
        except zipfile.BadZipFile as error:
            raise SourceError(
                archive,
                f"is no whole zip archive: the list of its members should end it ({error}).",
                offset=file.seek(0, 2),
                do=MAKE_IT_AGAIN,
            ) from error
        file.seek(0)  # who watches sees how far it is; zipfile goes where it has to
        for info in zipped.infolist():
            if not info.filename:
                raise zipfile.BadZipFile("a member has no name")
            kind = stat.S_IFMT(info.external_attr >> 16)  # which archives made on Unix keep
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
            "is not known here.",
            do="Unpack it yourself and pass the directory.",
        )
    return zipped.open(info)


# -- tar -------------------------------------------------------------------------------------------


def _read_tar(file: BinaryIO, archive: Path, count_read: Callable[[int], None]) -> Iterator[Member]:
    content = _CountingReader(decompress_stream(file, archive), count_read)
    with (
        _name_damage(archive, file),
        tarfile.open(fileobj=content, mode="r|", bufsize=READ_AHEAD_BYTES, tarinfo=_Header) as tar,
    ):
        while (header := tar.next()) is not None:
            vars(tar)["members"].clear()  # it would remember all of them
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
            """Only at its end does compressed content tell whether it is whole."""


class _Header(tarfile.TarInfo):
    """The header of a member; tarfile would take a broken one for the end of the archive."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Header:
        ends = len(buf) == TAR_BLOCK_BYTES and not any(buf)
        try:
            header = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if ends:
                raise
            raise tarfile.ReadError(str(error)) from error
        if header.type in _LONG_HEADERS and header.size > MOST_HEADER_BYTES:
            raise tarfile.ReadError(f"a header says that it is {header.size} bytes long")
        return header


class _CountingReader(io.BufferedIOBase):
    """A stream that tells how many bytes of it are read."""

    def __init__(self, content: BinaryIO, count_read: Callable[[int], None]) -> None:
        self._content, self._count_read = content, count_read

    def read(self, size: int | None = -1, /) -> bytes:
        block = self._content.read(-1 if size is None else size)
        self._count_read(len(block))
        return block


# -- unpacking -------------------------------------------------------------------------------------


Report = Callable[[str, int, int], None]
"""Told what is being done, and how much of how much is done."""
MOST_TIMES_LARGER = 200
"""Text of profiles becomes ten to fifty times smaller, never more."""
ALWAYS_ALLOWED_BYTES = 1 << 30
LEFT_FREE_BYTES = 256 << 20
MOST_MEMBERS = 1 << 20
DIRECTORY_BYTES = 4096
"""What an empty directory takes on most file systems."""


@dataclass
class UnpackLimit:
    """The most that an archive may become.

    most_bytes: of content, read or written. free_bytes: of content that is written, in `directory`.
    member: the one that is being unpacked.
    """

    archive: Path
    most_bytes: int
    free_bytes: int
    directory: Path
    read_bytes: int = field(default=0, init=False)
    written_bytes: int = field(default=0, init=False)
    member: str = field(default="", init=False)

    def begin(self, member: Member) -> None:
        """Check the size that a member states, before it is written.

        Raises:
            SourceError: it says that it is too large.
        """
        self._check(self.written_bytes + member.size_bytes, member.size_bytes)

    def read(self, count: int) -> None:
        """Count bytes that were read, the last of which may be of the next member.

        Raises:
            SourceError: more than may be.
        """
        self.read_bytes += count
        self._check(self.read_bytes - READ_AHEAD_BYTES, 0)

    def write(self, count: int) -> None:
        """Count bytes that are about to be written.

        Raises:
            SourceError: they are too many.
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
        """Return the error of not fitting into the directory."""
        return SourceError(
            self.archive,
            f"does not fit into {self.directory} at member {self.member!r}: "
            f"{format_bytes(max(0, self.free_bytes))} may be written there.",
            do="Name a larger directory in TMPDIR, or unpack it yourself and pass the directory.",
        )


def limit_for(archive: Path, directory: Path) -> UnpackLimit:
    """Return the most that an archive may become: a multiple of its size, and the free space."""
    free_bytes = shutil.disk_usage(directory).free
    return UnpackLimit(
        archive,
        max(ALWAYS_ALLOWED_BYTES, MOST_TIMES_LARGER * archive.stat().st_size),
        free_bytes - min(LEFT_FREE_BYTES, free_bytes // 8),
        directory,
    )


def unpack(archive: Path, directory: Path, limit: UnpackLimit, report: Report) -> tuple[str, ...]:
    """Unpack the files that a reader may want, and all directories; also notes on what is not.

    Links, devices and archives inside are noted and left; other files are no part of a profile
    that is read, and are skipped.

    Args:
        directory: where to; it is made.

    Raises:
        SourceError: the archive is damaged, dangerous or too large.
    """
    made = _Unpacker(archive, directory, limit)
    with _unpacking(archive, limit, report) as (file, progressed):
        directory.mkdir(parents=True)
        for count, member in enumerate(read_members(file, archive, limit.read)):
            if count == MOST_MEMBERS:
                raise SourceError(
                    archive,
                    f"holds more than {MOST_MEMBERS} members.",
                    do="Unpack it yourself and pass the directory.",
                )
            made.add(member, progressed)
    return made.notes()


def unpack_file(packed: Path, target: Path, limit: UnpackLimit, report: Report) -> None:
    """Unpack a file that is compressed alone.

    Args:
        target: where to; it and its directory are made.

    Raises:
        SourceError: it is damaged or too large.
    """
    limit.member = target.name
    with _unpacking(packed, limit, report) as (file, progressed):
        target.parent.mkdir(parents=True)
        content = decompress_stream(file, packed)
        with target.open("xb") as made:
            while block := content.read(BLOCK_BYTES):
                limit.write(len(block))
                made.write(block)
                progressed()


@contextmanager
def _unpacking(
    packed: Path, limit: UnpackLimit, report: Report
) -> Iterator[tuple[BinaryIO, Callable[[], None]]]:
    """Open a packed file, and return what reports how far it is read."""
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
    """Unpacks the members of one archive, and remembers what is left in it."""

    def __init__(self, archive: Path, directory: Path, limit: UnpackLimit) -> None:
        self._archive, self._directory, self._limit = archive, directory, limit
        self._made: set[Path] = set()
        self._links = list[str]()
        self._archives = list[str]()

    def add(self, member: Member, progressed: Callable[[], None]) -> None:
        """Unpack a member, or know why not; directories are made for files that are skipped too."""
        progressed()
        self._limit.member = member.name
        parts = member_parts(member.name, self._archive)
        if not parts:
            return
        if not (member.is_file or member.is_directory):
            self._links.append(member.name)
            return
        is_file = member.is_file
        self._make(parts[:-1] if is_file else parts)
        if is_file and is_wanted(parts[-1]):
            self._write(member, self._directory.joinpath(*parts), progressed)
        elif is_file and is_archive(parts[-1]):
            self._archives.append(member.name)

    def _make(self, parts: tuple[str, ...]) -> None:
        for count in range(1, len(parts) + 1):
            if (path := self._directory.joinpath(*parts[:count])) not in self._made:
                self._limit.write(DIRECTORY_BYTES)
                path.mkdir()
                self._made.add(path)

    def _write(self, member: Member, path: Path, progressed: Callable[[], None]) -> None:
        self._limit.begin(member)
        with path.open("xb") as file:
            for block in member.blocks():
                self._limit.write(len(block))
                file.write(block)
                progressed()

    def notes(self) -> tuple[str, ...]:
        """Return notes on what is in the archive and was not unpacked."""
        name = self._archive.name
        notes = []
        if self._links:
            notes.append(f"{name}: links and special files are not unpacked: {_few(self._links)}.")
        if self._archives:
            notes.append(f"{name}: archives inside it are not opened: {_few(self._archives)}.")
        return tuple(notes)


def _few(names: Sequence[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more
