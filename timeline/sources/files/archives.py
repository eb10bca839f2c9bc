"""The members of a zip or tar archive, in the order in which they are read."""

from __future__ import annotations

import io
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, BinaryIO

from timeline.errors import SourceError
from timeline.sources.files.opened import decompress_stream

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
        """The content, a block at a time.

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
    """The members of an open archive.

    count_read: is told how many bytes of a tar are read, those of skipped members too.

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
    """A `with` block in which damage of an archive is a SourceError with the byte it was met at."""
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
            yield Member(
                archive,
                info.filename,
                not info.is_dir() and _kind_in_zip(info) in (0, stat.S_IFREG),
                info.is_dir() or _kind_in_zip(info) == stat.S_IFDIR,
                info.file_size,
                file,
                _opener(zipped, info, archive),
            )


def _opener(
    zipped: zipfile.ZipFile, info: zipfile.ZipInfo, archive: Path
) -> Callable[[], IO[bytes]]:
    def content() -> IO[bytes]:
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

    return content


def _kind_in_zip(info: zipfile.ZipInfo) -> int:
    """Archives made on Unix keep the mode of the file; others keep none."""
    return stat.S_IFMT(info.external_attr >> 16)


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
