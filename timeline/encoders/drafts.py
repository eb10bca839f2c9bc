"""Files that are complete before they get their names: written beside them, then renamed."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from timeline.errors import OutputError

__all__ = ["Draft", "publish_all", "write_draft", "write_drafts"]


class Draft:
    """A complete file under a temporary name, to be published or discarded.

    size_bytes is what the published file will have; `published` is whether it has its name.
    """

    def __init__(self, path: Path, size_bytes: int) -> None:
        self._path = path
        self.size_bytes = size_bytes
        self.published = False

    def publish(self, target: Path) -> None:
        """Give the file its name, all at once."""
        try:
            self._path.replace(target)
            self.published = True
        except OSError as error:
            self.discard()
            raise OutputError(f"{target}: cannot be written: {error.strerror}.") from error

    def discard(self) -> None:
        """Remove the file."""
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()


def write_drafts(contents: Sequence[tuple[bytes, Path]]) -> list[tuple[Draft, Path]]:
    """Write each content beside its target; all of them, or none.

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
    """Give all files their names; if one cannot have its own, none has.

    Files that are replaced are kept beside their names until the last one has its name, and are
    put back where that fails. stale: files that nothing replaces and that are removed at last.
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
                old.unlink(missing_ok=True)  # two names of one file, where it was not replaced
            elif draft.published:
                target.unlink(missing_ok=True)
        for draft, _ in drafts:
            draft.discard()
        raise
    for old in (*(old for _, old in kept), *stale):
        if old is not None:
            old.unlink(missing_ok=True)


def _keep_old(target: Path) -> Path | None:
    """Give a file that will be replaced a second name; None where there is no such file.

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
    """Write all pieces beside the target.

    Whatever ends the writing early, an interrupt included, leaves nothing behind.

    Raises:
        OutputError: the directory cannot be written, or the disk is full.
    """
    try:
        handle, name = tempfile.mkstemp(
            prefix=f".{target.name}.", suffix=".part", dir=target.parent
        )
    except OSError as error:
        raise OutputError(f"{target}: cannot be written: {error.strerror}.") from error
    path = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        path.chmod(0o666 & ~_umask())
        return Draft(path, path.stat().st_size)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise OutputError(f"{target}: cannot be written: {error.strerror}.") from error
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
