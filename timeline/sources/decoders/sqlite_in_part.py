"""Has SQLite read pages of a database on another file system, without fetching the rest."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import apsw

from timeline.errors import SourceError
from timeline.sources.files.remote_path import RemotePath

_SECTOR_BYTES = 4096
_NUMBERS = itertools.count()


@contextlib.contextmanager
def remote_pages(path: RemotePath) -> Iterator[str]:
    """The name of what opens a database as file system of SQLite, in a `with` block.

    Raises:
        OSError: a page could not be read, whatever was made of that meanwhile.
    """
    system = _System(f"tlexport-{next(_NUMBERS)}", path)
    try:
        yield system.name
    except (SourceError, apsw.Error):
        if system.failure is None:
            raise
    finally:
        system.unregister()
    if system.failure is not None:
        raise system.failure


class _System(apsw.VFS):
    """A file system of one file, which cannot be changed."""

    def __init__(self, name: str, path: RemotePath) -> None:
        super().__init__(name, "")
        self.name, self.path = name, path
        self.failure: OSError | None = None

    def xFullPathname(self, name: str) -> str:  # noqa: N802
        return name

    def xAccess(self, pathname: str, flags: int) -> bool:  # noqa: N802
        return False

    def xOpen(self, name: Any, flags: list[int]) -> Any:  # noqa: N802
        return _Pages(self)


class _Pages:
    """The file, as SQLite asks for it."""

    def __init__(self, system: _System) -> None:
        self._system = system

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        path = self._system.path
        assert path.tree is not None
        try:
            return path.tree.read_at(path, offset, amount)
        except OSError as error:
            self._system.failure = error
            raise apsw.IOError(str(error)) from None

    def xFileSize(self) -> int:  # noqa: N802
        return self._system.path.stat().st_size

    def xSectorSize(self) -> int:  # noqa: N802
        return _SECTOR_BYTES

    def xDeviceCharacteristics(self) -> int:  # noqa: N802
        return int(apsw.SQLITE_IOCAP_IMMUTABLE)

    def xFileControl(self, op: int, pointer: int) -> bool:  # noqa: N802
        return False

    def xCheckReservedLock(self) -> bool:  # noqa: N802
        return False

    def xLock(self, level: int) -> None:  # noqa: N802
        """Nobody else writes it."""

    def xUnlock(self, level: int) -> None:  # noqa: N802
        """See `xLock`."""

    def xSync(self, flags: int) -> None:  # noqa: N802
        """Nothing is written."""

    def xClose(self) -> None:  # noqa: N802
        """Nothing is held."""
