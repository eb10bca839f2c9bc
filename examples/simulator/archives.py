"""Archives of directories of profiles, as people send them to each other."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

_COMPRESSIONS = {"gz": "gz", "tgz": "gz", "bz2": "bz2", "xz": "xz"}


def write_archive(directory: Path, archive: Path, *, top: str | None = None) -> Path:
    """Pack all of a directory below one name, that of the directory unless `top` is another.

    top: "" packs what lies in the directory, without a directory around it.
    """
    name = directory.name if top is None else top
    files = [
        ("/".join(filter(None, (name, path.relative_to(directory).as_posix()))), path.read_bytes())
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    ]
    if archive.suffix == ".zip":
        archive.write_bytes(zip_of(files))
    else:
        compression = _COMPRESSIONS.get(archive.suffix.removeprefix("."), "")
        archive.write_bytes(tar_of(map(_header, files), compression))
    return archive


def _header(file: tuple[str, bytes]) -> tuple[tarfile.TarInfo, bytes]:
    header = tarfile.TarInfo(file[0])
    header.size = len(file[1])
    return header, file[1]


def zip_of(files: Iterable[tuple[str | zipfile.ZipInfo, bytes]]) -> bytes:
    """A zip archive of named contents."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return made.getvalue()


def tar_of(members: Iterable[tuple[tarfile.TarInfo, bytes]], compression: str = "") -> bytes:
    """A tar archive of members, compressed as tarfile calls it: gz, bz2 or xz."""
    made = io.BytesIO()
    with _writing(made, compression) as archive:
        for header, content in members:
            archive.addfile(header, io.BytesIO(content))
    return made.getvalue()


def _writing(made: io.BytesIO, compression: str) -> tarfile.TarFile:
    match compression:
        case "gz":
            return tarfile.open(fileobj=made, mode="w:gz")
        case "bz2":
            return tarfile.open(fileobj=made, mode="w:bz2")
        case "xz":
            return tarfile.open(fileobj=made, mode="w:xz")
        case _:
            return tarfile.open(fileobj=made, mode="w:")
