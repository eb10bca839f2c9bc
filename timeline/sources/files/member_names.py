"""Names of archives and of their members, and which of those are refused."""

from __future__ import annotations

import re
from pathlib import Path

from timeline.errors import SourceError

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
        SourceError: it leads out of the directory, or is no name for a file.
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
