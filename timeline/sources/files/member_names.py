"""Names of archives and of their members, and which of those are refused."""

from __future__ import annotations

import unicodedata
from pathlib import Path

from timeline.errors import SourceError
from timeline.patterns import compile_late

__all__ = ["MemberPaths", "archive_stem", "is_archive", "is_wanted"]

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
_WANTED = compile_late(
    r".+\.(?:json|csv|txt|log|db|db-wal|sqlite3?)(?:\.\d+)?"
    r"|.+\.db\.(?:bz2|xz)"
    r"|(?:start|end)_info(?:\..+)?"
    r"|memory_usage_\d+\.pb"
    r"|.+\.slice_\d+"
)
_MACOS = "__MACOSX"
"""What macOS adds to archives: a second tree with a shadow of each file."""
_DRIVE = compile_late(r"[A-Za-z]:")
_CONTROL = compile_late(r"[\x00-\x1f\x7f]")
DO_IT_YOURSELF = "Look at the archive; if you trust it, unpack it yourself and pass the directory."


def is_archive(name: str) -> bool:
    """Whether a name is that of an archive of files."""
    return name.lower().endswith(ARCHIVE_SUFFIXES)


def archive_stem(name: str) -> str:
    """The name of an archive without its suffix, as the directory that was packed is called."""
    found = [suffix for suffix in ARCHIVE_SUFFIXES if name.lower().endswith(suffix)]
    return name[: len(name) - max(map(len, found), default=0)] or "archive"


def is_wanted(name: str) -> bool:
    """Whether a reader may want a file of this name."""
    return _WANTED.fullmatch(name.removesuffix(".gz")) is not None


class MemberPaths:
    """The paths of the members of one archive, no two the same on any file system."""

    def __init__(self, archive: Path) -> None:
        self._archive = archive
        self._spelled: dict[str, str] = {}
        self._files: set[str] = set()

    def parts(self, name: str) -> tuple[str, ...]:
        """A member's name as directories and a file; empty for what is of no use.

        Raises:
            SourceError: it leads out of the directory, or is no name for a file.
        """
        spelled = _readable(name).replace("\\", "/")
        parts = tuple(part for part in spelled.split("/") if part not in ("", "."))
        if spelled.startswith("/") or ".." in parts or (parts and _DRIVE.match(parts[0])):
            raise self._refusal(name, "would be written outside of the directory for it.")
        if _CONTROL.search(spelled):
            raise self._refusal(name, "has control characters in its name.")
        if len(parts) > MOST_PARTS:
            raise self._refusal(name, f"lies more than {MOST_PARTS} directories deep.")
        if parts and (parts[0] == _MACOS or parts[-1].startswith("._")):
            return ()
        return parts

    def take(self, parts: tuple[str, ...], *, file: bool) -> None:
        """Take the path of a file or directory, once for a file.

        Raises:
            SourceError: it is taken, or cannot be told from another one on every file system.
        """
        for count in range(1, len(parts) + 1):
            path = "/".join(parts[:count])
            key = unicodedata.normalize("NFC", path).casefold()
            known = key in self._spelled
            first = self._spelled.setdefault(key, path)
            is_file = file and count == len(parts)
            if first != path:
                raise self._refusal(path, f"differs from {first!r} only in the case of letters.")
            if key in self._files or (is_file and known):
                raise self._refusal(path, "is there twice.")
            if is_file:
                self._files.add(key)

    def _refusal(self, name: str, why: str) -> SourceError:
        return SourceError(self._archive, f"member {name!r} {why}", do=DO_IT_YOURSELF)


def _readable(name: str) -> str:
    """Bytes of a name that are no text are shown as such."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
