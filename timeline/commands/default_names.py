"""Default names of timelines, made from their content."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from timeline.errors import spell_ids
from timeline.selection import Kind, Selection
from timeline.sources.source import Source

_SUFFIX = ".pftrace"
_MOST_OF_PROFILE = 40
_MOST_OF_IDS = 60
"""Characters: file systems take 255 bytes of a name, which also gets endings and suffixes."""
_ARCHIVE = re.compile(r"\.(tar(\.\w+)?|tgz|tbz2|txz|zip)$", re.IGNORECASE)
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def timeline_name(
    profile: Path, kind: Kind, selection: Selection, sources: Sequence[Source]
) -> Path:
    """Return the name of a timeline here: `timeline-PROFILE-KIND-rRANKS[-gG][-sS].pftrace`."""
    ranks = [source.identity.rank for source in sources]
    name = f"timeline-{_safe_name(profile)}-{kind.value}-r{_short(ranks)}"
    return Path(name + _selected(selection) + _SUFFIX)


def comparison_name(base: Path, new: Path, kind: Kind, selection: Selection) -> Path:
    """Return the name for two runs here: `compare-BASE-NEW-KIND[-rR][-gG][-sS].pftrace`."""
    name = f"compare-{_safe_name(base)}-{_safe_name(new)}-{kind.value}"
    if selection.ranks is not None:
        name += f"-r{_short(selection.ranks)}"
    return Path(name + _selected(selection) + _SUFFIX)


def _selected(selection: Selection) -> str:
    name = ""
    if selection.graphs is not None:
        name += f"-g{_short(selection.graphs)}"
    if selection.steps is not None:
        name += f"-s{_short(selection.steps)}"
    return name


def _safe_name(profile: Path) -> str:
    """Return the last name of the path, with letters, digits, dots, dashes and underscores alone.

    A name that begins with a dash or a dot would be an option, or hidden, when it is typed alone.
    """
    path = profile.resolve()
    name = _ARCHIVE.sub("", path.name) if path.is_file() else path.name
    safe = _UNSAFE.sub("-", name).strip("-.")
    return safe[:_MOST_OF_PROFILE].rstrip("-.") or "profile"


def _short(ids: Iterable[int]) -> str:
    return spell_ids(ids, most=1_000_000, shortest_run=2)[:_MOST_OF_IDS]
