"""Drafts: output files that get their final names only when they are complete.

On file systems that support it, as most on Linux do, a draft has no name, so nothing of it is left
if the process dies. Elsewhere it has a temporary name next to its target and is locked while its
writer lives; the next writer of the same target removes unlocked ones.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, ClassVar

from timeline.errors import OutputError

HANDLES = Path("/proc/self/fd")
"""Directory of open files on Linux, including unnamed ones."""
MOST_OPEN = 64
"""Maximum number of drafts that are held open. Further ones are closed, and their suffix keeps
other writers from removing them."""
_LOCKED, _CLOSED = ".part", ".parts"
"""Suffixes of temporary names: of drafts locked by their writer, and of closed drafts."""


class Draft:
    """A complete file that does not have its final name yet, to be published or discarded.

    size_bytes: size of the file. published: whether it has its final name.
    """

    _open: ClassVar[int] = 0
    """Number of drafts held open."""

    def __init__(self, file: BinaryIO, path: Path | None) -> None:
        """file: open and complete; path: temporary name, None if it has no name."""
        self._path = path
        self.size_bytes = os.fstat(file.fileno()).st_size
        self.published = False
        self._file: BinaryIO | None = file
        if path is not None and path.suffix == _CLOSED:
            file.close()
            self._file = None
        else:
            Draft._open += 1

    @classmethod
    def may_be_open(cls) -> bool:
        """Return whether one more can be held open."""
        return cls._open < MOST_OPEN

    def publish(self, target: Path) -> None:
        """Give the file its final name atomically.

        Raises:
            OutputError: the name cannot be given; the draft is discarded.
        """
        try:
            if self._path is None:
                self._path = self._named(target)
            if self._path != target:
                self._path.replace(target)
            self.published = True
            self._close()
        except OSError as error:
            self.discard()
            raise OutputError(f"{target}: cannot be written: {error.strerror}.") from error

    def discard(self) -> None:
        """Remove the file."""
        self._close()
        if self._path is not None:
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()

    def _named(self, target: Path) -> Path:
        """Name an unnamed file: its final name if that is free, else a temporary one next to it."""
        if self._file is None:
            raise AssertionError("a draft without a name is open")
        for path in (target, target.with_name(f".{target.name}.{os.urandom(4).hex()}{_LOCKED}")):
            try:
                _link(self._file, path)
            except FileExistsError:
                continue
            except OSError:  # a file system without links
                break
            return path
        copy, path = _open_named(target)
        with copy:
            self._file.seek(0)
            shutil.copyfileobj(self._file, copy)
        return path

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
            Draft._open -= 1


def _link(file: BinaryIO, path: Path) -> None:
    """Give an open unnamed file a name.

    Raises:
        FileExistsError: the name is taken.
    """
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        # Only with dst_dir_fd does os.link follow the symbolic link in HANDLES.
        os.link(HANDLES / str(file.fileno()), path.name, dst_dir_fd=directory)
    finally:
        os.close(directory)


def write_drafts(contents: Sequence[tuple[bytes, Path]]) -> list[tuple[Draft, Path]]:
    """Write each content as a draft of its target; all of them, or none.

    Raises:
        OutputError: a directory cannot be written, or the disk is full.
    """
    written: list[tuple[Draft, Path]] = []
    try:
        for content, target in contents:
            written.append((write_draft([content], target), target))
    except BaseException:
        for draft, _ in written:
            draft.discard()
        raise
    return written


def publish_all(drafts: Sequence[tuple[Draft, Path]], stale: Sequence[Path] = ()) -> None:
    """Give all files their final names, or none of them.

    Replaced files are kept under temporary names until all are published, and restored if one
    fails. stale: existing files to remove after that.

    Raises:
        OutputError: a file cannot be named or replaced; all drafts are discarded.
    """
    if len(drafts) == 1 and not stale:
        ((draft, target),) = drafts
        draft.publish(target)
        return
    kept: list[tuple[Path, Path | None]] = []
    try:
        for draft, target in drafts:
            kept.append((target, _keep_old(target)))
            draft.publish(target)
    except BaseException:
        for (target, old), (draft, _) in zip(kept, drafts, strict=False):
            if old is not None:
                old.replace(target)
                old.unlink(missing_ok=True)  # a second name of the file if it was not replaced
            elif draft.published:
                target.unlink(missing_ok=True)
        for draft, _ in drafts:
            draft.discard()
        raise
    for old in (*(old for _, old in kept), *stale):
        if old is not None:
            old.unlink(missing_ok=True)


def _keep_old(target: Path) -> Path | None:
    """Give a file that will be replaced a second name; return that, None if there is no file.

    Raises:
        OutputError: the directory cannot be written.
    """
    if not target.is_file():
        return None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".old", dir=target.parent)
        os.close(handle)
        old = Path(name)
        try:
            old.unlink()
            os.link(target, old)
        except OSError:  # a file system without links
            target.replace(old)
    except OSError as error:
        raise OutputError(f"{target}: cannot be replaced: {error.strerror}.") from error
    return old


def write_draft(pieces: Iterable[bytes], target: Path) -> Draft:
    """Write all pieces into a draft of the target.

    If writing is interrupted or fails, nothing is left behind.

    Raises:
        OutputError: the directory cannot be written, or the disk is full.
    """
    path: Path | None = None
    try:
        _remove_dead(target)
        unnamed = _open_unnamed(target.parent)
        file, path = _open_named(target) if unnamed is None else (unnamed, None)
    except OSError as error:
        raise OutputError(f"{target}: cannot be written: {error.strerror}.") from error
    try:
        file.writelines(pieces)
        file.flush()
        os.fsync(file.fileno())
        return Draft(file, path)
    except BaseException as error:
        with contextlib.suppress(OSError):  # closing reports a full disk again
            file.close()
        if path is not None:
            path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise OutputError(f"{target}: cannot be written: {error.strerror}.") from error
        raise


@contextlib.contextmanager
def printed_file(name: str, stream: BinaryIO) -> Iterator[Path]:
    """Yield a path in a temporary directory; after the `with` block its file is in the stream."""
    with tempfile.TemporaryDirectory(prefix="tlexport-") as directory:
        path = Path(directory) / name
        yield path
        with path.open("rb") as file:
            shutil.copyfileobj(file, stream)


def _open_unnamed(directory: Path) -> BinaryIO | None:
    """Open a file without a name; None if that cannot be done, or too many are open."""
    flag = getattr(os, "O_TMPFILE", None)
    if flag is None or not Draft.may_be_open() or not HANDLES.is_dir():
        return None
    try:
        handle = os.open(directory, flag | os.O_RDWR, 0o666)
    except OSError:  # the named file that is tried next reports lasting problems
        return None
    with contextlib.suppress(OSError):  # a file system without locks
        _lock(handle, wait=True)
    return os.fdopen(handle, "w+b")


def _open_named(target: Path) -> tuple[BinaryIO, Path]:
    """Open a file with a temporary name next to the target; it is locked unless many are open."""
    suffix = _LOCKED if Draft.may_be_open() else _CLOSED
    while True:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=suffix, dir=target.parent)
        with contextlib.suppress(OSError):  # without locks, no writer removes drafts
            _lock(handle, wait=True)
        # Another writer may have removed it before it was locked.
        if os.fstat(handle).st_nlink:
            path = Path(name)
            path.chmod(0o666 & ~_umask())
            return os.fdopen(handle, "w+b"), path
        os.close(handle)


def _remove_dead(target: Path) -> None:
    """Remove drafts of a target whose writers were killed."""
    for path in _drafts_of(target):
        with contextlib.suppress(OSError):  # locked by its writer, gone, or another user's
            handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
            try:
                if stat.S_ISREG(os.fstat(handle).st_mode) and _lock(handle, wait=False):
                    path.unlink()
            finally:
                os.close(handle)


def _drafts_of(target: Path) -> Iterator[Path]:
    pattern = re.compile(rf"\.{re.escape(target.name)}\.[a-z0-9_]{{8}}{re.escape(_LOCKED)}")
    with contextlib.suppress(OSError):  # a directory without permission to read
        yield from [path for path in target.parent.iterdir() if pattern.fullmatch(path.name)]


def _lock(handle: int, *, wait: bool) -> bool:
    """Lock an open file until it is closed; return False if the system has no such locks.

    Raises:
        OSError: another process has locked it, or its file system has no locks.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        return False
    fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    return True


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
